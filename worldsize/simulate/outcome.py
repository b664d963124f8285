"""The end of a simulation, and its messages: the same as a launch's for the same mistake.

`failures.py` renders a single failure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from worldsize import errors, failures
from worldsize.failures import Frame, Outcome, Return, Standing, Wait
from worldsize.launch.outcome_error import notes_of
from worldsize.simulate.simulated_run import SimulatedRun
from worldsize.simulate.watch import TimeIsUp, WaitsOutside
from worldsize.simulate.world import World

_MAX_WAITS = 8
_HINT = "run = last_run(); run.trace has the messages until then"


@dataclass(frozen=True)
class BrokenOff:
    """The outcome of a simulation ended early: the reason, the rank whose turn it was, and the place."""

    reason: BaseException
    rank: int | None
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Stood:
    """The outcome of the unfinished ranks: their standings, and their waits."""

    standings: tuple[Standing, ...]
    waits: tuple[Wait, ...]


def settle(
    run: SimulatedRun, world: World, timeout_s: float, broken_off: BrokenOff | None, stood: Stood
) -> BaseException | None:
    """Fill in a simulated run's outcome, and return the error for the caller, if any."""
    where = failures.render_standings(stood.standings)
    run.state = "failed"
    if broken_off is not None:
        return _of_broken_off(run, timeout_s, broken_off, where)

    first = world.failure
    if first is not None and first.not_yet:
        run.state, run.not_yet = "not yet", first.message
        return None
    if first is not None:
        run.outcome = Outcome("failed", (first,), stood.standings)
        rows = [failures.headline(first, world.world_size), *failures.failed_where(first)]
        if stood.standings:
            were = "was" if len(stood.standings) == 1 else "were"
            rows += [f"{failures.names([s.rank for s in stood.standings])} {were} stopped:", *where]
        return errors.RankFailed("\n".join(rows), run, _HINT, first)

    if stood.waits:
        run.outcome = Outcome("deadlock", standings=stood.standings, waits=stood.waits)
        line = failures.deadlock_line(stood.waits[:_MAX_WAITS])
        if len(stood.waits) > _MAX_WAITS:
            line += f", and {len(stood.waits) - _MAX_WAITS:,} more ranks wait"
        return errors.Deadlock("\n".join([line, *where]), run, _HINT)

    run.state, run.outcome = "done", Outcome("done")
    return None


def notes_on(changed: tuple[str, ...], unwaited: Sequence[int]) -> list[str]:
    """Return notes on a simulation that ended well: names of the notebook that a rank `changed`, and isends not waited for."""
    notes = notes_of(Outcome("done", returned={rank: Return((), count) for rank, count in enumerate(unwaited) if count}))
    if changed:
        names = ", ".join(f"`{name}`" for name in changed)
        notes.insert(0, (
            f"a rank changed {names}. Simulated ranks share the notebook's memory; ranks of `launch` are separate processes, and "
            f"each would change its own copy. Return it instead, and read run.results."
        ))  # fmt: skip
    return notes


def _of_broken_off(run: SimulatedRun, timeout_s: float, broken_off: BrokenOff, where: list[str]) -> BaseException:
    if isinstance(broken_off.reason, KeyboardInterrupt):
        run.state, run.outcome = "interrupted", Outcome("stopped")
        words = f"stopped after {run.wall_s:.1f} real s, at {run.simulated_s:.6g} simulated s, after {run.messages:,} messages"
        return errors.Interrupted("\n".join([words, *where, _HINT]), run)

    if isinstance(broken_off.reason, TimeIsUp):
        run.outcome = Outcome("timeout")
        words = (
            f"after timeout_s={timeout_s:g} real s the simulation had reached {run.simulated_s:.6g} s and {run.messages:,} "
            f"messages. Simulate fewer ranks or less work, or allow more time (timeout_s=…):"
        )
        return errors.RunTimedOut("\n".join([words, *where]), run, _HINT)

    if isinstance(broken_off.reason, WaitsOutside):
        run.outcome = Outcome("deadlock")
        own = [frame for frame in broken_off.frames if not failures.is_library(frame)]
        place = f" at {failures.place(own[-1])}: {failures.source_line(own[-1])}" if own else ""
        words = (
            f"rank {broken_off.rank} waits for something other than a message{place}. Simulated ranks share one thread and "
            f"take turns, so no other rank can release a lock, fill a queue or answer meanwhile. Use fabric.recv, or run it on "
            f"real processes: launch(fn, world_size=2)."
        )
        return errors.Deadlock(words, run, _HINT)

    return broken_off.reason
