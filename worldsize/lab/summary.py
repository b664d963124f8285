"""The table at a lab's end: what was predicted beside what was measured, and the points so far.

Plain data and its two texts (HTML for a notebook, lines for a terminal). The HTML (`pages`) sets no colours, so that
light and dark themes both read.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from worldsize import pages, units

CLOSE_RATIO = 1.05
HEADS = ("question", "predicted", "measured", "comparison")
QUESTION_COLUMNS = 40


@dataclass(frozen=True)
class SummaryRow:
    """One question; `predicted` and `measured` are None where there is no number yet."""

    id: str
    question: str
    unit: str
    predicted: float | None
    measured: float | None
    measured_unit: str

    @property
    def predicted_text(self) -> str:
        if self.predicted is None:
            return "no prediction"
        return units.number(self.predicted, self.unit)

    @property
    def measured_text(self) -> str:
        if self.measured is None:
            return "not measured yet"
        return units.number(self.measured, self.measured_unit)

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.question, self.predicted_text, self.measured_text, self.comparison)

    @property
    def comparison(self) -> str:
        """The measurement against the prediction, in words; empty where there are not two numbers."""
        if self.predicted is None or self.measured is None:
            return ""

        if self.unit != self.measured_unit:
            return "different units"
        return compare(self.predicted, self.measured, self.unit)


def compare(predicted: float, measured: float, unit: str = "") -> str:
    """In a lab's summary, how far off: a ratio of prediction and measurement where that makes sense, or the gap."""
    if predicted == measured:
        return "exactly as predicted"
    if predicted * measured <= 0:
        side = "above" if measured > predicted else "below"
        return f"{units.number(abs(measured - predicted), unit)} {side} the prediction"

    ratio = measured / predicted
    if 1 / CLOSE_RATIO <= ratio <= CLOSE_RATIO:
        return f"as predicted, within {round((CLOSE_RATIO - 1) * 100)} %"
    return f"{units.times(ratio)} times the prediction"


@dataclass(frozen=True)
class Score:
    """What one exercise earned at its latest check."""

    exercise: str
    earned: float
    possible: float
    state: str

    def __str__(self) -> str:
        if self.state == "not yet":
            return f"not yet: {self.exercise} ({_points(self.possible)})"
        return f"not all of {self.exercise}: {units.number(self.earned)} of {_points(self.possible)}"


@dataclass(frozen=True, repr=False)
class Summary:
    """A lab's rows and scores; shown as a table by a notebook and by `print`."""

    heading: str
    rows: tuple[SummaryRow, ...]
    scores: tuple[Score, ...]
    possible: float

    @property
    def points(self) -> float:
        return sum(score.earned for score in self.scores)

    def point_lines(self) -> list[str]:
        """`points: 4 of 6`, then one line for each exercise that misses some."""
        lines = [f"points: {units.number(self.points)} of {units.number(self.possible)}"]
        lines += [str(score) for score in self.scores if score.earned < score.possible]

        unchecked = self.possible - sum(score.possible for score in self.scores)
        if unchecked > 0:
            lines.append(f"not checked yet: exercises worth {_points(unchecked)}")
        return lines

    def __str__(self) -> str:
        return "\n".join([self.heading, "", *self._table(), "", *self.point_lines()])

    __repr__ = __str__

    def _table(self) -> list[str]:
        if not self.rows:
            return ["no predictions yet"]

        cells = [HEADS, *(row.cells for row in self.rows)]
        _, *columns = zip(*cells, strict=True)
        widths = [max(map(len, column)) for column in columns]
        lines = []
        for row in cells:
            lines += _lines_of(row, widths)
        return lines

    def _repr_html_(self) -> str:
        return pages.render(
            "summary.html", heading=self.heading, heads=HEADS, rows=self.rows, points=self.point_lines()
        )


def _points(count: float) -> str:
    plural = "" if count == 1 else "s"
    return f"{units.number(count)} point{plural}"


def _lines_of(cells: tuple[str, ...], widths: list[int]) -> list[str]:
    """A row in a terminal: the question in as many lines as it needs, the other cells beside its first."""
    question, *others = cells
    first, *more = textwrap.wrap(question, QUESTION_COLUMNS) or [""]
    padded = [cell.ljust(width) for cell, width in zip(others, widths, strict=True)]
    return [f"{first.ljust(QUESTION_COLUMNS)}  {'  '.join(padded)}".rstrip(), *more]
