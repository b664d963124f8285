"""Select the submissions that a grading covers: all of them, some by name, those that ended badly, or one shard.

A hash of the row's name gives the shard, so every machine splits a folder in the same way. A check's draws derive from
seed, lab and file, whatever the shard.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from worldsize.grade.marking.rows import GradeRow, GradeState

_ENDED_BADLY: tuple[GradeState, ...] = ("crashed", "timeout", "lost")


@dataclass(frozen=True)
class Shard:
    """A selection's part `number` of `count`, counted from 1."""

    number: int = 1
    count: int = 1

    def has(self, row_name: str) -> bool:
        """Return whether the row in the file `row_name` belongs to this shard."""
        mark = int.from_bytes(hashlib.blake2b(row_name.encode(), digest_size=8).digest())
        return mark % self.count == self.number - 1


def shard_of(text: str) -> Shard:
    """Parse "3/7", a selection, into the third shard of seven. Raises ValueError for anything else."""
    found = re.fullmatch(r"([0-9]+)/([0-9]+)", text, re.ASCII)
    if found and 1 <= int(found[1]) <= int(found[2]):
        return Shard(int(found[1]), int(found[2]))
    raise ValueError(f"--shard: expected one part of several, such as 1/7 to 7/7, got {text!r}.")


@dataclass(frozen=True)
class Selection:
    """A selection: filters on submissions; an empty filter passes all.

    `labs` are stems, `students` names, `only` patterns for the path in the submissions folder. `crashed` selects rows
    that ended as crashed, timeout or lost. `again` includes rows that still hold.
    """

    labs: tuple[str, ...] = ()
    students: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    crashed: bool = False
    again: bool = False
    shard: Shard = Shard()

    def has(self, student: str, lab: str, path: str, row_name: str, row: GradeRow | None) -> bool:
        """Return whether this submission is selected; `row` is its current row."""
        if self.labs and lab not in self.labs:
            return False
        if self.students and not any(fits(student, name) for name in self.students):
            return False
        if self.only and not any(fnmatchcase(path, pattern) for pattern in self.only):
            return False
        if self.crashed and (row is None or row.state not in _ENDED_BADLY):
            return False
        return self.shard.has(row_name)


def fits(student: str, name: str) -> bool:
    """Return whether a selection's `name` means this student: the whole name, or an LMS's number at its end."""
    if name.isdecimal() and student.endswith(f"_{name}"):
        return True
    return student == name


def expect_found(selection: Selection, students: Iterable[str], paths: Iterable[str]) -> None:
    """Raise ValueError for a selected student or pattern that matches nothing in the folder."""
    there = sorted(set(students))
    for name in selection.students:
        if not any(fits(student, name) for student in there):
            raise ValueError(f"--student: expected a student who handed in ({_some(there)}), got {name!r}.")

    every = sorted(paths)
    for pattern in selection.only:
        if not any(fnmatchcase(path, pattern) for path in every):
            raise ValueError(
                f"--only: expected a path in the folder, or a pattern that fits one ({_some(every)}), got {pattern!r}."
            )


def _some(names: list[str]) -> str:
    shown = ", ".join(map(ascii, names[:3]))
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown or "none"
