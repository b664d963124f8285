"""What ranks returned, held against what they should have: numbers and tensors, and which mistake gives just that.

A mistake is named by what it would have given: the first one that gives what came back. Tensors that are spread over
the ranks are compared part by part. Left out: messages (`transfers`), what is right, and which mistakes there are
(each check says so).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worldsize.checks.kit.judge import first_difference

ByRank = Sequence[np.ndarray]
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Part:
    """A tensor in the reader's words, what each rank should hold of it, and {what a slip is called: what it gives, by rank}."""

    name: str
    expected: ByRank
    slips: dict[str, ByRank] = field(default_factory=dict)


def cut(x: np.ndarray, n: int, axis: int = 0) -> list[np.ndarray]:
    """The values that the ranks should hold of a tensor that is spread over them: one part for each rank.

    It cuts as torch's `tensor_split`.
    """
    return np.array_split(x, n, axis)


def wrong_part(held: Sequence[Any], part: Part) -> str | None:
    """Words for wrong values: the first rank that does not hold the part that it should of a tensor spread over ranks.

    `held[rank]` is what a rank holds; None where all are right.
    """
    for rank, got in enumerate(held):
        complaint = first_difference(got, part.expected[rank], rank, part.name)
        if complaint:
            slip = next((complaint for complaint, given in part.slips.items() if same(got, given[rank])), "")
            return f"{complaint}. {slip}".rstrip()
    return None


def same(got: Any, given: np.ndarray) -> bool:
    return isinstance(got, np.ndarray) and got.shape == given.shape and bool(np.allclose(got, given, rtol=1e-6, atol=1e-12))


def not_a_tuple(returned: Sequence[Any], names: Sequence[str]) -> str | None:
    """Words for the first rank that did not return as many values as there are names."""
    for rank, got in enumerate(returned):
        if not isinstance(got, tuple) or len(got) != len(names):
            shown = "nothing" if got is None else f"{len(got)} values" if isinstance(got, tuple) else f"a {_type_in_words(got)}"
            return f"rank {rank}: expected {len(names)} values ({', '.join(names)}), got {shown}"
    return None


def _type_in_words(got: Any) -> str:
    return "tensor" if isinstance(got, np.ndarray) else type(got).__name__


def number(value: Any) -> float | str:
    """The one value that a student's function returned, as a float, or words that say what came instead."""
    if value is None:
        return "got None (does the function return it?)"
    if isinstance(value, (bool, np.bool_, str)):
        return f"got {value!r}"
    try:
        found = float(np.asarray(value, dtype=float).reshape(-1)[0]) if np.size(value) == 1 else None
    except (TypeError, ValueError):
        found = None
    return f"got {_size_in_words(value)}" if found is None else found


def close(got: float, expected: float, tolerance: float = TOLERANCE) -> bool:
    """Whether a returned value equals the expected one but for rounding.

    `tolerance` is absolute for small numbers and relative for large ones.
    """
    return math.isclose(got, expected, rel_tol=tolerance, abs_tol=tolerance)


def first_named(got: float, mistakes: Mapping[str, float | Callable[[], float]], tolerance: float = TOLERANCE) -> str:
    """Words for a wrong value: the first of the named mistakes that would have given just this value.

    It is ". This is …"; empty where no mistake gives what was got.
    """
    for complaint, value in mistakes.items():
        found = value() if callable(value) else value
        if math.isfinite(found) and close(got, found, tolerance):
            return f". {complaint}"
    return ""


def _size_in_words(value: Any) -> str:
    if isinstance(value, (tuple, list, dict, np.ndarray)):
        return f"{np.size(value) if not isinstance(value, dict) else len(value)} values"
    return f"a {type(value).__name__}"
