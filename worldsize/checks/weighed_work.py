"""Declared work as a graded run's broker saw it: the arrays handed over, and the factors by which their columns came back.

`grade.outside.broker` draws a factor for each column once the work is over. So the next layer's input, and in the end the
weights, prove that a rank waited for its work. Only directions are compared, because a student may scale a loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worldsize.checks.verdict import Complaint

_ALIKE = 1e-6  # relative to a direction's length; float64 rounding is far smaller


@dataclass(frozen=True)
class WeighedWork:
    """Declared work of `seconds` on the array `given`, [..., columns], whose columns came back times `weights`, [columns].

    Both are None where nothing was handed over.
    """

    seconds: float
    given: np.ndarray | None = None
    weights: np.ndarray | None = None


@dataclass
class WeighedRank:
    """A rank of the reference, whose declared work takes no time and is weighed like the real rank's.

    `found` holds the indices in `work` whose input the reference computed too. `missed` counts work that the record lacks.
    """

    rank: int
    work: Sequence[WeighedWork] | None = None  # None: no work was weighed
    found: set[int] = field(default_factory=set)
    missed: int = 0

    def compute(self, seconds: float, x: Any) -> Any:
        """Return the tensor `x` as the real rank got it back."""
        weights = self.weights_of(seconds, x.detach().numpy())
        return x * x.new_tensor(weights)

    def weights_of(self, seconds: float, given: np.ndarray) -> np.ndarray:
        """Return the factors of the columns of `given`: ones where the real rank did no such work."""
        for place, one in enumerate(self.work or ()):
            if one.seconds == seconds and same_direction(one.given, given):
                self.found.add(place)
                return one.weights
        self.missed += 1
        return np.ones(given.shape[-1:])

    @property
    def all_done(self) -> bool:
        """Return whether the real rank did all work that the reference asked for, and nothing else."""
        return self.missed == 0 and len(self.found) == len(self.work or ())


def same_direction(got: np.ndarray | None, expected: np.ndarray) -> bool:
    """Return whether two arrays of declared work differ by a positive factor alone."""
    if got is None or got.shape != expected.shape:
        return False
    sizes = float(np.linalg.norm(got)), float(np.linalg.norm(expected))
    if not all(sizes) or not np.isfinite(sizes).all():
        return sizes == (0.0, 0.0)
    return float(np.linalg.norm(got / sizes[0] - expected / sizes[1])) < _ALIKE


def on_other_numbers(rank: int) -> Complaint:
    """Return the complaint about declared work that was not on the rank's own numbers."""
    return (
        f"rank {rank} declared work on other numbers than its own: leave the input and the result of a layer's work to the given "
        f"code."
    )
