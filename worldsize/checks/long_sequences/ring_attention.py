"""Check of `ring_attention`: blocks of keys and values travel round the ring, under one exact softmax.

Rows must match one device's. A rank may receive no more than one block beyond the one it works on, and must send each block
before its own work on it begins; both show in the order of a rank's own events, so no clock decides. H. Liu et al., "Ring
Attention with Blockwise Transformers for Near-Infinite Context", arXiv:2310.01889, 2023.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import sharding
from worldsize.checks.kit import evidence
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import Expected, went_through_float32
from worldsize.checks.kit.judge import Case, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.transfers import declared_work
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import same
from worldsize.checks.long_sequences.blockwise import Sequence1D, attended, off_the_ring, slips
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.checks.weighed_work import on_other_numbers, same_direction
from worldsize.links import Link
from worldsize.trace import Span, Trace, ring_links, stray
from worldsize.units import count, times

VALUES = "attend works once on each block, and every rank's rows are those of one device"
BYTES = "each block travels to the next rank, n − 1 times"
TWO = "besides its own, no more than two blocks are on a rank at once"
AHEAD = "a block is on its way while the rank works on it"

NEAR = {"float64": 1e-10, "float32": 2e-5}
SLOW = Link("1 GB/s", "30 ms")  # so slow that a helper thread lacks the next block even if the rank's work begins late
LARGE = 1000.0  # the exp of such a score is infinite
OVERFLOWS = 750.0  # the exp of a score so far above another is inf
SHIFT = 12_000.0  # the exp of a score so far below 0, below −10,000, or below another score, is 0
FAR = 600.0  # exp(−FAR) is still exact, exp(−750) is 0 in float64


class RingCase(NamedTuple):
    ranks: int
    length: int
    width: int
    causal: bool = False
    layout: str = "in a row"
    dtype: str = "float64"
    scores: str = ""  # as drawn, or one of the three below


UP_TO_LARGE, FAR_BELOW_0, FAR_APART = "scores of up to 1,000", "all scores near −12,000", "scores near 12,000 or −12,000"


SIZES = (
    RingCase(3, 9, 4), RingCase(2, 6, 3, True), RingCase(4, 11, 3, True), RingCase(1, 4, 3, True),
    RingCase(4, 12, 5, True, "dealt out"), RingCase(5, 13, 2, True, "at random"), RingCase(3, 8, 3, scores=UP_TO_LARGE),
    RingCase(2, 7, 4, scores=FAR_BELOW_0), RingCase(3, 8, 4, scores=FAR_APART), RingCase(3, 7, 4, True, dtype="float32"),
)  # fmt: skip
METERED = RingCase(9, 54, 16)  # enough ranks that keeping all blocks exceeds MOST_HELD
MOST_HELD = 12  # keys and values of two blocks, a copy of what is sent, the sum, the part being added, and their results


@exercise(
    {VALUES: 1.0, BYTES: 0.5, TWO: 0.5, AHEAD: 0.5},
    seen={BYTES: evidence.MESSAGES, TWO: evidence.WORK_AND_TENSORS, AHEAD: evidence.WORK},
    waits=BYTES,
)
def ring_attention(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check attention over a sequence that is sharded over the ranks.

    `ring_attention(fabric, task)` returns this rank's rows, [own tokens, width]. task["q"], ["k"] and ["v"] are its own rows,
    task["tokens"] the numbers of every rank's tokens in the sequence.
    """
    for size in (*SIZES, METERED):
        sequence = _drawn(size, np.random.default_rng(arena.draws.getrandbits(32)))
        seen = "causal" if size.causal else "not causal"
        name = f"{ranks_in_words(size.ranks)}, {size.length} tokens {size.layout}, width {size.width}, {seen}, {size.dtype}"
        name = ", ".join(filter(None, [name, size.scores]))
        driver = sharding.blocks_at_work if size is METERED else None
        link = SLOW if size.ranks == 3 else None
        yield Case(
            name,
            lambda sequence=sequence, link=link, driver=driver: arena.ranks(fn, sequence.inputs(), link=link, driver=driver),
            lambda ended, sequence=sequence, link=link: _examine(ended, sequence, slow=link is not None),
            _ADVICE if size.dtype == "float64" else {},
        )


_ADVICE = {  # of cases in float64
    "expected float32[": "Give the tensors that you receive into the dtype of the block: x.new_empty(…), or dtype=x.dtype.",
    "masked_fill": (
        "attend masks by the tokens of rank `source`, and this block has another number of keys: name the rank that owns the "
        "block at hand."
    ),
    "which is what `out` is": (
        "Blocks differ in length where the ranks do not divide the tokens: the block of a rank has "
        'len(task["tokens"][that rank]) rows.'
    ),
}


def _drawn(size: RingCase, generator: np.random.Generator) -> Sequence1D:
    """Draw a sequence for ring attention on which every slip would show. Raises AssertionError as `drawn_until`."""

    def draw() -> Sequence1D:
        q, k, v = generator.normal(size=(3, size.length, size.width)).astype(size.dtype)
        numbers = np.arange(size.length)
        if size.scores == UP_TO_LARGE:
            q *= LARGE * size.width**0.5 / (q @ k.T).max()
        elif size.scores:  # all keys have a 1 there, so every score of a query shifts by as much
            q[:, 0], k[:, 0] = -SHIFT * size.width**0.5, 1.0
            if size.scores == FAR_APART:
                q[::2, 0] *= -1

        if size.layout == "at random":
            numbers = generator.permutation(numbers)
        tokens = np.array_split(numbers, size.ranks)
        if size.layout == "dealt out":
            tokens = [numbers[rank :: size.ranks] for rank in range(size.ranks)]
        owned = tuple(tuple(sorted(own.tolist())) for own in tokens)
        return Sequence1D(q, k, v, owned, size.causal)

    def tells(sequence: Sequence1D) -> bool:
        if size.scores == UP_TO_LARGE and (sequence.q @ sequence.k.T).max(axis=1).min() < 0:
            return False  # a greatest score below 0 has a case of its own
        if size.scores == UP_TO_LARGE and _largest_rise(sequence) < OVERFLOWS:
            return False  # sums that are scaled to a rank's own block would stay finite
        right, clear = attended(sequence), 100 * NEAR[size.dtype]  # of the tolerance, so that rounding cannot hide a slip
        return not any(all(map(same, rows, right, repeat(clear))) for rows in slips(sequence).values())

    return drawn_until(tells, draw, f"ring_attention, {size}")


def _largest_rise(sequence: Sequence1D) -> float:
    """Return by how much a query's greatest score exceeds, at most, its greatest score with its own rank's keys."""
    scores = sequence.q @ sequence.k.T / sequence.q.shape[1] ** 0.5
    rises = [(scores[list(own)].max(axis=1) - scores[np.ix_(own, own)].max(axis=1)).max() for own in sequence.tokens]
    return float(max(rises))


def _examine(ended: ArenaResult, sequence: Sequence1D, slow: bool) -> dict[str, Complaint]:
    metered = [told["held"] for told in ended.returned if isinstance(told, dict) and "held" in told]
    returned = [told["returned"] for told in ended.returned] if metered else list(ended.returned)
    sequence = replace(sequence, work=ended.work)

    wrong = _wrong_rows(returned, ended.trace, sequence) or _changed(ended.inputs, sequence)
    sent = none_sent(ended.trace, "Receive other ranks' keys over the fabric.") or _wrong_blocks(ended.trace, sequence)

    complaints = {VALUES: wrong, BYTES: UNEXAMINED if wrong else though_right("the rows", sent)}
    if sequence.world_size == 1:
        return complaints
    if wrong or sent:
        return complaints | {TWO: UNEXAMINED, AHEAD: UNEXAMINED}

    invented = _invented_work(sequence)
    # `metered` is counted in the function's own process: it can only cost points
    held = invented or _too_many_held(ended.trace, sequence) or _too_many_tensors(metered)
    complaints[TWO] = though_right("the rows", held)
    complaints[AHEAD] = UNEXAMINED if invented else though_right("the rows", _not_ahead(ended.trace, sequence, slow))
    return complaints


def _wrong_rows(returned: Sequence[Any], trace: Trace, sequence: Sequence1D) -> Complaint:
    """Return a complaint about a rank that did not work once on each block, or about wrong rows; None if all are right.

    A grader weighs the work on each block, so rows made with other work cannot be compared.
    """
    n = sequence.world_size
    for rank in range(n):
        worked = len(declared_work(trace, rank))
        if worked != n:
            hidden = ", also where the mask hides it all" if sequence.causal else ""
            return (
                f"rank {rank} called attend {count(worked, 'time')}, expected {n}: once for each rank's block{hidden}. Only "
                f"then are rows compared."
            )

    dtype = str(sequence.q.dtype)
    right = [rows.astype(dtype) for rows in attended(sequence)]
    mistakes, otherwise = partial(slips, sequence), partial(_as_rows, sequence)
    return Expected("its rows of the attention", right, mistakes, rounding=NEAR[dtype], otherwise=otherwise).wrong(returned)


def _as_rows(sequence: Sequence1D, rank: int, got: Any, right: np.ndarray) -> str:
    """Return what can be said of a rank's wrong rows that no slip explains."""
    if not isinstance(got, np.ndarray) or got.shape != right.shape:
        return ""
    if got.dtype != right.dtype:
        return "What you make needs the dtype of the task's rows: x.new_zeros(…), or dtype=x.dtype."
    near = NEAR[str(right.dtype)]
    factors = (got * right).sum(axis=1, keepdims=True) / (right * right).sum(axis=1, keepdims=True)
    if ((factors > 0.5) & (factors < 1)).any() and same(got, factors * right, near, near * float(np.abs(right).max())):
        return "Each row is too small by a factor of its own: divide by the sum s itself, with nothing added to it."
    wrong = ~np.isclose(got, right, rtol=near, atol=near * float(np.abs(right).max())).all(axis=1)
    greatest = np.max([tops[:, 0] for tops, _, _ in sequence.parts(rank)], axis=0)
    if (greatest < -FAR).all():
        return (
            "Every score is far below 0 here. If m begins above it, say at 0, exp(score − m) is 0, and 0/0 NaN: begin with the "
            "first block's greatest score, or with −∞."
        )
    if wrong.any() and (greatest[wrong] < greatest.max() - FAR).all():
        return (
            "Only queries are wrong whose scores are far below another query's: every query has a greatest score of its own, "
            "so m keeps its shape [own tokens, 1]."
        )
    if not np.isnan(got).any():
        return went_through_float32(rank, got, right)
    if greatest.max() > FAR:
        return (
            "NaN comes from ∞/∞ here, if exp takes scores without their greatest subtracted, or with one subtracted that is not "
            "raised to a later block's."
        )
    if sequence.causal:
        return "NaN comes from 0/0 or 0 · ∞ here: a query that sees no key of a block has s = 0, o = 0 and a very low m there."
    return "NaN comes from 0/0, or from ∞ − ∞."


def _changed(after: Sequence[Any], sequence: Sequence1D) -> Complaint:
    """Return a complaint if a rank's task was changed: attention's backward needs its rows, and the next cell all of it."""
    for rank, (task, given) in enumerate(zip(after, sequence.inputs(), strict=True)):
        for key, value in given.items():
            complaint = changed(task.get(key), value, f'task["{key}"]', rank)
            if complaint:
                return complaint
    return None


def _wrong_blocks(trace: Trace, sequence: Sequence1D) -> Complaint:
    n = sequence.world_size
    strays = off_the_ring(trace)
    if strays:
        return strays

    blocks = [sequence.block_bytes(source) for source in range(n)]
    for rank in range(n):
        got = trace.sent_bytes(rank)
        # all blocks but the next rank's own; the ring may turn either way
        expected = {sum(blocks) - blocks[(rank + step) % n] for step in (1, -1)}
        if got in expected:
            continue

        share = times(got / max(expected))
        complaint = f"rank {rank} sent {got} bytes, {share} x the n − 1 blocks of keys and values ({max(expected)}). "
        if any(got in (2 * right, right // 2) for right in expected):
            return complaint + "Do you send both keys and values, in the dtype of the task?"
        if got > max(expected):
            return complaint + (
                "Send each block over a link once, send no queries, and send nothing in the last round: no block goes home."
            )
        return complaint + "Each rank sends its own block, and passes on every other one but the last."
    return None


def _rounds(trace: Trace, sequence: Sequence1D) -> Iterator[tuple[int, list[Span], list[int]]]:
    """Yield, of the ring, (rank, its work in order, the bytes of the blocks in the order in which it has them)."""
    n = sequence.world_size
    step = -1 if stray(trace, ring_links(n)) else 1
    for rank in range(n):
        order = [(rank - step * k) % n for k in range(n)]
        yield rank, declared_work(trace, rank), list(map(sequence.block_bytes, order))


def _too_many_held(trace: Trace, sequence: Sequence1D) -> Complaint:
    """Return a complaint if a rank of the ring begins work when it has received blocks beyond the next one."""
    for rank, spans, blocks in _rounds(trace, sequence):
        for work, span in enumerate(spans):
            received = _bytes(trace, span.start_s, dst=rank)
            if received > sum(blocks[1 : work + 2]):
                held = int(np.searchsorted(np.cumsum(blocks[1:]), received, side="right"))
                return (
                    f"rank {rank} has received {count(held, 'block')} when it works on its block {work + 1} of "
                    f"{len(spans)}: it holds more than the current block and the next. Receive one, work on one, drop one."
                )
    return None


def _not_ahead(trace: Trace, sequence: Sequence1D, slow: bool) -> Complaint:
    """Return a complaint if a block on the ring is sent only after the work on it begins, or the next is awaited before it.

    The latter is judged over `slow` links only: over others a helper thread may have the next block at once.
    """
    for rank, spans, blocks in _rounds(trace, sequence):
        for work, span in enumerate(spans[:-1]):
            if _bytes(trace, span.start_s, src=rank, began=True) < sum(blocks[: work + 1]):
                return (
                    f"rank {rank} sends its block {work + 1} of {len(spans)} only after it has begun to work on it: no "
                    f"part of the way is hidden. isend it first, then work, then receive the next one."
                )
    if not slow:
        return None

    for rank, spans, blocks in _rounds(trace, sequence):
        early = {}  # {work: whether the whole next block has come before it}
        for work, span in enumerate(spans[:-1]):
            received, before = _bytes(trace, span.start_s, dst=rank), sum(blocks[1 : work + 1])
            if received > before:
                early[work] = received >= before + blocks[work + 1]
        if 2 * len(early) > len(spans) - 1:  # most, not any: a helper thread may receive some early
            first, whole = next(iter(early.items()))
            part = "" if whole else "part of "
            return (
                f"rank {rank} waits for {part}block {first + 2} of {len(spans)} before it works on the current one: work "
                f"first, then receive."
            )
    return None


def _bytes(trace: Trace, until_s: float, src: int | None = None, dst: int | None = None, began: bool = False) -> int:
    """Return the bytes of a ring's messages of blocks that have ended, or `began`, by a moment."""
    total = 0
    for t in trace.transfers:
        if src in (None, t.src) and dst in (None, t.dst) and (t.start_s if began else t.end_s) <= until_s:
            total += t.size_bytes
    return total


def _too_many_tensors(metered: Sequence[Sequence[int]]) -> Complaint:
    for rank, held in enumerate(metered):
        if max(held, default=0) > MOST_HELD:
            return (
                f"rank {rank} holds {max(held)} tensors as large as a block of keys while it works; {MOST_HELD} are enough: "
                f"keys and values of two blocks, messages on their way, and the sums. Does a list keep used blocks or their "
                f"parts?"
            )
    return None


def _invented_work(sequence: Sequence1D) -> Complaint:
    """Return a complaint if a ring's work was declared on other numbers than the parts of blocks."""
    if sequence.work is None:
        return None
    plain = replace(sequence, work=None)
    for rank, work in enumerate(sequence.work):
        own, *others = [weighted.astype(sequence.q.dtype) for _, _, weighted in plain.parts(rank)]

        ways = ([own, *others], [own, *reversed(others)])
        if not any(all(same_direction(w.given, x) for w, x in zip(work, way, strict=True)) for way in ways):
            return on_other_numbers(rank)
    return None
