"""The end of a lab: predictions beside measurements, their ratios, and the points so far.

The module holds plain data and its two renderings (HTML for a notebook, lines for a terminal). The HTML (`pages`) sets no
colors, so light and dark themes both work; its strip of ratios only repeats the words.
"""

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from worldsize import pages, units
from worldsize.lab.course_map import CourseMap

CLOSE_RATIO = 1.05
SAME = 1e-9  # relative: the most that rounding alone can do
HEADS = ("question", "you said", "it was", "how far off")
QUESTION_COLUMNS, TERMINAL_COLUMNS = 40, 100
MOST_DECADES = 3
ANSWER_DECADES = 2  # of the strip beside an answer: the same for all, so that strips can be compared
HANDED_IN_MIME = "application/vnd.worldsize.predictions+json"


@dataclass(frozen=True)
class SummaryRow:
    """A question's row of the summary; `predicted` and `measured` are None where there is no number yet."""

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
        """The row's prediction against the measurement, in words; empty unless there are two numbers."""
        if self.predicted is None or self.measured is None:
            return ""

        if self.unit != self.measured_unit:
            return "different units"
        return compare(self.predicted, self.measured, self.unit)

    @property
    def answer(self) -> str:
        """The result beside the prediction, such as "you said 3 s · it was 0.51 s · 5.9 times too high"; empty without a
        measurement."""
        if self.measured is None:
            return ""

        said = [] if self.predicted is None else [f"you said {self.predicted_text}"]
        return " · ".join([*said, f"it was {self.measured_text}", *filter(None, [self.comparison])])

    @property
    def answer_html(self) -> str:
        """`answer` as HTML with a strip that shows the ratio; empty without a measurement."""
        return pages.render("answer.html", row=self, reach=ANSWER_DECADES) if self.answer else ""

    @property
    def decades(self) -> float | None:
        """The error as a power of ten, above 0 for too high; None where two numbers have no ratio."""
        if self.predicted is None or self.measured is None or self.unit != self.measured_unit:
            return None
        if math.isclose(self.predicted, self.measured, rel_tol=SAME):
            return 0.0
        if self.predicted * self.measured <= 0:
            return None

        return math.log10(self.predicted / self.measured)


def reach(rows: Iterable[SummaryRow]) -> int:
    """Return the powers of ten that the strips of the summary's rows reach to each side, at most `MOST_DECADES`."""
    off = [abs(row.decades) for row in rows if row.decades is not None]
    return min(MOST_DECADES, max(1, math.ceil(max(off, default=0))))


def compare(predicted: float, measured: float, unit: str = "") -> str:
    """Return for a summary a prediction's error in words: a factor, a share of the measurement, or a gap."""
    if math.isclose(predicted, measured, rel_tol=SAME):
        return "exactly"

    side = "too low" if predicted < measured else "too high"
    gap = units.number(abs(measured - predicted), unit)
    if predicted * measured <= 0:
        return f"{gap} {side}"

    ratio = max(abs(predicted), abs(measured)) / min(abs(predicted), abs(measured))
    if math.isinf(ratio):
        return f"{gap} {side}"
    if ratio <= CLOSE_RATIO:
        return f"within {round((CLOSE_RATIO - 1) * 100)} %"
    if predicted < 0:
        return f"{gap} {side}"
    if ratio >= 2:
        return f"{units.number(float(f'{ratio:.2g}'))} times {side}"  # two digits: 230.8 is 230, 2.54 is 2.5
    if unit == "%":
        return f"{gap.removesuffix(' %')} percentage points {side}"
    return f"{abs(predicted - measured) / measured:.0%} {side}".replace("%", " %")


@dataclass(frozen=True)
class Score:
    """The summary's points of one exercise at its latest check."""

    exercise: str
    earned: float
    possible: float
    state: str

    @override
    def __str__(self) -> str:
        if self.state == "not yet":
            return f"not yet: {self.exercise} ({_points(self.possible)})"
        return f"not all of {self.exercise}: {units.number(self.earned)} of {_points(self.possible)}"


@dataclass(frozen=True, repr=False)
class Summary:
    """A lab's summary, rows and scores; shown as a table by a notebook and by `print`.

    `course_points` count all labs so far; `next_lab` is "" after the last; a notebook also shows `course_map`.
    `handed_in` is the data that the notebook carries to an instructor, None if the predictions stay with the student.
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
        """Return `points: 4 of 6`, then one line for each exercise that misses some."""
        lines = [f"points: {units.number(self.points)} of {units.number(self.possible)}"]
        lines += [str(score) for score in self.scores if score.earned < score.possible]

        unchecked = self.possible - sum(score.possible for score in self.scores)
        if unchecked > 0:
            lines.append(f"not checked yet: exercises worth {_points(unchecked)}")
        return lines

    def course_lines(self) -> list[str]:
        """Return lines with the points so far in the course, and the next lab."""
        lines = [f"in the course so far: {units.number(self.course_points)} of {_points(self.course_possible)}"]
        if self.next_lab:
            lines.append(f"after this lab: {self.next_lab}")
        return lines

    @property
    def travel_line(self) -> str:
        """A sentence that says where the predictions go."""
        if not any(row.predicted is not None for row in self.rows):
            return ""

        if self.handed_in is None:
            return (
                "Your predictions stay with you. Your instructor gets them with this notebook if you write "
                "`lab.summary(hand_in_predictions=True)`. They earn no points."
            )
        count = len(self.handed_in["predictions"])
        return f"This notebook carries {units.count(count, 'prediction')} to your instructor. They earn no points."

    @override
    def __str__(self) -> str:
        travels = textwrap.wrap(self.travel_line.replace("`", ""), TERMINAL_COLUMNS)
        after = [*self.point_lines(), *self.course_lines(), *travels]
        return "\n".join([self.heading, "", *self._table(), "", *after])

    __repr__ = __str__

    def _table(self) -> list[str]:
        """Return the summary for a terminal: each question wrapped, the row's other cells beside its first line."""
        if not self.rows:
            return ["no predictions yet"]

        cells = [HEADS, *(row.cells for row in self.rows)]
        _, *columns = zip(*cells, strict=True)
        widths = [max(map(len, column)) for column in columns]

        lines = []
        for question, *others in cells:
            first, *more = textwrap.wrap(question.replace("`", ""), QUESTION_COLUMNS) or [""]
            padded = [cell.ljust(width) for cell, width in zip(others, widths, strict=True)]
            lines += [f"{first.ljust(QUESTION_COLUMNS)}  {'  '.join(padded)}".rstrip(), *more]
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
