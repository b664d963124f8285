"""Words for wrong values: which rank, which chunk, and whose numbers stand there.

Inputs differ by rank and by element, so what a chunk holds tells how it came about: a rank's own values, a sum that
lacks a rank or counts one twice, a mean, another chunk's sum. Left out: messages (`all_reduce_transfers`), and what
is right (each check says so). A chunk is named by the even split; a student's own split may differ, so its elements
are named too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from worldsize.checks.kit.values import differing, first_difference, same

Slice = tuple[int, int]  # (start, stop), in elements
_MAX_RANKS_TRIED = 8


def even_split(length: int, parts: int) -> list[Slice]:
    """For the words on chunks: the even split of a collective's tensor of `length` elements, `parts` slices.

    They follow each other and differ by one element at most.
    """
    return list(pairwise(length * k // parts for k in range(parts + 1)))


def largest_chunk(length: int, parts: int) -> int:
    """Elements of the largest chunk of the coarsest usual split, which leaves the remainder to one rank."""
    return length // parts + length % parts


def total(inputs: Sequence[np.ndarray]) -> np.ndarray:
    return np.sum(inputs, axis=0, dtype=inputs[0].dtype)


def wrong_sum(held: Sequence[Any], inputs: Sequence[np.ndarray], what: str, lost: str = "") -> str | None:
    """Words for the first wrong chunk: of `held` (by rank), one that is not the sum of `inputs`; None where all are right.

    `what` names the tensor in the reader's words, such as "x"; `lost` says how else a whole sum can be nowhere.
    """
    expected = total(inputs)
    for rank, got in enumerate(held):
        if not isinstance(got, np.ndarray) or (got.shape, got.dtype) != (expected.shape, expected.dtype):
            return first_difference(got, expected, rank, f"the sum as {what}")
    everywhere = _pattern(held, inputs, lost)
    for rank, got in enumerate(held):
        for number, part in enumerate(even_split(len(expected), len(inputs))):
            if not same(got[slice(*part)], expected[slice(*part)]):
                complaint = mismatch(f"rank {rank}, {_chunk(number, inputs, part)}", got, expected, part)
                return complaint + (everywhere or _diagnosis(rank, part, held, inputs, lost))
    return None


def mismatch(where: str, got: np.ndarray, expected: np.ndarray, part: Slice) -> str:
    """Words for the first wrong value in a chunk: which element, what was expected there, and what it holds.

    The chunk is `part` of both tensors: "where: expected 12 in element 3, got 7. ".
    """
    i = part[0] + int(differing(got[slice(*part)], expected[slice(*part)])[0])
    return f"{where}: expected {expected[i]:.10g} in element {i}, got {got[i]:.10g}. "


def elements(part: Slice) -> str:
    """A chunk of a tensor in words, by the places it covers: the slice (2, 4) is "elements 2 to 3"."""
    start, stop = part
    return f"element {start}" if stop - start == 1 else f"elements {start} to {stop - 1}"


def _chunk(number: int, inputs: Sequence[np.ndarray], part: Slice) -> str:
    return f"chunk {number} ({elements(part)})" if len(inputs) > 1 else elements(part)


def _pattern(held: Sequence[np.ndarray], inputs: Sequence[np.ndarray], lost: str) -> str:
    """What all ranks show together, in words; empty where there is no such pattern."""
    n, length, expected = len(inputs), len(inputs[0]), total(inputs)
    if n == 1:
        return "A rank that is alone has the sum already."
    if all(same(got, expected / n) for got in held):
        return "This is the mean, not the sum: nothing is to be divided."
    if all(same(got, own) for got, own in zip(held, inputs, strict=True)):
        return "Every rank still has its own values: nothing was added, or the sum is not where it should be."
    if all(map(_one_rank_alone, _cut(held, inputs))):
        return f"Every chunk of every rank holds one rank's values alone: what arrived was copied, not added{lost}."
    rest = length % n
    wrong = [differing(got, expected) for got in held]
    if rest and all(np.array_equal(w, np.arange(length - rest, length)) for w in wrong):
        left_out = f"The last {rest} of {length} elements were left out"
        return f"{left_out}: {length} does not divide by {n}, so chunks differ in length."
    return ""


def _cut(held: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Every chunk of every rank beside the same chunk of all inputs; empty ones left out."""
    parts = [part for part in even_split(len(inputs[0]), len(inputs)) if part[0] < part[1]]
    return ((got[slice(*part)], [x[slice(*part)] for x in inputs]) for got in held for part in parts)


def _one_rank_alone(cut: tuple[np.ndarray, list[np.ndarray]]) -> bool:
    got, inputs = cut
    return any(same(got, x) for x in inputs)


def _diagnosis(rank: int, part: Slice, held: Sequence[np.ndarray], inputs: Sequence[np.ndarray], lost: str) -> str:
    expected = total(inputs)
    complaint = whose(held[rank][slice(*part)], rank, [x[slice(*part)] for x in inputs])
    for number, other in enumerate(even_split(len(expected), len(inputs))):
        alike = other != part and other[1] - other[0] == part[1] - part[0]
        if not complaint and alike and same(held[rank][slice(*part)], expected[slice(*other)]):
            complaint = f"This is the sum of chunk {number}: chunks are mixed up. "
    whole = [r for r, got in enumerate(held) if same(got[slice(*part)], expected[slice(*part)])]
    if whole:
        return complaint + f"Rank {whole[0]} has the whole sum of this chunk, but it did not get to rank {rank}."
    return f"{complaint}No rank has the whole sum of this chunk: something was not added{lost}."


def whose(got: np.ndarray, rank: int, inputs: Sequence[np.ndarray]) -> str:
    """Whose values a wrong chunk on `rank` is made of, in words: its own, another's, or a sum that lacks one.

    `got` is the chunk, and `inputs` is cut alike. Empty where it cannot be told.
    """
    counts = makings(got, inputs)
    if counts is None:
        return ""
    within = [r for r, count in enumerate(counts) if count]
    missing = [r for r, count in enumerate(counts) if not count]
    twice = [r for r, count in enumerate(counts) if count > 1]
    if not within:
        return "These are zeros. "
    if twice:
        return f"Rank {twice[0]}'s values were added twice. "
    if within == [rank]:
        return f"These are still rank {rank}'s own values. "
    if len(within) == 1:
        return f"These are rank {within[0]}'s values alone. "
    if rank in missing:
        return f"Rank {rank}'s own values were never added. "
    return f"Rank {missing[0]}'s values are not in this sum. " if missing else ""


def makings(got: np.ndarray, inputs: Sequence[np.ndarray]) -> tuple[int, ...] | None:
    """Of which ranks' inputs a wrong chunk was added up: how often each went in, 0, 1 or 2 times; None if none fits.

    A plain sum is found first, if there is one that gives `got`; `inputs` is cut like the chunk.
    """
    if not len(got) or len(inputs) > _MAX_RANKS_TRIED:
        return None
    tables = np.asarray(inputs, dtype="float64")
    tried = sorted(product((0, 1, 2), repeat=len(inputs)), key=lambda counts: (max(counts), sum(counts)))
    return next((counts for counts in tried if np.array_equal(np.asarray(counts) @ tables, got)), None)
