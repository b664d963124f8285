"""`launch(fn, world_size)`: run a function as real ranks, in fresh processes, and get back all that they did.

    run = launch(train, world_size=4)
    run[2]; run.log(2); run.trace; run.wall_s

The first failure wins and is explained; every launch has a time limit; nothing is left behind. Left out: where ranks
start (`engines/`), and drawing (observers get plain events). The environment of a rank is torchrun's.
"""

from __future__ import annotations

import linecache
import os
import pickle
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from worldsize import failures, parcel
from worldsize.engines import Job, Progress, Setup
from worldsize.engines.local import LocalEngine
from worldsize.failures import Outcome
from worldsize.links import Link
from worldsize.run import OBSERVERS, Observer, Run, Tail

_TICK_S = 0.05
_STOP_S = 2.0
_MAX_WORLD_SIZE = 256


_engine = LocalEngine()
_one_at_a_time = threading.Lock()
_last: list[Run] = []


def warm() -> None:
    """Begin to start the agent, and return at once."""
    _engine.warm()


def last_run() -> Run | None:
    """The latest launch's run, also where the launch raised: its logs and partial trace are there."""
    return _last[0] if _last else None


def launch(
    fn: Callable,
    world_size: int = 2,
    args: tuple = (),
    kwargs: dict[str, Any] | None = None,
    *,
    link: Link | None = None,
    timeout_s: float = 120.0,
    seed: int | None = None,
    device: str = "auto",
) -> Run:
    """Run `fn(*args, **kwargs)` on `world_size` ranks, each a fresh process, and return their `Run`.

    A first parameter named `fabric` gets the rank's `Fabric`; `link` shapes it. `seed` replays a run's random numbers.
    `device`: "auto" (a GPU a rank where there are enough, else the CPU), "cpu" or "cuda".
    Raises ValueError for a wrong argument or one that cannot travel, `RankFailed`, `Deadlock`, `RunTimedOut`,
    `EngineLost`, and `Interrupted`. A stub's `NotYet` does not raise: the run's state is "not yet".
    """
    return _launch(fn, world_size, args, kwargs, link, timeout_s, seed, device, tuple(OBSERVERS), _last)


def quiet_launch(
    fn: Callable,
    world_size: int,
    args: tuple = (),
    link: Link | None = None,
    timeout_s: float = 120.0,
    device: str = "auto",
) -> Run:
    """`launch` for a check or a sheet: observers are not told, and `last_run` stays the student's own."""
    return _launch(fn, world_size, args, None, link, timeout_s, None, device, (), [])


def _launch(fn, world_size, args, kwargs, link, timeout_s, seed, device, observers, last) -> Run:
    _check(fn, world_size, args, link, timeout_s, seed, device)
    payload = parcel.pack(fn, tuple(args), dict(kwargs or {}))
    with _one_at_a_time:
        origin_s = time.monotonic()
        _engine.ready_agent()
        job = _job(world_size, payload, origin_s, link, timeout_s, seed, device)
        run = Run(world_size, job.dir, job.seed)
        weakref.finalize(run, _engine.rubbish.put, job.dir)
        last[:] = [run]
        if len(payload) > parcel.LARGE_BYTES:
            run.notes.append(_large(payload, fn, tuple(args), dict(kwargs or {})))
        try:
            error = _settle(run, job, _follow(run, job, observers))
        finally:
            run.state = "failed" if run.state == "running" else run.state  # the engine was lost
            for observer in observers:
                observer.ended(run)
    if error is not None:
        raise error
    return run


def _check(fn: Any, world_size: Any, args: Any, link: Any, timeout_s: Any, seed: Any, device: Any) -> None:
    if not callable(fn):
        got = type(fn).__name__
        raise ValueError(f"launch: expected a function, got {got}. Write launch(train), not launch(train()).")
    if not isinstance(world_size, int) or isinstance(world_size, bool) or not 1 <= world_size <= _MAX_WORLD_SIZE:
        raise ValueError(
            f"launch: expected a world_size from 1 to {_MAX_WORLD_SIZE} (the number of ranks), got {world_size!r}. "
            f"Write for example launch(train, world_size=2)."
        )
    if not isinstance(args, (tuple, list)):
        raise ValueError(f"launch: expected args as a tuple, got {type(args).__name__}. Write args=(x,) for one.")
    if link is not None and not isinstance(link, Link):
        raise ValueError(f'launch: expected link=Link("1 Gbit/s", "50 us") or None, got {link!r}')
    if not isinstance(timeout_s, (int, float)) or isinstance(timeout_s, bool) or not 0 < timeout_s < 1e9:
        raise ValueError(f"launch: expected timeout_s as a number of seconds above 0, got {timeout_s!r}")
    if seed is not None and (not isinstance(seed, int) or seed < 0):
        raise ValueError(f"launch: expected seed as a whole number of 0 or more, got {seed!r}")
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f'launch: expected device "auto", "cpu" or "cuda", got {device!r}')


def _job(world_size: int, payload: bytes, origin_s: float, link, timeout_s, seed, device) -> Job:
    job = Job(
        world_size=world_size,
        dir=_engine.new_run_dir(),
        env=dict(os.environ),
        sys_path=tuple(sys.path),
        cwd=os.getcwd(),
        seed=secrets.randbits(62) if seed is None else seed,
        timeout_s=timeout_s,
        origin_s=origin_s,
        device=device,
        link=link,
        sources=_cell_sources(),
    )
    job.payload_path().write_bytes(payload)
    return job


def _cell_sources() -> tuple[tuple[str, str], ...]:
    """The text of the notebook's cells, so that a traceback printed by a rank shows them."""
    entries = [(name, entry[2]) for name, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None]
    return tuple((name, "".join(lines)) for name, lines in entries if "ipykernel" in name or "ipython" in name)


def _large(payload: bytes, fn: Callable, args: tuple, kwargs: dict) -> str:
    largest = ", ".join(f"`{name}` {size / 1e6:.0f} MB" for name, size in parcel.sizes(fn, args, kwargs)[:3])
    return (
        f"{len(payload) / 1e6:.0f} MB travel to every rank; the largest: {largest}. "
        f"Load or make large data inside the function to start faster."
    )


def _follow(run: Run, job: Job, observers: tuple[Observer, ...]) -> Outcome:
    """Pass the ranks' output to the observers until the outcome comes."""
    tails = [Tail(job.log_path(r)) for r in range(job.world_size)]
    ranks = None
    try:
        ranks = _engine.start(job)
        due_s = 0.0
        while True:
            event = ranks.next_event(_TICK_S)
            _take_in(run, event, observers)
            if isinstance(event, Outcome) or time.monotonic() >= due_s:
                _publish(run, tails, observers, last=isinstance(event, Outcome))
                due_s = time.monotonic() + _TICK_S
            if isinstance(event, Outcome):
                return event
    except KeyboardInterrupt:
        outcome = _stop(run, ranks)
        _publish(run, tails, observers, last=True)
        return outcome
    except BaseException:
        _engine.abandon()
        raise


def _take_in(run: Run, event: Setup | Progress | Outcome | None, observers: tuple[Observer, ...]) -> None:
    if isinstance(event, Setup):
        run.setup = event.text
        for observer in observers:
            observer.started(run)
    elif isinstance(event, Progress):
        run.reports[event.rank] += event.reports
        for observer in observers:
            observer.progressed(run, event)


def _stop(run: Run, ranks: Any) -> Outcome:
    """Stop the ranks after an interrupt, and let no further one cut that short; no answer ends the agent too."""
    deadline_s = time.monotonic() + _STOP_S
    told = False
    with suppress(failures.EngineLost):
        while ranks and time.monotonic() < deadline_s:
            with suppress(KeyboardInterrupt):
                if not told:
                    ranks.stop()
                told = True
                event = ranks.next_event(_TICK_S)
                _take_in(run, event, ())
                if isinstance(event, Outcome):
                    return Outcome("stopped", event.failures, event.standings, event.entered_s, event.notes)
    _engine.abandon()
    return Outcome("stopped")


def _publish(run: Run, tails: list[Tail], observers: tuple[Observer, ...], last: bool) -> None:
    if observers:
        for rank, tail in enumerate(tails):
            text = tail.rest() if last else tail.new_text()
            if text:
                for observer in observers:
                    observer.printed(run, rank, text)
    for observer in observers:
        observer.ticked(run)


def _settle(run: Run, job: Job, outcome: Outcome) -> BaseException | None:
    """Fill in the run, and give back what is to be raised."""
    run.outcome = outcome
    if outcome.entered_s:
        run.startup_s = max(outcome.entered_s.values()) - job.origin_s
    error = None
    if outcome.status == "done":
        run.results = [pickle.loads(job.result_path(r).read_bytes()) for r in range(job.world_size)]
        run.notes += _notes(outcome)
        run.state = "done"
    elif outcome.status == "failed" and failures.first_failure(list(outcome.failures)).not_yet:
        run.state, run.not_yet = "not yet", failures.first_failure(list(outcome.failures)).message
    else:
        run.state = "interrupted" if outcome.status == "stopped" else "failed"
        error = _error(run, job, outcome)
    run.wall_s = time.monotonic() - job.origin_s
    return error


def _notes(outcome: Outcome) -> list[str]:
    changed = sorted({name for note in outcome.notes.values() for name in note.get("changed", ())})
    unwaited = sorted(r for r, note in outcome.notes.items() if note.get("unwaited"))
    notes = []
    if changed:
        which = ", ".join(f"`{name}`" for name in changed)
        notes.append(
            f"a rank changed {which}, but ranks are other processes: the notebook's own is as it was. "
            f"Return it instead, and read run.results."
        )
    if unwaited:
        notes.append(f"{failures.names(unwaited)} ended with an isend that nobody waited for: call its wait().")
    return notes


def _error(run: Run, job: Job, outcome: Outcome) -> BaseException:
    after_s = time.monotonic() - job.origin_s
    where = "\n".join(failures.render_standings(outcome.standings))
    hint = f"full logs: {job.dir}  (run = last_run(); print(run.log(0)); run.trace)"
    if outcome.status == "refused":
        return ValueError(outcome.reason)
    if outcome.status == "stopped":
        return failures.Interrupted(f"stopped after {after_s:.1f} s\n{where}\n{hint}", run)
    if outcome.status == "timeout":
        return failures.RunTimedOut(
            f"after timeout_s={job.timeout_s:g} s these of {job.world_size} ranks were not done:\n{where}\n{hint}", run
        )
    if outcome.status == "deadlock":
        return failures.Deadlock(f"deadlock: {', '.join(outcome.waits)}\n{where}\n{hint}", run)
    return _rank_failed(run, job, outcome, hint)


def _rank_failed(run: Run, job: Job, outcome: Outcome, hint: str) -> failures.RankFailed:
    first = failures.first_failure(list(outcome.failures))
    rows = [failures.headline(first, job.world_size)]
    if first.kind == "signal" and first.frames:
        rows.append("  last seen here:")
    rows += failures.render_frames(first.frames)
    if first.cause:
        rows.append(f"  caused by {first.cause.splitlines()[0][:200]}")
    others = [f for f in outcome.failures if f is not first]
    if others:
        rows.append(f"{failures.names([f.rank for f in others])} failed after it")
    if outcome.standings:
        were = "were" if len(outcome.standings) > 1 else "was"
        rows.append(f"{failures.names([s.rank for s in outcome.standings])} {were} stopped:")
        rows += failures.render_standings(outcome.standings)
    return failures.RankFailed("\n".join([*rows, hint]), run, first)
