"""Complaints about wrong values: which rank, which chunk, and whose numbers the chunk holds.

Inputs differ by rank and by element, so a chunk's values tell how they came about: a rank's own, a sum that lacks a
rank or counts it twice, a mean, another chunk's sum. The even split numbers the chunks; a student's split may differ,
so complaints name elements too.
"""

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from worldsize.checks.kit.values import TOLERANCE, all_same, differing, first_difference, same
from worldsize.checks.verdict import Complaint

Slice = tuple[int, int]  # (start, stop), in elements
LOST_DIGITS = "The digits beyond float32 precision are lost: make buffers like x, with torch.empty_like."
LOST_WHOLE = "Whole numbers beyond 2^53 went through floating point and lost digits: keep the dtype of x all along."
WHOLE = "These are whole numbers, but the expected values are not: do not round. "
_MAX_RANKS_TRIED_TWICE = 8  # with more ranks only sums that hold each at most once are tried
_MAX_RANKS_TRIED = 12  # 2**12 sums


def even_split(length: int, parts: int) -> list[Slice]:
    """Return the even split of `length` elements into `parts` consecutive slices, or chunks.

    Their lengths differ by one at most.
    """
    return list(pairwise(length * k // parts for k in range(parts + 1)))


def largest_chunk(length: int, parts: int) -> int:
    """Return the length of the largest chunk of the coarsest usual split, which leaves the remainder to one rank."""
    return length // parts + length % parts


def cut(tensors: Sequence[np.ndarray], part: Slice) -> list[np.ndarray]:
    """Return the same chunk of all ranks' tensors."""
    return [x[slice(*part)] for x in tensors]


def elements(part: Slice) -> str:
    """Name the elements of a chunk: (2, 4) is "elements 2 to 3"."""
    start, stop = part
    if stop - start == 1:
        return f"element {start}"
    return f"elements {start} to {stop - 1}"


def total(inputs: Sequence[np.ndarray]) -> np.ndarray:
    return np.sum(inputs, axis=0, dtype=inputs[0].dtype)


def wrong_sum(held: Sequence[Any], inputs: Sequence[np.ndarray], what: str, lost: str = "") -> Complaint:
    """Return a complaint about the first chunk of `held` (by rank) that is not the sum of `inputs`, or None.

    `what` names the tensor for the reader, such as "x"; `lost` gives another reason why no rank holds a whole sum.
    """
    expected = total(inputs)
    for rank, got in enumerate(held):
        if not is_like(got, expected):
            return first_difference(got, expected, rank, f"the sum in {what}")

    for rank, got in enumerate(held):
        for number, part in enumerate(even_split(len(expected), len(inputs))):
            if not same(got[slice(*part)], expected[slice(*part)]):
                chunk = f"chunk {number} ({elements(part)})" if len(inputs) > 1 else elements(part)
                complaint = mismatch(f"rank {rank}, {chunk}", got, expected, part)
                return complaint + (_pattern(held, inputs, lost) or _diagnosis(rank, part, held, inputs, lost))

    return None


def is_like(got: Any, expected: np.ndarray) -> bool:
    """Return whether `got` is a tensor of the expected shape and dtype, whatever is in its chunks."""
    return isinstance(got, np.ndarray) and (got.shape, got.dtype) == (expected.shape, expected.dtype)


def mismatch(where: str, got: np.ndarray, expected: np.ndarray, part: Slice, tolerance: float = TOLERANCE) -> str:
    """Describe the first wrong value in the chunk `part`: "where: expected 12 in element 3, got 7. ".

    `got` and `expected` are whole tensors. `tolerance` is relative.
    """
    i = part[0] + int(differing(got[slice(*part)], expected[slice(*part)], tolerance)[0])
    digits = "d" if expected.dtype.kind == "i" else ".14g"
    return f"{where}: expected {expected[i]:{digits}} in element {i}, got {got[i]:{digits}}. "


def _pattern(held: Sequence[np.ndarray], inputs: Sequence[np.ndarray], lost: str) -> str:
    """Name the mistake that all ranks' chunks show together; empty if there is none."""
    n, length, expected = len(inputs), len(inputs[0]), total(inputs)
    if n == 1:
        return "A lone rank already has the sum."
    if all(is_whole_part(got, expected) for got in held):
        return WHOLE
    if all(has_lost_digits(got, expected, inputs) for got in held):
        return lost_digits(expected)
    if all_same(held, expected / n):
        return "This is the mean, not the sum: do not divide."
    if all(map(same, held, inputs)):
        return "Every rank still has its own values: nothing was added, or the sum is not where it should be."
    if _are_copies(held, inputs):
        return f"Every chunk of every rank holds only one rank's values: received values were copied, not added{lost}."

    rest = length % n
    last = np.arange(length - rest, length)
    if rest and all(np.array_equal(differing(got, expected), last) for got in held):
        left_out = f"The last {rest} of {length} elements were left out"
        return f"{left_out}: {length} is not divisible by {n}, so chunks differ in length."

    return ""


def _are_copies(held: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> bool:
    """Return whether every nonempty chunk of every rank equals the same chunk of one rank's inputs."""
    for part in even_split(len(inputs[0]), len(inputs)):
        alone = cut(inputs, part)
        for chunk in cut(held, part):
            if chunk.size and not any(same(chunk, own) for own in alone):
                return False

    return True


def _diagnosis(rank: int, part: Slice, held: Sequence[np.ndarray], inputs: Sequence[np.ndarray], lost: str) -> str:
    expected, got = total(inputs), held[rank][slice(*part)]
    complaint = whose(got, rank, cut(inputs, part))
    added = complaint
    if not complaint:
        for number, other in enumerate(even_split(len(expected), len(inputs))):
            if other != part and same(got, expected[slice(*other)]):
                complaint = f"This is the sum of chunk {number}: chunks are mixed up. "
                break

    for other, chunk in enumerate(cut(held, part)):
        if same(chunk, expected[slice(*part)]):
            return f"{complaint}Rank {other} has the whole sum of this chunk, but it did not reach rank {rank}."

    why = "something was not added" if added else "numbers other than the ranks' values of it came in"
    return f"{complaint}No rank has the whole sum of this chunk: {why}{lost}."


def is_whole_part(got: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether a chunk `got` is `expected` rounded, cut, floored or ceiled to whole numbers, where that changes it."""
    for make_whole in (np.rint, np.trunc, np.floor, np.ceil):
        whole = make_whole(expected)
        if np.array_equal(got, whole) and differing(whole, expected).size:
            return True
    return False


def lost_digits(expected: np.ndarray) -> str:
    """Return the words for sums that `has_lost_digits`, by their dtype."""
    return LOST_DIGITS if expected.dtype == np.float64 else LOST_WHOLE


def has_lost_digits(got: np.ndarray, expected: np.ndarray, inputs: Sequence[np.ndarray]) -> bool:
    """Return whether a chunk's sums are off by no more than adding up in float32 explains, or in float64 where they are int64."""
    coarser = {"float64": "float32", "int64": "float64"}.get(expected.dtype.name)
    if coarser is None:
        return False

    spacing = np.spacing(np.abs(inputs).max().astype(coarser))
    return bool(np.abs(got - expected).max(initial=0.0) <= len(inputs) * spacing)


def whose(got: np.ndarray, rank: int, inputs: Sequence[np.ndarray]) -> str:
    """Say whose values a wrong chunk on `rank` has: its own, another rank's, or a sum that lacks a rank.

    `got` is the chunk, and `inputs` are cut alike. Empty if no sum fits.
    """
    counts = makings(got, inputs)
    if counts is None:
        return ""

    within = [r for r, count in enumerate(counts) if count]
    if not within:
        return "These are zeros. "
    if max(counts) > 1:
        return f"Rank {counts.index(2)}'s values were added twice. "
    if within == [rank]:
        return f"These are still rank {rank}'s own values. "
    if len(within) == 1:
        return f"These are only rank {within[0]}'s values: received values were copied, not added. "
    if not counts[rank]:
        return f"Rank {rank}'s own values were never added. "
    if 0 in counts:
        return f"Rank {counts.index(0)}'s values are not in this sum. "
    return ""


def makings(got: np.ndarray, inputs: Sequence[np.ndarray]) -> tuple[int, ...] | None:
    """Return how often each rank's inputs went into a wrong chunk, 0, 1 or 2 times; None if nothing fits.

    With more than 8 ranks only 0 and 1 are tried, with more than 12 nothing. The plainest fitting sum counts; `inputs`
    are cut like the chunk.
    """
    if not len(got) or len(inputs) > _MAX_RANKS_TRIED:
        return None

    tables = np.asarray(inputs, dtype="float64")
    times = (0, 1, 2) if len(inputs) <= _MAX_RANKS_TRIED_TWICE else (0, 1)
    tried = sorted(product(times, repeat=len(inputs)), key=lambda counts: (max(counts), sum(counts)))  # plain first
    for counts in tried:
        if np.array_equal(np.asarray(counts) @ tables, got):
            return counts

    return None
