"""Rows of a grading made up for tests, and their way into a gradebook."""

from pathlib import Path

from worldsize.grade import course
from worldsize.grade.marking.rows import ExerciseRow, GradeRow
from worldsize.grade.nbgrader import scores

ROOT = Path(__file__).resolve().parents[2]
RING, START = "06_ring_all_reduce", "00_start_here"
LABS = course.load(ROOT)


def row(student: str, points: float = 0.5, lab: str = RING, state: str = "graded", path: str = "", **more: object) -> GradeRow:
    """Every exercise has earned `points`, or all that it is worth."""
    failed = state if state in ("timeout", "crashed") else "fail"
    exercises = tuple(
        ExerciseRow(e.id, e.title, "pass" if points >= e.points else failed, min(points, e.points), e.points)
        for e in LABS[lab].exercises
    )
    if state == "ungradable":
        exercises = ()
    total = sum(e.points for e in exercises)
    path = path or f"{student}/{lab}.ipynb"
    return GradeRow(student, lab, path, state, total, LABS[lab].possible, exercises, **{"digest": "d" * 64, **more})


def enter(path: Path, *rows: GradeRow) -> scores.Written:
    return scores.write(rows, path, LABS, ROOT)
