"""The right value of a tensor on each rank, with the results of known mistakes: what came back names the mistake."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worldsize.checks.kit.judge import first_complaint
from worldsize.checks.kit.values import TOLERANCE, first_difference, first_slip, same
from worldsize.checks.verdict import Complaint

ByRank = Sequence[np.ndarray]
Mistakes = Mapping[str, ByRank]  # {words for a mistake: its result by rank}

# the largest relative error of a number that went through float32: once, or in several steps
ONCE_SINGLE, SINGLE = 1e-6, 1e-5
HALF = 2.0**-6  # the same for bfloat16 (8 bits) or float16, after a few sums and rounds
SINGLE_WORDS = "Numbers that went through float32 are off by this much: compute and send in float64 here."


def as_number(rank: int, got: Any, right: np.ndarray) -> str:
    """Return what can be said of a value that is not the expected one: a wider dtype, not finite, or too few digits."""
    if not isinstance(got, np.ndarray) or got.shape != right.shape:
        return ""
    if got.dtype.itemsize > right.dtype.itemsize:
        return "Something on the way had a wider dtype: give buffers the dtype of the input."
    if not np.isfinite(got).all():
        return f"{int((~np.isfinite(got)).sum())} of its {got.size} numbers are not finite."
    if got.dtype.kind in "iu" and right.dtype.kind in "iu":  # whole numbers are compared exactly, but may have been floats
        got, right = got.astype(float), right.astype(float)
    largest = float(np.abs(right).max(initial=0.0))
    if same(got, right, ONCE_SINGLE, ONCE_SINGLE * largest):
        return "Numbers that went through float32 are off by this much: give buffers the dtype of the input."
    if same(got, right, HALF, HALF * largest):
        return "Numbers that went through bfloat16 or float16 are off by this much: send them in the dtype of the input."
    return ""


def went_through_float32(rank: int, got: Any, right: np.ndarray, near_zero: float | None = None) -> str:
    """Return SINGLE_WORDS if float64 numbers are right but for the digits that float32 lacks, else an empty text.

    `near_zero` is an absolute error; its default is relative to the largest right number.
    """
    if near_zero is None:
        near_zero = SINGLE * float(np.abs(right).max(initial=0.0))
    return SINGLE_WORDS if right.dtype == "float64" and same(got, right, SINGLE, near_zero) else ""


@dataclass(frozen=True)
class Expected:
    """An expected tensor: its name in messages, its right value on each rank, other right values (`too`), and known mistakes.

    `name` may be a function of the rank. `mistakes` may be a function, which is called only if something is wrong. `rounding`
    is the error allowed, relative to each value. `near_zero`, an absolute error, is allowed besides; its default is `rounding`
    of the rank's largest value.
    `but_for_nan`: a mistake explains what came back also where that has NaN, as where a rank computed with what it was not given.
    `equal_nan`: the right value may hold NaN, and then it is right.
    `otherwise(rank, got, right)` says what can be said of a wrong value that no mistake explains.
    """

    name: str | Callable[[int], str]
    by_rank: ByRank
    mistakes: Mistakes | Callable[[], Mistakes] = field(default_factory=dict)
    too: Sequence[ByRank] = ()
    rounding: float = TOLERANCE
    near_zero: float | None = None
    but_for_nan: bool = False
    equal_nan: bool = False
    otherwise: Callable[[int, Any, np.ndarray], str] = as_number

    def wrong(self, held: Sequence[Any]) -> Complaint:
        """Return a complaint about the first rank without the expected tensor, with the mistake; None if all are right."""
        on_ranks = (self.wrong_on(rank, got, held) for rank, got in zip(range(len(self.by_rank)), held, strict=True))
        return first_complaint(on_ranks)

    def wrong_on(self, rank: int, got: Any, held: Sequence[Any] = ()) -> Complaint:
        """Return a complaint if a rank's tensor is not the expected one, with the mistake, or None.

        Two mistakes may have one result on one rank. So a mistake that explains what all ranks `held` comes first.
        """
        def differs(wanted: np.ndarray, name: str = "") -> Complaint:
            return first_difference(got, wanted, rank, name, **self.margin(rank), equal_nan=self.equal_nan)

        right = self.by_rank[rank]
        complaint = differs(right, self.name(rank) if callable(self.name) else self.name)
        if not complaint or any(differs(other[rank]) is None for other in self.too):
            return None
        mistakes = self.mistakes() if callable(self.mistakes) else self.mistakes
        found = held and first_slip(lambda given: all(map(self._gives, held, given, range(len(held)))), mistakes)
        found = found or first_slip(lambda given: self._gives(got, given[rank], rank), mistakes)
        return f"{complaint}. {found or self.otherwise(rank, got, right)}".rstrip()

    def margin(self, rank: int) -> dict[str, float]:
        """Return the errors allowed on a rank, as the arguments `tolerance` and `near_zero` of `first_difference` and `same`."""
        largest = float(np.nanmax(np.abs(self.by_rank[rank]), initial=0.0))
        return {
            "tolerance": self.rounding,
            "near_zero": self.rounding * largest if self.near_zero is None else self.near_zero,
        }

    def _gives(self, got: Any, given: np.ndarray, rank: int) -> bool:
        """Return whether a mistake that results in `given` explains what came back."""
        if not self.but_for_nan or not isinstance(got, np.ndarray) or got.shape != given.shape:
            return same(got, given, **self.margin(rank))
        known = ~np.isnan(got)
        return bool(known.any()) and same(got[known], given[known], **self.margin(rank))
