"""Parts of tensors that are sharded over the ranks: the expected values, and the slips (known mistakes) that give other values.

A rank is handed only its own part, or NaN elsewhere, so an answer that computes with other ranks' parts gets NaN, whatever
messages it sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worldsize.checks.kit.values import first_difference, first_slip, same, type_in_words
from worldsize.checks.verdict import Complaint

NEAR, NEAR_ZERO = 1e-9, 1e-11  # relative to the value, and to the largest: float64 sums in another order
SINGLE = 1e-5  # relative error after some steps in float32
SINGLE_WORDS = "Numbers that went through float32 are off by this much: compute and send in float64 here."

ByRank = Sequence[np.ndarray]


@dataclass(frozen=True)
class Part:
    """A tensor's name in messages, the part each rank should hold, and {words for a slip: its result by rank}."""

    name: str
    expected: ByRank
    slips: dict[str, ByRank] = field(default_factory=dict)


def cut(x: np.ndarray, n: int, axis: int = 0) -> list[np.ndarray]:
    """Split a tensor into one part per rank, as torch's `tensor_split` does."""
    return np.array_split(x, n, axis)


def own_alone(x: np.ndarray, n: int, axis: int = 0) -> list[np.ndarray]:
    """Return a tensor of the shape of `x` for each rank, with NaN everywhere but in the rank's own part."""
    given = [np.full_like(x, np.nan) for _ in range(n)]
    for rank, part in enumerate(cut(x, n, axis)):
        cut(given[rank], n, axis)[rank][...] = part

    return given


def wrong_part(held: Sequence[Any], part: Part, blanked: bool = False) -> Complaint:
    """Return a complaint about the first rank whose held[rank] is not its part, naming the slip; None if all are right.

    `blanked`: the ranks were given NaN outside their own parts.
    """
    for rank, got in enumerate(held):
        expected = part.expected[rank]
        largest = float(np.abs(expected).max(initial=0.0))
        complaint = first_difference(got, expected, rank, part.name, NEAR, NEAR_ZERO * largest)
        if complaint:
            slip = first_slip(lambda given, got=got, rank=rank: _same_but_for_nan(got, given[rank]), part.slips)
            if blanked and not slip and isinstance(got, np.ndarray) and np.isnan(got).any():
                slip = (
                    f"The check puts NaN in other ranks' parts, and rank {rank} has computed with it: cut its own part out (NaN "
                    f"times 0 is NaN), and let the ranks add up or gather their results."
                )
            if not slip and same(got, expected, SINGLE, SINGLE * largest):
                slip = SINGLE_WORDS
            return f"{complaint}. {slip}".rstrip()

    return None


def _same_but_for_nan(got: Any, given: np.ndarray) -> bool:
    """Return whether a slip gives `got`, ignoring NaN in `got`: the slip may need numbers that the rank was not given."""
    if not isinstance(got, np.ndarray) or got.shape != given.shape:
        return False

    unknown = np.isnan(got)
    near_zero = NEAR_ZERO * float(np.abs(given).max(initial=0.0))
    return not unknown.all() and same(np.where(unknown, given, got), given, NEAR, near_zero)


def what_came(got: Any) -> str:
    """Describe what a rank returned in place of its parts."""
    if got is None:
        return "nothing"
    if isinstance(got, tuple):
        return f"{len(got)} values"
    if isinstance(got, dict):
        return f"a dict with {', '.join(map(str, got))}"
    return f"a {type_in_words(got)}"
