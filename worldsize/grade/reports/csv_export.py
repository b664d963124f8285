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

from worldsize.grade.marking.by_hand import NOTHING_GIVEN, Given
from worldsize.grade.marking.rows import NO_MARK, GradeRow
from worldsize.grade.marking.submissions_folder import numbered, same_number
from worldsize.grade.reports import sheet
from worldsize.grade.reports.attention import doubled
from worldsize.grade.reports.canvas_columns import FIRST, CanvasColumns


@dataclass(frozen=True)
class MarkSheet:
    """A CSV's text; `unknown` are students whose number is not in their name, or not in the LMS's own list.

    `doubled` are words for each number that more than one student has, none of whom is in the text.
    """

    text: str
    unknown: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()


def canvas(rows: Iterable[GradeRow], given: Given = NOTHING_GIVEN, theirs: CanvasColumns | None = None) -> MarkSheet:
    """Marks exported as CSV for Canvas: a column a lab, a line a student, Canvas's line of possible points under the heads.

    Points `given` by hand count before a row's. With `theirs` heads and students are as Canvas itself has them.
    Raises ValueError where there are no rows.
    """
    kept = list(rows)
    if not kept:
        raise ValueError("export: expected the rows of a grading, got none. Give the folder that `worldsize grade` wrote.")

    labs, possible = labs_of(kept, given), defaultdict(float)
    marks: dict[str, dict[str, str]] = {row.student: dict.fromkeys(labs, "") for row in kept}
    for row in kept:
        possible[row.lab] = max(possible[row.lab], row.possible)
        marks[row.student][row.lab] = _mark(row, given)
    for (student, lab), points in given.items():
        if student in marks:
            marks[student][lab] = f"{points.points:g}"

    def line(student: str, name: str, id: str) -> list[str]:
        first = [name, id, "", "", ""]
        if theirs is not None:
            first = theirs.students.get(same_number(id), [])
        return [*first, *map(marks[student].get, labs)] if first else []

    names = [theirs.heads[lab] if theirs else lab for lab in labs]
    worth = [theirs.possible.get(lab, possible[lab]) if theirs else possible[lab] for lab in labs]
    heads = [[*FIRST, *names], ["    Points Possible", "", "", "", "", *(f"{points:g}" for points in worth)]]
    return _sheet(kept, heads, line)


def labs_of(rows: Iterable[GradeRow], given: Given = NOTHING_GIVEN) -> list[str]:
    """The labs that have a mark."""
    return sorted({row.lab for row in rows if row.lab} | {lab for _, lab in given})


def moodle(rows: Iterable[GradeRow], lab: str, given: Given = NOTHING_GIVEN) -> MarkSheet:
    """Marks exported as CSV for Moodle: one lab's grading worksheet. Points `given` by hand count before a row's.

    Raises ValueError for a lab that nobody handed in.
    """
    everything = list(rows)
    of_lab = [row for row in everything if row.lab == lab]
    if not of_lab:
        known = ", ".join(labs_of(everything)) or "no lab at all"
        raise ValueError(f"export: expected a lab that was graded ({known}), got {lab!r}.")

    by_student = {row.student: row for row in everything if (row.student, lab) in given and not row.lab}
    by_student |= {row.student: row for row in of_lab}
    possible = max(row.possible for row in of_lab)

    def line(student: str, name: str, id: str) -> list[str]:
        row = by_student[student]
        told = given.get((student, lab))
        mark = f"{told.points:g}" if told else _mark(row, given)
        comment = "\n".join(filter(None, [told.reason if told else "", _comment(row)]))
        return [f"Participant {id}", name, mark, f"{possible:g}", comment]

    heads = [["Identifier", "Full name", "Grade", "Maximum grade", "Feedback comments"]]
    return _sheet([*by_student.values(), *of_lab], heads, line)


def _mark(row: GradeRow, given: Given) -> str:
    by_hand = given.get((row.student, row.lab))
    if by_hand:
        return f"{by_hand.points:g}"
    if row.state in NO_MARK:
        return ""
    return f"{row.points:g}"


def _sheet(rows: list[GradeRow], heads: list[list[str]], line: Callable[[str, str, str], list[str]]) -> MarkSheet:
    """`line` is empty for a student whom the LMS does not have."""
    lines = list(heads)
    shared = doubled({id(row): row for row in rows}.values())
    unknown = []
    for student in sorted({row.student for row in rows}):
        known = numbered(student)
        made = line(student, *known) if known and student not in shared else []
        if made:
            lines.append(made)
        elif student not in shared:
            unknown.append(student)

    return MarkSheet(sheet.text(lines), tuple(unknown), tuple(dict.fromkeys(shared.values())))


def _comment(row: GradeRow) -> str:
    lines = [row.reason]
    for e in row.exercises:
        why = "Not written yet." if e.state == "not yet" else e.mismatch
        told = " ".join([why, *e.advice])
        lines.append(f"{e.title}: {e.points:g} of {e.possible:g}. {told}".strip())
    return "\n".join(filter(None, lines))
