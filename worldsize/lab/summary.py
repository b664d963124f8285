"""The end of a lab: what was predicted beside what was measured, how far off each was, and the points so far.

Plain data and its two texts (HTML for a notebook, lines for a terminal). The HTML (`pages`) sets no colours, so that
light and dark themes both read; its strip of ratios is a drawing beside the words, which say the same.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from worldsize import pages, units
from worldsize.lab.course_map import CourseMap

CLOSE_RATIO = 1.05
SAME = 1e-9  # relative: what rounding alone can do
HEADS = ("question", "you said", "it was", "how far off")
QUESTION_COLUMNS, TERMINAL_COLUMNS = 40, 100
MOST_DECADES = 3
HANDED_IN_MIME = "application/vnd.worldsize.predictions+json"


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
        """The prediction against the measurement, in words; empty where there are not two numbers."""
        if self.predicted is None or self.measured is None:
            return ""

        if self.unit != self.measured_unit:
            return "different units"
        return compare(self.predicted, self.measured, self.unit)

    @property
    def answer(self) -> str:
        """What came out, beside what was said: "you said 3 s · it was 0.51 s · 5.9 times too high"; else empty."""
        if self.measured is None:
            return ""
        said = [] if self.predicted is None else [f"you said {self.predicted_text}"]
        return " · ".join([*said, f"it was {self.measured_text}", *filter(None, [self.comparison])])

    @property
    def answer_html(self) -> str:
        """`answer` with a strip of how far off it was; empty where it is not known."""
        return pages.render("answer.html", row=self, reach=reach([self])) if self.answer else ""

    @property
    def decades(self) -> float | None:
        """How far off as a power of ten, above 0 for too high; None where there is no ratio of two numbers."""
        if self.predicted is None or self.measured is None or self.unit != self.measured_unit:
            return None
        if math.isclose(self.predicted, self.measured, rel_tol=SAME):
            return 0.0
        if self.predicted * self.measured <= 0:
            return None
        return math.log10(self.predicted / self.measured)


def reach(rows: Iterable[SummaryRow]) -> int:
    """How many powers of ten the strips of these rows reach to each side."""
    off = [abs(row.decades) for row in rows if row.decades is not None]
    return min(MOST_DECADES, max(1, math.ceil(max(off, default=0))))


def compare(predicted: float, measured: float, unit: str = "") -> str:
    """In a lab's summary, how far off a prediction was: a factor, a share of the measurement, or a gap."""
    if math.isclose(predicted, measured, rel_tol=SAME):
        return "exactly"

    side = "too low" if predicted < measured else "too high"
    gap = units.number(abs(measured - predicted), unit)
    if predicted * measured <= 0:
        return f"{gap} {side}"

    ratio = max(abs(predicted), abs(measured)) / min(abs(predicted), abs(measured))
    if ratio <= CLOSE_RATIO:
        return f"within {round((CLOSE_RATIO - 1) * 100)} %"
    if predicted < 0:
        return f"{gap} {side}"
    if ratio >= 2:
        return f"{_two_digits(ratio)} times {side}"
    if unit == "%":
        return f"{gap.removesuffix(' %')} percentage points {side}"
    return f"{abs(predicted - measured) / measured:.0%} {side}".replace("%", " %")


def _two_digits(ratio: float) -> str:
    """230.8 -> '230', 2.54 -> '2.5'."""
    return units.number(float(f"{ratio:.2g}"))


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
    """A lab's rows and scores; shown as a table by a notebook and by `print`.

    Of the course: the points so far over all labs, the lab that follows, "" after the last, and a notebook shows its map.
    `handed_in` is what the notebook carries to an instructor, None where the predictions stay with the student.
    """

    heading: str
    rows: tuple[SummaryRow, ...]
    scores: tuple[Score, ...]
    possible: float
    course_points: float
    course_possible: float
    next_lab: str
    course_map: CourseMap | None = None
    handed_in: dict[str, Any] | None = None

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

    def course_lines(self) -> list[str]:
        """The points so far in the course, and the next lab."""
        lines = [f"in the course so far: {units.number(self.course_points)} of {_points(self.course_possible)}"]
        if self.next_lab:
            lines.append(f"next: {self.next_lab}")
        return lines

    @property
    def travel_line(self) -> str:
        """Say where the predictions go."""
        if not any(row.predicted is not None for row in self.rows):
            return ""
        if self.handed_in is None:
            return (
                "Your predictions stay with you. Your instructor gets them with this notebook if you write "
                "`lab.summary(hand_in_predictions=True)`. They earn no points."
            )
        count = len(self.handed_in["predictions"])
        return f"This notebook carries {units.count(count, 'prediction')} to your instructor. They earn no points."

    def __str__(self) -> str:
        travels = textwrap.wrap(self.travel_line.replace("`", ""), TERMINAL_COLUMNS)
        after = [*self.point_lines(), *self.course_lines(), *travels]
        return "\n".join([self.heading, "", *self._table(), "", *after])

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

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        data = {"text/plain": str(self), "text/html": self._repr_html_()}
        return data if self.handed_in is None else {**data, HANDED_IN_MIME: self.handed_in}

    def _repr_html_(self) -> str:
        return pages.render(
            "summary.html",
            heading=self.heading,
            heads=HEADS,
            rows=self.rows,
            reach=reach(self.rows),
            points=self.point_lines(),
            course=self.course_lines(),
            travels=self.travel_line,
        ) + (self.course_map._repr_html_() if self.course_map else "")


def _points(count: float) -> str:
    plural = "" if count == 1 else "s"
    return f"{units.number(count)} point{plural}"


def _lines_of(cells: tuple[str, ...], widths: list[int]) -> list[str]:
    """A row in a terminal: the question in as many lines as it needs, the other cells beside its first."""
    question, *others = cells
    first, *more = textwrap.wrap(question.replace("`", ""), QUESTION_COLUMNS) or [""]
    padded = [cell.ljust(width) for cell, width in zip(others, widths, strict=True)]
    return [f"{first.ljust(QUESTION_COLUMNS)}  {'  '.join(padded)}".rstrip(), *more]
