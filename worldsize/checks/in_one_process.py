"""Play the ranks of a check's case in simulated time: all of them take turns in this process.

A case of tenths of a second on real ranks takes milliseconds here, and no scheduler decides the order of events. A case
that needs processes of its own (a thread, a process group, a wait for anything but a message) is refused with
`NotPlayable`.
"""

import copy
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from worldsize import failures
from worldsize.checks import in_rank
from worldsize.checks.arena import ArenaResult, Trial, of_rank
from worldsize.engines.payload import fingerprint, reachable
from worldsize.simulate.early_ends import Abandoned, TooManyMessages, WaitsInBackward
from worldsize.simulate.fabric import SimulatedFabric
from worldsize.simulate.generators import GeneratorsUsed
from worldsize.simulate.interleaving import Interleaving
from worldsize.simulate.process_state import ProcessState
from worldsize.simulate.topology import Clocks
from worldsize.simulate.turns import replaced_in_turns
from worldsize.simulate.watch import TimeIsUp, WaitsOutside
from worldsize.simulate.world import World

MOST_MESSAGES = 200_000
STEP_S = 1e-6  # a message takes this long of its sender's and its receiver's time: events have an order
LIMIT_S = 8.0


class NotPlayable(Exception):
    """A case needs real processes; the message names the reason."""


def play(
    trial: Trial, interleaving: Interleaving | None = None, limit_s: float = LIMIT_S, own_variables: bool = False
) -> ArenaResult:
    """Run a trial over the fabric in simulated time, for at most `limit_s` real seconds.

    `interleaving` sets the order of events. With `own_variables` each rank's function has its own variables, so none is shared.
    Raises NotPlayable where the trial needs real processes.
    """
    if threading.current_thread() is not threading.main_thread():
        raise NotPlayable("a time limit: the system's alarm reaches the main thread alone")

    before = {} if own_variables else _shared_by_ranks(trial.fn)
    try:  # keeping generators apart costs some 30 µs a turn: only cases that draw random numbers pay for it
        ended = _attempt(trial, interleaving, limit_s, keeps_generators=False)
    except GeneratorsUsed:
        ended = _attempt(trial, interleaving, limit_s, keeps_generators=True)
    after = {} if own_variables else _shared_by_ranks(trial.fn)
    changed = [name for name, mark in after.items() if before.get(name) != mark]
    if changed:
        raise NotPlayable(f"processes of its own: it changes `{changed[0]}`, of which each rank should have a copy")
    return ended


def _shared_by_ranks(fn: Callable) -> dict[str, Any]:
    """Return a mark of every variable outside a function that a rank could change for all, by name."""
    return {name: id(value) for name, value in reachable(fn).items()} | fingerprint(fn)


def _attempt(
    trial: Trial, interleaving: Interleaving | None, limit_s: float, keeps_generators: bool
) -> ArenaResult:
    import torch

    n = len(trial.inputs)
    world = World(
        n, Clocks(n, trial.link, None), [1.0] * n, [float("inf")] * n, MOST_MESSAGES, STEP_S, interleaving,
        stops_at_failure=False,
    )  # fmt: skip
    process_state = ProcessState(world, seed=0, keeps_generators=keeps_generators)
    fabrics = [SimulatedFabric(world, rank) for rank in range(n)]
    came: list[tuple[Any, Any]] = [(None, None)] * n

    def work(rank: int) -> None:
        if keeps_generators:
            torch.manual_seed(rank)
        given, own = trial.inputs[rank], copy.deepcopy(of_rank(trial.more, rank))
        if rank in trial.played:
            came[rank] = in_rank.run(fabrics[rank], trial.played[rank], given, own)
        else:
            came[rank] = in_rank.run(fabrics[rank], trial.fn, given, own, trial.driver)

    with process_state.installed(trial.fn, limit_s), in_rank.no_process_group(), _refusals(world):
        try:
            world.run(work, process_state, range(n))
            process_state.look_at_generators()
        except Abandoned as abandoned:
            raise _not_playable(abandoned.reason) from None
        finally:
            waits, standings = world.waits(), world.standings()
            world.close(process_state)

    trace = world.columns.trace(n, world.spans)
    if world.failure is not None and world.failure.not_yet:
        return ArenaResult("not yet", world.failure.message, trace=trace)
    if world.failures:
        return ArenaResult("raised", failures.failed_text(world.failures, n), trace=trace)
    if waits:
        message = "\n".join([failures.deadlock_line(waits), *failures.render_standings(standings)])
        return ArenaResult("deadlock", message, trace=trace, waits=waits)

    returned, after = zip(*came, strict=True)
    unwaited = tuple(rank for rank in range(n) if fabrics[rank].unwaited())
    return ArenaResult("done", returned=returned, inputs=after, trace=trace, unwaited=unwaited)


def _not_playable(reason: Exception) -> Exception:
    if isinstance(reason, NotPlayable):
        return reason
    if isinstance(reason, TimeIsUp):
        return NotPlayable("more time: it has not ended")
    if isinstance(reason, WaitsOutside):
        return NotPlayable("other processes: a rank waits for something that is no message")
    if isinstance(reason, (WaitsInBackward, TooManyMessages)):
        return NotPlayable(str(reason))
    return reason


@contextmanager
def _refusals(world: World) -> Iterator[None]:
    """End the case, not this process, where a rank leaves, kills or forks a process or starts a thread."""
    places = {
        (os, "_exit"): "a process to leave", (os, "abort"): "a process to leave", (os, "kill"): "a process to kill",
        (os, "fork"): "a process to fork", (threading.Thread, "start"): "a thread",
    }  # fmt: skip

    ways = {}
    for place, words in places.items():
        ways[place] = lambda rank, *_, words=words, **__: world.abandon(NotPlayable(words))
    with replaced_in_turns(world, ways):
        yield
