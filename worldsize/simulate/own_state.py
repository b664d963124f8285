"""Per-rank process state (grad mode, generators, output, reports), active only during the rank's turn.

`time.sleep` advances the simulated clock; `time.monotonic` and `time.perf_counter` read it. Threads, process groups and waits for
anything outside the simulation are refused, because no other rank would get a turn. `world.py` decides whose turn it is;
`watch.py` ends a turn that takes too long.
"""

from __future__ import annotations

import io
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from worldsize import report
from worldsize.engines.payload import reachable
from worldsize.engines.ranks.rank import seed_everything
from worldsize.simulate.watch import Watch
from worldsize.simulate.world import World


class GeneratorsUsed(Exception):
    """A rank drew random numbers while the generators were shared by all ranks."""


def turn_in_this_thread(world: World) -> Callable[[], int | None]:
    """Return a function that returns the rank whose turn it is, or None between turns and in every thread but this one.

    Threads of the kernel go on while a rank has its turn: their calls are no rank's.
    """
    ranks_thread = threading.get_ident()
    return lambda: world.current if threading.get_ident() == ranks_thread else None


class OwnState:
    """Per-rank state that separate processes would isolate. `keeps_generators` includes the random generators.

    Isolating generators costs some 30 us per turn; without that, a draw raises GeneratorsUsed, at the latest when the run ends.
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

    # ---- turns -----------------------------------------------------------------------------------

    def enter(self, rank: int) -> None:
        """Begin a turn of `rank`. Raises an exception kept by the watch, unless the world is closing its ranks."""
        if self.watch.due is not None and not self._world.closing:
            raise self.watch.take_due()

        torch, learns = sys.modules.get("torch"), rank not in self._without_grad
        if torch is not None and torch.is_grad_enabled() != learns:
            torch._C._set_grad_enabled(learns)

        if self._keeps_generators:
            if rank in self._generators:
                _set_generators(self._generators[rank])
            else:
                drawn = seed_everything(self._seed, rank)
                if torch is not None:
                    torch.manual_seed(drawn)
        elif not self._before:
            self._before = _generators()

    def leave(self, rank: int) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and torch.is_grad_enabled() != (rank not in self._without_grad):
            self._without_grad ^= {rank}

        if self._keeps_generators:
            self._generators[rank] = _generators()
        elif self._world.switches % 64 == 0:  # comparing at every turn would be slow
            self.look_at_generators()

    def look_at_generators(self) -> None:
        """Raise GeneratorsUsed if a shared generator has been drawn from since the simulation began."""
        if not self._keeps_generators and self._before and not _same(self._before, _generators()):
            raise GeneratorsUsed

    # ---- state shared by a whole process -----------------------------------------------------------

    @contextmanager
    def installed(self, fn: Callable, timeout_s: float) -> Iterator[None]:
        """Route prints and reports to the rank that has its turn, and let it read its own clock, while inside."""
        with self.watch.set(timeout_s), _callers_state_kept(), self._virtual_clocks(fn), self._own_output(), self._refusals():
            yield

    @contextmanager
    def _own_output(self) -> Iterator[None]:
        out, gathering = sys.stdout, list(report._gathering)
        sys.stdout = _Router(self._world, self.logs, out)
        report._gathering[:] = [_Buffers(self._world, self.buffers)]
        try:
            yield
        finally:
            sys.stdout = out
            report._gathering[:] = gathering

    @contextmanager
    def _virtual_clocks(self, fn: Callable) -> Iterator[None]:
        world, turn = self._world, turn_in_this_thread(self._world)

        def virtual(real: Callable, simulated: Callable) -> Callable:
            def one(*given: Any) -> Any:
                rank = turn()
                return real(*given) if rank is None else simulated(rank, *given)

            return one

        ways = {
            "sleep": virtual(time.sleep, world.pass_time), "monotonic": virtual(time.monotonic, world.now),
            "perf_counter": virtual(time.perf_counter, world.now),
        }  # fmt: skip
        real = {name: getattr(time, name) for name in ways}
        named = _named_clocks(fn, real)
        try:
            for name, way in ways.items():
                setattr(time, name, way)
            for place, key, name in named:
                place[key] = ways[name]
            yield
        finally:
            for name, way in real.items():
                setattr(time, name, way)
            for place, key, name in named:
                place[key] = real[name]

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        turn, places = turn_in_this_thread(self._world), [(threading.Thread, "start", _THREAD)]
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None:
            places.append((distributed, "init_process_group", _GROUP))

        real = [getattr(place, name) for place, name, _ in places]

        def refusing(way: Callable, words: str) -> Callable:
            def one(*given: Any, **more: Any) -> Any:
                rank = turn()
                if rank is None:
                    return way(*given, **more)
                raise RuntimeError(f"rank {rank} {words}")

            return one

        for (place, name, words), way in zip(places, real, strict=True):
            setattr(place, name, refusing(way, words))
        try:
            yield
        finally:
            for (place, name, _), way in zip(places, real, strict=True):
                setattr(place, name, way)


_THREAD = (
    "starts a thread: simulated ranks share one thread and take turns, so a new thread would belong to no rank. "
    "Run it on real processes: launch(fn, world_size=2)."
)
_GROUP = (
    "opens a process group: simulated ranks are not processes, and communicate through fabric.send and fabric.recv alone. "
    "Run it on real processes: launch(fn, world_size=2)."
)


class _Router(io.TextIOBase):
    """A stdout that sends a rank's prints to its log, and prints outside of a turn or from another thread to `out`."""

    def __init__(self, world: World, logs: dict[int, io.StringIO], out: Any) -> None:
        self._turn = turn_in_this_thread(world)
        self._logs = logs
        self._out = out

    def write(self, text: str) -> int:
        rank = self._turn()
        if rank is None:
            return self._out.write(text)
        return self._logs.setdefault(rank, io.StringIO()).write(text)

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

    @property
    def rows(self) -> list[dict]:
        return self._own().rows

    @property
    def spans(self) -> list[tuple[str, float, float, str]]:
        return self._own().spans

    def _own(self) -> report.ReportBuffer:
        rank = self._turn()
        if rank is None:
            return report.ReportBuffer(0.0)
        return self._buffers.setdefault(rank, report.ReportBuffer(0.0))


def _named_clocks(fn: Callable, real: dict[str, Callable]) -> list[tuple[dict, str, str]]:
    """Return the places where the function's cells have a clock under their own name (`from time import sleep`)."""
    names = {id(way): name for name, way in real.items()}
    places = [getattr(fn, "__globals__", {})]
    places += [f.__globals__ for f in reachable(fn).values() if hasattr(f, "__globals__")]

    found = {}
    for place in places:
        for key, value in place.items():
            if id(value) in names and place.get("__name__") not in ("time",):
                found[id(place), key] = (place, key, names[id(value)])
    return list(found.values())


def _generators() -> tuple:
    """Return the state of every global generator of this process."""
    torch = sys.modules.get("torch")
    drawn = torch.get_rng_state() if torch is not None else None
    return np.random.get_state(), random.getstate(), drawn  # noqa: NPY002 - students' code draws from it


def _set_generators(state: tuple) -> None:
    numpys, pythons, torchs = state
    np.random.set_state(numpys)  # noqa: NPY002
    random.setstate(pythons)
    if torchs is not None:
        sys.modules["torch"].set_rng_state(torchs)


def _same(one: tuple, other: tuple) -> bool:
    if one[1] != other[1] or one[0][2:] != other[0][2:] or not np.array_equal(one[0][1], other[0][1]):
        return False
    if one[2] is None or other[2] is None:
        return one[2] is other[2]  # torch was imported in between, and may have been drawn from
    return bool((one[2] == other[2]).all())


@contextmanager
def _callers_state_kept() -> Iterator[None]:
    """Restore the caller's generators and grad mode on exit."""
    before, torch = _generators(), sys.modules.get("torch")
    learns = torch is None or torch.is_grad_enabled()
    try:
        yield
    finally:
        _set_generators(before)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch._C._set_grad_enabled(learns)
