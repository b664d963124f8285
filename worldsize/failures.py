"""What can go wrong with ranks, as plain data, and the words that a student can read.

A rank never sends an exception object: it sends a `Failure` (type name, text, frames), and the kernel renders it
against the notebook's own cells. Left out: how failures are noticed (`engines/`), and what is raised (`errors`).
The idea of leading with the first failure is `torch.distributed.elastic.multiprocessing.errors`.
"""

from __future__ import annotations

import linecache
import os
import re
import signal
import sys
import sysconfig
from dataclasses import dataclass, field

_PACKAGE_DIR = os.path.dirname(os.path.abspath(__file__))
_LIBRARY_DIRS = tuple(
    {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_path("purelib"), _PACKAGE_DIR}
)
TaskNames = tuple[str, ...]  # ("chief:0", "worker:0") by rank; () where ranks have numbers only
_MAX_FRAMES = 6
_MAX_ROWS = 6


@dataclass(frozen=True)
class Frame:
    """One line of a traceback: file, 1-based line, function, source text ("" where the rank cannot see it)."""

    file: str
    line: int
    function: str
    text: str = ""


@dataclass(frozen=True)
class Failure:
    """How a rank ended. `kind` is "raised", "signal" or "exit"; `at_s` is on the machine's monotonic clock."""

    rank: int
    kind: str
    at_s: float
    type: str = ""
    message: str = ""
    frames: tuple[Frame, ...] = ()
    code: int | None = None
    not_yet: bool = False
    cause: str = ""

    @property
    def lost_a_peer(self) -> bool:
        """True where this looks like the echo of another rank's end, not the first failure."""
        if self.kind != "raised":
            return False
        return self.type in _PEER_LOST_TYPES or _PEER_LOST.search(self.message) is not None


_PEER_LOST_TYPES = ("UnavailableError", "AbortedError")  # TensorFlow's, for an address that no longer answers

_PEER_LOST = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|closed by peer|broken pipe|remote process|"
    r"peer (has )?(closed|exited)|NCCL (communicator|WARN|error)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Standing:
    """Where a rank stood when the run was stopped: `doing` in words, its stack, its last message."""

    rank: int
    doing: str = ""
    frames: tuple[Frame, ...] = ()
    last_transfer: str = ""
    answered: bool = True


@dataclass(frozen=True)
class Outcome:
    """How a launch ended. `status`: "done", "failed", "deadlock", "timeout", "stopped" or "refused" (`reason`)."""

    status: str
    failures: tuple[Failure, ...] = ()
    standings: tuple[Standing, ...] = ()
    entered_s: dict[int, float] = field(default_factory=dict)
    notes: dict[int, dict] = field(default_factory=dict)
    waits: tuple[str, ...] = ()
    reason: str = ""


def first_failure(failures: list[Failure]) -> Failure:
    """The culprit among the failures of ranks: the earliest, but an echo never goes before its cause.

    An echo is what a rank says whose peer was lost ("connection closed by peer").
    """
    causes = [f for f in failures if not f.lost_a_peer]
    return min(causes or failures, key=lambda f: f.at_s)


def is_library(frame: Frame) -> bool:
    return frame.file.startswith(_LIBRARY_DIRS) or frame.file.startswith("<frozen")


def place(frame: Frame) -> str:
    """A failure's words for where a frame is: "Exercise 6.2 (cell In[3]), line 7, in ring"."""
    lines = linecache.getlines(frame.file)
    title = re.match(r"#\s*((?:Exercise|Example)\s+[\d.]+\d)", lines[0]) if lines else None
    cell = _cell_name(frame.file)
    if title:
        where = f"{title[1]} ({cell})" if cell else title[1]
    else:
        where = cell or frame.file
    return f"{where}, line {frame.line}, in {frame.function}"


def _cell_name(file: str) -> str:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    namer = getattr(getattr(shell, "compile", None), "format_code_name", None)
    named = namer(file) if namer else None
    return f"cell {named[1]}" if named and named[0] == "Cell" else ""


def source_line(frame: Frame) -> str:
    return (frame.text or linecache.getline(frame.file, frame.line)).strip()


def render_frames(frames: tuple[Frame, ...]) -> list[str]:
    """A `Failure`'s frames as lines: the reader's own with their source, those of libraries folded to one line."""
    rows: list[str] = []
    folded = 0
    own = [f for f in frames if not is_library(f)]
    skipped = set(own[1 : len(own) - _MAX_FRAMES + 1]) if len(own) > _MAX_FRAMES else set()
    for frame in frames:
        if is_library(frame):
            folded += 1
            continue
        if frame in skipped:
            continue
        rows += [f"  {place(frame)}", f"      {source_line(frame)}"]
    if skipped:
        rows.insert(2, f"  … {len(skipped)} more of your frames")
    if folded:
        last = frames[-1]
        inside = f", the last in {last.function}" if is_library(last) else ""
        rows.append(f"  … {folded} frame{'s' * (folded > 1)} of libraries{inside}")
    return rows


def name(rank: int, tasks: TaskNames = ()) -> str:
    """How the words of a failure call one rank: "rank 2", or "worker 1" for a task of TensorFlow.

    The latter where `tasks` says that rank 2 is "worker:1".
    """
    return tasks[rank].replace(":", " ") if tasks else f"rank {rank}"


def headline(failure: Failure, world_size: int, tasks: TaskNames = ()) -> str:
    """A `Failure` in one line, in words that a student can read: who failed and how."""
    who = name(failure.rank, tasks) + ("" if tasks else f" of {world_size}")
    if failure.kind == "raised":
        return f"{who} failed first: {failure.type}: {failure.message}".rstrip(": ")
    if failure.kind == "signal":
        said = signal.Signals(failure.code).name if failure.code in list(signal.Signals) else f"signal {failure.code}"
        hint = " (out of memory?)" if said == "SIGKILL" else ""
        return f"{who} was killed by {said}{hint} before it returned a result"
    left = f"{who} exited with code {failure.code} and no result"
    return f"{left}: return from the function instead of leaving the process"


_WRAPPERS = ("wrapper", "error_handler")  # what torch and TensorFlow put round their own functions


def render_standing(standing: Standing, tasks: TaskNames = ()) -> str:
    """A `Standing` in words, beside the failure: where another rank stood when the run was stopped."""
    own = [f for f in standing.frames if not is_library(f)]
    inside = [f for f in standing.frames if is_library(f) and f.function not in _WRAPPERS]
    doing = standing.doing or ("in native code, it did not answer" if not standing.answered else "running")
    if not standing.doing and inside and is_library(standing.frames[-1]):
        doing = f"in {inside[0].function}"
    at = f" at {place(own[-1])}: {source_line(own[-1])}" if own else ""
    last = f" (last message: {standing.last_transfer})" if standing.last_transfer else ""
    return f"{name(standing.rank, tasks)} {doing}{at}{last}"


def names(ranks: list[int], tasks: TaskNames = ()) -> str:
    """How the words of a failure call several ranks: [0, 1, 3] -> "ranks 0, 1, 3"; long lists are shortened."""
    if tasks:
        shown = ", ".join(name(r, tasks) for r in ranks[:_MAX_ROWS])
        return shown + (f" and {len(ranks) - _MAX_ROWS} more" if len(ranks) > _MAX_ROWS else "")
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(str(r) for r in ranks[:_MAX_ROWS])
    return f"ranks {shown}" + (f" and {len(ranks) - _MAX_ROWS} more" if len(ranks) > _MAX_ROWS else "")


def render_standings(standings: tuple[Standing, ...], tasks: TaskNames = ()) -> list[str]:
    rows = [f"  {render_standing(s, tasks)}" for s in standings[:_MAX_ROWS]]
    if len(standings) > _MAX_ROWS:
        rows.append(f"  … and {len(standings) - _MAX_ROWS} more ranks")
    return rows
