"""Checks of lab 06: parameter server, sharded parameter server, and the ring all-reduce with its two halves.

Values must be exact on every rank, and messages must be the algorithm's, in few rounds where that is the algorithm's
idea; any contiguous split, direction and starting chunk passes. No verdict depends on luck: all inputs differ by rank,
and rounds are counted by the order of calls. The ring is from P. Patarasuk and X. Yuan (J. Parallel and Distributed
Computing 69, 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.collectives import all_reduce_transfers, chunks
from worldsize.checks.collectives.all_reduce_transfers import Ring
from worldsize.checks.collectives.chunks import Slice
from worldsize.checks.kit.judge import Case, judge, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.values import all_same, are_whole, differing, inputs_for, same, shown
from worldsize.checks.verdict import Complaint, Verdict


class Size(NamedTuple):
    """A case: the number of ranks, and the elements and dtype of each rank's tensor."""

    world_size: int
    elements: int
    dtype: str = "float32"


Sizes = Iterable[tuple[int, int] | Size]
Examine = Callable[[ArenaResult, list[np.ndarray]], dict[str, Complaint]]

# Three ranks first: with two, a ring and a server look alike, and a mistake would get a less helpful name.
OTHER_DTYPE = Size(3, 7, "float64")
LARGE = Size(3, 120_000)  # chunks of 160 kB: the wire copies smaller ones
MANY = Size(9, 18)  # enough ranks, with equal chunks, to judge rounds; not a power of two
SIZES: Sizes = ((3, 6), (3, 7), (4, 8), (4, 3), (2, 5), (1, 5), OTHER_DTYPE, LARGE, MANY)
SERVER_SIZES: Sizes = ((3, 6), (4, 8), (2, 6), (1, 5), OTHER_DTYPE, LARGE, MANY)
IN_EIGHTHS = (OTHER_DTYPE, MANY)
BEYOND_FLOAT32 = 2.0**40  # the next float32 is 131,072 further on
MOST_SHOWN = 4  # bounds are written out for so many ranks at most
EXACT = 0.0  # copies must not change

SERVER = {"every rank returns the sum": 0.25, "one tensor to rank 0 and one back, nothing else": 0.75}
SHARDED = {
    "every rank returns the sum": 0.25,
    "at most two messages of one chunk on every link": 0.25,
    "all ranks serve at once, in about 2(n − 1) rounds": 0.5,
}
SCATTER = {
    "every rank's slice of x holds the sum": 0.25,
    "the slices cover x exactly once": 0.25,
    "n − 1 messages of one chunk a rank, to one neighbour": 0.5,
    "all ranks send at once, in n − 1 rounds": 0.5,
}
GATHER = {
    "x is whole on every rank": 0.25,
    "n − 1 messages of one chunk a rank, to one neighbour": 0.5,
    "all ranks send at once, in n − 1 rounds": 0.25,
}
RING = {
    "x holds the sum on every rank": 0.25,
    "2(n − 1) messages a rank, to one neighbour": 0.5,
    "2(n − 1)/n of the tensor from every rank": 0.25,
    "all ranks send at once, in 2(n − 1) rounds": 0.5,
}

AT_ONCE = "In every round each rank sends one chunk and receives another: isend, then recv, then wait."
EACH_A_SERVER = "Let all ranks serve at the same time: start every isend first, and only then receive."
LOST = ", or the all-gather did not start with the fully summed chunk"


def parameter_server(arena: Arena, fn: Callable, sizes: Sizes = SERVER_SIZES) -> Verdict:
    """Check the all-reduce by one server: in `parameter_server(fabric, x)` rank 0 adds up.

    The function returns the sum; x has shape [elements].
    """
    values, messages = SERVER

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
        return {
            values: chunks.wrong_sum(ended.returned, inputs, "the return value"),
            messages: none_sent(ended.trace) or all_reduce_transfers.wrong_at_server(ended.trace, inputs[0].nbytes),
        }

    return judge("parameter_server", SERVER, _cases(arena, fn, sizes, examine))


def sharded_parameter_server(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check the all-reduce by many servers: in `sharded_parameter_server(fabric, x)` rank k adds up chunk k.

    The function returns the sum; x has shape [elements].
    """
    values, messages, rounds = SHARDED

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
        want = _ring(inputs, 2)
        found = {
            values: chunks.wrong_sum(ended.returned, inputs, "the return value"),
            messages: none_sent(ended.trace) or all_reduce_transfers.wrong_at_shards(ended.trace, want),
        }
        return found | _rounds(rounds, found, ended, want, EACH_A_SERVER)

    return judge("sharded_parameter_server", SHARDED, _cases(arena, fn, sizes, examine))


def reduce_scatter(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check the ring's first half: `reduce_scatter(fabric, x)` returns the slice of x that holds the sum.

    The slice is (start, stop); x has shape [elements].
    """
    values, cover, messages, rounds = SCATTER

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
        want = _ring(inputs, 1)
        sent = all_reduce_transfers.wrong_half(ended.trace, want)
        complaint = _no_slices(ended.returned, len(inputs[0]))
        if complaint:
            return {values: complaint, cover: complaint, messages: sent}

        slices = [tuple(map(int, part)) for part in ended.returned]
        wrong = _with_hint(_wrong_slices(ended, slices, inputs), ended, want)
        found = {values: wrong, cover: _wrong_cover(slices, inputs), messages: sent}
        return found | _rounds(rounds, found, ended, want, AT_ONCE)

    return judge("reduce_scatter", SCATTER, _cases(arena, fn, sizes, examine))


def all_gather(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check the ring's second half: `all_gather(fabric, x, bounds)` copies each rank's slice of x to all ranks.

    The slice of rank r is x[slice(*bounds[r])]; all ranks receive it in place.
    """
    return judge("all_gather", GATHER, _gather_cases(arena, fn, sizes))


def ring_all_reduce(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check the whole ring, both halves: `ring_all_reduce(fabric, x)` leaves the sum in x on every rank.

    x has shape [elements].
    """
    values, messages, share, rounds = RING

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
        want = _ring(inputs, 2)
        sent = none_sent(ended.trace)
        wrong = _not_in_place(ended, inputs) or chunks.wrong_sum(ended.inputs, inputs, "x", LOST)
        found = {
            values: _with_hint(wrong, ended, want),
            messages: sent or all_reduce_transfers.off_the_ring(ended.trace, want),
            share: sent or all_reduce_transfers.wrong_shares(ended.trace, want),
        }
        return found | _rounds(rounds, found, ended, want, AT_ONCE)

    return judge("ring_all_reduce", RING, _cases(arena, fn, sizes, examine))


# ---- cases -----------------------------------------------------------------------------------


def _cases(arena: Arena, fn: Callable, sizes: Sizes, examine: Examine) -> Iterator[Case]:
    seed = arena.draws.getrandbits(32)
    for size in sizes:
        inputs = _inputs(Size(*size), seed)
        yield Case(
            _name(Size(*size)),
            lambda inputs=inputs: arena.ranks(fn, inputs),
            lambda ended, inputs=inputs: _values_first(examine(ended, inputs)),
        )


def _gather_cases(arena: Arena, fn: Callable, sizes: Sizes) -> Iterator[Case]:
    seed = arena.draws.getrandbits(32)
    for size in sizes:
        world_size, length, _ = Size(*size)
        inputs = _inputs(Size(*size), seed)
        owner = np.random.default_rng([seed, world_size, length]).permutation(world_size)
        parts = chunks.even_split(length, world_size)
        bounds = [parts[k] for k in owner]  # in any order, so that `bounds` must be used
        yield Case(
            f"{_name(Size(*size))}, {_shown(bounds)}",
            lambda inputs=inputs, bounds=bounds: arena.ranks(fn, inputs, bounds),
            lambda ended, inputs=inputs, bounds=bounds: _values_first(_examine_gather(ended, inputs, bounds)),
        )


def _shown(bounds: Sequence[Slice]) -> str:
    if len(bounds) > MOST_SHOWN:
        return "the slices not in the order of the ranks"
    return f"bounds {bounds}"


def _inputs(size: Size, seed: int) -> list[np.ndarray]:
    """Draw the ranks' inputs, each of shape [elements].

    In float64 two inputs are so large that float32 would lose their digits; they cancel in the sum, so that the loss
    shows. In some cases rank 0's values are eighths: sums are exact, too, and no sum is a whole number.
    """
    inputs = inputs_for(size.world_size, size.elements, seed, size.dtype)
    if size in IN_EIGHTHS:
        inputs[0] += np.random.default_rng([seed, size.elements]).choice([1, 2, 3, 5, 6, 7], size.elements) / 8
    if size.dtype == "float64":
        first, second, *_ = inputs
        first += BEYOND_FLOAT32
        second -= BEYOND_FLOAT32
    return inputs


def _name(size: Size) -> str:
    uneven = " (chunks differ in length)" * bool(size.elements % size.world_size)
    kind = f" of {size.dtype}" * (size.dtype != "float32")
    return f"{ranks_in_words(size.world_size)}, {size.elements} elements{kind}{uneven}"


def _values_first(found: dict[str, Complaint]) -> dict[str, Complaint]:
    """Prefix complaints about messages with the fact that the values are right, if they are."""
    values, *_ = found.values()
    if values:
        return found

    return {name: though_right("the values", complaint) for name, complaint in found.items()}


def _rounds(
    name: str, found: dict[str, Complaint], ended: ArenaResult, want: Ring, advice: str
) -> dict[str, Complaint]:
    """Return {name: complaint about the rounds}; empty if anything else is wrong, or if rounds tell nothing."""
    if any(found.values()) or not all_reduce_transfers.shows_rounds(want):
        return {}

    return {name: all_reduce_transfers.slow(ended.trace, want, advice)}


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
    """Return a complaint if the sum was returned and x left as it was, or None."""
    if len(inputs) == 1 or chunks.wrong_sum(ended.returned, inputs, "x"):
        return None

    if chunks.wrong_sum(ended.inputs, inputs, "x"):
        return "the sum was returned, but x itself does not hold it: work in place, x[start:stop] += …"
    return None


def _no_slices(returned: Sequence[Any], length: int) -> Complaint:
    """Return a complaint if a rank did not return a (start, stop) of x, or None."""
    for rank, got in enumerate(returned):
        if not _is_pair(got):
            came = "nothing" if got is None else shown(got)
            return f"rank {rank}: expected (start, stop), the slice of x that it owns, got {came}"
        start, stop = map(int, got)
        if not 0 <= start <= stop <= length:
            return f"rank {rank}: expected (start, stop) with 0 ≤ start ≤ stop ≤ {length}, got {(start, stop)}"

    return None


def _is_pair(got: Any) -> bool:
    """Return whether `got` is two whole numbers, in a tuple, a list or a tensor."""
    if isinstance(got, np.ndarray):
        return got.shape == (2,) and np.issubdtype(got.dtype, np.integer)
    return isinstance(got, tuple) and len(got) == 2 and are_whole(*got)


def _wrong_slices(ended: ArenaResult, slices: Sequence[Slice], inputs: Sequence[np.ndarray]) -> Complaint:
    expected = chunks.total(inputs)
    for rank, (x, part) in enumerate(zip(ended.inputs, slices, strict=True)):
        got, wanted = x[slice(*part)], expected[slice(*part)]
        if same(got, wanted):
            continue

        complaint = chunks.mismatch(f"rank {rank}, its slice {part}{_numbered(part, inputs)}", x, expected, part)
        if same(got, wanted / len(inputs)):
            return f"{complaint}This is the mean, not the sum: do not divide."
        if chunks.is_whole_part(got, wanted):
            return complaint + chunks.WHOLE
        if chunks.has_lost_digits(got, wanted, inputs):
            return complaint + chunks.LOST_DIGITS
        return complaint + (_elsewhere(x, rank, expected, inputs) or chunks.whose(got, rank, chunks.cut(inputs, part)))

    return None


def _numbered(part: Slice, inputs: Sequence[np.ndarray]) -> str:
    """Name a slice's chunk, ", chunk 2 (elements 4 to 5)", or its elements alone if the even split has no such chunk."""
    parts = chunks.even_split(len(inputs[0]), len(inputs))
    if part in parts:
        return f", chunk {parts.index(part)} ({chunks.elements(part)})"
    return f" ({chunks.elements(part)})"


def _elsewhere(x: np.ndarray, rank: int, expected: np.ndarray, inputs: Sequence[np.ndarray]) -> str:
    """Return advice if a rank holds a whole sum elsewhere than in its slice; else empty."""
    for number, part in enumerate(chunks.even_split(len(expected), len(inputs))):
        if part[0] < part[1] and same(x[slice(*part)], expected[slice(*part)]):
            whole = f"chunk {number} ({chunks.elements(part)})"
            return f"Rank {rank} holds the whole sum of {whole}: return its slice, {part}."

    summed = np.setdiff1d(np.arange(len(expected)), differing(x, expected))
    if not summed.size:
        return ""
    return f"Rank {rank}'s x holds the whole sum in element {summed[0]}: does the rank own another slice?"


def _wrong_cover(slices: Sequence[Slice], inputs: Sequence[np.ndarray]) -> Complaint:
    n, length = len(inputs), len(inputs[0])
    counts = np.zeros(length, dtype=int)
    for part in slices:
        counts[slice(*part)] += 1
    if (counts != 1).any():
        i = int(np.flatnonzero(counts != 1)[0])
        if not counts[i]:
            return f"element {i} is in no rank's slice. The ranks returned {', '.join(map(str, slices))}"
        owners = [rank for rank, (start, stop) in enumerate(slices) if start <= i < stop]
        return f"element {i} is in the slices of ranks {owners[0]} and {owners[1]}; expected one owner for each element"

    sizes = [stop - start for start, stop in slices]
    most = max(sizes)
    if most > chunks.largest_chunk(length, n):
        whose = f"rank {sizes.index(most)} owns {most} of {length} elements"
        return f"{whose}; expected about {length / n:.3g}, one chunk per rank"
    return None


def _examine_gather(ended: ArenaResult, inputs: list[np.ndarray], bounds: list[Slice]) -> dict[str, Complaint]:
    values, messages, rounds = GATHER
    x = inputs[0]
    largest = max(stop - start for start, stop in bounds)
    want = Ring(world_size=len(inputs), halves=1, tensor_bytes=x.nbytes, chunk_bytes=largest * x.itemsize)
    found = {
        values: _with_hint(_wrong_whole(ended, inputs, bounds), ended, want),
        messages: all_reduce_transfers.wrong_half(ended.trace, want),
    }
    return found | _rounds(rounds, found, ended, want, AT_ONCE)


def _wrong_whole(ended: ArenaResult, inputs: Sequence[np.ndarray], bounds: Sequence[Slice]) -> Complaint:
    """Return a complaint about the first rank and slice without the slice owner's values, or None."""
    expected = np.empty_like(inputs[0])
    for owner, part in enumerate(bounds):
        expected[slice(*part)] = inputs[owner][slice(*part)]

    if all_same(ended.returned, expected) and not all_same(ended.inputs, expected):
        return "the whole tensor was returned, but x itself does not hold it: receive into x[start:stop]."
    for rank, got in enumerate(ended.inputs):
        for owner, part in enumerate(bounds):
            if not same(got[slice(*part)], expected[slice(*part)], tolerance=EXACT, near_zero=EXACT):
                where = f"rank {rank}, {chunks.elements(part)}, which rank {owner} owns"
                return chunks.mismatch(where, got, expected, part, tolerance=EXACT) + _stale(got, rank, owner, part, inputs)

    return None


def _stale(got: np.ndarray, rank: int, owner: int, part: Slice, inputs: Sequence[np.ndarray]) -> str:
    if chunks.is_whole_part(got[slice(*part)], inputs[owner][slice(*part)]):
        return chunks.WHOLE
    counts = chunks.makings(got[slice(*part)], chunks.cut(inputs, part)) or ()
    within = [r for r, count in enumerate(counts) if count]
    if not within:
        return ""

    if len(within) > 1:
        return "Several ranks' values were added up here: an all-gather only copies."
    if within == [rank]:
        return f"These are still rank {rank}'s own values: rank {owner}'s slice never arrived in its x."
    return f"These are the values of rank {within[0]}, which does not own this slice: a rank sent a slice before receiving it."
