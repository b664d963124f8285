"""Parts of tensors that are spread over the ranks: what each rank should hold, and which slip gives what came instead.

A rank is handed its part alone, or NaN in what is not its part: whoever computes with it gets NaN, whatever messages are
sent besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worldsize.checks.kit.values import first_difference, first_slip, same, type_in_words
from worldsize.checks.verdict import Complaint

NEAR, NEAR_ZERO = 1e-9, 1e-11  # of a value, and of the largest: float64, and sums in another order
SINGLE = 1e-5  # what numbers that went through float32 are off by, after some steps
SINGLE_WORDS = "So far off are numbers that went through float32: all is float64 here, and so is what travels."

ByRank = Sequence[np.ndarray]


@dataclass(frozen=True)
class Part:
    """A tensor in the reader's words, what each rank should hold of it, and what slips would give.

    `slips`: {words for a slip: what it gives, by rank}.
    """

    name: str
    expected: ByRank
    slips: dict[str, ByRank] = field(default_factory=dict)


def cut(x: np.ndarray, n: int, axis: int = 0) -> list[np.ndarray]:
    """The values that the ranks should hold of a tensor that is spread over them: one part for each rank.

    It cuts as torch's `tensor_split`.
    """
    return np.array_split(x, n, axis)


def own_alone(x: np.ndarray, n: int, axis: int = 0) -> list[np.ndarray]:
    """What the ranks are given of a tensor that is spread over them: its shape, with NaN in what is not the rank's part."""
    given = [np.full_like(x, np.nan) for _ in range(n)]
    for rank, part in enumerate(cut(x, n, axis)):
        cut(given[rank], n, axis)[rank][...] = part

    return given


def wrong_part(held: Sequence[Any], part: Part, blanked: bool = False) -> Complaint:
    """Words for wrong values: the first rank that does not hold the part that it should of a tensor spread over ranks.

    `held[rank]` is what a rank holds; None where all are right. `blanked`: the ranks were given NaN in what is not theirs.
    """
    for rank, got in enumerate(held):
        expected = part.expected[rank]
        largest = float(np.abs(expected).max(initial=0.0))
        complaint = first_difference(got, expected, rank, part.name, NEAR, NEAR_ZERO * largest)
        if complaint:
            slip = first_slip(lambda given, got=got, rank=rank: _same_but_for_nan(got, given[rank]), part.slips)
            if blanked:
                slip = slip or _foreign(got, rank)
            if not slip and same(got, expected, SINGLE, SINGLE * largest):
                slip = SINGLE_WORDS
            return f"{complaint}. {slip}".rstrip()

    return None


def _same_but_for_nan(got: Any, given: np.ndarray) -> bool:
    """Whether a slip gives what came; where the slip would need what the rank was not given, NaN came."""
    if not isinstance(got, np.ndarray) or got.shape != given.shape:
        return False

    unknown = np.isnan(got)
    near_zero = NEAR_ZERO * float(np.abs(given).max(initial=0.0))
    return not unknown.all() and same(np.where(unknown, given, got), given, NEAR, near_zero)


def _foreign(got: Any, rank: int) -> str:
    if not isinstance(got, np.ndarray) or not np.isnan(got).any():
        return ""
    return (
        f"The check puts NaN in what belongs to other ranks, and rank {rank} has computed with it: cut its own part out "
        f"(NaN times 0 is NaN), and let the ranks add up or gather what they have."
    )


def what_came(got: Any) -> str:
    """What a rank returned in place of its parts."""
    if got is None:
        return "nothing"
    if isinstance(got, tuple):
        return f"{len(got)} values"
    if isinstance(got, dict):
        return f"a dict with {', '.join(map(str, got))}"
    return f"a {type_in_words(got)}"
