"""Points that a person gave in formgrader, for the marks that go elsewhere: the gradebook is only read.

An exercise has the manual score where there is one, else what the row says, and extra credit besides. Left out: scores
that go into the gradebook (`scores`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from worldsize.grade.marking.by_hand import ByHand
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


def read(gradebook: Path, rows: Iterable[GradeRow]) -> dict[tuple[str, str], ByHand]:
    """{(student, lab): points}. Raises ValueError where the gradebook cannot be read."""
    if not gradebook.is_file():
        raise ValueError(f"{gradebook}: expected nbgrader's gradebook, got nothing of that name. `worldsize books` writes it.")
    try:
        with closing(sqlite3.connect(f"{gradebook.resolve().as_uri()}?mode=ro", uri=True)) as book:
            found = book.execute(_QUERY).fetchall()
    except sqlite3.Error as error:
        raise ValueError(explained(gradebook, error)) from None

    given: dict[tuple[str, str], dict[str, tuple]] = {}
    for student, lab, cell, manual, extra in found:
        given.setdefault((student, lab), {})[cell.removeprefix("check_")] = manual, extra
    by_place = {(row.student, row.lab): row for row in rows}
    return {place: _points(by_place[place], cells) for place, cells in given.items() if place in by_place}


def _points(row: GradeRow, cells: dict[str, tuple]) -> ByHand:
    points = {e.id: e.points for e in row.exercises}
    told = []
    for name, (manual, extra) in sorted(cells.items()):
        if manual is not None:
            points[name] = manual
        points[name] = points.get(name, 0.0) + (extra or 0.0)
        told.append(f"{name} {number(points[name])}")
    return ByHand(sum(points.values()), f"points given by hand: {', '.join(told)}")
