"""Marks as the CSV that Canvas or Moodle imports, from the rows of a grading.

Both know a student by the number in the exported file's name (`submissions_folder`); a student without a number, or who
shares one, is left out and reported. Columns follow Canvas's guide "How do I import grades in the Gradebook?" and Moodle's
grading worksheet; their own exports can be filled in (`canvas_columns`, `moodle_worksheet`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from worldsize.grade.marking.by_hand import NOTHING_GIVEN, Given
from worldsize.grade.marking.rows import NO_MARK, GradeRow
from worldsize.grade.marking.submissions_folder import numbered, same_number
from worldsize.grade.reports import canvas_columns, moodle_worksheet, sheet
from worldsize.grade.reports.attention import doubled
from worldsize.grade.reports.canvas_columns import FIRST, CanvasColumns
from worldsize.grade.reports.moodle_worksheet import Mark, Worksheet


@dataclass(frozen=True)
class MarkSheet:
    """A CSV's text. `unknown` are students without a number in their name, or whose number the LMS does not list.

    `doubled` has a message for each number that several students share, all left out of the text. `absent` are the LMS's
    students without a file, and `looked_at` messages on what the LMS will not accept as it is.
    """

    text: str
    unknown: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    looked_at: tuple[str, ...] = ()


def canvas(rows: Iterable[GradeRow], given: Given = NOTHING_GIVEN, theirs: CanvasColumns | None = None) -> MarkSheet:
    """Return the CSV for Canvas: a line per student, a column per lab, and Canvas's line of possible points.

    Points `given` by hand replace a row's. `theirs` has Canvas's own heads and students. Raises ValueError without rows.
    """
    kept = list(rows)
    if not kept:
        raise ValueError("export: expected the rows of a grading, got none. Name the folder that `worldsize grade` wrote.")

    labs, possible = labs_of(kept, given), defaultdict(float)
    marks: dict[str, dict[str, str]] = {row.student: dict.fromkeys(labs, "") for row in kept}
    for row in kept:
        possible[row.lab] = max(possible[row.lab], row.possible)
        marks[row.student][row.lab] = _mark(row, given)
    for (student, lab), points in given.items():
        if student in marks:
            marks[student][lab] = f"{points.points:g}"

    def line(student: str, name: str, id: str) -> list[str]:
        if theirs is None:
            return [name, id, "", "", "", *map(marks[student].get, labs)]
        known = same_number(id)
        if known not in theirs.students:
            return []
        return [*theirs.students[known], *(theirs.mark(known, lab, marks[student][lab]) for lab in labs)]

    names = [theirs.heads[lab] if theirs else lab for lab in labs]
    worth = [theirs.possible.get(lab, possible[lab]) if theirs else possible[lab] for lab in labs]
    first = theirs.first if theirs else FIRST
    heads = [[*first, *names], ["    Points Possible", *[""] * (len(first) - 1), *(f"{points:g}" for points in worth)]]
    made = _sheet(kept, heads, line)
    if theirs is None:
        return made
    words = [*canvas_columns.differing(theirs, kept), *canvas_columns.excused(theirs, kept)]
    return replace(made, absent=tuple(canvas_columns.without_a_row(theirs, kept)), looked_at=tuple(words))


def labs_of(rows: Iterable[GradeRow], given: Given = NOTHING_GIVEN) -> list[str]:
    """Return the labs that have a mark, sorted."""
    return sorted({row.lab for row in rows if row.lab} | {lab for _, lab in given})


def moodle(rows: Iterable[GradeRow], lab: str, given: Given = NOTHING_GIVEN, theirs: Worksheet | None = None) -> MarkSheet:
    """Return one lab's grading worksheet for Moodle. Points `given` by hand replace a row's.

    `theirs` supplies Moodle's own columns and lines, and its grade stays where there is no mark. Raises ValueError for a
    lab without submissions, and for a worksheet with none of the students.
    """
    everything = list(rows)
    of_lab = [row for row in everything if row.lab == lab]
    if not of_lab:
        known = ", ".join(labs_of(everything)) or "none"
        raise ValueError(f"export: expected a lab that was graded ({known}), got {lab!r}.")

    # students with points by hand but no file have a row without a lab
    by_student = {row.student: row for row in everything if (row.student, lab) in given and not row.lab}
    by_student |= {row.student: row for row in of_lab}
    possible = max(row.possible for row in of_lab)

    def mark(student: str) -> Mark:
        row = by_student[student]
        told = given.get((student, lab))
        points = f"{told.points:g}" if told else _mark(row, given)
        reason = told.reason if told else ""
        worth = f"{points} of {possible:g} points" if points else "no mark"
        return Mark(points, moodle_worksheet.comment(lab, [f"{worth}. {reason}".strip(), _comment(row)]))

    def line(student: str, name: str, id: str) -> list[str]:
        made = mark(student)
        return [f"Participant {id}", name, made.grade, f"{possible:g}", moodle_worksheet.NEVER, made.comment]

    meant = [*by_student.values(), *of_lab]
    return _sheet(meant, [moodle_worksheet.HEADS], line) if theirs is None else _filled(theirs, meant, mark, possible)


def _filled(theirs: Worksheet, rows: list[GradeRow], mark: Callable[[str], Mark], possible: float) -> MarkSheet:
    shared = _doubled(rows)
    there = theirs.students()
    numbers = {row.student: known and same_number(known[1]) for row in rows for known in [numbered(row.student)]}
    handed_in = set(filter(None, numbers.values()))
    if handed_in and not there.keys() & handed_in:
        raise ValueError(
            f"{theirs.path}: expected the worksheet of the graded assignment, got one without any of its student numbers, such "
            f"as Participant {min(handed_in)}. Moodle renumbers students in each assignment."
        )

    ours = {student: known for student, known in numbers.items() if student not in shared}
    marks = {known: mark(student) for student, known in ours.items() if known in there}
    return MarkSheet(
        moodle_worksheet.filled(theirs, marks),
        unknown=tuple(sorted(student for student, known in ours.items() if known not in there)),
        doubled=tuple(dict.fromkeys(shared.values())),
        absent=tuple(moodle_worksheet.without_a_row(theirs, handed_in)),
        looked_at=tuple(moodle_worksheet.looked_at(theirs, marks, possible)),
    )


def _doubled(rows: list[GradeRow]) -> dict[str, str]:
    """Return attention's `doubled`, after dropping repeats of the same row."""
    return doubled({id(row): row for row in rows}.values())


def _mark(row: GradeRow, given: Given) -> str:
    by_hand = given.get((row.student, row.lab))
    if by_hand:
        return f"{by_hand.points:g}"
    if row.state in NO_MARK:
        return ""
    return f"{row.points:g}"


def _sheet(rows: list[GradeRow], heads: list[list[str]], line: Callable[[str, str, str], list[str]]) -> MarkSheet:
    """Return the sheet; `line` returns an empty list for a student whom the LMS does not have."""
    lines = list(heads)
    shared = _doubled(rows)
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
