"""The checks of lab 06: parameter server, sharded parameter server, and the ring all-reduce with its two halves.

Values must be exact on every rank; messages must be those of the algorithm. Any contiguous split, direction and
starting chunk passes. The words come from `chunks` (values) and `all_reduce_transfers` (messages). Left out: speed.
The ring is P. Patarasuk's and X. Yuan's (J. Parallel and Distributed Computing 69, 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.collectives import all_reduce_transfers, chunks
from worldsize.checks.collectives.all_reduce_transfers import Ring
from worldsize.checks.collectives.chunks import Slice
from worldsize.checks.kit.judge import Case, judge, none_sent, ranks_in_words
from worldsize.checks.kit.values import differing, inputs_for, same
from worldsize.checks.verdict import Verdict

Sizes = Iterable[tuple[int, int]]  # (world size, elements)
Examine = Callable[[ArenaResult, list[np.ndarray]], dict[str, str | None]]

# Three ranks first: with two, a ring and a server look alike, and a mistake would get a less helpful name.
SIZES: Sizes = ((3, 6), (3, 7), (4, 8), (4, 3), (2, 5), (1, 5))
SERVER_SIZES: Sizes = ((3, 6), (4, 8), (2, 6), (1, 5))

SERVER = {"every rank returns the sum": 0.5, "one tensor to rank 0 and one back, nothing else": 0.5}
SHARDED = {"every rank returns the sum": 0.5, "at most two messages of one chunk on every link": 0.5}
SCATTER = {
    "every rank's slice of x holds the sum": 0.5,
    "the slices cover x exactly once": 0.5,
    "n − 1 messages of one chunk a rank, to one neighbour": 0.5,
}
GATHER = {"x is whole on every rank": 0.5, "n − 1 messages of one chunk a rank, to one neighbour": 0.5}
RING = {
    "x holds the sum on every rank": 0.5,
    "2(n − 1) messages a rank, to one neighbour": 0.5,
    "2(n − 1)/n of the tensor from every rank": 0.5,
}

LOST = ", or the all-gather did not begin with the chunk that is whole"


def parameter_server(arena: Arena, fn: Callable, sizes: Sizes = SERVER_SIZES) -> Verdict:
    """Check of the all-reduce without a ring: in `parameter_server(fabric, x)` rank 0 adds up.

    It returns the sum; x has shape [elements].
    """
    values, messages = SERVER

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, str | None]:
        return {
            values: chunks.wrong_sum(ended.returned, inputs, "what it returns"),
            messages: _sent(ended) or all_reduce_transfers.server(ended.trace, inputs[0].nbytes),
        }

    return judge("parameter_server", SERVER, _cases(arena, fn, sizes, examine))


def sharded_parameter_server(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check of the all-reduce without a ring: in `sharded_parameter_server(fabric, x)` rank k adds up chunk k.

    It returns the sum; x has shape [elements].
    """
    values, messages = SHARDED

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, str | None]:
        want = _ring(inputs, 2)
        served = all_reduce_transfers.shards(ended.trace, want.chunk_bytes) or all_reduce_transfers.sums(ended.trace, want)
        return {
            values: chunks.wrong_sum(ended.returned, inputs, "what it returns"),
            messages: _sent(ended) or served,
        }

    return judge("sharded_parameter_server", SHARDED, _cases(arena, fn, sizes, examine))


def reduce_scatter(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check of the ring's first half: `reduce_scatter(fabric, x)` returns the slice of x that holds the sum.

    The slice is (start, stop); x has shape [elements].
    """
    values, cover, messages = SCATTER

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, str | None]:
        slices = _no_slices(ended.returned, len(inputs[0]))
        want = _ring(inputs, 1)
        round_the_ring = all_reduce_transfers.ring(ended.trace, want) or all_reduce_transfers.shares(ended.trace, want)
        return {
            values: slices or _with_hint(_wrong_slices(ended, inputs), ended, want),
            cover: slices or _wrong_cover(ended.returned, inputs),
            messages: _sent(ended) or round_the_ring,
        }

    return judge("reduce_scatter", SCATTER, _cases(arena, fn, sizes, examine))


def all_gather(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check of the ring's second half: `all_gather(fabric, x, bounds)` brings each rank's slice of x to all ranks.

    The slice of rank r is x[slice(*bounds[r])]; it goes to all ranks in place.
    """
    return judge("all_gather", GATHER, _gather_cases(arena, fn, sizes))


def ring_all_reduce(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check of the whole ring, both halves: `ring_all_reduce(fabric, x)` leaves the sum in x on every rank.

    x has shape [elements].
    """
    values, messages, share = RING

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, str | None]:
        want = _ring(inputs, 2)
        sent = _sent(ended)
        wrong = _not_in_place(ended, inputs) or chunks.wrong_sum(ended.inputs, inputs, "x", LOST)
        return {
            values: _with_hint(wrong, ended, want),
            messages: sent or all_reduce_transfers.ring(ended.trace, want),
            share: sent or all_reduce_transfers.shares(ended.trace, want),
        }

    return judge("ring_all_reduce", RING, _cases(arena, fn, sizes, examine))


# ---- cases -----------------------------------------------------------------------------------


def _cases(arena: Arena, fn: Callable, sizes: Sizes, examine: Examine) -> Iterator[Case]:
    seed = arena.draws.getrandbits(32)
    for world_size, length in sizes:
        inputs = inputs_for(world_size, length, seed)
        yield Case(
            _name(world_size, length),
            lambda inputs=inputs: arena.ranks(fn, inputs),
            lambda ended, inputs=inputs: _values_first(examine(ended, inputs)),
        )


def _gather_cases(arena: Arena, fn: Callable, sizes: Sizes) -> Iterator[Case]:
    seed = arena.draws.getrandbits(32)
    for world_size, length in sizes:
        inputs = inputs_for(world_size, length, seed)
        owner = np.random.default_rng([seed, world_size, length]).permutation(world_size)
        parts = chunks.even_split(length, world_size)
        bounds = [parts[owner[rank]] for rank in range(world_size)]
        yield Case(
            f"{_name(world_size, length)}, bounds {bounds}",
            lambda inputs=inputs, bounds=bounds: arena.ranks(fn, inputs, bounds),
            lambda ended, inputs=inputs, bounds=bounds: _values_first(_examine_gather(ended, inputs, bounds)),
        )


def _name(world_size: int, length: int) -> str:
    uneven = " (chunks differ in length)" if length % world_size else ""
    return f"{ranks_in_words(world_size)}, {length} elements{uneven}"


def _values_first(found: dict[str, str | None]) -> dict[str, str | None]:
    """Says of wrong messages that the values are right, where they are."""
    values, *_ = found.values()
    if values:
        return found
    return {name: complaint and f"the values are right, but {complaint}" for name, complaint in found.items()}


def _ring(inputs: Sequence[np.ndarray], halves: int) -> Ring:
    n, x = len(inputs), inputs[0]
    chunk_bytes = chunks.largest_chunk(len(x), n) * x.itemsize
    return Ring(n, halves, x.nbytes, chunk_bytes)


def _with_hint(complaint: str | None, ended: ArenaResult, want: Ring) -> str | None:
    return complaint and complaint.rstrip() + all_reduce_transfers.too_few(ended.trace, want)


def _sent(ended: ArenaResult) -> str | None:
    return none_sent(ended.trace)


# ---- values ----------------------------------------------------------------------------------


def _not_in_place(ended: ArenaResult, inputs: Sequence[np.ndarray]) -> str | None:
    """Words where the sum was returned and x left as it was."""
    if len(inputs) > 1 and chunks.wrong_sum(ended.returned, inputs, "x") is None:
        wrong = chunks.wrong_sum(ended.inputs, inputs, "x")
        return wrong and "the sum was returned, but x itself does not hold it: work in place, x[start:stop] += …"
    return None


def _no_slices(returned: Sequence[Any], length: int) -> str | None:
    """Words where a rank did not return a (start, stop) of x."""
    for rank, got in enumerate(returned):
        whole = isinstance(got, tuple) and len(got) == 2 and all(isinstance(i, (int, np.integer)) for i in got)
        if not whole:
            shown = "nothing" if got is None else repr(got)[:60]
            return f"rank {rank}: expected (start, stop), the slice of x that it owns, got {shown}"
        if not 0 <= got[0] <= got[1] <= length:
            return f"rank {rank}: expected (start, stop) with 0 ≤ start ≤ stop ≤ {length}, got {tuple(map(int, got))}"
    return None


def _wrong_slices(ended: ArenaResult, inputs: Sequence[np.ndarray]) -> str | None:
    expected = chunks.total(inputs)
    for rank, part in enumerate(ended.returned):
        got = ended.inputs[rank]
        if same(got[slice(*part)], expected[slice(*part)]):
            continue
        complaint = chunks.mismatch(f"rank {rank}, its slice {part} ({chunks.elements(part)})", got, expected, part)
        summed = np.setdiff1d(np.arange(len(expected)), differing(got, expected))
        if len(summed):
            return complaint + f"x of rank {rank} holds the whole sum in element {summed[0]}: is it another slice that it owns?"
        if same(got[slice(*part)], expected[slice(*part)] / len(inputs)):
            return complaint + "This is the mean, not the sum: nothing is to be divided."
        return complaint + chunks.whose(got[slice(*part)], rank, [x[slice(*part)] for x in inputs])
    return None


def _wrong_cover(slices: Sequence[Slice], inputs: Sequence[np.ndarray]) -> str | None:
    n, length = len(inputs), len(inputs[0])
    owners = [[r for r in range(n) if slices[r][0] <= i < slices[r][1]] for i in range(length)]
    for i, who in enumerate(owners):
        if not who:
            return f"element {i} is in no rank's slice. The ranks returned {', '.join(map(str, slices))}"
        if len(who) > 1:
            return f"element {i} is in the slices of ranks {who[0]} and {who[1]}; expected one owner for each"
    largest = max(range(n), key=lambda r: slices[r][1] - slices[r][0])
    size = slices[largest][1] - slices[largest][0]
    if size > chunks.largest_chunk(length, n):
        return f"rank {largest} owns {size} of {length} elements; expected about {length / n:.3g}, one chunk for every rank"
    return None


def _examine_gather(ended: ArenaResult, inputs: list[np.ndarray], bounds: list[Slice]) -> dict[str, str | None]:
    values, messages = GATHER
    n, x = len(inputs), inputs[0]
    want = Ring(n, 1, x.nbytes, max(stop - start for start, stop in bounds) * x.itemsize)
    sent = _sent(ended) or all_reduce_transfers.ring(ended.trace, want) or all_reduce_transfers.shares(ended.trace, want)
    return {values: _with_hint(_wrong_whole(ended, inputs, bounds), ended, want), messages: sent}


def _wrong_whole(ended: ArenaResult, inputs: Sequence[np.ndarray], bounds: Sequence[Slice]) -> str | None:
    """The first rank and slice that does not hold what the slice's owner had."""
    expected = np.empty_like(inputs[0])
    for owner, part in enumerate(bounds):
        expected[slice(*part)] = inputs[owner][slice(*part)]
    for rank, got in enumerate(ended.inputs):
        for owner, part in enumerate(bounds):
            if not same(got[slice(*part)], expected[slice(*part)]):
                where = f"rank {rank}, {chunks.elements(part)}, which rank {owner} owns"
                return chunks.mismatch(where, got, expected, part) + _stale(got, rank, owner, part, inputs)
    return None


def _stale(got: np.ndarray, rank: int, owner: int, part: Slice, inputs: Sequence[np.ndarray]) -> str:
    counts = chunks.makings(got[slice(*part)], [x[slice(*part)] for x in inputs]) or ()
    within = [r for r, count in enumerate(counts) if count]
    if len(within) > 1:
        return "Values of several ranks were added up here: an all-gather copies what arrives."
    if within == [rank]:
        return f"These are still rank {rank}'s own: rank {owner}'s slice never arrived."
    if within:
        return f"These are rank {within[0]}'s, which does not own them: a rank passed on a slice that it had not received yet."
    return ""
