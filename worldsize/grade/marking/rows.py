"""A grade as data: one row a submission, one JSON file a row, written whole or not at all.

The files are what makes a batch resumable: what has its row is done. Left out: how points came about (`marking`), and
what becomes of them (books, feedback, exports).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from worldsize.files import PRIVATE, write_whole
from worldsize.grade.marking.elsewhere import AnswerElsewhere, elsewhere_from_json
from worldsize.grade.marking.tamper import Tamper, tamper_from_json
from worldsize.lab.own_cells import LeftBehind
from worldsize.trace import Trace, Transfer

# "lost" is the grader's own: what it could not mark in any of its attempts, and will try again in the next run
GradeState = Literal["graded", "timeout", "crashed", "tampered", "ungradable", "lost"]
ExerciseState = Literal["pass", "fail", "not yet", "missing", "timeout", "crashed"]
SimulatedOutcome = Literal["same", "differs", "timeout", "crashed", "not played"]
STATES: tuple[GradeState, ...] = get_args(GradeState)
NO_MARK: tuple[GradeState, ...] = ("ungradable", "lost")  # their points say nothing, not even 0
MOST_MESSAGES = 2000
_MOST_NAMES = 3


@dataclass(frozen=True)
class PropertyRow:
    """One property of an exercise. `passed` is None where the check did not get that far."""

    name: str
    points: float
    passed: bool | None


class MessageRow(NamedTuple):
    """A message between ranks, as a `Transfer` begins; in JSON a list, since there are many."""

    src: int
    dst: int
    size_bytes: int
    start_s: float
    end_s: float
    tag: int = 0


@dataclass(frozen=True)
class SimulatedRow:
    """What came of an exercise in simulated time, beside what real ranks had shown (`real_points`, `real_said`).

    `said` is what the check found, or why there is no verdict: then `outcome` is "not played" where the exercise needs real
    processes, "timeout" or "crashed" where the process that played it gave no result.
    """

    outcome: SimulatedOutcome
    said: str = ""
    points: float = 0.0
    real_points: float = 0.0
    real_said: str = ""


@dataclass(frozen=True)
class ExerciseRow:
    """What came of one exercise. `mismatch` says where its check first failed.

    `messages` are those of the first failing case, run `run` of the check (0: not over the fabric), between `ranks`
    ranks.
    `helped` names the exercises whose reference stood in, because the student's own did not pass. `simulated` is None where
    there was nothing to confirm in simulated time: no points, or no messages.
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
    left: tuple[LeftBehind, ...] = ()  # what it uses of other cells and the grader does not run
    simulated: SimulatedRow | None = None
    taken_out: tuple[str, ...] = ()  # of its cell, what a notebook alone can run, as it stands there
    elsewhere: tuple[AnswerElsewhere, ...] = ()  # where an answer stands that does not count
    changed: tuple[str, ...] = ()  # objects of the course's package that were changed in a process of the submission

    @property
    def advice(self) -> tuple[str, ...]:
        """Sentences on an answer that stands elsewhere, and on what does not go along; () of an exercise that passed."""
        if self.state == "pass":
            return ()
        return tuple(one.sentence for one in [*self.elsewhere, *self.left[:_MOST_NAMES]])

    @property
    def trace(self) -> Trace:
        return Trace(self.ranks, tuple(Transfer(*row) for row in self.messages))


@dataclass(frozen=True)
class GradeRow:
    """What came of one submission. `seed` replays it; `digest` is of the bytes that were marked.

    `release` is a digest over what decides a mark (`release`), "" in rows of a version that kept none. `host` is the
    machine that graded, at which `attempt` of as many as the grader makes.
    """

    student: str
    lab: str
    path: str  # in the folder of submissions
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
    handed_in: str = field(default="", compare=False)  # a note on the files, such as a copy that does not count
    late: str = field(default="", compare=False)  # "late", or by how much; nothing is taken off for it
    copies: bool = field(default=False, compare=False)  # in several folders: a person should say which one counts

    @property
    def result(self) -> tuple:
        """All but what differs from run to run: host and attempt, seconds, and the moments of messages."""
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
    """The name of a row's JSON file: no student's name can steer it, and no two rows share it.

    The `path` in the folder of submissions counts where nobody knows the `lab`, which is "" then.
    """
    plain_student = re.sub(r"[^\w.-]+", "-", student, flags=re.ASCII).strip(".-")[:60] or "student"
    plain_lab = re.sub(r"[^0-9a-z_]+", "-", lab)[:60] or "unknown"
    parts = [student, lab] if lab else [student, lab, path]
    mark = hashlib.blake2b("\0".join(parts).encode("utf-8", "backslashreplace"), digest_size=10).hexdigest()
    return f"{plain_student}.{plain_lab}.{mark}.json"


def write(row: GradeRow, folder: Path) -> Path:
    """Put a submission's row into its JSON file in `folder`, or leave the one that is there."""
    path = folder / row.file_name
    write_whole(path, json.dumps(asdict(row), ensure_ascii=True, indent=1), PRIVATE, durable=True)
    return path


def read(path: Path) -> GradeRow:
    """The row of one submission out of its JSON file.

    Raises ValueError for a damaged one.
    """
    try:
        return from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected a grade's row, got {type(error).__name__}: {error}. Delete it and grade again: the others stay."
        ) from None


def identity(out: Path, name: str) -> tuple | None:
    """Which file stands for a row now, None where there is none: a row that is written again is another file."""
    try:
        about = (out / "rows" / name).stat()
    except FileNotFoundError:
        return None
    return about.st_ino, about.st_mtime_ns


def from_dict(data: dict[str, Any]) -> GradeRow:
    """A row as JSON has it, also one of a version that kept no data of what was tampered with, only sentences.

    Raises TypeError, KeyError, AttributeError or ValueError for what is no row.
    """
    exercises = tuple(_exercise(exercise) for exercise in data["exercises"])
    tamper = tuple(tamper_from_json(one) for one in data["tamper"])
    return GradeRow(**data | {"exercises": exercises, "tamper": tamper})


def _exercise(data: dict[str, Any]) -> ExerciseRow:
    properties = tuple(PropertyRow(**one) for one in data["properties"])
    messages = tuple(MessageRow(*message) for message in data["messages"])
    left = tuple(LeftBehind(**one) for one in data.get("left", ()))
    elsewhere = tuple(elsewhere_from_json(one) for one in data.get("elsewhere", ()))
    about = data.get("simulated")
    simulated = SimulatedRow(**about) if about else None
    lists = {name: tuple(data.get(name, ())) for name in ("helped", "taken_out", "changed")}
    more = {"properties": properties, "messages": messages, "left": left, "elsewhere": elsewhere, "simulated": simulated}
    return ExerciseRow(**data | lists | more)


def read_all(out: Path, messages: bool = True) -> Iterator[GradeRow]:
    """Every row in a folder of grades, by student and lab; without `messages` thousands take little memory."""
    found = []
    for path in sorted((out / "rows").glob("*.json")):
        row = read(path)
        if not messages:
            row = replace(row, exercises=tuple(replace(e, messages=()) for e in row.exercises))
        found.append(row)
    yield from sorted(found, key=lambda row: (row.student, row.lab, row.path))


def messages_of(trace: Trace | None) -> tuple[int, tuple[MessageRow, ...]]:
    """The messages of an exercise's row: how many ranks there were, and the first transfers of the check's trace."""
    if trace is None:
        return 0, ()
    return trace.world_size, tuple(_message(transfer) for transfer in trace.transfers[:MOST_MESSAGES])


def _message(t: Transfer) -> MessageRow:
    return MessageRow(
        src=t.src, dst=t.dst, size_bytes=t.size_bytes, start_s=round(t.start_s, 6), end_s=round(t.end_s, 6), tag=t.tag
    )
