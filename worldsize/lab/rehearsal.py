"""A test of a forecast before it is sealed: the form of its rows, and its error where the truth is open.

The error may be larger on closed rows, so the demands are low: enough to reject a half-written answer. Of rows with closed
truth only the form is checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from worldsize import units
from worldsize.checks.kit.intervals import as_seconds, no_intervals, one_factor
from worldsize.checks.verdict import Complaint

MOST_OFF, LEAST_INSIDE, MOST_WIDE = 0.18, 2 / 3, 0.4  # mean error; share of rows that hold; half-width over the middle
NEAR = 0.12


@dataclass(frozen=True)
class Rehearsal:
    """A forecast's result on the open rows: `words` with figures, and a complaint if it is not yet fit to be sealed."""

    words: str
    complaint: Complaint = None

    @override
    def __str__(self) -> str:
        if self.complaint:
            return f"✘ not ready to be sealed. {self.complaint}"
        return f"✔ ready to be sealed. {self.words}"


def rehearsed(rows: Any, known: Sequence[float | None]) -> Rehearsal:
    """Rehearse the rows (low, middle, high); `known` has each row's measurement, None where it is closed."""
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
        f"On {units.count(len(measured), 'row')} with open measurements, the middle is {_percent(off)} off on average; "
        f"{inside} lie within their intervals, which are ± {_percent(wide)} wide on average."
    )

    complaint = None
    if off > MOST_OFF:
        complaint = f"{words} The limit is {_percent(MOST_OFF)} off. {one_factor(middle, measured, NEAR)}".rstrip()
    elif wide > MOST_WIDE:
        complaint = f"{words} The limit is ± {_percent(MOST_WIDE)}: an interval that holds everything says nothing."
    elif inside < LEAST_INSIDE * len(measured):
        complaint = f"{words} At least two in three must: how far off is your model on the rows it was fitted to?"
    return Rehearsal(words, complaint)


def _percent(share: float) -> str:
    return units.number(float(f"{100 * share:.2g}"), "%")
