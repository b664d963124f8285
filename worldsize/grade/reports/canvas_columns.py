"""Canvas's own export of its gradebook: each lab's column, the students' fields, and the marks that Canvas has.

Canvas finds an assignment by the number in brackets at the end of its head, and makes a new one otherwise ("How do I import
grades in the Gradebook?"). Settings decide on commas or semicolons, decimal points or commas, a byte order mark, and one or
two columns of names (its `lib/gradebook_exporter.rb` and `gradebook_importer.rb`).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.marking.submissions_folder import numbered, same_number
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

    def mark(self, student: str, lab: str, ours: str) -> str:
        """Return `ours`, or Canvas's own mark if there is none or the student is excused.

        An empty cell would delete Canvas's mark.
        """
        theirs = self.marks.get(student, {}).get(lab, "")
        return theirs if not ours or theirs == _EXCUSED else ours


def read(path: Path, labs: Iterable[str]) -> CanvasColumns:
    """Read a gradebook export for `labs`.

    Raises ValueError if it is not Canvas's, or if a lab has no column or several.
    """
    lines = csv_lines(path, "the CSV that Canvas's gradebook exports", lambda head: re.match(r'"?(Student|LastName)"?;', head))
    heads = [head.strip() for head in lines[0]] if lines else []
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
        if line[0].strip() == "Points Possible":
            told = {lab: line[k].strip().replace(",", ".") for lab, k in columns.items()}
            possible = {lab: float(points) for lab, points in told.items() if re.fullmatch(r"[0-9]+(\.[0-9]+)?", points)}
        elif line[id_column].strip().isdecimal():
            known = same_number(line[id_column].strip())
            students[known] = line[:first]
            marks[known] = {lab: line[k].strip() for lab, k in columns.items()}
            name = ", ".join(line[:id_column])
            if name not in _TEST_STUDENTS and not any(map(_TEST_LOGIN.fullmatch, line[:first])):
                names[known] = name
    return CanvasColumns(heads[:first], {lab: heads[k] for lab, k in columns.items()}, possible, students, marks, names)


def csv_lines(path: Path, what: str, semicolons: Callable[[str], object]) -> list[list[str]]:
    """Return the lines of a CSV in UTF-8; `semicolons(text)` is true if they separate its fields.

    Raises ValueError if the file is missing or unreadable.
    """
    if not path.is_file():
        raise ValueError(f"{path}: expected {what}, got no such file.")
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=";" if semicolons(text) else ","))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: expected {what}, got a file that cannot be read: {error}.") from None


def _column(path: Path, heads: list[str], lab: str) -> int:
    """Return the column whose name has the lab's stem, or its number, alone or after "lab". Raises ValueError."""
    told = re.compile(rf"lab\W*0?{int(lab[:2])}(?![0-9])|(?<![0-9]){lab[:2]}(?![0-9])", re.IGNORECASE)
    named = {k: found["name"] for k, head in enumerate(heads) if (found := _ASSIGNMENT.fullmatch(head))}
    assignments = {k: name for k, name in named.items() if not _TOTAL.search(name)}
    meant = [k for k, name in assignments.items() if lab in name] or [k for k, name in assignments.items() if told.search(name)]
    if len(meant) == 1:
        return meant[0]

    there = ", ".join(map(repr, assignments.values())) or "no assignments"
    got = " and ".join(repr(heads[k]) for k in meant) or f"none among {there}"
    raise ValueError(f"{path}: expected one assignment for {lab}, such as '{lab} (12345)', got {got}. Rename it in Canvas.")


def differing(theirs: CanvasColumns, rows: Iterable[GradeRow]) -> list[str]:
    """Return a message for each lab with other possible points in Canvas: marks are not scaled."""
    ours: dict[str, float] = {}
    for row in rows:
        ours[row.lab] = max(ours.get(row.lab, 0.0), row.possible)
    return [
        f"{theirs.heads[lab]}: Canvas has {number(points)} points for it, the course {number(ours[lab])}: marks are not scaled"
        for lab, points in theirs.possible.items()
        if points != ours.get(lab, points)
    ]


def excused(theirs: CanvasColumns, rows: Iterable[GradeRow]) -> list[str]:
    """Return a message for each row of a student whom Canvas excuses from the lab: the excuse stays."""
    return [
        f"{row.student}, {row.lab}: excused in Canvas, and stays excused; the row has {number(row.points)} points"
        for row in rows
        if (known := numbered(row.student)) and theirs.marks.get(same_number(known[1]), {}).get(row.lab) == _EXCUSED
    ]


def without_a_row(theirs: CanvasColumns, rows: Iterable[GradeRow]) -> list[str]:
    """Return the names of Canvas's students whose number no row has: they submitted no file."""
    there = {same_number(known[1]) for row in rows if (known := numbered(row.student))}
    return [name for given, name in theirs.names.items() if given not in there]
