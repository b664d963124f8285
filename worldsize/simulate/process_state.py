"""Per-rank process state that separate processes would isolate, active only during the rank's turn.

Grad mode and random generators change with the turn; clocks, prints and reports follow it: `time.sleep` advances a rank's own
clock. Threads, process groups and waits for anything outside the simulation are refused, because no other rank would get a turn.
`world.py` decides whose turn it is; `watch.py` ends a turn that takes too long.
"""

import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

from typing_extensions import override

from worldsize import report
from worldsize.engines.payload import reachable
from worldsize.engines.ranks.rank import seed_everything
from worldsize.simulate.generators import GeneratorsUsed, generators, same_generators, set_generators
from worldsize.simulate.turns import replaced_in_turns, turn_in_this_thread
from worldsize.simulate.watch import Watch
from worldsize.simulate.world import World


@contextmanager
def virtual_clock(world: World, fn: Callable) -> Iterator[None]:
    """Give the rank that has its turn its own clock while inside, also where `fn`'s cells say `from time import sleep`."""
    ways = {
        (time, "sleep"): lambda rank, seconds, /: world.pass_time(rank, seconds),
        (time, "monotonic"): world.now,
        (time, "perf_counter"): world.now,
    }
    real = {name: getattr(time, name) for _, name in ways}
    names = {id(way): name for name, way in real.items()}

    # (names of a cell, key there, name in `time`) for each clock that the function's cells have under their own name
    named = {}
    for function in (fn, *reachable(fn).values()):
        place = getattr(function, "__globals__", {})
        if place.get("__name__") == "time":
            continue
        for key, value in place.items():
            if id(value) in names:
                named[id(place), key] = (place, key, names[id(value)])

    with replaced_in_turns(world, ways):
        try:
            for cells_names, key, name in named.values():
                cells_names[key] = getattr(time, name)
            yield
        finally:
            for cells_names, key, name in named.values():
                cells_names[key] = real[name]


@contextmanager
def output_by_rank(
    world: World, logs: dict[int, io.StringIO], buffers: dict[int, report.ReportBuffer]
) -> Iterator[None]:
    """Write ranks' prints into `logs` and their reports into `buffers` while inside."""
    out, gathering = sys.stdout, list(report._gathering)
    sys.stdout = _Router(world, logs, out)
    report._gathering[:] = [_Buffers(world, buffers)]
    try:
        yield
    finally:
        sys.stdout = out
        report._gathering[:] = gathering


class _Router(io.TextIOBase):
    """A stdout that sends a rank's prints to its log, and prints outside of a turn or from another thread to `out`."""

    def __init__(self, world: World, logs: dict[int, io.StringIO], out: Any) -> None:
        self._turn = turn_in_this_thread(world)
        self._logs = logs
        self._out = out

    @override
    def write(self, text: str) -> int:
        rank = self._turn()
        if rank is None:
            return self._out.write(text)
        return self._logs.setdefault(rank, io.StringIO()).write(text)

    @override
    def flush(self) -> None:
        self._out.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)


class _Buffers:
    """A `ReportBuffer` that stands for the buffer of the rank whose turn it is."""

    origin_s = 0.0

    def __init__(self, world: World, buffers: dict[int, report.ReportBuffer]) -> None:
        self._turn = turn_in_this_thread(world)
        self._buffers = buffers

    def __getattr__(self, name: str) -> Any:
        rank = self._turn()
        if rank is None:
            return getattr(report.ReportBuffer(0.0), name)
        return getattr(self._buffers.setdefault(rank, report.ReportBuffer(0.0)), name)


_REAL_PROCESSES = "Run it on real processes: launch(fn, world_size=2)."
_THREAD = (
    "starts a thread: simulated ranks share one thread and take turns, so a new thread would belong to no rank. "
    f"{_REAL_PROCESSES}"
)
_GROUP = (
    "opens a process group: simulated ranks are not processes, and communicate through fabric.send and fabric.recv alone. "
    f"{_REAL_PROCESSES}"
)


class ProcessState:
    """The state of every rank that separate processes would isolate. `keeps_generators` includes the random generators.

    Isolating generators costs some 30 µs per turn; without that, a draw raises GeneratorsUsed, at the latest when the run ends.
    """

    def __init__(self, world: World, seed: int, keeps_generators: bool) -> None:
        self.logs: dict[int, io.StringIO] = {}
        self.buffers: dict[int, report.ReportBuffer] = {}
        self.watch = Watch(world)
        self._world = world
        self._seed = seed
        self._keeps_generators = keeps_generators
        self._without_grad: set[int] = set()
        self._generators: dict[int, tuple] = {}
        self._before: tuple = ()

    def enter(self, rank: int) -> None:
        """Begin `rank`'s turn with its state. Raises an exception kept by the watch, unless the world is closing its ranks."""
        if self.watch.due is not None and not self._world.closing:
            raise self.watch.take_due()

        torch, learns = sys.modules.get("torch"), rank not in self._without_grad
        if torch is not None and torch.is_grad_enabled() != learns:
            torch._C._set_grad_enabled(learns)

        if self._keeps_generators:
            if rank in self._generators:
                set_generators(self._generators[rank])
            else:
                drawn = seed_everything(self._seed, rank)
                if torch is not None:
                    torch.manual_seed(drawn)
        elif not self._before:
            self._before = generators()

    def leave(self, rank: int) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and torch.is_grad_enabled() != (rank not in self._without_grad):
            self._without_grad ^= {rank}

        if self._keeps_generators:
            self._generators[rank] = generators()
        elif self._world.switches % 64 == 0:  # comparing at every turn would be slow
            self.look_at_generators()

    def look_at_generators(self) -> None:
        """Raise GeneratorsUsed if a shared generator has been drawn from since the simulation began."""
        if not self._keeps_generators and self._before and not same_generators(self._before, generators()):
            raise GeneratorsUsed

    @contextmanager
    def installed(self, fn: Callable, timeout_s: float) -> Iterator[None]:
        """Give the rank that has its turn its own clock, prints and reports, and refuse it threads and groups, while inside."""
        refused = {(threading.Thread, "start"): partial(_refuse, _THREAD)}
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None:
            refused[distributed, "init_process_group"] = partial(_refuse, _GROUP)

        world = self._world
        with (
            self.watch.set(timeout_s), _callers_state_kept(), virtual_clock(world, fn),
            output_by_rank(world, self.logs, self.buffers), replaced_in_turns(world, refused),
        ):  # fmt: skip
            yield


def _refuse(words: str, rank: int, /, *_: Any, **__: Any) -> NoReturn:
    raise RuntimeError(f"rank {rank} {words}")


@contextmanager
def _callers_state_kept() -> Iterator[None]:
    """Restore the caller's process state, generators and grad mode on exit."""
    before, torch = generators(), sys.modules.get("torch")
    learns = torch is None or torch.is_grad_enabled()

    try:
        yield
    finally:
        set_generators(before)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch._C._set_grad_enabled(learns)
