"""Check of `to_experts`: each token goes to its expert's rank and comes back to its place, within a capacity.

A rank has only its own tokens and its one expert's weight. The function is called again with the gradient of the rows and the
expert's backward; both results must match one device's, and rows are counted link by link. D. Lepikhin et al., "GShard",
arXiv:2006.16668, 2020, section 3.2: a rank's tokens are a group, of which an expert takes at most its capacity.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, permutations
from typing import Any, NamedTuple

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import long_sequences
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import ByRank, Expected, Mistakes, as_number
from worldsize.checks.kit.judge import Case, first_complaint, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import is_row, kind_in_words, other_than_tuple, same, shown
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.formulas import experts
from worldsize.units import count

VALUES = "rows and gradients are those of one device, each in its place"
DROPPED = "what is over the capacity is dropped, and named"
BYTES = "a row travels to its expert and back, and no other; the expert works once, on all of them"
NEAR = {"float64": 1e-10, "float32": 2e-5}


class MixtureCase(NamedTuple):
    tokens: tuple[int, ...]  # on each rank
    width: int
    capacity: int | None = None
    hot: float = 0.0  # probability with which a token is redirected to expert 0
    dtype: str = "float64"


SIZES = (
    MixtureCase((5, 7, 4), 6), MixtureCase((6, 9), 8, hot=0.5), MixtureCase((8, 8, 8, 8), 6, capacity=2),
    MixtureCase((7,), 6, capacity=4), MixtureCase((11, 3, 9, 6), 10, capacity=1, hot=0.4), MixtureCase((2, 1, 4, 3, 2), 7),
    MixtureCase((6, 6, 6), 8, hot=1.0), MixtureCase((611, 587, 603), 6, hot=0.9), MixtureCase((3, 4), 6, capacity=0),
    MixtureCase((6, 8, 5), 12, capacity=3, hot=0.6, dtype="float32"),
)  # fmt: skip


@dataclass(frozen=True)
class Mixture:
    """Each rank's tokens and their chosen experts; `weights[rank]` is the rank's expert, [width, width]."""

    x: tuple[np.ndarray, ...]
    gradient: tuple[np.ndarray, ...]
    chosen: tuple[tuple[int, ...], ...]
    weights: tuple[np.ndarray, ...]
    capacity: int | None

    def inputs(self) -> list[dict[str, Any]]:
        given = []
        for rank, x in enumerate(self.x):
            task = {"x": x, "chosen": list(self.chosen[rank]), "capacity": self.capacity}
            given.append({"task": task, "weight": self.weights[rank], "gradient": self.gradient[rank]})
        return given

    def kept(self, rank: int) -> list[int]:
        return experts.kept(self.chosen[rank], self.capacity)

    def dropped(self, rank: int) -> list[int]:
        return sorted(set(range(len(self.x[rank]))) - set(self.kept(rank)))

    def with_zeros(self, rows: np.ndarray, rank: int) -> np.ndarray:
        """Return a rank's rows from the experts with zeros in the places of dropped tokens."""
        found = np.zeros_like(rows)
        found[self.kept(rank)] = rows[self.kept(rank)]
        return found

    def by_itself(self, rank: int) -> "Mixture":
        """Return the same with all of a rank's tokens on its own expert."""
        return replace(self, chosen=tuple((rank,) * len(own) for own in self.chosen))

    def forward(self, rank: int) -> np.ndarray:
        """Return a rank's rows from the experts as if no token were dropped."""
        return np.stack([np.tanh(x @ self.weights[e].T) for x, e in zip(self.x[rank], self.chosen[rank], strict=True)])

    def backward(self, rank: int) -> np.ndarray:
        made = self.forward(rank)
        inward = self.gradient[rank] * (1 - made**2)
        return np.stack([g @ self.weights[e] for g, e in zip(inward, self.chosen[rank], strict=True)])


@exercise({VALUES: 0.75, DROPPED: 0.25, BYTES: 0.5}, seen={BYTES: evidence.MESSAGES_AND_EXPERTS}, waits=BYTES)
def to_experts(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check tokens that go to experts on other ranks.

    `to_experts(fabric, task, work)` returns (rows, dropped): rows [own tokens, width], zeros where a token was dropped, and the
    places of the dropped tokens. task["x"] are a rank's tokens, task["chosen"] their experts' ranks; `work(rows)` is the rank's
    own expert.
    """
    for size in SIZES:
        mixture = _drawn(size, np.random.default_rng(arena.draws.getrandbits(32)))
        most = "no capacity" if size.capacity is None else f"capacity {size.capacity}"
        yield Case(
            f"{ranks_in_words(len(size.tokens))}, {', '.join(map(str, size.tokens))} tokens, {most}",
            lambda mixture=mixture: arena.ranks(fn, mixture.inputs(), driver=long_sequences.there_and_back),
            lambda ended, mixture=mixture: _examine(ended, mixture),
            _ADVICE if size.dtype == "float32" else _DTYPES | _ADVICE,
        )


_COUNTS = (
    "A rank got more or fewer rows than it has room for. Does it learn first how many come, counted after tokens were dropped, "
    "in a dtype that holds the number? Do as many rows come home from a rank as went there, and to the rank that sent them?"
)
_ADVICE = {
    "which is what `out` is": _COUNTS,
    "came[me].copy_(parts[me])": _COUNTS,
    "split_with_sizes": (
        "The expert's rows are in the order in which tokens came: split them by the numbers that came from each rank, not by "
        "those that went there."
    ),
    "negative dimension": "A number of rows came as less than 0: does it travel in a dtype that holds it? int8 ends at 127.",
}
_OF_ONE_DTYPE = (
    "What is received needs the dtype of what was sent: x.new_empty(…) has that of the tokens, and numbers of rows are whole "
    "numbers."
)
_DTYPES = {f"expected {dtype}[": _OF_ONE_DTYPE for dtype in ("float32", "int32")}  # of cases in float64, whose counts are int64


def _drawn(size: MixtureCase, generator: np.random.Generator) -> Mixture:
    n = len(size.tokens)
    weights = tuple((generator.normal(size=(n, size.width, size.width)) / size.width**0.5).astype(size.dtype))
    x, gradient = ([generator.normal(size=(t, size.width)).astype(size.dtype) for t in size.tokens] for _ in range(2))

    chosen = []
    for tokens in size.tokens:
        drawn = generator.integers(0, n, tokens)
        drawn[generator.random(tokens) < size.hot] = 0
        chosen.append(tuple(drawn.tolist()))
    return Mixture(tuple(x), tuple(gradient), tuple(chosen), weights, size.capacity)


def _examine(ended: ArenaResult, mixture: Mixture) -> dict[str, Complaint]:
    wrong = _wrong_shape(ended.returned, mixture) or _changed(ended.inputs, mixture)
    lost = None if wrong else _wrong_dropped(ended.returned, mixture)
    if lost:
        return {VALUES: UNEXAMINED, DROPPED: lost, BYTES: UNEXAMINED}

    complaints = {}
    if mixture.capacity is not None:
        complaints[DROPPED] = UNEXAMINED if wrong else _not_dropped(ended.returned, mixture)
    wrong = wrong or complaints.get(DROPPED) or _wrong_rows(ended.returned, mixture)
    bytes_sent = UNEXAMINED if wrong else though_right("the rows", _wasteful(ended, mixture))
    return {VALUES: wrong, **complaints, BYTES: bytes_sent}


def _wrong_shape(returned: Sequence[Any], mixture: Mixture) -> Complaint:
    for rank, told in enumerate(returned):
        for way in ("forward", "backward"):
            got = told[way]
            came = other_than_tuple(got, 2)
            if came:
                return f"rank {rank}: expected two things, the rows and the places of the dropped tokens, got {came}"
            if not is_row(got[1]):
                return f"rank {rank}: expected the places of the dropped tokens in a list, got {_not_places(got[1])}"
            places = np.asarray(got[1])
            if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
                return f"rank {rank}: expected the places of the dropped tokens as whole numbers, got {_not_places(got[1])}"
    return None


def _not_places(got: Any) -> str:
    if isinstance(got, np.ndarray) and got.dtype == bool:
        return "a mask: mask.nonzero().flatten() has them"
    if isinstance(got, np.ndarray | tuple):
        return shown(got)
    return f"{kind_in_words(got)}, {shown(got)}" if isinstance(got, int | float) else kind_in_words(got)


def _changed(after: Sequence[Any], mixture: Mixture) -> Complaint:
    for rank, given in enumerate(after):
        for key, value in mixture.inputs()[rank]["task"].items():
            complaint = changed(given["task"][key], value, f'task["{key}"]', rank)
            if complaint:
                return complaint
    return None


def _wrong_dropped(returned: Sequence[Any], mixture: Mixture) -> Complaint:
    for way in ("forward", "backward"):
        got = [sorted(map(int, told[way][1])) for told in returned]
        for rank, places in enumerate(got):
            expected = mixture.dropped(rank)
            if places != expected:
                why = _why_dropped(got, returned[rank][way][0], rank, mixture)
                return f"rank {rank} dropped the tokens at {places}; expected {expected}. {why}".rstrip()
    return None


def _not_dropped(returned: Sequence[Any], mixture: Mixture) -> Complaint:
    """Return a complaint if tokens that are named as dropped have their experts' rows all the same."""
    near = NEAR[str(mixture.x[0].dtype)]
    for rank, told in enumerate(returned):
        dropped = mixture.dropped(rank)
        got, whole = told["forward"][0], mixture.forward(rank)
        if not dropped or not isinstance(got, np.ndarray) or got.shape != whole.shape:
            continue
        if same(got[dropped], whole[dropped], near, near):
            return (
                f"rank {rank} names the tokens at {dropped} as dropped, and yet has their experts' rows: a dropped token does "
                f"not travel, and its row is zero."
            )
    return None


def _why_dropped(by_rank: Sequence[list[int]], rows: Any, rank: int, mixture: Mixture) -> str:
    """Return the mistake behind a rank's wrong places of dropped tokens, beside which it returned `rows`."""
    if mixture.capacity == 0 and not any(by_rank):
        return "A capacity of 0 drops every token: only None is no capacity."
    slips = [_slips_of_dropped(mixture, other) for other in range(len(by_rank))]
    for words in slips[0]:
        if all(places == slip[words] for places, slip in zip(by_rank, slips, strict=True)):
            return words

    got, dropped, most = set(by_rank[rank]), set(mixture.dropped(rank)), mixture.capacity
    if most is None:
        return "Without a capacity, no token is dropped."
    if got < dropped:
        unnamed = sorted(dropped - got)
        if isinstance(rows, np.ndarray) and rows.shape == mixture.x[rank].shape and not rows[unnamed].any():
            return f"The rows at {unnamed} are zero: name these places, too."
        return f"An expert takes {most} of a rank's tokens at most."
    if got > dropped:
        return f"An expert takes {most} of a rank's tokens, where as many chose it."
    return ""


def _slips_of_dropped(mixture: Mixture, rank: int) -> dict[str, list[int]]:
    """Return {words for a slip: the places that it names on a rank}; one slip must explain all ranks."""
    own, most = mixture.chosen[rank], mixture.capacity
    found = {"Are these the tokens that were kept? The places of the dropped ones are asked for.": mixture.kept(rank)}
    if most is None:
        return found

    places, earlier = set(range(len(own))), list(chain(*mixture.chosen[:rank]))
    last_kept = {len(own) - 1 - place for place in experts.kept(own[::-1], most)}
    kept_of_all = {place - len(earlier) for place in experts.kept([*earlier, *own], most)}
    return found | {
        "An expert takes the first tokens of a rank, and drops the later ones.": sorted(places - last_kept),
        "The capacity is for each rank's tokens: take each rank's first ones, whatever other ranks send.":
            sorted(places - kept_of_all),
        "The capacity is for each expert, not for all of a rank's tokens.": list(range(most, len(own))),
        "Are these the experts that the dropped tokens chose? Their places among the rank's tokens are asked for.":
            sorted(own[place] for place in mixture.dropped(rank)),
    }  # fmt: skip


def _wrong_rows(returned: Sequence[Any], mixture: Mixture) -> Complaint:
    for way, whole_of, what in (
        ("forward", Mixture.forward, "its tokens' rows"),
        ("backward", Mixture.backward, "the gradient of its tokens, which travels the same way"),
    ):
        near = NEAR[str(mixture.x[0].dtype)]
        wholes = [whole_of(mixture, rank) for rank in range(len(returned))]
        right = [mixture.with_zeros(whole, rank) for rank, whole in enumerate(wholes)]
        mistakes, otherwise = partial(_slips, mixture, wholes, way), partial(_as_rows, mixture)
        expected = Expected(what, right, mistakes, rounding=near, near_zero=near, otherwise=otherwise)
        complaint = expected.wrong([told[way][0] for told in returned])
        if complaint:
            return complaint

        # told in the function's own process: it can only cost points
        unlike = first_complaint(told["unlike"] for told in returned)
        if unlike:
            return unlike
    return None


def _as_rows(mixture: Mixture, rank: int, got: Any, right: np.ndarray) -> str:
    """Return what can be said of a rank's wrong rows that no slip explains."""
    dropped = mixture.dropped(rank)
    if dropped and isinstance(got, np.ndarray) and got.shape == right.shape:
        filled = got.copy()
        filled[dropped] = 0
        near = NEAR[str(right.dtype)]
        if same(filled, right, near, near):
            return "Only rows of dropped tokens are wrong: they are zero."
    return as_number(rank, got, right)


def _slips(mixture: Mixture, wholes: ByRank, way: str) -> Mistakes:
    """Return {words for a slip: experts' rows that it gives, by rank}; `wholes` are all ranks' rows if no token were dropped."""
    given = mixture.x if way == "forward" else mixture.gradient
    by_rank = []
    for rank, (whole, x) in enumerate(zip(wholes, given, strict=True)):
        alone = mixture.by_itself(rank)
        made = alone.forward(rank) if way == "forward" else alone.backward(rank)
        by_rank.append(_slips_of(mixture, rank, whole, x) | {_ALONE: mixture.with_zeros(made, rank)})
    return {words: [slips[words] for slips in by_rank] for words in by_rank[0]}


_ALONE = "All rows are the work of the rank's own expert: send each token to the rank of the expert that it chose."


def _slips_of(mixture: Mixture, rank: int, whole: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
    kept, dropped = mixture.kept(rank), mixture.dropped(rank)
    by_expert = [place for place in np.argsort(mixture.chosen[rank], kind="stable").tolist() if place in kept]
    in_order = np.zeros_like(whole)
    in_order[: len(by_expert)] = whole[by_expert]
    passed = mixture.with_zeros(whole, rank)
    passed[dropped] = x[dropped]
    added = x + mixture.with_zeros(whole, rank)
    backwards, without_own = mixture.with_zeros(whole, rank), mixture.with_zeros(whole, rank)
    for expert in set(mixture.chosen[rank]):
        of_expert = [place for place in kept if mixture.chosen[rank][place] == expert]
        backwards[of_expert] = whole[of_expert[::-1]]
        if expert == rank:
            without_own[of_expert] = 0

    return {
        "The rows are in the order of the experts: put each back where its token was.": in_order,
        "The rows were put back by the wrong permutation: y[order] = rows, not rows[order].": in_order[[*by_expert, *dropped]],
        "A dropped token's row is zero: the residual connection, added later, takes the token past the layer.": passed,
        "The tokens were added to their rows: the residual connection comes later. Return the experts' rows alone.":
            added,
        "No row came back: these are the tokens themselves.": x,
        "Rows from an expert are in reverse order: what comes home is in the order in which it was sent.": backwards,
        "Only the rows of the rank's own expert are wrong: what stays on the rank has a place in both lists of the exchange.":
            without_own,
    }  # fmt: skip


def _wasteful(ended: ArenaResult, mixture: Mixture) -> Complaint:
    """Return a complaint about messages, or about an expert that worked more than once; None if there is none."""
    complaint = none_sent(ended.trace, "Send each token to the rank of its expert.")
    if complaint:
        return complaint

    n, width, item = len(mixture.x), mixture.x[0].shape[1], mixture.x[0].itemsize
    needed, of_all = (
        experts.row_bytes_sent(mixture.chosen, len(mixture.weights), width, item, most) for most in (mixture.capacity, None)
    )
    # the function runs twice, and each time may tell each rank how many rows go to whom, in 8 bytes a number
    counts_bytes = 2 * 8 * (n + 1)

    got = ended.trace.bytes_by_link()
    for src in range(n):
        for dst in range(n):
            rows = 2 * int(needed[src, dst])
            sent = got.get((src, dst), 0)
            if src == dst or rows <= sent <= rows + counts_bytes:
                continue

            mismatch = (
                f"rank {src} sent rank {dst} {sent} bytes in a forward and a backward pass; expected {rows} for "
                f"{count(rows // (width * item), 'row')}, there and back, and up to {counts_bytes} for their number. "
            )
            if 2 * sent in range(rows, rows + width * item):
                return mismatch + "Do you send rows in the dtype of the tokens?"
            whole, padded = 2 * of_all, np.full((n, n), 4 * (mixture.capacity or 0) * width * item)
            if mixture.capacity is not None and _carries(got, whole, counts_bytes):
                return mismatch + "Do not send dropped tokens."
            if mixture.capacity is not None and _carries(got, padded, counts_bytes):
                return mismatch + "Do not pad up to the capacity."
            if sent > rows:
                return mismatch + (
                    "Send a row to its expert's rank alone: not to all ranks, not padded, and with nothing but the number of "
                    "rows."
                )
            return mismatch + "Send rows straight to the expert's rank, and straight back."

    for rank, returned in enumerate(ended.returned):
        if returned["calls"] > 1:  # counted in the function's own process: it can only cost points
            return (
                f"rank {rank}'s expert worked {count(returned['calls'], 'time')}: put all ranks' rows together first, since one "
                f"matrix product is faster than many."
            )
    return None


def _carries(got: Mapping[tuple[int, int], int], rows: np.ndarray, counts_bytes: int) -> bool:
    """Return whether each link carries `rows`, the bytes of rows from rank to rank, and at most `counts_bytes` more."""
    for link in permutations(range(len(rows)), 2):
        if not rows[link] <= got.get(link, 0) <= rows[link] + counts_bytes:
            return False
    return True
