"""What a person should see before marks go out, in words: the rows to look at, the lost, the doubled, the gone.

Left out: what a report does with such rows, which it says itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.marking.submissions_folder import numbered
from worldsize.grade.marking.tamper import sentence


def unsure(rows: Iterable[GradeRow]) -> Iterator[str]:
    """Rows whose points, or whose lack of points, a person should look at."""
    for row in rows:
        if row.state == "lost":
            why = f"no mark, the grader lost it: {row.reason}. `worldsize grade` tries again"
        elif row.unsafe:
            why = "graded without a sandbox"
        elif row.state == "ungradable" or row.tamper or _without_exercises(row):
            why = row.reason or "; ".join(map(sentence, row.tamper)) or row.state
        else:
            continue
        yield f"{row.student}, {row.lab or row.path}: {why}"


def _without_exercises(row: GradeRow) -> bool:
    """It took the grader along, or an earlier version of the grader called its own loss so."""
    return row.state in ("crashed", "timeout") and not row.exercises


def doubled(rows: Iterable[GradeRow]) -> dict[str, str]:
    """{student: words} of those who share their number with another, or have two rows of one lab."""
    labs: dict[tuple[str, str], int] = {}
    by_number: dict[str, set[str]] = {}
    for row in rows:
        known = numbered(row.student)
        if known is None:
            continue
        by_number.setdefault(_same(known[1]), set()).add(row.student)
        if row.lab:
            labs[row.student, row.lab] = labs.get((row.student, row.lab), 0) + 1

    found = {}
    for number, students in sorted(by_number.items()):
        twice = sorted({lab for (student, lab), count in labs.items() if student in students and count > 1})
        if len(students) > 1 or twice:
            of = f" (twice {', '.join(twice)})" if twice else ""
            words = f"number {number} is that of {' and of '.join(map(repr, sorted(students)))}{of}"
            what = "find out whose it is, rename or remove the other's files, and grade again"
            found |= dict.fromkeys(students, f"{words}: {what}")
    return found


def _same(number: str) -> str:
    """An LMS reads a number, so 007 is 7."""
    return number.lstrip("0") or "0"


def gone(rows: Iterable[GradeRow]) -> Iterator[str]:
    """Rows whose files were not there any more in the last grading."""
    for row in rows:
        yield f"{row.student}, {row.lab or 'no lab'}: {row.path} was not there in the last grading"


def needs_a_person(rows: Iterable[GradeRow], gone_rows: Iterable[GradeRow]) -> Iterator[str]:
    """All of these."""
    kept = list(rows)
    yield from unsure(kept)
    yield from dict.fromkeys(doubled(kept).values())
    yield from gone(gone_rows)
