"""A simulation from the call to its `SimulatedRun`: in full, or by symmetry where there are too many messages.

`simulate_function.py` checks the arguments; `outcome.py` writes the errors.
"""

from __future__ import annotations

import copy
import tempfile
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np

from worldsize import failures
from worldsize.engines.payload import Payload, fingerprint
from worldsize.engines.ranks.rank_failure import frames_of
from worldsize.errors import NotYet
from worldsize.launch.run import KernelLaunches
from worldsize.links import Link, Nodes
from worldsize.simulate import ranks_alone, replay
from worldsize.simulate.early_ends import Abandoned, TooManyMessages
from worldsize.simulate.fabric import SimulatedFabric
from worldsize.simulate.generators import GeneratorsUsed
from worldsize.simulate.outcome import BrokenOff, Stood, notes_on, settle
from worldsize.simulate.process_state import ProcessState
from worldsize.simulate.ranks_alone import Witnesses
from worldsize.simulate.simulated_run import SimulatedRun
from worldsize.simulate.symmetry import NotSymmetric, SymmetricWorld
from worldsize.simulate.topology import Clocks
from worldsize.simulate.world import World
from worldsize.trace import Span

MOST_MESSAGES = 3_000_000
MOST_FULL_RANKS = 20_000  # each has its own stack
MOST_UNEVEN_RANKS = 20_000  # each call is a vector over all of them
_SMALL_WORLD = 64  # ranks at most, so that it is quick to simulate in full


@dataclass(frozen=True)
class Setting:
    """All settings of a simulation except the function."""

    world_size: int
    link: Link | None
    nodes: Nodes | None
    seed: int
    timeout_s: float
    slowness: np.ndarray
    dies_s: np.ndarray
    most_messages: int = MOST_MESSAGES

    @property
    def node_ranks(self) -> int:
        return self.nodes.ranks if self.nodes else 1

    def with_ranks(self, world_size: int) -> Setting:
        """Return the same setting for `world_size` ranks, all of one speed and without failures."""
        return replace(self, world_size=world_size, slowness=np.ones(world_size), dies_s=np.full(world_size, np.inf))

    def world(self) -> World:
        """Return a simulation's new world in which every rank is simulated."""
        clocks = Clocks(self.world_size, self.link, self.nodes)
        return World(self.world_size, clocks, self.slowness.tolist(), self.dies_s.tolist(), self.most_messages)

    def symmetric_world(self) -> SymmetricWorld:
        """Return a new world in which the ranks of one node stand for all others."""
        k, clocks = self.node_ranks, Clocks(self.world_size, self.link, self.nodes)
        return SymmetricWorld(self.world_size, clocks, [1.0] * k, [np.inf] * k, MOST_MESSAGES)


def simulated(call: Payload, setting: Setting, launches: KernelLaunches) -> SimulatedRun:
    """Return the run of `call`: every message if they are few enough, else by symmetry. Raises ValueError if neither is possible.
    """
    began_s, why = time.monotonic(), ""
    if 2 * setting.world_size * (setting.world_size - 1) > setting.most_messages:  # more than a ring of these ranks sends
        try:
            asked = ranks_alone.listen(call, setting)
            if asked.messages * setting.world_size > setting.most_messages:
                return by_symmetry(call, setting, launches, asked, began_s)
        except NotSymmetric as error:
            why = str(error)
        except NotYet:
            return in_full(call, setting.with_ranks(1), launches)

    if setting.world_size > MOST_FULL_RANKS:
        raise ValueError(_too_large(setting, f"more than {MOST_FULL_RANKS:,} stacks", why))
    try:
        return in_full(call, setting, launches)
    except TooManyMessages as error:
        raise ValueError(_too_large(setting, str(error), why)) from None


def _too_large(setting: Setting, what: str, why: str) -> str:
    reason = why or "not tried, because a ring of these ranks sends fewer messages"
    return (
        f"simulate: {setting.world_size:,} ranks would need {what}, and some can stand for the others only if all do the "
        f"same: {reason}. Simulate fewer ranks, or make all ranks do the same."
    )


def in_full(call: Payload, setting: Setting, launches: KernelLaunches) -> SimulatedRun:
    """Run a simulation of every rank and every message. Raises `simulate`'s errors, and TooManyMessages."""
    began_s = time.monotonic()
    before = fingerprint(call.fn)
    ended = _turns(call, setting, setting.world, range(setting.world_size))
    run = _run_of(ended, setting, began_s, launches)
    run.results = ended.results
    _raise_what_went_wrong(run, ended, setting)

    if run.state == "done":
        changed = tuple(name for name, mark in fingerprint(call.fn).items() if before.get(name) != mark)
        run.notes += notes_on(changed, ended.world.unwaited)
    return run


def by_symmetry(
    call: Payload, setting: Setting, launches: KernelLaunches, asked: Witnesses, began_s: float
) -> SimulatedRun:
    """Simulate the ranks of one node, which stand for all others. Raises NotSymmetric and `simulate`'s errors."""
    k, n = setting.node_ranks, setting.world_size
    uneven = bool((setting.slowness != 1).any())
    if uneven and n > MOST_UNEVEN_RANKS:
        raise NotSymmetric(f"stragglers differ, and more than {MOST_UNEVEN_RANKS:,} ranks of unequal speed would take minutes")
    if uneven and setting.nodes:
        raise NotSymmetric("stragglers reach their node's network card in a different order than other ranks")

    ended = _turns(call, setting, setting.symmetric_world, range(k))
    run = _run_of(ended, setting, began_s, launches)
    if ended.broken_off is None and ended.stood.waits and ended.world.failure is None:
        raise NotSymmetric(f"{failures.wait_in_short(ended.stood.waits[0])}, for a message that no rank like it sends")
    _raise_what_went_wrong(run, ended, setting)

    assert isinstance(ended.world, SymmetricWorld)  # it keeps its calls
    for rank in range(k):
        if [made for made in ended.world.calls[rank] if made[0] != "wait"] != asked.calls[rank]:
            raise NotSymmetric(f"rank {rank} makes other calls among all ranks than alone")

    run.recorded_ranks, run.asked_ranks = tuple(range(k)), asked.asked
    run.evidence = (*asked.evidence, "every send met a receive of its size at the same distance", *_as_in_full(call, setting))
    run.ended_s = np.tile(run.ended_s, n // k)
    if uneven:
        run.ended_s = replay.ends(ended.world.calls[0], n, setting.link, setting.slowness)
    run.simulated_s = float(run.ended_s.max())
    if (setting.dies_s < run.ended_s).any():
        raise NotSymmetric(f"rank {int(setting.dies_s.argmin()):,} fails during the run, and the other ranks do not fail with it")

    run.wall_s = time.monotonic() - began_s
    run.notes.append(
        f"{n:,} ranks by symmetry: {k} of them were simulated and stand for all others, so the run has times but no values. "
        f"Evidence: {'; '.join(run.evidence)}."
    )
    if asked.asked < n:
        run.notes.append(
            f"Symmetry was sampled: {asked.asked:,} of {n:,} ranks were asked what they send and receive. If another "
            f"rank does something else, this run does not know it. Another seed asks other ranks; with fewer ranks, or fewer "
            f"messages each, all are asked."
        )
    return run


def _as_in_full(call: Payload, setting: Setting) -> list[str]:
    """Return evidence that symmetry gives the times of a small world simulated in full. Raises NotSymmetric if it does not."""
    k = setting.node_ranks
    sizes = range(min(_SMALL_WORLD, setting.world_size - 1), k, -1)
    n = next((n for n in sizes if setting.world_size % n == 0 and n % k == 0), None)
    if n is None:
        return []

    small = setting.with_ranks(n)
    full = in_full(call, small, KernelLaunches()).ended_s
    ended = _turns(call, small, small.symmetric_world, range(k))
    if full.tolist() != np.tile(ended.world.clock_s, n // k).tolist():
        raise NotSymmetric(f"with {n} ranks, simulated in full, the times differ from those by symmetry")
    return [f"with {n} ranks the times in full are the same, to the last bit"]


@dataclass
class _Ended:
    """The results of a simulation: its world, the ranks' process state, their results, and the reason if it ended early."""

    world: World
    process_state: ProcessState
    results: list[Any]
    broken_off: BrokenOff | None
    stood: Stood


def _turns(call: Payload, setting: Setting, make_world: Callable[[], World], ranks: range) -> _Ended:
    """Run a simulation's `ranks` in a new world; if one drew random numbers, run again with separate generators."""
    try:
        return _attempt(call, setting, make_world(), ranks, keeps_generators=False)
    except GeneratorsUsed:
        return _attempt(call, setting, make_world(), ranks, keeps_generators=True)


def _attempt(call: Payload, setting: Setting, world: World, ranks: range, keeps_generators: bool) -> _Ended:
    process_state = ProcessState(world, setting.seed, keeps_generators)
    results: list[Any] = [None] * len(ranks)
    broken_off = None

    def work(rank: int) -> None:
        args, kwargs = copy.deepcopy((call.args, call.kwargs))
        results[rank] = call.fn(SimulatedFabric(world, rank), *args, **kwargs)

    with process_state.installed(call.fn, setting.timeout_s):
        try:
            world.run(work, process_state, ranks)
            process_state.look_at_generators()
        except (Abandoned, KeyboardInterrupt) as stop:
            reason = stop.reason if isinstance(stop, Abandoned) else stop
            broken_off = BrokenOff(reason, world.current, frames_of(stop))
        finally:
            stood = Stood(world.standings(), world.waits())
            world.close(process_state)

        late = process_state.watch.take_interrupt()
        if late is not None:
            broken_off = BrokenOff(late, None, ())
    return _Ended(world, process_state, results, broken_off, stood)


def _run_of(ended: _Ended, setting: Setting, began_s: float, launches: KernelLaunches) -> SimulatedRun:
    world, folder = ended.world, Path(tempfile.mkdtemp(prefix="worldsize-simulated-"))
    run = SimulatedRun(
        world_size=world.world_size, dir=folder, seed=setting.seed, columns=world.columns, spans=world.spans,
        ended_s=np.array(world.clock_s), simulated_s=max(world.clock_s), setup=f"{world.world_size:,} simulated ranks",
    )  # fmt: skip
    weakref.finalize(run, rmtree, folder, ignore_errors=True)
    launches.latest = run

    for rank, log in ended.process_state.logs.items():
        run.log_path(rank).write_text(log.getvalue())
    for rank, told in ended.process_state.buffers.items():
        run.reports[rank] += told.rows
        run.spans += [Span(rank, kind, start_s, end_s, label) for kind, start_s, end_s, label in told.spans]
    run.wall_s = time.monotonic() - began_s
    return run


def _raise_what_went_wrong(run: SimulatedRun, ended: _Ended, setting: Setting) -> None:
    if ended.world.failure is not None and isinstance(ended.world.first_error, NotSymmetric):
        raise ended.world.first_error
    error = settle(run, ended.world, setting.timeout_s, ended.broken_off, ended.stood)
    if error is not None:
        raise error
