"""Points and comments that a person gave, read from nbgrader's gradebook and written into it.

Points given in formgrader are read: an exercise counts its manual score, else the row's, plus its extra credit. Points of
`overrides.csv`, which are for a whole lab, are written: the last exercise gets the difference as extra credit.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worldsize.grade.marking.by_hand import FILE, ByHand
from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.nbgrader.database import explained
from worldsize.units import number

_QUERY = """
SELECT assignment.student_id, notebook.name, cell.name, grade.manual_score, grade.extra_credit
FROM grade
JOIN base_cell AS cell ON cell.id = grade.cell_id
JOIN submitted_notebook AS mine ON mine.id = grade.notebook_id
JOIN notebook ON notebook.id = mine.notebook_id
JOIN submitted_assignment AS assignment ON assignment.id = mine.assignment_id
WHERE grade.manual_score IS NOT NULL OR grade.extra_credit IS NOT NULL
"""
_COMMENTS = """
SELECT assignment.student_id, notebook.name, cell.name, comment.manual_comment
FROM comment
JOIN base_cell AS cell ON cell.id = comment.cell_id
JOIN submitted_notebook AS mine ON mine.id = comment.notebook_id
JOIN notebook ON notebook.id = mine.notebook_id
JOIN submitted_assignment AS assignment ON assignment.id = mine.assignment_id
WHERE TRIM(comment.manual_comment) != ''
"""


def read(gradebook: Path, rows: Iterable[GradeRow]) -> dict[tuple[str, str], ByHand]:
    """Return points given in formgrader as {(student, lab): points}. Raises ValueError if the gradebook is unreadable."""
    given: dict[tuple[str, str], dict[str, tuple]] = {}
    for student, lab, cell, manual, extra in _found(gradebook, _QUERY):
        given.setdefault((student, lab), {})[cell.removeprefix("check_")] = manual, extra
    by_place = {(row.student, row.lab): row for row in rows}

    totals = {}
    for place, cells in given.items():
        if place not in by_place:
            continue

        points = {e.id: e.points for e in by_place[place].exercises}
        entries = []
        for name, (manual, extra) in sorted(cells.items()):
            if manual is not None:
                points[name] = manual
            points[name] = points.get(name, 0.0) + (extra or 0.0)
            entries.append(f"{name} {number(points[name])}")
        totals[place] = ByHand(sum(points.values()), f"points given by hand: {', '.join(entries)}")
    return totals


def comments(gradebook: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Return {(student, lab): {exercise: a person's comment}}. Raises ValueError if the gradebook is unreadable."""
    written: dict[tuple[str, str], dict[str, str]] = {}
    for student, lab, exercise, text in _found(gradebook, _COMMENTS):
        written.setdefault((student, lab), {})[exercise] = text.strip()
    return written


def _found(gradebook: Path, query: str) -> list[tuple]:
    if not gradebook.is_file():
        raise ValueError(f"{gradebook}: expected nbgrader's gradebook, got no such file. `worldsize books` writes it.")
    try:
        with closing(sqlite3.connect(f"{gradebook.resolve().as_uri()}?mode=ro", uri=True)) as book:
            return book.execute(query).fetchall()
    except sqlite3.Error as error:
        raise ValueError(explained(gradebook, error)) from None


@dataclass(frozen=True)
class ExtraCredit:
    """The extra credit that brings a lab to its points in `overrides.csv`. `alone`: the exercise has no score."""

    points: float
    reason: str
    alone: bool

    @property
    def comment(self) -> str:
        """Return the comment for the extra credit, without HTML: nbgrader's own feedback shows comments as HTML."""
        reason = "".join(c if c.isprintable() and c not in '<>&"\\' else " " for c in self.reason)
        return f"; {reason}; {_mark(self.points)}"


def _mark(points: float) -> str:
    return f"extra credit {points:+g} by {FILE}"


def extra_credit(given: ByHand, row: GradeRow) -> ExtraCredit | None:
    """Return the credit that brings a row's sum to the points given; None if the sum is right already."""
    lacks = round(given.points - sum(e.points for e in row.exercises), 6)
    if not lacks:
        return None
    return ExtraCredit(lacks, given.reason, alone=not row.exercises)


def take_back(grade: Any, comment: Any) -> None:
    """Remove from the gradebook the extra credit of an earlier run. Credit that a person changed since then stays."""
    # the comment names the amount that was written: another amount is a person's
    if grade.extra_credit is None or not (comment.auto_comment or "").endswith(_mark(grade.extra_credit)):
        return
    grade.extra_credit = None
    if grade.manual_score == 0 and grade.auto_score is None:
        grade.manual_score = None


def has_any(grades: Iterable[Any]) -> bool:
    """Return True if a person gave points by hand for any of these exercises in formgrader."""
    for grade in grades:
        if grade.manual_score is not None or grade.extra_credit is not None:
            return True
    return False
