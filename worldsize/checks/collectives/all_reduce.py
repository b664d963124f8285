"""The checks of lab 06: parameter server, sharded parameter server, and the ring all-reduce with its two halves.

Values must be exact on every rank; messages must be those of the algorithm. Any contiguous split, direction and
starting chunk passes. The words come from `chunks` (values) and `all_reduce_transfers` (messages).
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
from worldsize.checks.kit.judge import Case, judge, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.values import are_whole, differing, inputs_for, same, shown
from worldsize.checks.verdict import Complaint, Verdict

Sizes = Iterable[tuple[int, int]]  # (world size, elements)
Examine = Callable[[ArenaResult, list[np.ndarray]], dict[str, Complaint]]

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

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
        return {
            values: chunks.wrong_sum(ended.returned, inputs, "what it returns"),
            messages: none_sent(ended.trace) or all_reduce_transfers.wrong_at_server(ended.trace, inputs[0].nbytes),
        }

    return judge("parameter_server", SERVER, _cases(arena, fn, sizes, examine))


def sharded_parameter_server(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check of the all-reduce without a ring: in `sharded_parameter_server(fabric, x)` rank k adds up chunk k.

    It returns the sum; x has shape [elements].
    """
    values, messages = SHARDED

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
        return {
            values: chunks.wrong_sum(ended.returned, inputs, "what it returns"),
            messages: none_sent(ended.trace) or all_reduce_transfers.wrong_at_shards(ended.trace, _ring(inputs, 2)),
        }

    return judge("sharded_parameter_server", SHARDED, _cases(arena, fn, sizes, examine))


def reduce_scatter(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check of the ring's first half: `reduce_scatter(fabric, x)` returns the slice of x that holds the sum.

    The slice is (start, stop); x has shape [elements].
    """
    values, cover, messages = SCATTER

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
        want = _ring(inputs, 1)
        sent = all_reduce_transfers.wrong_half(ended.trace, want)
        complaint = _no_slices(ended.returned, len(inputs[0]))
        if complaint:
            return {values: complaint, cover: complaint, messages: sent}

        wrong = _with_hint(_wrong_slices(ended, inputs), ended, want)
        return {values: wrong, cover: _wrong_cover(ended.returned, inputs), messages: sent}

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

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
        want = _ring(inputs, 2)
        sent = none_sent(ended.trace)
        wrong = _not_in_place(ended, inputs) or chunks.wrong_sum(ended.inputs, inputs, "x", LOST)
        return {
            values: _with_hint(wrong, ended, want),
            messages: sent or all_reduce_transfers.off_the_ring(ended.trace, want),
            share: sent or all_reduce_transfers.wrong_shares(ended.trace, want),
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
        bounds = [parts[k] for k in owner]
        yield Case(
            f"{_name(world_size, length)}, bounds {bounds}",
            lambda inputs=inputs, bounds=bounds: arena.ranks(fn, inputs, bounds),
            lambda ended, inputs=inputs, bounds=bounds: _values_first(_examine_gather(ended, inputs, bounds)),
        )


def _name(world_size: int, length: int) -> str:
    uneven = " (chunks differ in length)" * bool(length % world_size)
    return f"{ranks_in_words(world_size)}, {length} elements{uneven}"


def _values_first(found: dict[str, Complaint]) -> dict[str, Complaint]:
    """Says of wrong messages that the values are right, where they are."""
    values, *_ = found.values()
    if values:
        return found

    return {name: though_right("the values", complaint) for name, complaint in found.items()}


def _ring(inputs: Sequence[np.ndarray], halves: int) -> Ring:
    n, x = len(inputs), inputs[0]
    chunk_bytes = chunks.largest_chunk(len(x), n) * x.itemsize
    return Ring(world_size=n, halves=halves, tensor_bytes=x.nbytes, chunk_bytes=chunk_bytes)


def _with_hint(complaint: Complaint, ended: ArenaResult, want: Ring) -> Complaint:
    if not complaint:
        return complaint

    return complaint.rstrip() + all_reduce_transfers.too_few(ended.trace, want)


# ---- values ----------------------------------------------------------------------------------


def _not_in_place(ended: ArenaResult, inputs: Sequence[np.ndarray]) -> Complaint:
    """Words where the sum was returned and x left as it was."""
    if len(inputs) == 1 or chunks.wrong_sum(ended.returned, inputs, "x"):
        return None

    if chunks.wrong_sum(ended.inputs, inputs, "x"):
        return "the sum was returned, but x itself does not hold it: work in place, x[start:stop] += …"
    return None


def _no_slices(returned: Sequence[Any], length: int) -> Complaint:
    """Words where a rank did not return a (start, stop) of x."""
    for rank, got in enumerate(returned):
        if not _is_pair(got):
            came = "nothing" if got is None else shown(got)
            return f"rank {rank}: expected (start, stop), the slice of x that it owns, got {came}"
        if not 0 <= got[0] <= got[1] <= length:
            return f"rank {rank}: expected (start, stop) with 0 ≤ start ≤ stop ≤ {length}, got {tuple(map(int, got))}"

    return None


def _is_pair(got: Any) -> bool:
    return isinstance(got, tuple) and len(got) == 2 and are_whole(*got)


def _wrong_slices(ended: ArenaResult, inputs: Sequence[np.ndarray]) -> Complaint:
    expected = chunks.total(inputs)
    for rank, (x, part) in enumerate(zip(ended.inputs, ended.returned, strict=True)):
        got, wanted = x[slice(*part)], expected[slice(*part)]
        if same(got, wanted):
            continue

        complaint = chunks.mismatch(f"rank {rank}, its slice {part} ({chunks.elements(part)})", x, expected, part)
        summed = np.setdiff1d(np.arange(len(expected)), differing(x, expected))
        if summed.size:
            return f"{complaint}x of rank {rank} holds the whole sum in element {summed[0]}: is it another slice that it owns?"
        if same(got, wanted / len(inputs)):
            return f"{complaint}This is the mean, not the sum: nothing is to be divided."
        return complaint + chunks.whose(got, rank, chunks.cut(inputs, part))

    return None


def _wrong_cover(slices: Sequence[Slice], inputs: Sequence[np.ndarray]) -> Complaint:
    n, length = len(inputs), len(inputs[0])
    for i in range(length):
        owners = [rank for rank, (start, stop) in enumerate(slices) if start <= i < stop]
        if not owners:
            return f"element {i} is in no rank's slice. The ranks returned {', '.join(map(str, slices))}"
        if len(owners) > 1:
            return f"element {i} is in the slices of ranks {owners[0]} and {owners[1]}; expected one owner for each"

    sizes = [stop - start for start, stop in slices]
    most = max(sizes)
    if most > chunks.largest_chunk(length, n):
        whose = f"rank {sizes.index(most)} owns {most} of {length} elements"
        return f"{whose}; expected about {length / n:.3g}, one chunk for every rank"
    return None


def _examine_gather(ended: ArenaResult, inputs: list[np.ndarray], bounds: list[Slice]) -> dict[str, Complaint]:
    values, messages = GATHER
    x = inputs[0]
    largest = max(stop - start for start, stop in bounds)
    want = Ring(world_size=len(inputs), halves=1, tensor_bytes=x.nbytes, chunk_bytes=largest * x.itemsize)
    return {
        values: _with_hint(_wrong_whole(ended, inputs, bounds), ended, want),
        messages: all_reduce_transfers.wrong_half(ended.trace, want),
    }


def _wrong_whole(ended: ArenaResult, inputs: Sequence[np.ndarray], bounds: Sequence[Slice]) -> Complaint:
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
    counts = chunks.makings(got[slice(*part)], chunks.cut(inputs, part)) or ()
    within = [r for r, count in enumerate(counts) if count]
    if not within:
        return ""

    if len(within) > 1:
        return "Values of several ranks were added up here: an all-gather copies what arrives."
    if within == [rank]:
        return f"These are still rank {rank}'s own: rank {owner}'s slice never arrived."
    return f"These are rank {within[0]}'s, which does not own them: a rank passed on a slice that it had not received yet."
