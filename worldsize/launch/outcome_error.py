"""The words of a launch that did not go well, or not quite: the error of an outcome, and notes on a run that ended.

Left out: how the outcome came about (`execute`), and the words of one failure (`failures`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from worldsize import errors, failures
from worldsize.engines import payload
from worldsize.engines.job import Job
from worldsize.failures import Outcome
from worldsize.launch.run import Run


def large_payload_note(packed: bytes, fn: Callable, args: tuple, kwargs: dict) -> str:
    largest = ", ".join(f"`{name}` {size / 1e6:.0f} MB" for name, size in payload.sizes(fn, args, kwargs)[:3])
    return (
        f"{len(packed) / 1e6:.0f} MB travel to every rank; the largest: {largest}. "
        f"Load or make large data inside the function to start faster."
    )


def notes_of(outcome: Outcome) -> list[str]:
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


def error_of(run: Run, job: Job, outcome: Outcome) -> BaseException:
    after_s = time.monotonic() - job.origin_s
    where = "\n".join(failures.render_standings(outcome.standings, run.tasks))
    more = "run.trace" if job.framework == "torch" else "print(run.native_log(0))"
    hint = f"full logs: {job.dir}  (run = last_run(); print(run.log(0)); {more})"
    if outcome.status == "refused":
        return ValueError(outcome.reason)
    if outcome.status == "stopped":
        return errors.Interrupted(f"stopped after {after_s:.1f} s\n{where}\n{hint}", run)
    if outcome.status == "timeout":
        these = f"these of {job.world_size} {'tasks' if run.tasks else 'ranks'} were not done"
        why = _WAITING if run.tasks else ""
        return errors.RunTimedOut(f"after timeout_s={job.timeout_s:g} s {these}:\n{where}\n{why}{hint}", run)
    if outcome.status == "deadlock":
        return errors.Deadlock(f"deadlock: {', '.join(outcome.waits)}\n{where}\n{hint}", run)
    return _rank_failed(run, job, outcome, hint)

_WAITING = "a strategy over several tasks waits until every task that TF_CONFIG names is there and has made it too\n"


def _rank_failed(run: Run, job: Job, outcome: Outcome, hint: str) -> errors.RankFailed:
    first = failures.first_failure(list(outcome.failures))
    rows = [failures.headline(first, job.world_size, run.tasks)]
    if first.kind == "signal" and first.frames:
        rows.append("  last seen here:")
    rows += failures.render_frames(first.frames)
    if first.kind == "signal":
        fatal = [line for line in run.native_log(first.rank).splitlines() if re.match(r"F\d{4} ", line)]
        rows += [f"  it said last: {line[:200]}" for line in fatal[-1:]]
    if first.cause:
        rows.append(f"  caused by {first.cause.splitlines()[0][:200]}")
    others = [f for f in outcome.failures if f is not first]
    if others:
        rows.append(f"{failures.names([f.rank for f in others], run.tasks)} failed after it")
    if outcome.standings:
        were = "were" if len(outcome.standings) > 1 else "was"
        rows.append(f"{failures.names([s.rank for s in outcome.standings], run.tasks)} {were} stopped:")
        rows += failures.render_standings(outcome.standings, run.tasks)
    return errors.RankFailed("\n".join([*rows, hint]), run, first)
