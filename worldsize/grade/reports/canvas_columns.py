"""What Canvas exported of its own gradebook: which column is a lab's, and how it calls each student.

Canvas finds an assignment again by the number in brackets at the end of its column's head, and makes a new one where
there is none ("How do I import grades in the Gradebook?"). Left out: the marks (`csv_export`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.marking.submissions_folder import numbered, same_number
from worldsize.units import number

FIRST = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
_ASSIGNMENT = re.compile(r"(?P<name>.*\S)\s*\((?P<id>[0-9]+)\)\s*", re.DOTALL)


@dataclass(frozen=True)
class CanvasColumns:
    """`heads` and `possible` by the lab's stem, and each student's first fields by Canvas's number."""

    heads: dict[str, str]
    possible: dict[str, float]
    students: dict[str, list[str]]


def read(path: Path, labs: Iterable[str]) -> CanvasColumns:
    """Raises ValueError where it is no export of Canvas's gradebook, or a lab of `labs` has no column or two of them."""
    if not path.is_file():
        raise ValueError(f"{path}: expected the CSV that Canvas's gradebook exports, got nothing of that name.")
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: expected the CSV that Canvas's gradebook exports, got what cannot be read: {error}.") from None

    heads = [head.strip() for head in lines[0]] if lines else []
    if heads[:2] != FIRST[:2]:
        got = ", ".join(heads[:5]) or "nothing"
        raise ValueError(f"{path}, line 1: expected Canvas's heads ({', '.join(FIRST)}, …), got {got!r}. Export its gradebook.")

    columns = {lab: _column(path, heads, lab) for lab in labs}
    named = [heads.index(name) if name in heads else None for name in FIRST]
    possible: dict[str, float] = {}
    students = {}
    for line in lines[1:]:
        line = line + [""] * (len(heads) - len(line))
        if line[0].strip() == "Points Possible":
            possible = {lab: float(line[k]) for lab, k in columns.items() if re.fullmatch(r"[0-9]+(\.[0-9]+)?", line[k])}
        elif line[1].strip().isdecimal():
            students[same_number(line[1].strip())] = ["" if k is None else line[k] for k in named]
    return CanvasColumns({lab: heads[k] for lab, k in columns.items()}, possible, students)


def _column(path: Path, heads: list[str], lab: str) -> int:
    """The one whose name has the lab's stem, or its number after the word lab."""
    told = re.compile(rf"lab\W*0?{int(lab[:2])}(?![0-9])|(?<![0-9]){lab[:2]}(?![0-9])", re.IGNORECASE)
    assignments = {k: found["name"] for k, head in enumerate(heads) if (found := _ASSIGNMENT.fullmatch(head))}
    meant = [k for k, name in assignments.items() if lab in name] or [k for k, name in assignments.items() if told.search(name)]
    if len(meant) == 1:
        return meant[0]

    there = ", ".join(map(repr, assignments.values())) or "no assignments"
    got = " and ".join(repr(heads[k]) for k in meant) or f"none among {there}"
    raise ValueError(f"{path}: expected one assignment for {lab}, such as '{lab} (12345)', got {got}. Rename it in Canvas.")


def differing(theirs: CanvasColumns, rows: Iterable[GradeRow]) -> list[str]:
    """Words for each lab that is worth another number of points in Canvas: marks are not scaled."""
    ours: dict[str, float] = {}
    for row in rows:
        ours[row.lab] = max(ours.get(row.lab, 0.0), row.possible)
    return [
        f"{theirs.heads[lab]}: Canvas has {number(points)} points for it, the course {number(ours[lab])}: marks are not scaled"
        for lab, points in theirs.possible.items()
        if points != ours.get(lab, points)
    ]


def without_a_row(theirs: CanvasColumns, rows: Iterable[GradeRow]) -> list[str]:
    """The names of Canvas's students whose number no row has: no file of theirs was in the folder."""
    there = {same_number(known[1]) for row in rows if (known := numbered(row.student))}
    return [fields[0] for given, fields in theirs.students.items() if given not in there]
