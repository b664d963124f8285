"""A notebook read without trust: its exercise cells found and, where they lost their names, found again; what was
tampered with is reported, and so is what stands in place of the release's set-up cells.

A notebook is data here: JSON with limits, nothing of it is compiled or run. Whatever is damaged is repaired from the
release: a cell that is not there is the release's stub. Left out: whose it is (`submissions_folder`), and its worth (`marking`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worldsize.grade.course import CourseLab, Exercise, text
from worldsize.titles import title_of

MAX_BYTES = 20_000_000
MAX_CELL_BYTES = 500_000
MOST_TAMPER = 40
_SHOWN_LINES, _SHOWN_CHARACTERS = 3, 60


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
    tamper: tuple[str, ...]


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
    rows = notebook.get("cells") if isinstance(notebook, dict) else None
    if rows is None and isinstance(notebook, dict):  # formats before 4
        sheets = notebook.get("worksheets")
        rows = sheets[0].get("cells") if isinstance(sheets, list) and sheets and isinstance(sheets[0], dict) else None
    if not isinstance(rows, list):
        raise Ungradable("the file is JSON, but it has no list of cells: it is no notebook")
    return [_cell(row) for row in rows if isinstance(row, dict)]


def _decoded(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16")
    return data.decode("utf-8-sig", "replace")


def _cell(row: dict[str, Any]) -> NotebookCell:
    metadata = row.get("metadata")
    ours = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    ours = ours if isinstance(ours, dict) else {}
    source = text(row) or text({"source": row.get("input", "")})
    source = source[:MAX_CELL_BYTES].encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\0", "")
    return NotebookCell(
        _text(row.get("cell_type")), source, _text(row.get("id")), _text(ours.get("grade_id")), ours.get("points"),
        ours.get("grade") is True,
    )  # fmt: skip


def _text(value: Any) -> str:
    return value[:200].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def lab_of(found: list[NotebookCell], labs: Iterable[CourseLab]) -> CourseLab | None:
    """The lab that a submission is of, whose exercises its cells name most often; None where they name none."""
    names = {name for cell in found for name in (cell.id, cell.grade_id)}
    titles = {_title(cell.source) for cell in found}

    def named(lab: CourseLab) -> int:
        return sum(e.id in names or e.title in titles for e in lab.exercises)

    best = max(labs, key=named, default=None)
    return best if best and named(best) else None


# ---- repair ----------------------------------------------------------------------------------


def repair(found: list[NotebookCell], lab: CourseLab) -> Submission:
    """One submission made whole: its exercise cells, found again where they lost their names, and what was tampered with.

    Each exercise's own cell is found by its id, else by its title, else by its function.
    """
    tamper: list[str] = []
    sources = {exercise.id: _source(exercise, found, tamper) for exercise in lab.exercises}
    for exercise in lab.exercises:
        _look_at_check(exercise, found, tamper)
    tamper += changes(lab.setups, [cell.source for cell in found if cell.kind == "code"])
    known = {name for e in lab.exercises for name in (e.id, f"check_{e.id}")}
    strangers = [c for c in found if c.graded and c.grade_id not in known]
    tamper += [f"cell {c.grade_id!r} claims points ({c.points!r:.20}): the release has no such cell" for c in strangers]
    more = [f"and {len(tamper) - MOST_TAMPER} things more"] if len(tamper) > MOST_TAMPER else []
    return Submission(sources, (*tamper[:MOST_TAMPER], *more))


def _source(exercise: Exercise, found: list[NotebookCell], tamper: list[str]) -> str | None:
    code = [cell for cell in found if cell.kind == "code"]
    named = [cell for cell in code if exercise.id in (cell.grade_id, cell.id)]
    if not named:
        named = [cell for cell in code if _title(cell.source) == exercise.title]
        named = named or [cell for cell in code if _defines(cell.source, exercise.functions[0])]
        if not named:
            other = [cell.kind for cell in found if exercise.id in (cell.grade_id, cell.id)]
            kind = f"; a cell of that name is {other[0] or 'no code'!s:.20}, not code" if other else ""
            tamper.append(f"{exercise.title} ({exercise.id}): its cell is missing{kind}; the release's stub stands for it")
            return None
        tamper.append(f"{exercise.title} ({exercise.id}): its cell had lost its name and was found by what it says")
    if len(named) > 1:
        tamper.append(f"{exercise.title} ({exercise.id}): {len(named)} cells have its name")
    return max(enumerate(named), key=lambda row: _worth(exercise, *row))[1].source


def _worth(exercise: Exercise, place: int, cell: NotebookCell) -> tuple[bool, bool, int]:
    """Of several cells, one that somebody worked on, then the one that is really it, then the last."""
    worked_on = _same(cell.source) != _same(exercise.stub) and bool(cell.source.strip())
    return worked_on, cell.id == exercise.id, place


def _look_at_check(exercise: Exercise, found: list[NotebookCell], tamper: list[str]) -> None:
    checks = [cell for cell in found if cell.grade_id == f"check_{exercise.id}"]
    if not checks:
        tamper.append(f"the check of {exercise.title} is missing: the release's own was used")
    elif len(checks) > 1:
        tamper.append(f"the check of {exercise.title} is there {len(checks)} times")
    for cell in checks:
        if _same(cell.source) != _same(exercise.check):
            tamper.append(f"the check of {exercise.title} was changed: the release's own was used")
        if cell.points != exercise.points or isinstance(cell.points, bool):
            tamper.append(f"the check of {exercise.title} claims {cell.points!r:.20} points; it has {exercise.points:g}")


def _title(source: str) -> str:
    title = title_of(source)
    return str(title) if title else ""


def _defines(source: str, name: str) -> bool:
    return re.search(rf"^def\s+{re.escape(name)}\s*\(|^{re.escape(name)}\s*=", source, re.MULTILINE) is not None


def _same(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


# ---- set-up cells -----------------------------------------------------------------------------


def changes(setups: Sequence[str], sources: Iterable[str]) -> list[str]:
    """Words for each set-up cell of the release that a submission has changed or lost, and for each that it added."""
    found = [_lines(source) for source in sources]
    given = [_lines(setup) for setup in setups]
    strangers = [lines for lines in found if lines[:1] == ["# Set-up"] and lines not in given]
    found_changes = []
    for number, lines in enumerate(given, 1):
        if lines in found:
            continue
        name = f"set-up cell {number} ({_first(lines)})"
        theirs = max(strangers, key=lambda other: _common(lines, other), default=None)
        if theirs is None or not _common(lines, theirs):
            found_changes.append(f"{name} is missing: the release's own was used")
            continue
        strangers.remove(theirs)
        found_changes.append(f"{name} was changed: the release's own was used{_added(lines, theirs)}")
    own = "does not count: what an exercise needs belongs in its own cell"
    return [*found_changes, *(f"a set-up cell that the release does not have ({_first(lines)}) {own}" for lines in strangers)]


def _lines(source: str) -> list[str]:
    return [line.rstrip() for line in source.strip().splitlines()]


def _common(one: list[str], other: list[str]) -> int:
    return len(set(filter(None, one[1:])) & set(other[1:]))


def _first(lines: list[str]) -> str:
    return next(_shown(lines[1:]), "with nothing in it")


def _added(given: list[str], theirs: list[str]) -> str:
    kept = set(given)
    added = [line for line in dict.fromkeys(theirs) if line not in kept]
    if not added:
        return ""
    shown = list(_shown(added))
    more = f" and {len(added) - _SHOWN_LINES} more" if len(added) > _SHOWN_LINES else ""
    return f"; what was added does not count: {', '.join(shown[:_SHOWN_LINES])}{more}"


def _shown(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        plain = "".join(c if c.isprintable() else "?" for c in line.strip()[:_SHOWN_CHARACTERS])
        if plain:
            yield f"`{plain}`"
