"""Declared work as a graded run's broker saw it: what was handed to it, and the numbers by which that came back multiplied.

There is a number for each column, drawn when the work is over. So what a rank hands over at one layer tells that it has
waited for the work of the layer before, and what its weights come to tells it of the last: a rank that holds back what it
should declare has neither. Only directions are compared, because a student may scale a loss. Left out: who draws the
numbers (`grade.host.broker`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worldsize.checks.verdict import Complaint

_ALIKE = 1e-6  # of a direction's length: float64 errs by far less


@dataclass(frozen=True)
class WeighedWork:
    """Declared work of `seconds` on the array `given`, [..., columns], whose columns came back times `weights`, [columns].

    None where nothing was handed over.
    """

    seconds: float
    given: np.ndarray | None = None
    weights: np.ndarray | None = None


@dataclass
class WeighedRank:
    """A rank of the reference, whose declared work takes no time: its results are weighed as those of the real rank were.

    `found` are the places of `work` that were on the reference's own numbers; `missed` counts work that the record lacks.
    """

    rank: int
    work: Sequence[WeighedWork] | None = None  # None: no work was weighed
    found: set[int] = field(default_factory=set)
    missed: int = 0

    def compute(self, seconds: float, x: Any) -> Any:
        """The tensor `x` as the real rank got it back."""
        weights = self.weights_of(seconds, x.detach().numpy())
        return x * x.new_tensor(weights)

    def weights_of(self, seconds: float, given: np.ndarray) -> np.ndarray:
        """By what the columns of `given` were multiplied, ones where the real rank did no such work."""
        for place, one in enumerate(self.work or ()):
            if one.seconds == seconds and same_direction(one.given, given):
                self.found.add(place)
                return one.weights
        self.missed += 1
        return np.ones(given.shape[-1:])

    @property
    def all_done(self) -> bool:
        """Whether the real rank did all work that was asked for here, and nothing else."""
        return self.missed == 0 and len(self.found) == len(self.work or ())


def same_direction(got: np.ndarray | None, expected: np.ndarray) -> bool:
    """Whether two arrays differ by a positive factor alone."""
    if got is None or got.shape != expected.shape:
        return False
    sizes = float(np.linalg.norm(got)), float(np.linalg.norm(expected))
    if not all(sizes) or not np.isfinite(sizes).all():
        return sizes == (0.0, 0.0)
    return float(np.linalg.norm(got / sizes[0] - expected / sizes[1])) < _ALIKE


def on_other_numbers(rank: int) -> Complaint:
    """Words for declared work that was not on what the rank had to work on."""
    return (
        f"rank {rank} declared work on other numbers than those that it had to work on: what a layer's work is on, and what it "
        f"comes to, is for the given code alone."
    )
