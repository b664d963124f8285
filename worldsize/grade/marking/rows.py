"""A grade as data: one row per submission, one JSON file per row, written whole or not at all.

The files make a grading resumable: a submission with a row is done.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from worldsize.cells import AnswerElsewhere, LeftBehind
from worldsize.files import PRIVATE, write_whole
from worldsize.grade.marking.tamper import Tamper
from worldsize.trace import Trace, Transfer

# "lost" is the grader's own failure in all of its attempts; the next run tries again
GradeState = Literal["graded", "timeout", "crashed", "tampered", "ungradable", "lost"]
ExerciseState = Literal["pass", "fail", "not yet", "missing", "timeout", "crashed"]
SimulatedOutcome = Literal["same", "differs", "timeout", "crashed", "not played"]
STATES: tuple[GradeState, ...] = get_args(GradeState)
NO_MARK: tuple[GradeState, ...] = ("ungradable", "lost")  # their points mean nothing, not even 0
MOST_MESSAGES = 2000
_MOST_NAMES = 3


@dataclass(frozen=True)
class PropertyRow:
    """A property of an exercise in a row. `passed` is None if it was not examined."""

    name: str
    points: float
    passed: bool | None


class MessageRow(NamedTuple):
    """A message between ranks, with the first fields of a `Transfer`; a list in JSON, to save space."""

    src: int
    dst: int
    size_bytes: int
    start_s: float
    end_s: float
    tag: int = 0


@dataclass(frozen=True)
class SimulatedRow:
    """An exercise's result in simulated time, beside the result on real ranks (`real_points`, `real_said`).

    `said` is the check's finding, or the reason for no verdict. Without a verdict, `outcome` is "not played" if the
    exercise needs real processes, and "timeout" or "crashed" if the process that played it gave no result.
    """

    outcome: SimulatedOutcome
    said: str = ""
    points: float = 0.0
    real_points: float = 0.0
    real_said: str = ""


@dataclass(frozen=True)
class ExerciseRow:
    """A row's result of one exercise. `mismatch` says where its check first failed.

    `messages` come from the first failing case, run `run` of the check (0: not over the fabric), between `ranks`
    ranks. `helped` names the exercises whose reference replaced the student's own failed answer. `simulated` is None if
    simulated time had nothing to confirm: no points, or no messages.
    """

    id: str
    title: str
    state: ExerciseState
    points: float
    possible: float
    properties: tuple[PropertyRow, ...] = ()
    mismatch: str = ""
    helped: tuple[str, ...] = ()
    ranks: int = 0
    messages: tuple[MessageRow, ...] = ()
    run: int = 0
    left: tuple[LeftBehind, ...] = ()  # names it uses of other cells that the grader does not run
    simulated: SimulatedRow | None = None
    taken_out: tuple[str, ...] = ()  # lines of its cell that only a notebook can run
    elsewhere: tuple[AnswerElsewhere, ...] = ()  # places of answers that do not count
    changed: tuple[str, ...] = ()  # objects of this package that changed in a process of the submission

    @property
    def earned_all(self) -> bool:
        """Return whether the answer earned all points there are; what is still wrong is shown and costs none."""
        return 0 < self.possible == self.points

    @property
    def advice(self) -> tuple[str, ...]:
        """Return the row's sentences on answers elsewhere and on names left behind; () if the exercise passed."""
        if self.state == "pass":
            return ()
        elsewhere = (answer.sentence for answer in self.elsewhere)
        return (*elsewhere, *(name.sentence for name in self.left[:_MOST_NAMES]))

    @property
    def trace(self) -> Trace:
        return Trace(self.ranks, tuple(Transfer(*row) for row in self.messages))


@dataclass(frozen=True)
class GradeRow:
    """The row with the result of one submission. `seed` replays it; `digest` is of the bytes that were marked.

    `release` is the digest of everything else that decides a mark (`release_digests`), "" in rows of a version that kept none.
    `host` is the machine that graded, and `attempt` counts its tries from 1.
    """

    student: str
    lab: str
    path: str  # within the submissions folder
    state: GradeState
    points: float = 0.0
    possible: float = 0.0
    exercises: tuple[ExerciseRow, ...] = ()
    tamper: tuple[Tamper, ...] = ()
    reason: str = ""
    seed: int = 0
    digest: str = ""
    unsafe: bool = False
    seconds: float = 0.0
    release: str = ""
    host: str = field(default="", compare=False)
    attempt: int = field(default=1, compare=False)
    handed_in: str = field(default="", compare=False)  # a note on the files, such as an ignored copy
    late: str = field(default="", compare=False)  # "late", or by how much; no points are deducted
    copies: bool = field(default=False, compare=False)  # in several folders: a person should choose one

    @property
    def result(self) -> tuple:
        """Return what gradings of the same file agree on: not host, attempt, seconds or messages."""
        exercises = [
            (e.id, e.state, e.points, e.possible, e.properties, e.mismatch, e.helped, e.simulated and e.simulated.outcome)
            for e in self.exercises
        ]
        about = (self.student, self.lab, self.path, self.release)
        return (*about, self.state, self.points, tuple(exercises), self.tamper, self.reason)

    @property
    def file_name(self) -> str:
        return file_name(self.student, self.lab, self.path)


def file_name(student: str, lab: str, path: str = "") -> str:
    """Return the name of a row's JSON file: no student's name can alter its folder, and no two rows share it.

    The `path` in the submissions folder counts only if the `lab` is unknown ("").
    """
    plain_student = re.sub(r"[^\w.-]+", "-", student, flags=re.ASCII).strip(".-")[:60] or "student"
    plain_lab = re.sub(r"[^0-9a-z_]+", "-", lab)[:60] or "unknown"
    parts = [student, lab] if lab else [student, lab, path]
    mark = hashlib.blake2b("\0".join(parts).encode("utf-8", "backslashreplace"), digest_size=10).hexdigest()
    return f"{plain_student}.{plain_lab}.{mark}.json"


def write(row: GradeRow, folder: Path) -> Path:
    """Write a submission's row to its JSON file in `folder`; a failed write leaves the earlier file."""
    path = folder / row.file_name
    write_whole(path, json.dumps(to_dict(row), ensure_ascii=True, indent=1), PRIVATE, durable=True)
    return path


def read(path: Path) -> GradeRow:
    """Read a submission's row from its JSON file.

    Raises ValueError if the file is damaged.
    """
    try:
        return from_dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(
            f"{path}: expected a grade's row, got {type(error).__name__}: {error}. Delete it and grade again: the other rows "
            "stay."
        ) from None


def identity(out: Path, name: str) -> tuple | None:
    """Return what identifies a row's current file, None if there is none; a row written again is another file."""
    try:
        about = (out / "rows" / name).stat()
    except FileNotFoundError:
        return None
    return about.st_ino, about.st_mtime_ns


def to_dict(row: GradeRow) -> dict[str, Any]:
    """Return a grade row's fields as JSON's values."""
    return msgspec.to_builtins(row)


def from_dict(data: Any) -> GradeRow:
    """Return the row whose fields these are, or fail: raises ValueError with the place of the first that has another type."""
    return msgspec.convert(data, GradeRow)


def read_all(out: Path, messages: bool = True) -> list[GradeRow]:
    """Return every row in a folder of grades, by student and lab; without `messages`, thousands take little memory."""
    rows = []
    for path in sorted((out / "rows").glob("*.json")):
        row = read(path)
        if not messages:
            row = replace(row, exercises=tuple(replace(e, messages=()) for e in row.exercises))
        rows.append(row)
    return sorted(rows, key=lambda row: (row.student, row.lab, row.path))


def messages_of(trace: Trace | None) -> tuple[int, tuple[MessageRow, ...]]:
    """Return for a row the number of ranks and the first `MOST_MESSAGES` transfers of the check's trace."""
    if trace is None:
        return 0, ()

    messages = []
    for t in trace.transfers[:MOST_MESSAGES]:
        messages.append(MessageRow(t.src, t.dst, t.size_bytes, round(t.start_s, 6), round(t.end_s, 6), t.tag))
    return trace.world_size, tuple(messages)
