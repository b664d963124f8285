"""Marks as the CSV that Canvas or Moodle imports, from the rows of a grading.

Canvas and Moodle know a student by the number in the name of the file that they exported (`submissions_folder`); a
student without one is named in `MarkSheet.unknown` and left out, and so are those who share one: never two lines for one
number. Left out: formulas (`sheet`), nbgrader's gradebook, feedback, and who needs a person (`attention`).

The columns are those of Canvas's guide "How do I import grades in the Gradebook?" and of Moodle's grading worksheet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from worldsize.grade.marking.rows import NO_MARK, GradeRow
from worldsize.grade.marking.submissions_folder import numbered
from worldsize.grade.reports import sheet
from worldsize.grade.reports.attention import doubled


@dataclass(frozen=True)
class MarkSheet:
    """A CSV's text; `unknown` are students whose number is not in their name.

    `doubled` are words for each number that more than one student has, none of whom is in the text.
    """

    text: str
    unknown: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()


def canvas(rows: Iterable[GradeRow]) -> MarkSheet:
    """Marks exported as CSV for Canvas.

    A column for each lab, a line for each student, and Canvas's line of possible points under the heads.

    Raises ValueError where there are no rows.
    """
    kept = list(rows)
    if not kept:
        raise ValueError("export: expected the rows of a grading, got none. Give the folder that `worldsize grade` wrote.")

    labs, possible = _labs(kept), defaultdict(float)
    marks: dict[str, dict[str, str]] = {}
    for row in kept:
        possible[row.lab] = max(possible[row.lab], row.possible)
        marks.setdefault(row.student, dict.fromkeys(labs, ""))[row.lab] = _mark(row)

    def line(student: str, name: str, id: str) -> list[str]:
        return [name, id, "", "", "", *map(marks[student].get, labs)]

    heads = [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *labs],
        ["    Points Possible", "", "", "", "", *(f"{possible[lab]:g}" for lab in labs)],
    ]
    return _sheet(kept, heads, line)


def _labs(rows: Iterable[GradeRow]) -> list[str]:
    return sorted({row.lab for row in rows if row.lab})


def moodle(rows: Iterable[GradeRow], lab: str) -> MarkSheet:
    """Marks exported as CSV for Moodle.

    One lab's grading worksheet. Raises ValueError for a lab that nobody handed in.
    """
    everything = list(rows)
    by_student = {row.student: row for row in everything if row.lab == lab}
    if not by_student:
        known = ", ".join(_labs(everything)) or "no lab at all"
        raise ValueError(f"export: expected a lab that was graded ({known}), got {lab!r}.")

    def line(student: str, name: str, id: str) -> list[str]:
        row = by_student[student]
        return [f"Participant {id}", name, _mark(row), f"{row.possible:g}", _comment(row)]

    heads = [["Identifier", "Full name", "Grade", "Maximum grade", "Feedback comments"]]
    return _sheet([row for row in everything if row.lab == lab], heads, line)


def _mark(row: GradeRow) -> str:
    if row.state in NO_MARK:
        return ""
    return f"{row.points:g}"


def _sheet(rows: list[GradeRow], heads: list[list[str]], line: Callable[[str, str, str], list[str]]) -> MarkSheet:
    lines = list(heads)
    shared = doubled(rows)
    unknown = []
    for student in sorted({row.student for row in rows}):
        known = numbered(student)
        if known is None:
            unknown.append(student)
        elif student not in shared:
            lines.append(line(student, *known))

    return MarkSheet(sheet.text(lines), tuple(unknown), tuple(dict.fromkeys(shared.values())))


def _comment(row: GradeRow) -> str:
    lines = [row.reason]
    for e in row.exercises:
        lines.append(f"{e.title}: {e.points:g} of {e.possible:g}. {e.mismatch}".strip())
    return "\n".join(filter(None, lines))
