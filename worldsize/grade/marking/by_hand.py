"""Points given by hand: `overrides.csv` beside the rows, read when marks are exported; rows keep the grader's findings.

A line is student, lab, points and reason. A line that cannot be read is reported, and does not affect the others.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.marking.selection import fits
from worldsize.grade.marking.submissions_folder import lms_number
from worldsize.units import number

FILE = "overrides.csv"
HEADS = ["student", "lab", "points", "reason"]
_EXAMPLE = 'student,lab,points,reason\ndoejane_4711,06,5.5,"the check was wrong"'


@dataclass(frozen=True)
class ByHand:
    """A student's points by hand in one lab, and the reason shown to the student."""

    points: float
    reason: str


Given = Mapping[tuple[str, str], ByHand]  # by (student, lab stem)
NOTHING_GIVEN: Given = MappingProxyType({})


@dataclass(frozen=True)
class Overrides:
    """The points that `overrides.csv` gives, and a message on each line that does not count."""

    given: Given
    bad: tuple[str, ...] = ()


def read(
    grades: Path, rows: Iterable[GradeRow], labs: Iterable[str], listed: Mapping[str, str] = MappingProxyType({})
) -> Overrides:  # fmt: skip
    """Read `overrides.csv`, if there is one. Raises ValueError if the file is not such a CSV.

    `listed` maps an LMS's student numbers to names, so that a line may mean a student without a row.
    """
    path = grades / FILE
    if not path.is_file():
        return Overrides(NOTHING_GIVEN)

    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: expected a CSV such as\n{_EXAMPLE}\ngot one that cannot be read: {error}.") from None
    if not lines or [head.strip().lower() for head in lines[0]] != HEADS:
        got = ",".join(lines[0]) if lines else "nothing"
        raise ValueError(f"{path}, line 1: expected the heads {','.join(HEADS)}, got {got!r}. Example:\n{_EXAMPLE}")

    students: set[str] = set()
    possible: dict[str, float] = {}  # by lab
    for row in rows:
        students.add(row.student)
        possible[row.lab] = max(row.possible, possible.get(row.lab, 0.0))
    known = set(map(lms_number, students))
    students |= {f"{name}_{number}" for number, name in listed.items() if number not in known}
    stems = {}
    for stem in labs:
        stems |= {stem: stem, stem[:2]: stem}

    counting: dict[tuple[str, str], ByHand] = {}
    points: dict[tuple[str, str], set[float]] = {}
    bad = []
    for k, line in enumerate(lines[1:], 2):
        if not any(map(str.strip, line)):
            continue
        try:
            place, given = _line(f"{path}, line {k}", line, students, stems)
            most = possible.get(place[1])
            if most and given.points > most:
                raise ValueError(
                    f"{path}, line {k}: expected at most the {number(most)} points of {place[1]}, got {number(given.points)}. "
                    "Enter a bonus where you publish marks."
                )
        except ValueError as error:
            bad.append(str(error))
            continue

        counting[place] = given
        points.setdefault(place, set()).add(given.points)
        if len(points[place]) > 1:
            where = " in ".join(place)
            bad.append(f"{path}, line {k}: expected one line for {where}, got a second one with other points: neither counts.")

    for place, different in points.items():
        if len(different) > 1:
            del counting[place]
    return Overrides(counting, tuple(bad))


def _line(where: str, line: list[str], students: set[str], stems: Mapping[str, str]) -> tuple[tuple[str, str], ByHand]:
    if len(line) != len(HEADS):
        raise ValueError(f"{where}: expected {len(HEADS)} fields ({', '.join(HEADS)}), got {len(line)}. Quote commas.")

    name, lab, points, reason = map(str.strip, line)
    meant = [student for student in students if fits(student, name)]
    if len(meant) != 1:
        got = f"{len(meant)} with this number" if meant else "none in this grading"
        raise ValueError(f"{where}: expected a student's name as in table.csv, or an LMS number, got {name!r}: {got}.")
    if lab not in stems:
        raise ValueError(f"{where}: expected a lab of the course, such as 06, got {lab!r}.")
    if not reason:
        raise ValueError(f"{where}: expected a reason to tell the student, got none.")

    try:
        value = float(points)
        if not 0 <= value < 1e6:  # rejects NaN and infinity too
            raise ValueError
    except ValueError:
        raise ValueError(f"{where}: expected points as a number of at least 0, got {points!r}.") from None
    return (meant[0], stems[lab]), ByHand(value, reason)


def rows_too(rows: Iterable[GradeRow], given: Given) -> list[GradeRow]:
    """Return `rows`, and a row without a lab for each student who was given points but handed in nothing."""
    every = list(rows)
    there = {row.student for row in every}
    for student, _ in given:
        if student not in there:
            there.add(student)
            every.append(GradeRow(student, "", "", "ungradable"))
    return every


def together(overrides: Given, formgrader: Given) -> tuple[dict[tuple[str, str], ByHand], list[str]]:
    """Return all points given by hand, and a message for each difference; `overrides.csv` takes precedence."""
    words = []
    for place in sorted(overrides.keys() & formgrader.keys()):
        ours, theirs = overrides[place].points, formgrader[place].points
        if ours != theirs:
            told = f"{FILE} says {number(ours)} points, formgrader {number(theirs)}: {FILE} counts"
            words.append(f"{', '.join(place)}: {told}")
    return {**formgrader, **overrides}, words


def for_formgrader(given: Given) -> list[str]:
    """Return a message for each given number of points that nbgrader's gradebook has no submission for."""
    told = f"{FILE} says {{}} points, and the gradebook has no such submission: enter them where you publish marks"
    return [f"{', '.join(place)}: {told.format(number(one.points))}" for place, one in sorted(given.items())]
