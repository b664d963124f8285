"""What was handed in: the notebooks in a folder, whose they are and of which lab.

Three layouts: `<student>/<lab>.ipynb`, nbgrader's `<student>/<assignment>/<lab>.ipynb`, and a flat folder of files as
Canvas and Moodle export them. Links are not followed, and what is no plain file is not opened. Left out: what is in a
notebook (`submission`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

# "doejane_LATE_123_456_06_ring_all_reduce-2.ipynb", "Jane Doe_4711_assignsubmission_file_06_ring_all_reduce.ipynb"
_CANVAS = re.compile(r"(?P<name>[^_]+(?:_[^_\d][^_]*)*?)(?:_LATE)?_(?P<id>\d+)_\d+_(?P<file>.+)", re.IGNORECASE)
_MOODLE = re.compile(r"(?P<name>.+)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)_?(?P<file>.*)", re.IGNORECASE)
_AGAIN = re.compile(r"-(\d+)$")
_SKIPPED = ("__MACOSX", "__pycache__")


@dataclass(frozen=True)
class HandedIn:
    """A notebook of a student. `lab` is the stem of the release's notebook, "" where the name does not say.

    `digest` is of the file's bytes, "" until somebody has read them, and where they cannot be read.
    """

    student: str
    lab: str
    path: Path
    note: str = ""
    digest: str = ""

    @property
    def without_notebook(self) -> bool:
        """Whether this is a student's folder that has none in it; a link to a folder is a file that cannot be read."""
        return self.path.is_dir() and not self.path.is_symlink()


def find(folder: Path, labs: Iterable[str]) -> list[HandedIn]:
    """What there is to grade under `folder`, one a student and lab, in order. Raises ValueError for no folder."""
    need(folder)

    labs = sorted(labs)
    groups: dict[tuple[str, str], list[HandedIn]] = {}
    for found in _all(folder, labs):
        # what names no lab stands for itself until somebody has looked into it
        key = (found.student, found.lab or str(found.path))
        groups.setdefault(key, []).append(found)
    return [_best(group) for _, group in sorted(groups.items())]


def need(folder: Path) -> None:
    """Raises ValueError where `folder` is none."""
    if not folder.is_dir():
        got = "a file" if folder.exists() else "nothing of that name"
        raise ValueError(
            f"{folder}: expected a folder of submissions, such as submitted/<student>/06_ring_all_reduce.ipynb, got {got}."
        )


def _all(folder: Path, labs: list[str]) -> Iterator[HandedIn]:
    for entry in sorted(folder.iterdir()):
        if _skipped(entry.name):
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _below(entry, labs)
        elif entry.suffix.lower() == ".ipynb":
            yield _flat(entry, labs)


def _below(folder: Path, labs: list[str]) -> Iterator[HandedIn]:
    student = _student(folder.name)
    found = list(notebooks(folder))
    for path in found:
        yield HandedIn(student, _lab(path.stem, labs) or _lab(path.parent.name, labs), path)
    if not found:
        yield HandedIn(student, "", folder, note="no notebook was handed in: the .ipynb file itself is needed")


def notebooks(folder: Path) -> Iterator[Path]:
    """Every notebook below a folder that was handed in, in order; not those in hidden folders."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _skipped(name))
        for name in sorted(files):
            if name.lower().endswith(".ipynb") and not name.startswith("."):
                yield Path(place) / name


def _skipped(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED


def _flat(path: Path, labs: list[str]) -> HandedIn:
    lab = _lab(path.stem, labs)

    for pattern in (_MOODLE, _CANVAS):
        found = pattern.fullmatch(path.stem)
        if found:
            return HandedIn(f"{found['name']}_{found['id']}", lab, path)

    student = path.stem.partition(lab)[0] if lab else path.stem
    return HandedIn(student.strip("_- ") or path.stem, lab, path)


def _student(folder: str) -> str:
    found = _MOODLE.fullmatch(folder)
    return f"{found['name']}_{found['id']}" if found else folder


def _lab(name: str, labs: list[str]) -> str:
    """The lab that a file's name says: its whole stem, or its number at the start of a word."""
    whole = [lab for lab in labs if lab in name]
    if whole:
        return max(whole, key=len)

    numbers = set(re.findall(r"(?:^|[^0-9a-z]|lab)(\d\d)(?=[^0-9]|$)", name.lower()))
    numbered = [lab for lab in labs if lab[:2] in numbers]
    return numbered[0] if len(numbered) == 1 else ""


def _best(group: list[HandedIn]) -> HandedIn:
    """The notebook that counts: the lab's own name before copies, the last one where Canvas numbered them."""
    if len(group) == 1:
        return group[0]

    def worth(found: HandedIn) -> tuple[bool, int, str]:
        again = _AGAIN.search(found.path.stem)
        number = int(again[1][:6]) if again else 0
        bare = _AGAIN.sub("", found.path.stem)
        return bare.endswith(found.lab), number, found.path.name

    best = max(group, key=worth)
    others = ", ".join(sorted(found.path.name for found in group if found is not best)[:5])
    return replace(best, note=f"{len(group)} notebooks of this lab were handed in: {best.path.name} counts, not {others}")
