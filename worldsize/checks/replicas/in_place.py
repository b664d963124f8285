"""Complaints about lists of tensors that a function changes in place: the first wrong tensor, or memory left as it was.

A model holds the tensors of the list. So a function must write into their memory: a list with new tensors in it changes no
model. `on_ranks.in_memory` records both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from worldsize.checks.kit.values import alike, differing
from worldsize.checks.verdict import Complaint

Arrays = Sequence[np.ndarray]
# weights are copied, and all else is float64: sums in another order differ by less
NEAR_ZERO = 1e-9
EXACT = {"tolerance": 1e-11, "near_zero": NEAR_ZERO}


def first_wrong(held: Sequence[Any], expected: Arrays) -> tuple[int, int, Any] | None:
    """Return the first wrong tensor of the first rank that has one, as (rank, index in the list, value), or None."""
    for rank, tensors in enumerate(held):
        for k, right in enumerate(expected):
            got = tensor_of(tensors, k)
            if not isinstance(got, np.ndarray) or got.shape != right.shape or not alike(got, right, **EXACT):
                return rank, k, got

    return None


def tensor_of(returned: Any, k: int) -> Any:
    """Return the k-th tensor of a list, or None if `returned` is no list or too short."""
    if isinstance(returned, tuple) and len(returned) > k:  # `arrays.plain` turns lists into tuples
        return returned[k]
    return None


def mismatch(rank: int, k: int, got: Any, expected: np.ndarray) -> str:
    """Say how the k-th tensor of a rank's list, which `first_wrong` has found, differs from the expected one."""
    where = f"rank {rank}, tensor {k} of the list"
    if got is None:
        return f"{where} is gone: leave the list as it is, and write into its tensors"
    if not isinstance(got, np.ndarray):
        return f"{where}: expected shape {list(expected.shape)}, got {type(got).__name__}"
    if got.shape != expected.shape:
        return f"{where}: expected shape {list(expected.shape)}, got {list(got.shape)}"

    far = differing(got, expected, **EXACT)  # NaN differs from NaN here: skip elements where both are
    i = int(next(place for place in far if not np.isnan(got.reshape(-1)[place]) or not np.isnan(expected.reshape(-1)[place])))
    return f"{where}, element {i}: expected {expected.reshape(-1)[i]:.10g}, got {got.reshape(-1)[i]:.10g}"


def not_in_place(noted: Sequence[Any], expected: Arrays) -> Complaint:
    """Return a complaint if the list is right but the memory of the tensors handed in is not, or None."""
    found = first_wrong([of_rank["memory"] for of_rank in noted], expected)
    if not found:
        return None

    rank, k, _ = found
    replaced = "the tensor got other memory (by .data = …, or set_)"
    if not noted[rank]["same"][k]:
        replaced = "another tensor took its place in the list"
    return (
        f"rank {rank}, tensor {k} of the list: the numbers are right, but {replaced}: the model, which holds the "
        f"old tensor, still sees the old numbers. Write into that tensor: receive into it, copy_, mul_, +=."
    )
