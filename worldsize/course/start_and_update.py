"""A course's folder, made from the release in this package or renewed by it, all or nothing.

A new folder is built beside its place under another name and moved there in one step. In an existing folder each file is
written whole and the record (`record`) last, so an interrupted renewal resumes at the next start. Files that a student has
changed are merged (`merged_lab`) or stay; whatever a merge replaces is kept in `before-<release>/`.
"""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from worldsize.course.merged_lab import MergedLab, cell_digests, merged_lab
from worldsize.course.record import (
    RECORD,
    CourseRecord,
    course_above,
    digest,
    is_course,
    read_record,
    release_number,
    write_record,
)
from worldsize.course.shipped_files import course_files, is_checkout
from worldsize.files import remove_whole, write_whole

Change = Literal["new", "replaced", "merged", "yours", "aside", "removed"]
OnFile = Callable[[int, int, str], None]
_SPARE_BYTES = 2_000_000  # for the record, and the file system's overhead for folders
_LAB = re.compile(r"labs/[0-9]{2}.*\.ipynb")


@dataclass(frozen=True)
class LaidFile:
    """A file of a course and its `change`; `words` tell the student more where needed."""

    name: str
    change: Change
    words: str = ""


@dataclass(frozen=True)
class LaidCourse:
    """The course in `folder`: the release `before` ("" if none), the release `now`, the changed files, and the release last
    `checked`."""

    folder: Path
    before: str
    now: str
    files: tuple[LaidFile, ...]
    checked: str


def place_for(named: Path | None) -> Path:
    """Return the folder for `worldsize start`: the one `named`, else the course around the current folder, else that folder
    itself.

    Raises ValueError where the course must not be laid: in a checkout, among other files, inside another course.
    """
    folder = (named or course_above() or Path.cwd()).absolute()
    if is_course(folder):
        return folder
    if is_checkout(folder):
        raise ValueError(
            f"{folder}: expected a new folder or a course folder, got a checkout of the course's repository. Run `make lab` "
            f"there, or name another folder: worldsize start my-course"
        )

    around = course_above(folder.parent)
    if around is not None:
        raise ValueError(
            f"{folder}: expected a folder outside any course, got one inside {around}. To open that course, run "
            f"`worldsize start` there without a name."
        )

    if not folder.parent.is_dir():
        raise ValueError(f"{folder}: expected an existing parent folder, got no {folder.parent}. Make that folder first.")
    if not folder.exists():
        return folder
    if not folder.is_dir():
        raise ValueError(f"{folder}: expected a folder, got a file. Name a new folder: worldsize start my-course")

    there = sorted(path.name for path in folder.iterdir() if path.name[:1] != ".")
    if there:
        shown = ", ".join(there[:4]) + (" …" if there[4:] else "")
        raise ValueError(
            f"{folder}: expected a new or empty folder, or one made by `worldsize start` (with {RECORD}), got one with "
            f"{shown}. Nothing was written. Name a new folder: worldsize start my-course"
        )
    return folder


def lay(folder: Path, source: Path, version: str, on_file: OnFile = lambda done, of, name: None) -> LaidCourse:
    """Make or renew the course in `folder` from the files below `source`, which are the release `version`.

    Raises ValueError if the folder has a newer release, OSError if it cannot be written.
    """
    content = {name: (source / name).read_bytes() for name in course_files(source)}
    if is_course(folder):
        return _renew(folder, content, version, on_file)

    with _said_of(folder, "nothing was written"):
        free_bytes = shutil.disk_usage(folder if folder.exists() else folder.parent).free
        if free_bytes < sum(map(len, content.values())) + _SPARE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _make(folder, content, _record(content, version), on_file)
    return LaidCourse(folder, "", version, tuple(LaidFile(name, "new") for name in content), "")


def mark_checked(folder: Path, version: str) -> None:
    """Note in the course's record that two real ranks ran with the release `version`."""
    write_record(folder, replace(read_record(folder), checked=version))


def _record(content: dict[str, bytes], version: str) -> CourseRecord:
    files, cells = {}, {}
    for name, file in content.items():
        files[name] = digest(file)
        if _LAB.fullmatch(name):
            cells[name] = cell_digests(file)
    return CourseRecord(version, files, cells)


def _make(folder: Path, content: dict[str, bytes], record: CourseRecord, on_file: OnFile) -> None:
    inside = folder.exists()
    stage = (folder if inside else folder.parent) / f".{folder.name}.{secrets.token_hex(8)}.part"

    try:
        for done, (name, file) in enumerate(content.items(), 1):
            write_whole(stage / name, file)
            on_file(done, len(content), name)

        if inside:
            write_record(folder, record)  # first: the next start lays any file that is missing beside it
            for path in sorted(stage.iterdir()):
                path.rename(folder / path.name)
        else:
            write_record(stage, record)
            stage.rename(folder)
    finally:
        remove_whole(stage)


@contextmanager
def _said_of(folder: Path, outcome: str) -> Iterator[None]:
    """Report an update's system error as the course's folder's, not as one of a temporary file."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(
                f"{folder}: expected about 10 MB of free disk, got a full disk or quota: {outcome}. Free some space, then "
                f"run the command again."
            ) from None
        raise OSError(error.errno, error.strerror or str(error), os.fspath(folder)) from None


def _renew(folder: Path, content: dict[str, bytes], version: str, on_file: OnFile) -> LaidCourse:
    record = read_record(folder)
    if release_number(record.version) > release_number(version):
        raise ValueError(
            f"{folder}: expected a course of release {version} or older, got one of {record.version}, whose labs need that "
            f"release: install worldsize {record.version}, then run `worldsize start` again."
        )

    todo = [_planned(folder, name, file, record, version) for name, file in content.items()]
    todo += [_retired(folder, name, laid) for name, laid in record.files.items() if name not in content]
    writes = [step for step in todo if step is not None]

    renewed = replace(_record(content, version), checked=record.checked)
    with _said_of(folder, "each file is either the old or the new one"):
        for done, step in enumerate(writes, 1):
            step.do(folder)
            on_file(done, len(writes), step.said.name)
        if renewed != record:
            write_record(folder, renewed)

    return LaidCourse(folder, record.version, version, tuple(step.said for step in writes), record.checked)


@dataclass(frozen=True)
class _FileStep:
    """A file's planned change: `writes` maps names to content (None: remove), `keeps` is the student's file to set aside."""

    said: LaidFile
    writes: dict[str, bytes | None]
    keeps: tuple[str, bytes] | None = None

    def do(self, folder: Path) -> None:
        if self.keeps is not None:
            where, content = self.keeps
            write_whole(folder / where, content)
        for name, file in self.writes.items():
            if file is None:
                (folder / name).unlink(missing_ok=True)
            else:
                write_whole(folder / name, file)


def _planned(folder: Path, name: str, new: bytes, record: CourseRecord, version: str) -> _FileStep | None:
    """Return an update's step for one file of the release, or None if nothing is to be done."""
    path, laid = folder / name, record.files.get(name)
    if not path.is_file():
        return _FileStep(LaidFile(name, "new"), {name: new})

    theirs = path.read_bytes()
    if theirs == new or digest(new) == laid:
        return None
    if digest(theirs) == laid:
        return _FileStep(LaidFile(name, "replaced"), {name: new})

    kept = _free_name(folder, f"before-{version}/{name}", theirs)
    if name in record.cells:
        made = merged_lab(theirs, new, record.cells[name])
        if made is not None:
            return _FileStep(LaidFile(name, "merged", _words(made, kept)), {name: made.text.encode()}, (kept, theirs))

    if name.endswith(".ipynb"):
        beside = f"labs/new-{path.name}"
        words = f"yours is unchanged; the new one is {beside}"
        if _LAB.fullmatch(name):
            words += ": copy the cells that begin with `# Exercise` into it"
        return _FileStep(LaidFile(name, "yours", words), {beside: new})
    return _FileStep(LaidFile(name, "aside", f"yours is {kept}"), {name: new}, (kept, theirs))


def _retired(folder: Path, name: str, laid: str) -> _FileStep | None:
    """Return an update's step for a file that the release no longer has: removed unless the student has changed it."""
    path = folder / name
    if not path.is_file():
        return None

    if digest(path.read_bytes()) == laid:
        return _FileStep(LaidFile(name, "removed"), {name: None})
    return _FileStep(LaidFile(name, "yours", "the new release has no such file; yours stays"), {})


def _free_name(folder: Path, name: str, content: bytes) -> str:
    """Return a free name for a student's file that an update sets aside; a file with the same content may be there already."""
    first, _, rest = name.partition("/")
    for number in range(1, 10_000):
        tried = f"{first}{f'-{number}' if number > 1 else ''}/{rest}"
        path = folder / tried
        if not path.exists() or path.read_bytes() == content:
            return tried
    raise ValueError(f"{folder / name}: expected fewer than 10,000 copies, got 10,000. Remove the copies you do not need.")


def _words(made: MergedLab, kept: str) -> str:
    """Return, for an updated course, a sentence on what a merged lab kept of the student's, and where the old notebook is."""
    clauses = ["no answers in it yet"]
    if made.answers:
        clauses = [_counted(made.answers, "answer", "answers") + " kept"]

    if made.own:
        clauses.append(_counted(made.own, "cell of your own", "cells of your own"))
    if made.notes:
        clauses.append(_counted(made.notes, "changed cell", "changed cells") + " of yours below the new text, not run")
    if made.revised:
        clauses.append(f"compare with their new text: {', '.join(made.revised)}")
    return f"{'; '.join(clauses)}; your old notebook is {kept}"


def _counted(count: int, singular: str, plural: str) -> str:
    return f"{count} {singular if count == 1 else plural}"
