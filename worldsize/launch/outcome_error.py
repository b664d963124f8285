"""The words for a launch that did not go well: the error of an outcome, and notes on a run that ended.

`failures` words a single failure.
"""

import re
import time
from collections.abc import Sequence

from worldsize import errors, failures
from worldsize.engines import payload
from worldsize.engines.job import Job
from worldsize.engines.payload import Payload
from worldsize.engines.session import START_S
from worldsize.failures import Failure, Outcome
from worldsize.launch.run import Run, in_script


def large_payload_note(packed: bytes, call: Payload) -> str:
    """Return the note on a launch whose payload is large."""
    largest = ", ".join(f"`{name}` {size / 1e6:.0f} MB" for name, size in payload.sizes(call)[:3])
    return (
        f"{len(packed) / 1e6:.0f} MB travel to every rank; the largest: {largest}. "
        f"Load or make large data inside the function to start faster."
    )


def edited_modules_note(names: Sequence[str]) -> str:
    """Return the note on a launch after the caller's modules `names` were edited and not reloaded."""
    return (
        f"{', '.join(names)}: edited since the import. The ranks run the file as it is now, the notebook what it imported: "
        f"reload it here too, for example with importlib.reload"
    )


def notes_of(outcome: Outcome) -> list[str]:
    changed: set[str] = set()
    unwaited: list[int] = []
    for rank, returned in sorted(outcome.returned.items()):
        changed.update(returned.changed)
        if returned.unwaited:
            unwaited.append(rank)

    notes = []
    if changed:
        names = ", ".join(f"`{name}`" for name in sorted(changed))
        notes.append(
            f"a rank changed {names}, but ranks are separate processes: the notebook's copy is unchanged. "
            f"Return it instead, and read run.results."
        )
    if unwaited:
        notes.append(failures.unwaited_line(unwaited))
    return notes


def error_of(run: Run, job: Job, outcome: Outcome) -> BaseException:
    """Return the error for a launch that was refused, stopped, timed out, deadlocked, or lost a rank."""
    if outcome.status == "refused":
        return ValueError(outcome.reason)

    more = "run.trace" if job.framework == "torch" else "print(run.native_log(0))"
    hint = f"full logs: {job.dir}  (run = last_run(); print(run.log(0)); {more})"
    if in_script():  # the folder goes with the process, and all output was printed
        hint = ""
    where = failures.render_standings(outcome.standings, run.tasks)

    if outcome.status == "stopped":
        after_s = time.monotonic() - job.origin_s
        return errors.Interrupted("\n".join([f"stopped after {after_s:.1f} s", *where, hint]), run)

    if outcome.status == "deadlock":
        return errors.Deadlock("\n".join([failures.deadlock_line(outcome.waits, outcome.cause), *where]), run, hint)

    if outcome.status == "timeout":
        these = f"these {'tasks' if run.tasks else 'ranks'} of {job.world_size} were not done"
        late = sorted(set(range(job.world_size)) - outcome.entered_s.keys() - outcome.returned.keys())
        start = f"{START_S:g} s for their start and " if late else ""
        rows = [f"after {start}timeout_s={job.timeout_s:g} s {these}:", *where]
        if run.tasks:
            rows.append(_WAITING)
        if run.trace.without_recorder:
            rows.append("this torch has no flight recorder: a hang in its own communication ends only at the time limit")
        more_s = f"{10 * job.timeout_s:g}"
        option = f"%%ranks --timeout {more_s}, or world.run(…, timeout_s={more_s})" if job.world else f"timeout_s={more_s}"
        rows.append(f"more time: {option}")
        return errors.RunTimedOut("\n".join(rows), run, hint)

    first = failures.first_failure(outcome.failures)
    return errors.RankFailed("\n".join(_failed(run, job, outcome, first)), run, hint, first)


_WAITING = "a strategy over several tasks waits until every task in TF_CONFIG has started and created the strategy too"
_NO_MODULE = (
    "ranks on other hosts import only modules that are there: copy a module beside the notebook to the folder where the host "
    "was started, or to its PYTHONPATH"
)
_FATAL = re.compile(r"F\d{4} ")  # begins a fatal line of TensorFlow's and torch's C++ logs

# messages of Python, requests, curl and TensorFlow for an unknown name or an unreachable network
_NO_NETWORK = re.compile(
    r"gaierror|name resolution|name or service not known|(failed to|could ?n[o']t) resolve|network is unreachable|"
    r"no address associated with hostname|max retries exceeded with url",
    re.IGNORECASE,
)
_OWN_NETWORK = (
    "ranks on this machine have their own network, with loopback alone: load the data in the notebook; or run "
    '`import os; os.environ["WORLDSIZE_NETWORK"] = "shared"` in a cell and launch again, to use the machine\'s network'
)


_REFUSED = re.compile(r"ConnectionRefusedError|\[Errno (111|61)\]")  # of Python's; torch words its own differently
_OWN_LOOPBACK = (
    "127.0.0.1 in a rank is the ranks' own: a server in the notebook, or elsewhere on this machine, does not listen there. Start "
    'it in a rank; or run `import os; os.environ["WORLDSIZE_NETWORK"] = "shared"` in a cell and launch again, to use the '
    "machine's network"
)
_WHERE_THROWN = re.compile(r"^\[enforce fail at [^\]]*\]\s*")
_WHAT = re.compile(r"^\s*what\(\):\s+(.+)", re.MULTILINE)  # of an exception in C++ that nobody caught


def _last_fatal(run: Run, rank: int) -> str:
    """Return the last words of a rank's native code: of an exception in C++, or a fatal line of its logs; "" without any."""
    log = f"{run.native_log(rank)}\n{run.log(rank)}"
    whats = _WHAT.findall(log)
    if whats:
        return _WHERE_THROWN.sub("", whats[-1].strip())[:400]
    fatal = [line for line in log.splitlines() if _FATAL.match(line)]
    return fatal[-1][:200] if fatal else ""


def _failed(run: Run, job: Job, outcome: Outcome, first: Failure) -> list[str]:
    host = run.hosts[first.rank] if run.hosts else ""
    rows = [failures.headline(first, job.world_size, run.tasks, host)]
    rows += failures.failed_where(first)
    if first.kind == "signal":
        fatal = _last_fatal(run, first.rank)
        if fatal:
            rows.insert(1, f"  its last fatal line: {fatal}")
    if outcome.cause:
        rows.append(outcome.cause)

    if run.hosts and first.type == "ModuleNotFoundError":
        rows.append(_NO_MODULE)
    said = f"{first.type}: {first.message}\n{first.cause}"
    if run.network == "own" and first.kind == "raised" and _NO_NETWORK.search(said):
        rows.append(_OWN_NETWORK)
    elif run.network == "own" and first.kind == "raised" and _REFUSED.search(said):
        rows.append(_OWN_LOOPBACK)

    at_once = []  # the ranks of other hosts whose failures lie too close in time for the clocks to order them
    for other in outcome.failures if run.hosts else ():
        if run.hosts[other.rank] == run.hosts[first.rank] or other.lost_a_peer:
            continue
        if abs(other.at_s - first.at_s) <= run.clock_error_s:
            at_once.append(other.rank)

    if at_once:
        within = f"within {run.clock_error_s * 1000:.2g} ms of it, the error of the hosts' clocks"
        rows.append(f"{failures.names(at_once, run.tasks)} failed {within}: any of them may have failed first")

    others = [f.rank for f in outcome.failures if f is not first and f.rank not in at_once]
    if others:
        rows.append(f"{failures.names(others, run.tasks)} failed later")

    stopped = [standing.rank for standing in outcome.standings]
    if stopped:
        were = "was" if len(stopped) == 1 else "were"
        rows.append(f"{failures.names(stopped, run.tasks)} {were} stopped:")
        rows += failures.render_standings(outcome.standings, run.tasks)
    return rows
