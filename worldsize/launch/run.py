"""The result of a launch (`Run`), and its `Observer`s.

Logs, results and records are files in the run's own folder, which is deleted when the run is no longer referenced.
"""

import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from worldsize import errors, failures
from worldsize.engines.job import Progress, Prompt, RunFiles, Typed
from worldsize.engines.own_network import Network
from worldsize.failures import Outcome
from worldsize.trace import Trace, merge
from worldsize.units import count

Bundle = tuple[tuple[str, str], ...]  # a picture or a table by MIME type, images in base64; text/plain among them
RunLife = Literal["running", "done", "not yet", "failed", "interrupted"]


@dataclass(eq=False)
class Run:
    """The result of a launch. `run[2]` is rank 2's return value; `run.log(2)` its printed output.

    `state`: "running", "done", "not yet" (an exercise's stub ran: `not_yet` names it), "failed" or "interrupted".
    `tasks` of a TensorFlow run: names such as ("chief:0", "worker:0"); `run["worker:0"]` is that task's return value.
    `reports[r]`: rows of rank r's `report(…)` calls, each with "t", the seconds since the launch.
    `hosts[r]`: rank r's host, () if all ran on this machine; times on two hosts are comparable to `clock_error_s`.
    `network`: "own" if only these ranks can reach it, else "shared", for the reason in `why_shared`.
    `wall_s`: seconds from the call to the results; `startup_s`: from the call until the last rank entered the function.
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
    function: str = ""  # its name, "" if it has none
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
            raise IndexError(self.why_no_result(rank)) from None

    def __len__(self) -> int:
        return self.world_size

    def name(self, rank: int) -> str:
        """Return a rank's name in this `Run`: "rank 2" or "worker 1"."""
        return failures.name(rank, self.tasks)

    def why_no_result(self, rank: int) -> str:
        if self.state != "done":
            return f"run[{rank}]: expected a run that is done, got a run without results ({self.state})"
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
        """Return the file with everything that the rank printed in this run."""
        return self.files.of(self._rank("log", rank), "log")

    def log(self, rank: int | str | None = None) -> str:
        """Return everything that `rank` printed in this run; without a rank, every rank's lines, tagged."""
        if rank is not None:
            return _text(self.log_path(rank))

        rows: list[str] = []
        for each in range(self.world_size):
            rows += [f"[{self.name(each)}] {line}\n" for line in self.log(each).splitlines()]
        return "".join(rows)

    def native_log(self, rank: int | str) -> str:
        """Return what TensorFlow's own code wrote to stderr in this task, past Python; "" in a torch run."""
        return _text(self.files.of(self._rank("native_log", rank), "native_log"))

    @property
    def trace(self) -> Trace:
        """The transfers and spans of all ranks, in seconds since the launch."""
        if self._trace is not None:
            return self._trace

        # a rank's pickled record came with its result, or lies in a file
        records = {}
        if self.outcome is not None:
            records = {rank: said.record for rank, said in self.outcome.returned.items()}
        by_rank = []
        for rank in range(self.world_size):
            record, path = records.get(rank, b""), self.files.of(rank, "record")
            if not record and path.exists():
                record = path.read_bytes()
            if record:
                by_rank.append(pickle.loads(record))

        self._trace = merge(by_rank, self.world_size)
        return self._trace

    def save_trace(self, path: str | Path, more: Iterable[dict] = ()) -> Path:
        """Write the trace as a file for https://ui.perfetto.dev (Chrome's Trace Event Format), and return its path.

        Each rank is a row, each message an arrow. `more` adds events in that format, such as a profiler's, with the rank
        as `pid` and `ts` in microseconds since the launch.
        """
        return self.trace.save_chrome(path, more)

    def show(self) -> None:
        """Show this run again as after the launch: picture and table in a notebook, one line elsewhere."""
        for observer in STUDENTS_LAUNCHES.observers:
            observer.show(self)

    @override
    def __repr__(self) -> str:
        if self.state == "not yet":
            return f"Run(not yet: {self.not_yet})"
        return f"Run({count(self.world_size, 'rank')}, {self.state} in {self.wall_s:.2f} s)"


class Observer:
    """Follows a `Run`: override the methods you need. All are called in the thread that launched.

    While the engine is still starting, `warming` is called repeatedly with the time waited, then `warmed`, with `ready`
    False if the wait was broken off. `show` draws a run again. An observer that `hears_all` also gets `unobserved` runs.
    """

    hears_all = False

    def warming(self, waited_s: float) -> None: ...
    def warmed(self, waited_s: float, ready: bool) -> None: ...
    def started(self, run: Run) -> None: ...
    def printed(self, run: Run, rank: int, text: str) -> None: ...
    def displayed(self, run: Run, rank: int, bundle: Bundle) -> None: ...
    def progressed(self, run: Run, progress: Progress) -> None: ...
    def ticked(self, run: Run) -> None: ...
    def ended(self, run: Run) -> None: ...
    def show(self, run: Run) -> None: ...


@dataclass
class KernelLaunches:
    """The launches of one kind in this kernel: their `Observer`s and the latest `Run`.

    With `partial_lines` observers get a line while it grows, such as a progress bar. `ask` gets the prompts of ranks that
    wait in a debugger, and returns a command for one of them.
    """

    observers: tuple[Observer, ...] = ()
    latest: Run | None = None
    partial_lines: bool = False
    ask: Callable[[dict[int, Prompt]], Typed] | None = None


class TaggedLines(Observer):
    """An `Observer` that prints the ranks' lines in a script, each with its rank, until another observer is there."""

    @override
    def printed(self, run: Run, rank: int, text: str) -> None:
        if in_script():
            for line in text.removesuffix("\n").split("\n"):
                print(f"[{run.name(rank)}] {line}", flush=True)

    @override
    def show(self, run: Run) -> None:
        print(run)


def in_kernel() -> bool:
    """Return whether this process is a notebook's kernel, whose outputs can be pictures, and can change later."""
    return "IPython" in sys.modules and hasattr(sys.modules["IPython"].get_ipython(), "kernel")


def in_script() -> bool:
    """Return whether this process is a script: no notebook, no prompt at which a person types."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is None and not hasattr(sys, "ps1")


STUDENTS_LAUNCHES = KernelLaunches(observers=(TaggedLines(),))


def observe(observer: Observer) -> None:
    """Let `observer` follow every later `Run`, in place of an earlier observer of the same class."""
    replaced = (TaggedLines, type(observer))
    others = (known for known in STUDENTS_LAUNCHES.observers if type(known) not in replaced)
    STUDENTS_LAUNCHES.observers = (*others, observer)


@contextmanager
def unobserved() -> Iterator[None]:
    """Run the block without `Observer`s, except those that `hears_all`: its runs belong to a picture that is drawn later."""
    observers = STUDENTS_LAUNCHES.observers
    STUDENTS_LAUNCHES.observers = tuple(observer for observer in observers if observer.hears_all)
    try:
        yield
    finally:
        STUDENTS_LAUNCHES.observers = observers


# PyTorch 2.9's gloo prints this for every group, and can be told no other
_GLOO_CONNECTED = re.compile(r"\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. Expected number [\w ]+ : \d+\n?")


def without_gloo(text: str) -> str:
    """Return what a rank printed without the lines that gloo prints as it connects."""
    return _GLOO_CONNECTED.sub("", text) if "[Gloo]" in text else text


def _text(path: Path) -> str:
    return without_gloo(path.read_text(errors="replace")) if path.exists() else ""
