"""Failures of ranks as plain data, and their rendering as text for students.

A rank never sends an exception object. A rank sends a `Failure` (type name, text, frames), and the kernel renders the `Failure`
against the notebook's own cells. The idea of leading with the first failure is from
`torch.distributed.elastic.multiprocessing.errors`. `errors.py` holds the exceptions; `engines/` detects the failures.
"""

import linecache
import os
import re
import signal
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from worldsize import units
from worldsize.titles import Title, title_of
from worldsize.trace import Event, MessageKind
from worldsize.units import count

_PACKAGE_DIR = os.path.dirname(os.path.abspath(__file__))
# what the names of a library's files begin with, and what they have within them where packages lie elsewhere: those of a user,
# of a virtual environment's base, of a folder in PYTHONPATH
_LIBRARIES = ("<frozen", _PACKAGE_DIR, *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib")))
_FOLDER_OF_PACKAGES = re.compile(r"[\\/](site|dist)-packages[\\/]")
# what an order did with the process groups of a rank that stays: nothing, communicate, or end the default group
GroupsUse = Literal["untouched", "used", "ended"]
TaskNames = tuple[str, ...]  # by rank, such as ("chief:0", "worker:0"); () where ranks have numbers only
_MAX_FRAMES = 6
_CODE_CHARS = 56  # of the line of code behind a place: more has no room in a cell
_MAX_ROWS = 6


@dataclass(frozen=True)
class Frame:
    """A line of a failure's traceback: file, 1-based line, function, source text ("" where the rank cannot see the source)."""

    file: str
    line: int
    function: str
    text: str = ""


@dataclass(frozen=True)
class Failure:
    """The way a rank ended. `at_s` is on the machine's monotonic clock. `code` is the exit code or the signal's number, None if
    unknown. `host` names the host that was lost together with the rank. `groups` is for ranks that stay."""

    rank: int
    kind: Literal["raised", "signal", "exit", "lost"]
    at_s: float
    type: str = ""
    message: str = ""
    frames: tuple[Frame, ...] = ()
    code: int | None = None
    not_yet: bool = False
    cause: str = ""
    host: str = ""
    groups: GroupsUse = "used"

    @property
    def lost_a_peer(self) -> bool:
        """Return True if this failure looks like the echo of another rank's end, not the first failure."""
        if self.kind != "raised":
            return False
        return self.type in _PEER_LOST_TYPES or _PEER_LOST.search(self.message) is not None


# the fabric's error, and TensorFlow's errors for an address that no longer answers
_PEER_LOST_TYPES = ("PeerLost", "UnavailableError", "AbortedError")

# what torch.distributed says when a student calls it directly, where nothing converts its error to PeerLost
_PEER_LOST = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|closed by peer|broken pipe|remote process|"
    r"peer (has )?(closed|exited)|NCCL (communicator|WARN|error)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Wait:
    """A call of the fabric that blocks a rank. `peer` is None for a receive from anyone."""

    rank: int
    op: MessageKind
    peer: int | None
    tag: int = 0
    peer_ended: bool = False


@dataclass(frozen=True)
class Standing:
    """The position of a rank when the run was stopped: its wait, its stack, its last completed message.

    `collective` names the framework call that the rank waited in, `awaits` the ranks for which it would have waited for ever.
    """

    rank: int
    wait: Wait | None = None
    frames: tuple[Frame, ...] = ()
    last_message: Event | None = None
    answered: bool = True
    collective: str = ""
    awaits: tuple[int, ...] = ()


@dataclass(frozen=True)
class Return:
    """The data of a rank that returned, beside those with failures. `changed`: names of the notebook that the rank changed in its
    own copy. `unwaited`: the number of `isend` handles never waited for. `packed` and `record`: the small result and record of a
    rank that stays; no file holds them. `groups` is for ranks that stay too."""

    changed: tuple[str, ...] = ()
    unwaited: int = 0
    packed: bytes = b""
    record: bytes = b""
    groups: GroupsUse = "used"


Status = Literal["done", "failed", "deadlock", "timeout", "stopped", "refused"]


@dataclass(frozen=True)
class Outcome:
    """The end of a launch, with its failures. `reason` says why a launch was refused; `returned` holds the ranks that returned.
    `cause` says why ranks that wait in torch's own communication can never go on, or what they disagreed about before one was
    killed.

    For ranks that stay, `freed` were still at work at the end, and `killed` did not come free; `groups` says what became of
    the groups of each rank that reported its end.
    """

    status: Status
    failures: tuple[Failure, ...] = ()
    standings: tuple[Standing, ...] = ()
    entered_s: dict[int, float] = field(default_factory=dict)
    returned: dict[int, Return] = field(default_factory=dict)
    waits: tuple[Wait, ...] = ()
    reason: str = ""
    freed: tuple[int, ...] = ()
    killed: tuple[int, ...] = ()
    groups: dict[int, GroupsUse] = field(default_factory=dict)
    cause: str = ""


def first_failure(failures: Sequence[Failure]) -> Failure:
    """Return the culprit: the earliest failure that is not an echo, or the earliest echo if all are.

    An echo is the error of a rank whose peer was lost ("connection closed by peer").
    """
    causes = [f for f in failures if not f.lost_a_peer]
    return min(causes or failures, key=lambda f: f.at_s)


def is_library(frame: Frame) -> bool:
    return is_librarys_file(frame.file)


def is_librarys_file(file: str) -> bool:
    return file.startswith(_LIBRARIES) or _FOLDER_OF_PACKAGES.search(file) is not None


def is_package(frame: Frame) -> bool:
    return frame.file.startswith(_PACKAGE_DIR + os.sep)


def place(frame: Frame) -> str:
    """Return a failure's place, of a frame, in words, such as "Exercise 6.2 (cell In[3]), line 7, in ring"."""
    return f"{file_in_words(frame.file)}, line {frame.line}, in {frame.function}"


UNTITLED: dict[str, Title] = {}  # by file: titles of cells that lost their title line and still count


def file_in_words(file: str) -> str:
    """Return "Exercise 6.2 (cell In[3])" for a failure in a cell's file, and the path itself for any other file."""
    cell = ""  # "cell In[3]", where the file is a cell of this notebook
    if "IPython" in sys.modules:
        shell = sys.modules["IPython"].get_ipython()
        namer = getattr(getattr(shell, "compile", None), "format_code_name", None)
        named = namer(file) if namer else None
        if named and named[0] == "Cell":
            cell = f"cell {named[1]}"
        elif namer is None and (number := _number_in_history(shell, file)):
            cell = f"cell In[{number}]"

    title = UNTITLED.get(file) or title_of("".join(linecache.getlines(file)[:1]))
    if title is None or title.kind == "Set-up":
        return cell or file
    return f"{title} ({cell})" if cell else str(title)


def _number_in_history(shell: Any, file: str) -> int:
    """Return the number of the last cell whose code has this file, 0 if there is none. IPython 7 itself keeps no list of them."""
    history = getattr(shell, "history_manager", None)
    if history is None or os.path.exists(file):
        return 0
    for number in range(len(history.input_hist_raw) - 1, 0, -1):
        raw, code = history.input_hist_raw[number], history.input_hist_parsed[number]
        if raw.startswith("%%"):  # a magic's code has an empty line for the magic's
            raw = "\n" + raw.partition("\n")[2]
        if any(shell.compile.get_code_name(raw + end, code, number) == file for end in ("", "\n")):
            return number
    return 0


def source_line(frame: Frame) -> str:
    return (frame.text or linecache.getline(frame.file, frame.line)).strip()


def name(rank: int, tasks: TaskNames = ()) -> str:
    """Return a rank's name in a failure: "rank 2", or "worker 1" where `tasks` (TensorFlow) says that rank 2 is "worker:1"."""
    return tasks[rank].replace(":", " ") if tasks else f"rank {rank}"


def headline(failure: Failure, world_size: int, tasks: TaskNames = (), host: str = "") -> str:
    """Return a `Failure` as text for a student: who failed, on which `host`, and how.

    The text has several lines where the error's message does.
    """
    who = name(failure.rank, tasks)
    if not tasks:
        who += f" of {world_size}"
    if host and failure.kind != "lost":
        who += f" (on {host})"

    links = {"raised": "failed first:", "signal": "was", "exit": "", "lost": "was"}
    return " ".join(filter(None, (who, links[failure.kind], ending(failure))))


def failed_text(failures: Sequence[Failure], world_size: int, tasks: TaskNames = (), alone: str = "") -> str:
    """Return a check's text about failed ranks: who failed, how, and where in the reader's own cells.

    Ranks that fail alike are named together, because chance decides which comes first. `alone` names a process that is not a
    rank.
    """
    first = first_failure(failures)
    alike = [f for f in failures if (f.kind, f.type, f.code) == (first.kind, first.type, first.code)]
    alike.sort(key=lambda f: f.rank)
    shown = alike[0]

    who = names([f.rank for f in alike], tasks)
    if not tasks:
        who += f" of {world_size}"

    if len({f.message for f in alike}) > 1:  # the same kind of error, with a different message on each rank
        line = f"{who} failed, {name(shown.rank, tasks)} with {ending(shown)}"
    elif len(alike) > 1:
        links = {"raised": "failed:", "signal": "were", "exit": "", "lost": "were"}
        line = " ".join(filter(None, (who, links[shown.kind], ending(shown))))
    elif not alone:
        line = headline(shown, world_size, tasks)
    else:
        links = {"raised": "", "signal": f"{alone} was", "exit": alone, "lost": f"{alone} was"}
        line = f"{links[shown.kind]} {ending(shown)}".lstrip()
    return "\n".join([line, *failed_where(shown)])


def failed_where(failure: Failure) -> list[str]:
    """Return the lines below the headline: where the failure happened, and its cause.

    The reader's own frames are shown with their source; frames of libraries are folded into one line.
    """
    frames = failure.frames
    own = [frame for frame in frames if not is_library(frame)]
    skipped: set[Frame] = set()
    if len(own) > _MAX_FRAMES:
        skipped = set(own[1 : len(own) - _MAX_FRAMES + 1])

    rows: list[str] = []
    for frame in own:
        if frame not in skipped:
            rows += [f"  {place(frame)}", f"      {source_line(frame)}"]
    if skipped:
        rows.insert(2, f"  … {len(skipped)} more of your frames")

    folded = len(frames) - len(own)
    if folded:
        last = frames[-1]
        inside = f", the last in {last.function}" if is_library(last) else ""
        rows.append(f"  … {count(folded, 'frame')} of libraries{inside}")

    if rows and failure.kind == "signal":
        rows.insert(0, "  last seen here:")
    if failure.cause:
        rows.append(f"  caused by {failure.cause.splitlines()[0][:200]}")
    return rows


def unfinished_line(
    limit_s: float, world_size: int, standings: Sequence[Standing], tasks: TaskNames = (), alone: str = ""
) -> str:
    """Return a check's line about a run that timed out: which ranks were unfinished, and their waits."""
    after = f"after timeout_s={limit_s:g} s"
    if alone:
        return f"{after} {alone} had not ended"

    doing = []
    for standing in standings:
        if standing.wait is not None:
            doing.append(wait_in_short(standing.wait))
        else:
            doing.append(f"{name(standing.rank, tasks)} running")
    return f"{after} these {'tasks' if tasks else 'ranks'} of {world_size} were not done: {', '.join(doing)}"


def ending(failure: Failure) -> str:
    """Return a failed rank's end without its name: "KeyError: 'loss'", "killed by SIGKILL …", "exited with code 3 …"."""
    if failure.kind == "raised":
        return f"{failure.type}: {failure.message}".rstrip(": ")

    if failure.kind == "lost":
        return leaving(failure)
    if failure.kind == "signal":
        hint = " (out of memory?)" if failure.code == signal.SIGKILL else ""
        return f"{leaving(failure)}{hint} and returned no result"
    if failure.code is None:
        return "ended with no result, for an unknown reason: its exit code was not seen"
    return f"{leaving(failure)} and no result: let the code run to its end instead of exiting"


def leaving(failure: Failure) -> str:
    """Return a short phrase for a failed rank that raised nothing: "killed by SIGKILL", "exited with code 3"."""
    if failure.kind == "lost":
        return f"lost with the host {failure.host}"
    if failure.kind != "signal":
        return "for an unknown reason" if failure.code is None else f"exited with code {failure.code}"

    try:
        return f"killed by {signal.Signals(failure.code).name}"
    except ValueError:
        return f"killed by signal {failure.code}"


def deadlock_line(waits: Sequence[Wait], cause: str = "") -> str:
    """Return a deadlock in one line: "deadlock: rank 0 waits for 1 (recv), rank 1 waits for anyone (recv, tag 2)", or its `cause`
    in torch's own communication.
    """
    if cause:
        return f"deadlock: {cause}"
    return f"deadlock: {', '.join(map(wait_in_short, waits))}"


def unwaited_line(ranks: Sequence[int]) -> str:
    """Return the warning for `ranks` with an unfinished isend: "rank 2 ended without waiting for an isend …"."""
    return f"{names(ranks)} ended without waiting for an isend: call its wait()."


def wait_in_short(wait: Wait) -> str:
    """Return a stuck rank's wait as a short clause: "rank 0 waits for 3 (recv, tag 1), which has ended"."""
    whom = "anyone" if wait.peer is None else str(wait.peer)
    tag = f", tag {wait.tag}" if wait.tag else ""
    ended = ", which has ended" if wait.peer_ended else ""
    return f"rank {wait.rank} waits for {whom} ({wait.op}{tag}){ended}"


def where_it_waits(wait: Wait) -> str:
    """Return, for a failure, the place and the peer of a wait: "in recv from rank 3 (tag 1)"."""
    way = "to" if wait.op == "send" else "from"
    whom = "anyone" if wait.peer is None else f"rank {wait.peer}"
    tag = f" (tag {wait.tag})" if wait.tag else ""
    return f"in {wait.op} {way} {whom}{tag}"


_WRAPPERS = ("wrapper", "error_handler")  # frames that torch and TensorFlow put around their own functions


def doing(standing: Standing) -> str:
    """Return the rank's activity when the run was stopped: "waits in recv from rank 3", "waits in barrier", "running"."""
    if standing.wait is not None:
        return f"waits {where_it_waits(standing.wait)}"
    if standing.collective:
        return f"waits in {standing.collective}"

    inside = [f for f in standing.frames if is_library(f) and f.function not in _WRAPPERS]
    if inside and is_library(standing.frames[-1]):
        return f"in {inside[0].function}"

    return "running" if standing.answered else "in native code, not responding"


def names(ranks: list[int], tasks: TaskNames = ()) -> str:
    """Return several ranks' names for messages about failures: [0, 1, 3] -> "ranks 0, 1, 3". Long lists are shortened."""
    if len(ranks) == 1:
        return name(ranks[0], tasks)

    if tasks:
        shown = ", ".join([name(rank, tasks) for rank in ranks[:_MAX_ROWS]])
    else:
        shown = f"ranks {', '.join(map(str, ranks[:_MAX_ROWS]))}"
    if len(ranks) > _MAX_ROWS:
        shown += f" and {len(ranks) - _MAX_ROWS} more"
    return shown


def render_standings(standings: tuple[Standing, ...], tasks: TaskNames = ()) -> list[str]:
    """Return lines that say where other ranks stood when the run was stopped: one for each `Standing`, or for several alike.

    Ranks that stood at the same line of the reader's code share the line that names it, below theirs.
    """
    lines = standing_alike(standings, tasks)
    by_place: dict[str, list[str]] = {}
    for line in lines[:_MAX_ROWS]:
        words = f"  {doing_all(line, tasks)}"
        last = line[0].last_message
        if last is not None and len(line) == 1:
            way = "sent {} to" if last.kind == "send" else "received {} from"
            words += f" (last message: {way.format(units.size(last.size_bytes))} rank {last.peer})"
        by_place.setdefault(own_line(line[0]), []).append(words)

    rows = []
    for where, told in by_place.items():
        rows += told
        if where:
            at, colon, code = where.partition(": ")
            rows.append(f"    at {at}{colon}{code if len(code) <= _CODE_CHARS else code[: _CODE_CHARS - 1] + '…'}")

    left = sum(map(len, lines[_MAX_ROWS:]))
    if left:
        rows.append(f"  … and {left} more ranks")
    return rows


def own_line(standing: Standing) -> str:
    """Return the line of the reader's own code where a rank stood, with its source; "" where it stood in none."""
    own = [frame for frame in standing.frames if not is_library(frame)]
    return f"{place(own[-1])}: {source_line(own[-1])}" if own else ""


def standing_alike(standings: Sequence[Standing], tasks: TaskNames = ()) -> list[list[Standing]]:
    """Return standings in groups, by first rank: three ranks or more that wait in the same call at the same line, or one.

    Tasks are never grouped: each has a name of its own.
    """
    groups: dict[tuple, list[Standing]] = {}
    for standing in standings:
        alike = _alike(standing)
        groups.setdefault(alike if alike and not tasks else (standing.rank,), []).append(standing)

    lines: list[list[Standing]] = []
    for group in groups.values():
        lines += [group] if len(group) > 2 else [[standing] for standing in group]
    return sorted(lines, key=lambda line: line[0].rank)


def _alike(standing: Standing) -> tuple | None:
    """Return what ranks that wait alike have in common, a call and its line; None of a rank that is named by itself."""
    wait, where = standing.wait, own_line(standing)
    if wait is None:
        return (standing.collective, where) if standing.collective else None
    return None if wait.peer is None or wait.peer_ended else (wait.op, wait.tag, where)


def doing_all(line: Sequence[Standing], tasks: TaskNames = ()) -> str:
    """Return what a group of `standing_alike` does: "rank 1 waits in barrier", "ranks 0 to 2 wait in send to ranks 1, 2, 0"."""
    first = line[0]
    if len(line) == 1:
        return f"{name(first.rank, tasks)} {doing(first)}"

    who, waits = _ranks([standing.rank for standing in line]), [standing.wait for standing in line if standing.wait is not None]
    if not waits:
        return f"{who} wait in {first.collective}"
    wait, peers = waits[0], [wait.peer for wait in waits]
    if len(set(peers)) == 1:
        return f"{who} wait {where_it_waits(wait)}"
    way, tag = "to" if wait.op == "send" else "from", f" (tag {wait.tag})" if wait.tag else ""
    shown = ", ".join(map(str, peers[:_MAX_ROWS])) + ", …" * (len(peers) > _MAX_ROWS)
    return f"{who} wait in {wait.op} {way} ranks {shown}{tag}"


def _ranks(ranks: Sequence[int]) -> str:
    """Return the names of three ranks or more in one clause: "ranks 0 to 7", or as `names` does."""
    if list(ranks) == list(range(ranks[0], ranks[0] + len(ranks))):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return names(list(ranks))
