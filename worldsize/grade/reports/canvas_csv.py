"""Marks for Canvas as CSV, from the rows of a grading, or filled into what Canvas's own gradebook exported.

Canvas finds an assignment by the number in brackets at the end of its head, and makes a new one otherwise ("How do I import
grades in the Gradebook?"). Settings decide on commas or semicolons, decimal points or commas, a byte order mark, and one or
two columns of names (its `lib/gradebook_exporter.rb` and `gradebook_importer.rb`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from worldsize.grade.marking.by_hand import NOTHING_GIVEN, Given
from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.marking.submissions_folder import lms_number, same_number
from worldsize.grade.reports.mark_sheet import MarkSheet, csv_lines, labs_of, mark_of, mark_sheet
from worldsize.units import number

FIRST = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
_TWO_NAMES = ["LastName", "FirstName", "ID"]
_ASSIGNMENT = re.compile(r"(?P<name>.*\S)\s*\((?P<id>[0-9]+)\)\s*", re.DOTALL)
# totals of a grading period such as "(2026)", which looks like an assignment's number
_TOTAL = re.compile(r"(Current|Final) (Score|Points|Grade)$|^Override (Score|Grade|Status)$")
_TEST_STUDENTS = ("Student, Test", "Test Student")
_TEST_LOGIN = re.compile("[0-9a-f]{40}")  # of Canvas's Student View, in any language
_EXCUSED = "EX"


@dataclass(frozen=True)
class CanvasColumns:
    """`heads` and `possible` by the lab's stem; first fields, marks and names of students by Canvas's number."""

    first: list[str]
    heads: dict[str, str]
    possible: dict[str, float]
    students: dict[str, list[str]]
    marks: dict[str, dict[str, str]]
    names: dict[str, str]  # without the test student of Canvas's Student View


def read(path: Path, labs: Iterable[str]) -> CanvasColumns:
    """Read Canvas's gradebook export for `labs`.

    Raises ValueError if it is not Canvas's, or if a lab has no column or several.
    """
    lines = csv_lines(path, "the CSV that Canvas's gradebook exports", lambda head: re.match(r'"?(Student|LastName)"?;', head))
    heads = [head.strip() for head in lines[0]]
    if heads[:2] != FIRST[:2] and heads[:3] != _TWO_NAMES:
        got = ", ".join(heads[:5]) or "nothing"
        raise ValueError(
            f"{path}, line 1: expected Canvas's heads ({', '.join(FIRST)}, …), got {got!r}. Export Canvas's gradebook."
        )

    columns = {lab: _column(path, heads, lab) for lab in labs}
    id_column = heads.index("ID")
    first = heads.index("Section") + 1 if "Section" in heads else id_column + 1

    possible: dict[str, float] = {}
    students, marks, names = {}, {}, {}
    for line in lines[1:]:
        line = line + [""] * (len(heads) - len(line))
        of_labs = {lab: line[k].strip() for lab, k in columns.items()}
        if line[0].strip() == "Points Possible":
            for lab, told in of_labs.items():
                if re.fullmatch(r"[0-9]+([.,][0-9]+)?", told):
                    possible[lab] = float(told.replace(",", "."))
        elif line[id_column].strip().isdecimal():
            known = same_number(line[id_column].strip())
            students[known] = line[:first]
            marks[known] = of_labs
            name = ", ".join(line[:id_column])
            if name not in _TEST_STUDENTS and not any(map(_TEST_LOGIN.fullmatch, line[:first])):
                names[known] = name

    return CanvasColumns(heads[:first], {lab: heads[k] for lab, k in columns.items()}, possible, students, marks, names)


def _column(path: Path, heads: list[str], lab: str) -> int:
    """Return Canvas's column whose name has the lab's stem, or its number, alone or after "lab". Raises ValueError."""
    assignments = {}
    for k, head in enumerate(heads):
        found = _ASSIGNMENT.fullmatch(head)
        if found and not _TOTAL.search(found["name"]):
            assignments[k] = found["name"]

    told = re.compile(rf"lab\W*0?{int(lab[:2])}(?![0-9])|(?<![0-9]){lab[:2]}(?![0-9])", re.IGNORECASE)
    meant = [k for k, name in assignments.items() if lab in name]
    if not meant:
        meant = [k for k, name in assignments.items() if told.search(name)]
    if len(meant) == 1:
        return meant[0]

    there = ", ".join(map(repr, assignments.values())) or "no assignments"
    got = " and ".join(repr(heads[k]) for k in meant) or f"none among {there}"
    raise ValueError(f"{path}: expected one assignment for {lab}, such as '{lab} (12345)', got {got}. Rename it in Canvas.")


def export(rows: Iterable[GradeRow], given: Given = NOTHING_GIVEN, theirs: CanvasColumns | None = None) -> MarkSheet:
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
        marks[row.student][row.lab] = mark_of(row, given)
    for (student, lab), points in given.items():
        if student in marks:
            marks[student][lab] = f"{points.points:g}"

    if theirs is None:
        heads = [[*FIRST, *labs], ["    Points Possible", "", "", "", "", *(f"{possible[lab]:g}" for lab in labs)]]
        return mark_sheet(kept, heads, lambda student, name, id: [name, id, "", "", "", *map(marks[student].get, labs)])

    def line(student: str, name: str, id: str) -> list[str]:
        known = same_number(id)
        if known not in theirs.students:
            return []

        fields = list(theirs.students[known])
        for lab in labs:
            ours, there = marks[student][lab], theirs.marks[known].get(lab, "")
            # an empty cell would delete Canvas's own mark
            fields.append(there if not ours or there == _EXCUSED else ours)
        return fields

    worth = [f"{theirs.possible.get(lab, possible[lab]):g}" for lab in labs]
    heads = [[*theirs.first, *map(theirs.heads.get, labs)], ["    Points Possible", *[""] * (len(theirs.first) - 1), *worth]]
    made = mark_sheet(kept, heads, line)

    there = {lms_number(row.student) for row in kept}
    absent = tuple(name for known, name in theirs.names.items() if known not in there)
    return replace(made, absent=absent, looked_at=tuple(_looked_at(theirs, kept, possible)))


def _looked_at(theirs: CanvasColumns, rows: Iterable[GradeRow], possible: Mapping[str, float]) -> Iterator[str]:
    """Yield a message for each lab with other possible points in Canvas, and for each row of an excused student."""
    for lab, points in theirs.possible.items():
        if points != possible.get(lab, points):
            says = f"Canvas has {number(points)} points for it, the course {number(possible[lab])}: marks are not scaled"
            yield f"{theirs.heads[lab]}: {says}"
    for row in rows:
        if theirs.marks.get(lms_number(row.student), {}).get(row.lab) == _EXCUSED:
            stays = f"excused in Canvas, and stays excused; the row has {number(row.points)} points"
            yield f"{row.student}, {row.lab}: {stays}"
