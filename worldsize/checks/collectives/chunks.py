"""Words for wrong values: which rank, which chunk, and whose numbers stand there.

Inputs differ by rank and by element, so what a chunk holds tells how it came about: a rank's own values, a sum that
lacks a rank or counts one twice, a mean, another chunk's sum. Left out: messages (`all_reduce_transfers`), and what
is right (each check says so). A chunk is named by the even split; a student's own split may differ, so its elements
are named too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from worldsize.checks.kit.values import TOLERANCE, all_same, differing, first_difference, same
from worldsize.checks.verdict import Complaint

Slice = tuple[int, int]  # (start, stop), in elements
LOST_DIGITS = "The digits that a float32 has no room for are lost: make buffers like x, with torch.empty_like."
WHOLE = "These are whole numbers, and the values are not: nothing is to be rounded. "
_MAX_RANKS_TRIED_TWICE = 8  # of more ranks only sums that hold each once are tried
_MAX_RANKS_TRIED = 12


# ---- a split ---------------------------------------------------------------------------------


def even_split(length: int, parts: int) -> list[Slice]:
    """For the words on chunks: the even split of a collective's tensor of `length` elements, `parts` slices.

    They follow each other and differ by one element at most.
    """
    return list(pairwise(length * k // parts for k in range(parts + 1)))


def largest_chunk(length: int, parts: int) -> int:
    """Elements of the largest chunk of the coarsest usual split, which leaves the remainder to one rank."""
    return length // parts + length % parts


def cut(tensors: Sequence[np.ndarray], part: Slice) -> list[np.ndarray]:
    """The same chunk of all tensors."""
    return [x[slice(*part)] for x in tensors]


def elements(part: Slice) -> str:
    """A chunk of a tensor in words, by the places it covers: the slice (2, 4) is "elements 2 to 3"."""
    start, stop = part
    if stop - start == 1:
        return f"element {start}"
    return f"elements {start} to {stop - 1}"


# ---- sums ------------------------------------------------------------------------------------


def total(inputs: Sequence[np.ndarray]) -> np.ndarray:
    return np.sum(inputs, axis=0, dtype=inputs[0].dtype)


def wrong_sum(held: Sequence[Any], inputs: Sequence[np.ndarray], what: str, lost: str = "") -> Complaint:
    """Words for the first wrong chunk: of `held` (by rank), one that is not the sum of `inputs`; None where all are right.

    `what` names the tensor in the reader's words, such as "x"; `lost` says how else a whole sum can be nowhere.
    """
    expected = total(inputs)
    for rank, got in enumerate(held):
        if not is_like(got, expected):
            return first_difference(got, expected, rank, f"the sum as {what}")

    for rank, got in enumerate(held):
        for number, part in enumerate(even_split(len(expected), len(inputs))):
            if not same(got[slice(*part)], expected[slice(*part)]):
                complaint = mismatch(f"rank {rank}, {_chunk(number, inputs, part)}", got, expected, part)
                return complaint + (_pattern(held, inputs, lost) or _diagnosis(rank, part, held, inputs, lost))

    return None


def is_like(got: Any, expected: np.ndarray) -> bool:
    """Whether it is a tensor of the expected shape and dtype, whatever its values."""
    return isinstance(got, np.ndarray) and (got.shape, got.dtype) == (expected.shape, expected.dtype)


def mismatch(where: str, got: np.ndarray, expected: np.ndarray, part: Slice, tolerance: float = TOLERANCE) -> str:
    """Words for the first wrong value in a chunk: which element, what was expected there, and what it holds.

    The chunk is `part` of both tensors: "where: expected 12 in element 3, got 7. ". `tolerance` is relative.
    """
    i = part[0] + int(differing(got[slice(*part)], expected[slice(*part)], tolerance)[0])
    return f"{where}: expected {expected[i]:.14g} in element {i}, got {got[i]:.14g}. "


def _chunk(number: int, inputs: Sequence[np.ndarray], part: Slice) -> str:
    if len(inputs) == 1:
        return elements(part)
    return f"chunk {number} ({elements(part)})"


def _pattern(held: Sequence[np.ndarray], inputs: Sequence[np.ndarray], lost: str) -> str:
    """What all ranks show together, in words; empty where there is no such pattern."""
    n, length, expected = len(inputs), len(inputs[0]), total(inputs)
    if n == 1:
        return "A rank that is alone has the sum already."
    if all(is_whole_part(got, expected) for got in held):
        return WHOLE
    if all(has_lost_digits(got, expected, inputs) for got in held):
        return LOST_DIGITS
    if all_same(held, expected / n):
        return "This is the mean, not the sum: nothing is to be divided."
    if all(map(same, held, inputs)):
        return "Every rank still has its own values: nothing was added, or the sum is not where it should be."
    if _are_copies(held, inputs):
        return f"Every chunk of every rank holds one rank's values alone: what arrived was copied, not added{lost}."

    rest = length % n
    last = np.arange(length - rest, length)
    if rest and all(np.array_equal(differing(got, expected), last) for got in held):
        left_out = f"The last {rest} of {length} elements were left out"
        return f"{left_out}: {length} does not divide by {n}, so chunks differ in length."

    return ""


def _are_copies(held: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> bool:
    """Whether every chunk of every rank, but for empty ones, is the same chunk of one rank's inputs."""
    for part in even_split(len(inputs[0]), len(inputs)):
        alone = cut(inputs, part)
        for chunk in cut(held, part):
            if chunk.size and not any(same(chunk, own) for own in alone):
                return False

    return True


def _diagnosis(rank: int, part: Slice, held: Sequence[np.ndarray], inputs: Sequence[np.ndarray], lost: str) -> str:
    expected, got = total(inputs), held[rank][slice(*part)]
    complaint = whose(got, rank, cut(inputs, part)) or _other_chunk(got, part, expected, len(inputs))

    for other, chunk in enumerate(cut(held, part)):
        if same(chunk, expected[slice(*part)]):
            return f"{complaint}Rank {other} has the whole sum of this chunk, but it did not get to rank {rank}."

    return f"{complaint}No rank has the whole sum of this chunk: something was not added{lost}."


def is_whole_part(got: np.ndarray, expected: np.ndarray) -> bool:
    """Say whether a tensor is what is left of the expected values when each is made a whole number, in one way or another."""
    wholes = [make_whole(expected) for make_whole in (np.rint, np.trunc, np.floor, np.ceil)]
    return any(np.array_equal(got, whole) and differing(whole, expected).size > 0 for whole in wholes)


def has_lost_digits(got: np.ndarray, expected: np.ndarray, inputs: Sequence[np.ndarray]) -> bool:
    """Whether sums of float64 differ from the expected ones by no more than adding them up in float32 explains."""
    if expected.dtype != np.float64:
        return False

    spacing = np.spacing(np.abs(inputs).max().astype("float32"))
    return bool(np.abs(got - expected).max(initial=0.0) <= len(inputs) * spacing)


def _other_chunk(got: np.ndarray, part: Slice, expected: np.ndarray, parts: int) -> str:
    """Words where `got`, held in place of the chunk `part`, is the sum of another chunk; empty where it is none."""
    for number, other in enumerate(even_split(len(expected), parts)):
        if other != part and same(got, expected[slice(*other)]):
            return f"This is the sum of chunk {number}: chunks are mixed up. "

    return ""


# ---- whose values ----------------------------------------------------------------------------


def whose(got: np.ndarray, rank: int, inputs: Sequence[np.ndarray]) -> str:
    """Whose values a wrong chunk on `rank` is made of, in words: its own, another's, or a sum that lacks one.

    `got` is the chunk, and `inputs` is cut alike. Empty where it cannot be told.
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
        return f"These are rank {within[0]}'s values alone: what arrived was copied, not added. "
    if not counts[rank]:
        return f"Rank {rank}'s own values were never added. "
    if 0 in counts:
        return f"Rank {counts.index(0)}'s values are not in this sum. "
    return ""


def makings(got: np.ndarray, inputs: Sequence[np.ndarray]) -> tuple[int, ...] | None:
    """Of which ranks' inputs a wrong chunk was added up: how often each went in, 0, 1 or 2 times; None if none fits.

    Of more than 8 ranks each went in once or not at all. A plain sum is found first, if there is one that gives `got`;
    `inputs` is cut like the chunk.
    """
    if not len(got) or len(inputs) > _MAX_RANKS_TRIED:
        return None

    tables = np.asarray(inputs, dtype="float64")
    times = (0, 1, 2) if len(inputs) <= _MAX_RANKS_TRIED_TWICE else (0, 1)
    tried = sorted(product(times, repeat=len(inputs)), key=lambda counts: (max(counts), sum(counts)))
    for counts in tried:
        if np.array_equal(np.asarray(counts) @ tables, got):
            return counts

    return None
