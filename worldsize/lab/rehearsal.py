"""A forecast is tried before it is sealed: the form of its rows, and how far off it is where the truth lies open.

What holds there need not hold farther away, so little is asked for: enough to turn away an answer that is half written. Left
out: the rows whose truth is closed, of which only the form is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from worldsize import units
from worldsize.checks.kit.intervals import as_seconds, no_intervals, one_factor
from worldsize.checks.verdict import Complaint

MOST_OFF, LEAST_INSIDE, MOST_WIDE = 0.18, 2 / 3, 0.4  # the middle; the part of rows that hold; the half-width over the middle
NEAR = 0.12


@dataclass(frozen=True)
class Rehearsal:
    """What a forecast's open rows show: `words` with figures, and a complaint where it is not yet fit to be sealed."""

    words: str
    complaint: Complaint = None

    def __str__(self) -> str:
        if self.complaint:
            return f"✘ not ready to be sealed. {self.complaint}"
        return f"✔ ready to be sealed. {self.words}"


def rehearsed(rows: Any, known: Sequence[float | None]) -> Rehearsal:
    """Try (low, middle, high) of each row; `known` has what was measured, None where that is closed."""
    complaint = no_intervals(rows, len(known))
    if complaint:
        return Rehearsal("", complaint + ".")

    is_open = np.array([value is not None for value in known])
    measured = np.array([value for value in known if value is not None], float)
    low, middle, high = as_seconds(rows)[is_open].T
    off = float(np.abs(middle / measured - 1).mean())
    inside = int(((low <= measured) & (measured <= high)).sum())
    wide = float(((high - low) / 2 / middle).mean())
    words = (
        f"Of {units.count(len(measured), 'row')} whose truth is open the middle is {_percent(off)} off on average, and "
        f"{inside} lie in their intervals, which are ± {_percent(wide)} wide on average."
    )
    return Rehearsal(words, _not_fit(words, middle, measured, off, inside, wide))


def _not_fit(
    words: str, middle: np.ndarray, measured: np.ndarray, off: float, inside: int, wide: float
) -> Complaint:
    if off > MOST_OFF:
        return f"{words} At most {_percent(MOST_OFF)} off is asked for. {one_factor(middle, measured, NEAR)}".rstrip()
    if wide > MOST_WIDE:
        return f"{words} At most ± {_percent(MOST_WIDE)} is asked for: an interval that holds everything says nothing."
    if inside < LEAST_INSIDE * len(measured):
        return f"{words} At least two in three should: how far off is your model on the rows that it was fitted to?"
    return None


def _percent(share: float) -> str:
    return units.number(float(f"{100 * share:.2g}"), "%")
