"""Complaints about lists of tensors that a function changes in place: the first wrong tensor, or memory left as it was.

A model holds the tensors of the list. So a function must write into their memory: a list with new tensors in it changes no
model. `on_ranks.in_memory` records both.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from worldsize.checks.kit.expected import Expected
from worldsize.checks.verdict import Complaint

Arrays = Sequence[np.ndarray]
# weights are copied, and all else is float64: sums in another order differ by less
NEAR_ZERO = 1e-9
ROUNDING = 1e-11
EXACT = {"tolerance": ROUNDING, "near_zero": NEAR_ZERO}

Diagnosis = Callable[[int, int, np.ndarray], str]  # of a rank, an index in the list, and the wrong value


def first_wrong(held: Sequence[Any], right: Arrays, diagnosis: Diagnosis | None = None) -> Complaint:
    """Return a complaint about the first wrong tensor, changed in place, of the first rank whose list is not `right`, or None.

    `diagnosis` says how a tensor of the right shape came to its wrong value.
    """
    expected = _expected(right, len(held), diagnosis)
    for rank, tensors in enumerate(held):
        for k, tensor in enumerate(expected):
            got = tensor_of(tensors, k)
            if got is None:
                return f"rank {rank}, tensor {k} of the list is gone: leave the list as it is, and write into its tensors"
            complaint = tensor.wrong_on(rank, got)
            if complaint:
                return complaint

    return None


def _expected(right: Arrays, world_size: int, diagnosis: Diagnosis | None = None) -> list[Expected]:
    def otherwise(rank: int, got: Any, wanted: np.ndarray, *, k: int) -> str:
        if diagnosis is None or not isinstance(got, np.ndarray) or got.shape != wanted.shape:
            return ""
        return diagnosis(rank, k, got)

    return [
        Expected(
            f"tensor {k} of the list", [array] * world_size, rounding=ROUNDING, near_zero=NEAR_ZERO, equal_nan=True,
            otherwise=partial(otherwise, k=k),
        )
        for k, array in enumerate(right)
    ]  # fmt: skip


def tensor_of(returned: Any, k: int) -> Any:
    """Return the k-th tensor of a list to change in place, or None if `returned` is no list or too short."""
    if isinstance(returned, tuple) and len(returned) > k:  # `arrays.plain` turns lists into tuples
        return returned[k]
    return None


def not_in_place(noted: Sequence[Any], right: Arrays) -> Complaint:
    """Return a complaint if the list is right but the memory of the tensors handed in is not, or None."""
    expected = _expected(right, len(noted))
    for rank, of_rank in enumerate(noted):
        for k, got in enumerate(of_rank["memory"]):
            if expected[k].wrong_on(rank, got) is None:
                continue
            replaced = "the tensor got other memory (by .data = …, or set_)"
            if not of_rank["same"][k]:
                replaced = "another tensor took its place in the list"
            return (
                f"rank {rank}, tensor {k} of the list: the numbers are right, but {replaced}: the model, which holds the "
                f"old tensor, still sees the old numbers. Write into that tensor: receive into it, copy_, mul_, +=."
            )
    return None
