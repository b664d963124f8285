"""Checks of the ring's two halves alone: a reduce-scatter, which adds up, and an all-gather, which copies.

After the first half each rank's slice of x must hold the sum, and the slices must cover x; the second half must use the
slices that it is given. Sizes, inputs and rounds are as in `all_reduce`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise, starmap
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.collectives import all_reduce, all_reduce_transfers, chunks
from worldsize.checks.collectives.all_reduce import AT_ONCE, SIZES, Size, Sizes, with_rounds
from worldsize.checks.collectives.all_reduce_transfers import Ring, with_hint
from worldsize.checks.collectives.chunks import Slice
from worldsize.checks.collectives.long_tensors import Runs
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import all_same, are_whole, differing, same, shown
from worldsize.checks.verdict import UNEXAMINED, Complaint

MOST_SHOWN = 4  # bounds are written out for so many ranks at most
EXACT = 0.0  # copies must not change
LENGTHS = (1, 3, 5, 14)  # of slices in an order that is drawn: an even split has none so long
UNEVEN = Size(len(LENGTHS), sum(LENGTHS))
GATHERED: Sizes = (*SIZES, UNEVEN)

SUM_IN_SLICE = "every rank's slice of x holds the sum"
COVERED = "the slices cover x exactly once"
WHOLE = "x is whole on every rank"
ON_THE_RING = "n − 1 messages of one chunk a rank, to one neighbour"
ALL_AT_ONCE = "all ranks send at once, in n − 1 rounds"


@exercise(
    {SUM_IN_SLICE: 0.25, COVERED: 0.25, ON_THE_RING: 0.5, ALL_AT_ONCE: 0.5},
    seen={ON_THE_RING: evidence.MESSAGES, ALL_AT_ONCE: evidence.MESSAGES},
)
def reduce_scatter(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Iterable[Case]:
    """Check the ring's first half: `reduce_scatter(fabric, x)` returns the slice of x that holds the sum.

    The slice is (start, stop); x has shape [elements].
    """

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
        want = all_reduce.ring_of(inputs, halves=1)
        sent = all_reduce_transfers.wrong_half(ended.trace, want)
        complaint = _no_slices(ended.returned, len(inputs[0]))
        if complaint:
            return {SUM_IN_SLICE: complaint, COVERED: UNEXAMINED, ON_THE_RING: sent, ALL_AT_ONCE: UNEXAMINED}

        slices = [tuple(map(int, part)) for part in ended.returned]
        wrong = with_hint(_wrong_slices(ended, slices, inputs), ended.trace, want)
        found = {SUM_IN_SLICE: wrong, COVERED: _wrong_cover(slices, inputs), ON_THE_RING: sent}
        return with_rounds(ALL_AT_ONCE, found, ended, want, AT_ONCE)

    return all_reduce.cases(arena, fn, sizes, examine)


@exercise(
    {WHOLE: 0.25, ON_THE_RING: 0.5, ALL_AT_ONCE: 0.25},
    seen={ON_THE_RING: evidence.MESSAGES, ALL_AT_ONCE: evidence.MESSAGES},
)
def all_gather(arena: Arena, fn: Callable, sizes: Sizes = GATHERED) -> Iterable[Case]:
    """Check the ring's second half: `all_gather(fabric, x, bounds)` copies each rank's slice of x to all ranks.

    The slice of rank r is x[slice(*bounds[r])]; all ranks receive it in place.
    """

    def examine(ended: ArenaResult, inputs: list[np.ndarray], bounds: list[Slice]) -> dict[str, Complaint]:
        x = inputs[0]
        kept = (changed(noted["more"][0], bounds, "bounds", rank) for rank, noted in enumerate(ended.returned))
        ended = replace(ended, returned=tuple(noted["returned"] for noted in ended.returned))
        largest = max(stop - start for start, stop in bounds)
        want = Ring(world_size=len(inputs), halves=1, tensor_bytes=x.nbytes, chunk_bytes=largest * x.itemsize)
        wrong = with_hint(_wrong_whole(ended, inputs, bounds), ended.trace, want) or first_complaint(kept)
        complaints = {WHOLE: wrong, ON_THE_RING: all_reduce_transfers.wrong_half(ended.trace, want)}
        return with_rounds(ALL_AT_ONCE, complaints, ended, want, AT_ONCE)

    def gathers() -> Iterator[Case]:
        seed, runs = arena.draws.getrandbits(32), Runs(arena, fn)
        for size in starmap(Size, sizes):
            inputs = all_reduce.inputs_of(size, seed)
            if runs.would_take_minutes(inputs):
                continue
            generator = np.random.default_rng([seed, size.world_size, size.elements])
            parts = chunks.even_split(size.elements, size.world_size)
            if size == UNEVEN:
                parts = list(pairwise(accumulate(generator.permutation(LENGTHS).tolist(), initial=0)))
            bounds = [parts[k] for k in generator.permutation(size.world_size)]  # in any order, so that `bounds` must be used
            description = f"bounds {bounds}"
            if len(bounds) > MOST_SHOWN:
                description = "the slices not in the order of the ranks"

            run = partial(runs.on, inputs, bounds, driver=on_ranks.and_arguments)
            yield Case(f"{size}, {description}", run, partial(examine, inputs=inputs, bounds=bounds))

    return gathers()


def _no_slices(returned: Sequence[Any], length: int) -> Complaint:
    """Return a complaint if a rank of the ring's first half did not return a (start, stop) of x, or None."""
    for rank, got in enumerate(returned):
        pair = got.tolist() if isinstance(got, np.ndarray) else got
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not are_whole(*pair):
            came = "nothing" if got is None else shown(got)
            return f"rank {rank}: expected (start, stop), the slice of x that it owns, got {came}"

        start, stop = map(int, pair)
        if not 0 <= start <= stop <= length:
            ends = " Is the second number a length? It is where the slice ends." * (0 <= stop <= start <= start + stop <= length)
            return f"rank {rank}: expected (start, stop) with 0 ≤ start ≤ stop ≤ {length}, got {(start, stop)}.{ends}"

    return None


def _wrong_slices(ended: ArenaResult, slices: Sequence[Slice], inputs: Sequence[np.ndarray]) -> Complaint:
    expected, parts = chunks.total(inputs), chunks.even_split(len(inputs[0]), len(inputs))
    for rank, (x, part) in enumerate(zip(ended.inputs, slices, strict=True)):
        got, wanted = x[slice(*part)], expected[slice(*part)]
        if same(got, wanted):
            continue

        chunk = f", chunk {parts.index(part)}" if part in parts else ""
        where = f"rank {rank}, its slice {part}{chunk} ({chunks.elements(part)})"
        complaint = chunks.mismatch(where, x, expected, part)

        if same(got, wanted / len(inputs)):
            return f"{complaint}This is the mean, not the sum: do not divide."
        if chunks.is_whole_part(got, wanted):
            return complaint + chunks.WHOLE
        if chunks.has_lost_digits(got, wanted, inputs):
            return complaint + chunks.lost_digits(expected)
        return complaint + (_elsewhere(x, rank, expected, inputs) or chunks.whose(got, rank, chunks.cut(inputs, part)))

    return None


def _elsewhere(x: np.ndarray, rank: int, expected: np.ndarray, inputs: Sequence[np.ndarray]) -> str:
    """Return advice if a rank holds, after half a ring, a whole sum elsewhere than in its slice; else empty."""
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


def _wrong_whole(ended: ArenaResult, inputs: Sequence[np.ndarray], bounds: Sequence[Slice]) -> Complaint:
    """Return a complaint about the ring's second half: the first rank and slice without the slice owner's values, or None."""
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
    own = inputs[owner][slice(*part)]
    if chunks.is_whole_part(got[slice(*part)], own):
        return chunks.WHOLE
    if chunks.has_lost_digits(got[slice(*part)], own, inputs):
        return chunks.lost_digits(own)
    counts = chunks.makings(got[slice(*part)], chunks.cut(inputs, part)) or ()
    within = [r for r, count in enumerate(counts) if count]
    if not within:
        return ""

    if len(within) > 1:
        return "Several ranks' values were added up here: an all-gather only copies."
    if within == [rank]:
        return f"These are still rank {rank}'s own values: rank {owner}'s slice never arrived in its x."
    return f"These are the values of rank {within[0]}, which does not own this slice: a rank sent a slice before receiving it."
