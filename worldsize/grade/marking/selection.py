"""Which submissions of a folder a grading is about: all of them, some by name, those that ended badly, or one shard.

A shard is told by a hash of the row's name, so that every machine cuts the same folder in the same way, and what a check
draws follows from seed, lab and file, whatever shard a row is in. Left out: what becomes of the others' rows (`batch`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from worldsize.grade.marking.rows import GradeRow, GradeState

_ENDED_BADLY: tuple[GradeState, ...] = ("crashed", "timeout", "lost")


@dataclass(frozen=True)
class Shard:
    """Number `number` of `count` parts, counted from 1."""

    number: int = 1
    count: int = 1

    def has(self, row_name: str) -> bool:
        """Whether the row in the file `row_name` is of this part."""
        mark = int.from_bytes(hashlib.blake2b(row_name.encode(), digest_size=8).digest())
        return mark % self.count == self.number - 1


def shard_of(text: str) -> Shard:
    """"3/7" -> the third of seven. Raises ValueError."""
    found = re.fullmatch(r"([0-9]+)/([0-9]+)", text, re.ASCII)
    if found and 1 <= int(found[1]) <= int(found[2]):
        return Shard(int(found[1]), int(found[2]))
    raise ValueError(f"--shard: expected one part of several, such as 1/7 to 7/7, got {text!r}.")


@dataclass(frozen=True)
class Selection:
    """`labs` are stems, `students` names, `only` patterns for the path in the folder of submissions: empty stands for all.

    `crashed`: what ended as crashed, timeout or lost. `again`: also what has a row that holds.
    """

    labs: tuple[str, ...] = ()
    students: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    crashed: bool = False
    again: bool = False
    shard: Shard = Shard()

    @property
    def is_of_all(self) -> bool:
        """Whether every row of the folder is asked for, in however many shards."""
        return not (self.labs or self.students or self.only or self.crashed)

    def has(self, student: str, lab: str, path: str, row_name: str, row: GradeRow | None) -> bool:
        """Whether this submission is asked for; `row` is the one that it has."""
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
    """Whether a student is meant by `name`: the whole name, or an LMS's number at its end."""
    return student == name or (name.isdecimal() and student.endswith(f"_{name}"))


def expect_found(selection: Selection, students: Iterable[str], paths: Iterable[str]) -> None:
    """Raises ValueError for a student or pattern that nothing in the folder is meant by."""
    there = sorted(set(students))
    for name in selection.students:
        if not any(fits(student, name) for student in there):
            raise ValueError(f"--student: expected one who handed in ({_some(there)}), got {name!r}.")

    every = sorted(paths)
    for pattern in selection.only:
        if not any(fnmatchcase(path, pattern) for path in every):
            raise ValueError(f"--only: expected a path in the folder, or a pattern of one ({_some(every)}), got {pattern!r}.")


def _some(names: list[str]) -> str:
    shown = ", ".join(map(ascii, names[:3]))
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown or "none"
