"""What came of a launch (`Run`), who is told while it goes (`Observer`), and reading a log while it grows (`Tail`).

The logs, results and records are files in the run's own folder, which goes when the run is no longer referenced.
Left out: how a run comes about (`execute.py`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from worldsize import errors, failures
from worldsize.engines.job import Progress, Prompt, RunFiles, Typed
from worldsize.engines.own_network import Network
from worldsize.failures import Outcome
from worldsize.trace import Trace, merge

RunLife = Literal["running", "done", "not yet", "failed", "interrupted"]


@dataclass(eq=False)
class Run:
    """What came of a launch. `run[2]` is what rank 2 returned; `run.log(2)` all that it printed.

    `state` is "done", "not yet" (an exercise's stub was met: `not_yet` says which), "failed" or "interrupted".
    A run of TensorFlow has `tasks`, such as ("chief:0", "worker:0"), and `run["worker:0"]` is what that one returned.
    `reports[r]` are the rows that rank r told with `report(…)`, each with "t", the seconds since the launch.
    `hosts[r]` is the name of rank r's host, () where all ran on this machine; moments of ranks on different hosts are
    compared to within `clock_error_s`.
    `network`: "own" where the ranks have one that nobody else reaches, "shared" (`why_shared`) where they have not.
    `wall_s`: seconds from the call to the results; `startup_s`: to the moment the last rank entered the function.
    """

    world_size: int
    dir: Path
    seed: int
    state: RunLife = "running"
    not_yet: str | None = None
    results: list[Any] = field(default_factory=list)
    setup: str = ""
    network: Network = "shared"
    why_shared: str = ""
    reports: list[list[dict]] = field(default_factory=list)
    wall_s: float = 0.0
    startup_s: float = 0.0
    notes: list[str] = field(default_factory=list)
    outcome: Outcome | None = None
    tasks: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    clock_error_s: float = 0.0
    plain_results: bool = False  # whether some host is not this user's own, so that nothing from there is trusted
    function: str = ""  # its name; "" where it has none
    _trace: Trace | None = None

    def __post_init__(self) -> None:
        self.reports = self.reports or [[] for _ in range(self.world_size)]

    def __getitem__(self, rank: int | str) -> Any:
        if self.state == "not yet":
            raise errors.NotYet(self.not_yet)
        if isinstance(rank, str):
            return self.results[self._rank("run[…]", rank)]

        try:
            return self.results[rank]
        except IndexError:
            raise IndexError(self._no_result(rank)) from None

    def __len__(self) -> int:
        return self.world_size

    def name(self, rank: int) -> str:
        """ "rank 2", or "worker 1"."""
        return failures.name(rank, self.tasks)

    def _no_result(self, rank: int) -> str:
        if self.state != "done":
            return f"run[{rank}]: expected a run that is done, got one that is {self.state} and has no results"
        return f"run[{rank}]: expected a rank from 0 to {self.world_size - 1}, got {rank}"

    def _rank(self, what: str, rank: int | str) -> int:
        if isinstance(rank, str):
            if rank in self.tasks:
                return self.tasks.index(rank)
            raise ValueError(f"{what}: expected one of {', '.join(self.tasks) or 'the ranks by number'}, got {rank!r}")

        if not 0 <= rank < self.world_size:
            raise ValueError(f"{what}: expected a rank from 0 to {self.world_size - 1}, got {rank}")
        return rank

    @property
    def files(self) -> RunFiles:
        return RunFiles(self.dir)

    def log_path(self, rank: int | str) -> Path:
        """The file that holds every line that the rank printed."""
        return self.files.log(self._rank("log", rank))

    def log(self, rank: int | str | None = None) -> str:
        """Everything that `rank` printed; without a rank, every rank's lines, tagged."""
        if rank is not None:
            return _text(self.log_path(rank))

        rows: list[str] = []
        for each in range(self.world_size):
            rows += [f"[{self.name(each)}] {line}\n" for line in self.log(each).splitlines()]
        return "".join(rows)

    def native_log(self, rank: int | str) -> str:
        """What TensorFlow itself wrote to stderr in this task, past Python; "" in a run of torch."""
        return _text(self.files.native_log(self._rank("native_log", rank)))

    @property
    def trace(self) -> Trace:
        """The transfers and spans of all ranks on one clock, which starts at the launch."""
        if self._trace is None:
            found = [self._record(rank) for rank in range(self.world_size)]
            self._trace = merge([pickle.loads(record) for record in found if record], self.world_size)
        return self._trace

    def _record(self, rank: int) -> bytes:
        """What the rank recorded, from where it came with its result or from its file; b"" where there is nothing."""
        said = self.outcome.returned.get(rank) if self.outcome is not None else None
        if said is not None and said.record:
            return said.record
        path = self.files.record(rank)
        return path.read_bytes() if path.exists() else b""

    def save_trace(self, path: str | Path, more: Iterable[dict] = ()) -> Path:
        """Write the trace as a file that https://ui.perfetto.dev opens, and return its path.

        A row a rank, an arrow a message: Chrome's Trace Event Format. `more` rows of it lie beside them, such as those of a
        profiler, with the rank as `pid` and `ts` in microseconds since the launch.
        """
        return self.trace.save_chrome(path, more)

    def show(self) -> None:
        """Show what came of this run: its picture and its table, as after the launch; without a notebook one line."""
        if not STUDENTS_LAUNCHES.observers:
            print(self)
        for observer in STUDENTS_LAUNCHES.observers:
            observer.show(self)

    def __repr__(self) -> str:
        if self.state == "not yet":
            return f"Run(not yet: {self.not_yet})"
        return f"Run({self.world_size} rank{'s' * (self.world_size > 1)}, {self.state} in {self.wall_s:.2f} s)"


class Observer:
    """Told of a launch as it goes: override what you need. Called in the thread that launched.

    Where ranks cannot start yet, since their engine is not warm, `warming` is told again and again how long the launch
    has waited, and `warmed` at last, with `ready` False where the wait was broken off. `show` draws a run again.
    One that `hears_all` is told of `unobserved` runs too.
    """

    hears_all = False

    def warming(self, waited_s: float) -> None: ...
    def warmed(self, waited_s: float, ready: bool) -> None: ...
    def started(self, run: Run) -> None: ...
    def printed(self, run: Run, rank: int, text: str) -> None: ...
    def progressed(self, run: Run, progress: Progress) -> None: ...
    def ticked(self, run: Run) -> None: ...
    def ended(self, run: Run) -> None: ...
    def show(self, run: Run) -> None: ...


@dataclass
class KernelLaunches:
    """The launches of one kind in this kernel: who is told of them, and the latest run.

    With `partial_lines` a line is told while it grows, as a progress bar does. `ask` is asked which command a rank's debugger
    gets, by rank those that wait for one.
    """

    observers: tuple[Observer, ...] = ()
    latest: Run | None = None
    partial_lines: bool = False
    ask: Callable[[dict[int, Prompt]], Typed] | None = None


STUDENTS_LAUNCHES = KernelLaunches()


def observe(observer: Observer) -> None:
    """An observer of every later `Run`: it is told while they go, in place of an earlier one of the same class."""
    others = (known for known in STUDENTS_LAUNCHES.observers if type(known) is not type(observer))
    STUDENTS_LAUNCHES.observers = (*others, observer)


@contextmanager
def unobserved() -> Iterator[None]:
    """No observer shows a `Run` that is made inside: it belongs to a picture, which may be drawn again much later."""
    observers = STUDENTS_LAUNCHES.observers
    STUDENTS_LAUNCHES.observers = tuple(observer for observer in observers if observer.hears_all)
    try:
        yield
    finally:
        STUDENTS_LAUNCHES.observers = observers


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


class Tail:
    """New text of a growing file, whole lines at a time, or with `partial_lines` all that there is."""

    def __init__(self, path: Path, partial_lines: bool = False) -> None:
        self._path = path
        self._partial_lines = partial_lines
        self._read_bytes = 0
        self._rest = b""

    def new_text(self) -> str:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._read_bytes)
                data = file.read()
        except FileNotFoundError:
            return ""

        self._read_bytes += len(data)
        if self._partial_lines:
            return self._decode(data)
        whole, mark, self._rest = (self._rest + data).rpartition(b"\n")
        return (whole + mark).decode(errors="replace")

    def _decode(self, data: bytes) -> str:
        """All that is whole: a character may be cut in the middle."""
        text = (self._rest + data).decode(errors="surrogateescape")
        cut = len(text) - len(text.rstrip("".join(map(chr, range(0xDC80, 0xDD00)))))
        self._rest = text[len(text) - cut :].encode(errors="surrogateescape") if 0 < cut < 4 else b""
        whole = text[: len(text) - cut] if self._rest else text
        return whole.encode(errors="surrogateescape").decode(errors="replace")

    def rest(self) -> str:
        return self.new_text() + self._rest.decode(errors="replace")
