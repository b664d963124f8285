"""Read a notebook without trust: its exercise cells, the student's own cells that they use, and what was tampered with.

A notebook is data here: JSON with limits, of which nothing is run. A cell that is missing or damaged is replaced by the
release's.
"""

import errno
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from worldsize.cells import (
    CLEARED,
    AnswerElsewhere,
    FoundCell,
    NoNotebook,
    NotebookCell,
    TakenAlong,
    answers_elsewhere,
    chosen,
    lines_of,
    names_bound,
    names_of,
    printable,
    setup_lines,
    taken_along,
    title_text,
)
from worldsize.cells import read as cells_in
from worldsize.cells.released import EXERCISES
from worldsize.grade.course import CourseLab, Exercise
from worldsize.grade.inside import stub_front
from worldsize.grade.marking.tamper import MOST_LINES, Tamper
from worldsize.titles import title_of

MAX_BYTES = 20_000_000  # of a file that is not a notebook
MAX_NOTEBOOK_BYTES = 50_000_000  # with its outputs
MOST_TAMPER = 40
UNNAMED = "saved without nbgrader's metadata, as Colab does: cells were found by their titles"
_MOST_FOUND = 20


class Ungradable(ValueError):
    """A submission that can have no points; the message says why."""


class TooLarge(Ungradable):
    """A submission with more bytes than are read."""


@dataclass(frozen=True)
class Submission:
    """A notebook's exercise cells by exercise, None for a missing cell, and the tamper report.

    By exercise, too: `taken` is what it takes along of the student's own cells, `places` the number of its cell among
    the code cells, and `elsewhere` the answers in places that cannot be graded. `note` is on the whole notebook.
    """

    sources: dict[str, str | None]
    tamper: tuple[Tamper, ...]
    taken: Mapping[str, TakenAlong] = field(default_factory=dict)
    places: Mapping[str, int] = field(default_factory=dict)
    elsewhere: Mapping[str, tuple[AnswerElsewhere, ...]] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class NotebookFile:
    """A submission's notebook file, read once. `digest` covers all its bytes, even if the file is not a notebook."""

    digest: str
    found: tuple[NotebookCell, ...]
    problem: str = ""

    @property
    def cells(self) -> list[NotebookCell]:
        """Return the submission's cells. Raises Ungradable if the file is not a notebook."""
        if self.problem:
            raise Ungradable(self.problem)
        return list(self.found)


def read(path: Path, most_bytes: int = MAX_BYTES) -> bytes:
    """Read a submission's bytes: a plain file only, and not too large.

    Raises Ungradable for links, devices, and files that are too large or cannot be read.
    """
    try:  # O_NONBLOCK: a named pipe must not block the open
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:  # O_NOFOLLOW's error for a link
            raise Ungradable(f"{path.name} is a link, and links are not followed: hand in the file itself") from None
        raise Ungradable(f"{path.name} cannot be read: {error.strerror}") from None

    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise Ungradable(f"{path.name} is not a plain file")

        if about.st_size > most_bytes:
            raise TooLarge(f"{path.name}: expected at most {most_bytes / 1e6:g} MB, got {about.st_size / 1e6:.1f} MB")
        return file.read(about.st_size)


def read_notebook(path: Path) -> NotebookFile:
    """Read a submission's file, of at most `MAX_NOTEBOOK_BYTES`. Raises Ungradable as `read` does."""
    data = _notebook_bytes(path)
    try:
        return NotebookFile(digest(data), cells_in(data))
    except NoNotebook as error:
        return NotebookFile(digest(data), (), str(error))


def read_digest(path: Path) -> str:
    """Return the digest of a submission's file, whatever it is. Raises Ungradable as `read_notebook` does."""
    return digest(_notebook_bytes(path))


def _notebook_bytes(path: Path) -> bytes:
    try:
        return read(path, MAX_NOTEBOOK_BYTES)
    except TooLarge as error:
        raise TooLarge(f"{error}. {CLEARED}") from None


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def lab_of(cells: list[NotebookCell], labs: Iterable[CourseLab]) -> CourseLab | None:
    """Return the lab whose exercises a submission's cells name most often, None if they name none."""
    names, titles = set(), set()
    for cell in cells:
        names |= {cell.id, cell.grade_id}
        titles.add(title_text(cell.source))

    best, most = None, 0
    for lab in labs:
        named = sum(e.id in names or e.title in titles for e in lab.exercises)
        if named > most:
            best, most = lab, named
    return best


def expect_notebook_of(lab: CourseLab, cells: list[NotebookCell]) -> None:
    """Raise Ungradable for a notebook of another lab, which names that lab's exercises and none of this one's."""
    own = {exercise.id for exercise in lab.exercises}
    of_labs: Counter[str] = Counter()
    for cell in cells:
        title = title_of(cell.source) if cell.kind == "code" else None
        if own & {cell.id, cell.grade_id} or (title and title_text(cell.source) in {e.title for e in lab.exercises}):
            return
        for number, exercises in EXERCISES.items():
            titled = title is not None and title.kind == "Exercise" and title.lab == int(number)
            of_labs[number] += titled or not exercises.keys().isdisjoint({cell.id, cell.grade_id})

    [(other, most)] = of_labs.most_common(1) or [("", 0)]
    if most:
        raise Ungradable(f"this is lab {other}'s notebook, handed in under the name of lab {lab.number}")


def repair(cells: list[NotebookCell], lab: CourseLab) -> Submission:
    """Find a submission's exercise cells, what they take along, and what was tampered with.

    Each exercise's cell is found by its id, else by its title, else by its function.
    """
    tamper: list[Tamper] = []
    unnamed = not any(cell.grade_id for cell in cells)
    known = names_of(lab.exercises)
    choice = chosen(cells, lab.exercises)
    places = {exercise.id: choice.exercises[exercise.title] for exercise in lab.exercises}
    taken = taken_along(choice, lab.exercises, names_bound(lab.setups, {"worldsize.notebook": stub_front.names()}))
    elsewhere = answers_elsewhere(cells, choice, lab.exercises, lab.given, taken)

    for exercise in lab.exercises:
        tamper += _changes_of_exercise(exercise, places[exercise.id], cells, unnamed)
    for exercise in lab.exercises:
        tamper += _changes_of_check(exercise, cells, unnamed)
    tamper += setup_changes(lab.setups, [cell.source for cell in cells if cell.kind == "code"])

    for cell in cells:
        if cell.graded and cell.grade_id not in known:
            tamper.append(Tamper("points claimed", cell.grade_id, found=_claimed(cell)))

    kept = tamper[:MOST_TAMPER]
    if len(tamper) > MOST_TAMPER:
        kept.append(Tamper("more", count=len(tamper) - MOST_TAMPER))

    return Submission(
        sources={name: cell.source for name, cell in places.items()},
        tamper=tuple(kept),
        taken=taken,
        places={name: cell.parts[0] + 1 for name, cell in places.items() if cell.parts},
        elsewhere=elsewhere,
        note=UNNAMED if unnamed else "",
    )


def _changes_of_exercise(
    exercise: Exercise, cell: FoundCell, cells: list[NotebookCell], unnamed: bool
) -> Iterator[Tamper]:  # fmt: skip
    if not cell.parts:
        other = ""
        for notebook_cell in cells:
            if exercise.id in (notebook_cell.grade_id, notebook_cell.id):  # a cell of its name that is not code
                other = (notebook_cell.kind or "no code")[:_MOST_FOUND]
                break
        yield Tamper("exercise missing", exercise.title, exercise.id, found=other)

    if cell.by == "what it says" or (cell.by == "title" and not unnamed):
        yield Tamper("exercise without its name", exercise.title, exercise.id)
    if len(cell.parts) > 1:
        yield Tamper("exercise split", exercise.title, exercise.id, count=len(cell.parts))
    if cell.copies:
        yield Tamper("exercise repeated", exercise.title, exercise.id, count=len(cell.copies) + 1)


def _changes_of_check(exercise: Exercise, cells: list[NotebookCell], unnamed: bool) -> Iterator[Tamper]:
    if unnamed and any(lines_of(cell.source) == lines_of(exercise.check) for cell in cells):
        return

    checks = [cell for cell in cells if cell.grade_id == f"check_{exercise.id}"]
    if not checks:
        yield Tamper("check missing", exercise.title, exercise.id)
    elif len(checks) > 1:
        yield Tamper("check repeated", exercise.title, exercise.id, count=len(checks))

    for cell in checks:
        if lines_of(cell.source) != lines_of(exercise.check):
            yield Tamper("check changed", exercise.title, exercise.id)
        if cell.points != exercise.points or isinstance(cell.points, bool):
            claimed = _claimed(cell)
            yield Tamper("check of other points", exercise.title, exercise.id, found=claimed, points=exercise.points)


def _claimed(cell: NotebookCell) -> str:
    return repr(cell.points)[:_MOST_FOUND]


def setup_changes(setups: Sequence[str], sources: Iterable[str]) -> list[Tamper]:
    """List the release's set-up cells that a submission changed or lost, and those that it added."""
    submitted = list(filter(None, map(setup_lines, sources)))
    given = list(map(setup_lines, setups))
    strangers = [lines for lines in submitted if lines not in given]

    changes = []
    for number, lines in enumerate(given, 1):
        if lines in submitted:
            continue

        theirs = max(strangers, key=lambda other: _in_common(lines, other), default=[])
        if _in_common(lines, theirs) == 0:
            changes.append(Tamper("set-up missing", str(number), first_line=_first(lines)))
            continue

        strangers.remove(theirs)
        added = [line for line in dict.fromkeys(theirs) if line and line not in lines]
        shown = tuple(map(printable, added[:MOST_LINES]))
        changes.append(Tamper("set-up changed", str(number), first_line=_first(lines), count=len(added), lines=shown))

    for lines in strangers:
        changes.append(Tamper("set-up added", first_line=_first(lines)))
    return changes


def _in_common(lines: list[str], other: list[str]) -> int:
    """Count the lines that a submission's cell and the release's have in common, without titles and empty lines."""
    return len(set(filter(None, lines[1:])) & set(other[1:]))


def _first(lines: list[str]) -> str:
    """Return a submitted cell's first line after the title that is not empty, made printable; "" if there is none."""
    return printable(next(filter(None, lines[1:]), ""))
