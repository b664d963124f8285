"""A notebook read without trust: its exercise cells found and, where they lost their names, found again; what was
tampered with is reported, and so is what stands in place of the release's set-up cells.

A notebook is data here: JSON with limits, nothing of it is compiled or run. Whatever is damaged is repaired from the
release: a cell that is not there is the release's stub. Left out: whose it is (`submissions_folder`), and its worth (`marking`).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worldsize.engines.plain_values import text_of
from worldsize.grade.course import CourseLab, Exercise, text
from worldsize.grade.marking.tamper import MOST_LINES, Tamper
from worldsize.lab.graded_cells import defines, lines_of, setup_lines
from worldsize.titles import title_of

MAX_BYTES = 20_000_000
MAX_CELL_BYTES = 500_000
MOST_TAMPER = 40
_SHOWN_CHARACTERS, _MOST_FOUND, _MOST_NAME = 60, 20, 200


class Ungradable(ValueError):
    """No points can be given for this file; the message says why."""


@dataclass(frozen=True)
class NotebookCell:
    """A cell as far as it could be read. `grade_id` and `id` are "" where there is none."""

    kind: str
    source: str
    id: str
    grade_id: str
    points: Any = None
    graded: bool = False


@dataclass(frozen=True)
class Submission:
    """The exercise cells of a notebook by exercise, None where one is missing, and the tamper report."""

    sources: dict[str, str | None]
    tamper: tuple[Tamper, ...]


def read(path: Path) -> bytes:
    """One submission's bytes, opened without trust: a plain file only, and not too large.

    Raises Ungradable for links, devices, what is too large or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise Ungradable(f"{path.name} cannot be read: {error.strerror}") from None

    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise Ungradable(f"{path.name} is no plain file")
        if about.st_size > MAX_BYTES:
            raise Ungradable(f"{path.name} has {about.st_size / 1e6:.0f} MB: clear its outputs and hand it in again")
        return file.read(MAX_BYTES + 1)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def cells(data: bytes) -> list[NotebookCell]:
    """The cells of a submission's notebook, of any format, read without trust.

    Raises Ungradable where this is no notebook.
    """
    try:
        notebook = json.loads(_decoded(data))
    except (ValueError, RecursionError) as error:
        what = "empty" if not data.strip() else f"no JSON ({type(error).__name__})"
        raise Ungradable(f"the file is {what}: it is no notebook, or only a part of one") from None

    rows = _object(notebook).get("cells")
    if rows is None:  # formats before 4
        sheets = _object(notebook).get("worksheets")
        if isinstance(sheets, list) and sheets:
            rows = _object(sheets[0]).get("cells")
    if not isinstance(rows, list):
        raise Ungradable("the file is JSON, but it has no list of cells: it is no notebook")
    return [_cell(row) for row in rows if isinstance(row, dict)]


def _decoded(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16")
    return data.decode("utf-8-sig", "replace")


def _cell(row: dict[str, Any]) -> NotebookCell:
    ours = _object(_object(row.get("metadata")).get("nbgrader"))
    source = text_of(text(row) or text({"source": row.get("input", "")}), MAX_CELL_BYTES)

    return NotebookCell(
        kind=text_of(row.get("cell_type"), _MOST_NAME),
        source=source.replace("\r\n", "\n").replace("\0", ""),
        id=text_of(row.get("id"), _MOST_NAME),
        grade_id=text_of(ours.get("grade_id"), _MOST_NAME),
        points=ours.get("points"),
        graded=ours.get("grade") is True,
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def lab_of(found: list[NotebookCell], labs: Iterable[CourseLab]) -> CourseLab | None:
    """The lab that a submission is of, whose exercises its cells name most often; None where they name none."""
    names, titles = set(), set()
    for cell in found:
        names |= {cell.id, cell.grade_id}
        titles.add(_title(cell.source))

    def named(lab: CourseLab) -> int:
        return sum(e.id in names or e.title in titles for e in lab.exercises)

    best = max(labs, key=named, default=None)
    if best is None or named(best) == 0:
        return None
    return best


# ---- repair ----------------------------------------------------------------------------------


def repair(found: list[NotebookCell], lab: CourseLab) -> Submission:
    """One submission made whole: its exercise cells, found again where they lost their names, and what was tampered with.

    Each exercise's own cell is found by its id, else by its title, else by its function.
    """
    tamper: list[Tamper] = []
    sources = {exercise.id: _source(exercise, found, tamper) for exercise in lab.exercises}
    known = set()
    for exercise in lab.exercises:
        known |= {exercise.id, f"check_{exercise.id}"}
        tamper += _changes_of_check(exercise, found)
    tamper += setup_changes(lab.setups, [cell.source for cell in found if cell.kind == "code"])

    for cell in found:
        if cell.graded and cell.grade_id not in known:
            tamper.append(Tamper("points claimed", cell.grade_id, found=_claimed(cell)))

    kept = tamper[:MOST_TAMPER]
    if len(tamper) > MOST_TAMPER:
        kept.append(Tamper("more", count=len(tamper) - MOST_TAMPER))
    return Submission(sources, tuple(kept))


def _source(exercise: Exercise, found: list[NotebookCell], tamper: list[Tamper]) -> str | None:
    """What the exercise's own cell says, None where there is none; what is wrong with the cell goes to `tamper`."""
    of_its_name = [cell for cell in found if exercise.id in (cell.grade_id, cell.id)]
    own = [cell for cell in of_its_name if cell.kind == "code"]
    if not own:
        own = _without_its_name(exercise, [cell for cell in found if cell.kind == "code"])
        if not own:
            other = (of_its_name[0].kind or "no code")[:_MOST_FOUND] if of_its_name else ""
            tamper.append(Tamper("exercise missing", exercise.title, exercise.id, found=other))
            return None
        tamper.append(Tamper("exercise without its name", exercise.title, exercise.id))

    if len(own) > 1:
        tamper.append(Tamper("exercise repeated", exercise.title, exercise.id, count=len(own)))
    _, best = max(enumerate(own), key=lambda placed: _worth(exercise, *placed))
    return best.source


def _without_its_name(exercise: Exercise, code: list[NotebookCell]) -> list[NotebookCell]:
    titled = [cell for cell in code if _title(cell.source) == exercise.title]
    return titled or [cell for cell in code if defines(cell.source, exercise.functions[0])]


def _title(source: str) -> str:
    title = title_of(source)
    return str(title) if title else ""


def _worth(exercise: Exercise, place: int, cell: NotebookCell) -> tuple[bool, bool, int]:
    """Of several cells, one that somebody worked on, then the one that is really it, then the last."""
    worked_on = lines_of(cell.source) not in ([], lines_of(exercise.stub))
    return worked_on, cell.id == exercise.id, place


def _changes_of_check(exercise: Exercise, found: list[NotebookCell]) -> Iterator[Tamper]:
    checks = [cell for cell in found if cell.grade_id == f"check_{exercise.id}"]
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


# ---- set-up cells -----------------------------------------------------------------------------


def setup_changes(setups: Sequence[str], sources: Iterable[str]) -> list[Tamper]:
    """Each set-up cell of the release that a submission has changed or lost, and each that it added."""
    found = [lines for source in sources if (lines := setup_lines(source))]
    given = [setup_lines(setup) for setup in setups]
    strangers = [lines for lines in found if lines not in given]

    changes = []
    for number, lines in enumerate(given, 1):
        if lines in found:
            continue

        theirs = max(strangers, key=lambda other: _in_common(lines, other), default=[])
        if _in_common(lines, theirs) == 0:
            changes.append(Tamper("set-up missing", str(number), first_line=_first(lines)))
            continue

        strangers.remove(theirs)
        added = _added(lines, theirs)
        shown = tuple(map(_printable, added[:MOST_LINES]))
        changes.append(Tamper("set-up changed", str(number), first_line=_first(lines), count=len(added), lines=shown))

    return changes + [Tamper("set-up added", first_line=_first(lines)) for lines in strangers]


def _in_common(one: list[str], other: list[str]) -> int:
    """How many lines both have, the titles and empty ones apart."""
    return len(set(filter(None, one[1:])) & set(other[1:]))


def _added(given: list[str], theirs: list[str]) -> list[str]:
    """The lines that are in `theirs` alone, each once."""
    kept = {"", *given}
    return [line for line in dict.fromkeys(theirs) if line not in kept]


def _first(lines: list[str]) -> str:
    """The first line after the title that is not empty, as it can be shown; "" where there is none."""
    return _printable(next(filter(None, lines[1:]), ""))


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in line.strip()[:_SHOWN_CHARACTERS])
