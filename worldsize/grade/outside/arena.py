"""The grader's arena: every way to run a student's function, in fresh sandboxes, with nothing kept between runs.

A check passes plain values and gets plain values back. A callable that `call` or `tensorflow` passes stays in the
grader, and is called remotely.
"""

import functools
import hashlib
import linecache
import random
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from typing_extensions import override

from worldsize.checks.arena import FUNCTIONS_PROCESS, Arena, ArenaResult, Trial, Way, of_rank
from worldsize.checks.drivers import killed_writer
from worldsize.checks.verdict import Verdict
from worldsize.grade.frames import JobMode, encode
from worldsize.grade.isolation.bubblewrap import UNSAFE
from worldsize.grade.isolation.limits import Meter
from worldsize.grade.outside.boxes import Sandbox, SandboxLost
from worldsize.grade.outside.sandboxed_run import GradedRun, Incident, RankJob, RunResult, play

Cells = list[list[str]]  # [[title, source], …], and [title, source, UNSEEN] for a reference


class Submitted:
    """A submission's function, by its name; the function itself is never in the grader."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"`{self.__name__}` belongs to a submission: expected the arena to run it, got a call in the grader")


class FromAfar:
    """The check's callables among a sandbox's arguments: they stay here, and are called by number."""

    def __init__(self) -> None:
        self._theirs: list[Callable] = []

    def name_of(self, value: Any) -> str | int | None:
        """Return for the arena a submitted function's name, the number of a check's callable, or None for anything else."""
        if isinstance(value, Submitted):
            return value.__name__
        if not callable(value):
            return None
        self._theirs.append(value)
        return len(self._theirs) - 1

    def answer(self, number: int, values: list) -> Any:
        """Call the check's callable of this number, for a sandbox, and return its value."""
        if not 0 <= number < len(self._theirs):
            raise ValueError(f"expected the number of a callable, from 0 to {len(self._theirs) - 1}, got {number}")
        return self._theirs[number](*values)


class SandboxArena(Arena):
    """An arena that runs the functions that `cells` make. `incidents` are the timeouts and crashes so far.

    `changed` are objects of this package that changed in a process of the submission; in each run one rank, drawn from the
    seed, looks for them.
    """

    def __init__(
        self, sandbox: Sandbox, meter: Meter, cells: Cells, seed: int, draws: random.Random | None = None
    ) -> None:
        self._sandbox = sandbox
        self._meter = meter
        self._cells = cells
        self._seed = seed
        self.draws = draws or random.Random(secrets.randbits(62))
        self.incidents: list[Incident] = []
        self.changed: set[str] = set()
        self._runs = 0
        self._secret = hashlib.blake2b(repr(self.draws.getstate()).encode()).hexdigest()  # derives from the draws' seed

        for title, source, *unseen in cells:  # tracebacks show the cells' lines, but none of a reference
            file = f"<{title}>"
            linecache.cache[file] = (len(source), None, [] if unseen else source.splitlines(True), file)

    @override
    def run(self, trial: Trial) -> ArenaResult:
        if trial.way == "call":
            return self._called(trial)
        if trial.way == "tensorflow":
            return self._in_tensorflow(trial)
        if trial.way == "saves" and self._sandbox.mode != UNSAFE:  # no warden there, and the row says so
            return self._saves(trial)
        return self._on_ranks(trial)

    def _called(self, trial: Trial) -> ArenaResult:
        theirs = FromAfar()
        job = self._job("call", 0, 1, [trial.fn, *trial.inputs], theirs.name_of)
        result = self._run([job], alone=FUNCTIONS_PROCESS, answer_call=theirs.answer)

        if result.state != "done":
            return ArenaResult(result.state, result.message, failure=result.failure)
        told = result.values[0]
        return ArenaResult("done", returned=(told.get("returned"),), inputs=tuple(told.get("input") or ()))

    def _on_ranks(self, trial: Trial) -> ArenaResult:
        mode: JobMode = "group" if trial.way == "group" else "ranks"
        n = len(trial.inputs)
        players = {}
        jobs: list[RankJob] = []
        for rank, x in enumerate(trial.inputs):
            own = [x, *of_rank(trial.more, rank)]
            if rank in trial.played:
                players[rank] = functools.partial(play, trial.played[rank], rank, n, own)
                jobs.append(({}, b""))
            else:
                jobs.append(self._job(mode, rank, n, [trial.fn, *own], driver=trial.driver))
        return _ended(self._run(jobs, link=trial.link, played=players, together=mode == "group"))

    def _in_tensorflow(self, trial: Trial) -> ArenaResult:
        tasks, n = trial.tasks, len(trial.inputs)
        way: dict[str, Any] = {
            "logical_devices": tasks.logical_devices, "legacy_keras": tasks.legacy_keras, "servers": tasks.servers,
            "cluster": None, "spec": {}, "driver": trial.driver,
        }  # fmt: skip
        names = tasks.names()
        if tasks.cluster:
            way["cluster"] = tasks.cluster.counts()
            way["spec"] = tasks.cluster.spec([str(rank) for rank in range(n)])  # addresses are known inside only
        if trial.fn is None:
            way["cells"] = []

        theirs = FromAfar()
        jobs = []
        for rank, x in enumerate(trial.inputs):
            task = names[rank] if names else ""
            args = [trial.fn, x, *trial.more]
            jobs.append(self._job("tensorflow", rank, n, args, theirs.name_of, task=task, **way))
        return _ended(self._run(jobs, together=True, framework="tensorflow", tasks=names, answer_call=theirs.answer))

    def _saves(self, trial: Trial) -> ArenaResult:
        """Watch writers from outside; what only an answer's own process can note is noted in a rank, by the check's driver."""
        (scenarios,) = trial.inputs
        noted = [scenario for scenario in scenarios if killed_writer.is_noted(scenario)]
        watched = [scenario for scenario in scenarios if not killed_writer.is_noted(scenario)]
        if not watched:
            return self._on_ranks(trial)

        seen = self._watched_saves(trial.fn, watched)
        if seen.state != "done" or not noted:
            return seen
        noted_result = self._on_ranks(replace(trial, inputs=(noted,)))
        if noted_result.state != "done":
            return noted_result

        noted_rows = noted_result.returned[0]
        if not isinstance(noted_rows, (list, tuple)):
            noted_rows = ()  # a submission may tell anything
        rows_of = {True: iter(noted_rows), False: iter(seen.returned[0])}
        rows = [next(rows_of[killed_writer.is_noted(scenario)], None) for scenario in scenarios]
        return replace(seen, returned=(rows,))

    def _watched_saves(self, fn: Callable | None, scenarios: list[dict[str, Any]]) -> ArenaResult:
        assert fn is not None
        blob = bytearray()
        job = {
            "seed": self._seed, "run": self._runs, "cells": self._cells, "function": fn.__name__,
            "scenarios": encode(scenarios, blob),
        }  # fmt: skip
        ended = _ended(self._run([(job, blob)], watched=True))
        rows = ended.returned[0] if ended.returned else None
        if isinstance(rows, dict):
            raise SandboxLost(f"the grader cannot watch a writer here: {rows.get('unseen')}")
        return ended

    def try_cells(self) -> RunResult:
        """Run the cells alone; report which failed, or in which of them the process ended."""
        return self._run([self._job("cells", 0, 1, [])], alone="the process")

    def _job(
        self, mode: JobMode, rank: int, n: int, args: list,
        name_of: Callable[[Any], Any] = lambda value: getattr(value, "__name__", None), driver: Callable | None = None,
        **way: Any,
    ) -> RankJob:  # fmt: skip
        blob = bytearray()
        job = {
            "mode": mode, "rank": rank, "world_size": n, "seed": self._seed, "run": self._runs,
            "cells": self._cells, "args": encode(args, blob, name_of), "driver": "", "looks": False, **way,
        }  # fmt: skip
        if driver is not None:  # a sandbox finds the check's driver by its module and name
            job["driver"] = f"{driver.__module__}:{driver.__qualname__}"
        return job, blob

    def _run(self, jobs: list[RankJob], **ways: Any) -> RunResult:
        self._runs += 1
        secret = f"{self._secret} {self._runs}"
        looking, _ = random.Random(secret).choice([job for job in jobs if job[0]])
        looking["looks"] = True
        result = GradedRun(self._sandbox, self._meter, jobs, secret=secret, **ways).go()
        self.changed |= set(result.changed)
        if result.incident:
            self.incidents.append(result.incident)
        return result


def _ended(result: RunResult) -> ArenaResult:
    if result.state != "done":
        return ArenaResult(result.state, result.message, trace=result.trace, waits=result.waits)

    returned, inputs = [], []
    for values in result.values:
        returned.append(values.get("returned"))
        inputs.append(values.get("input"))
    return ArenaResult(
        "done", returned=tuple(returned), inputs=tuple(inputs), trace=result.trace, unwaited=result.unwaited, work=result.work
    )


class LastRunReached(Exception):
    """The end of the arena's run that was asked for; `ended` is its result."""

    def __init__(self, ended: ArenaResult) -> None:
        self.ended = ended


class CountingArena(Arena):
    """An arena that counts the `runs` of `arena`, and notes the `ways` used. Run number `last` raises LastRunReached."""

    def __init__(self, arena: Arena, last: int | None = None) -> None:
        self.draws = arena.draws
        self._arena = arena
        self._last = last
        self.runs = 0
        self.ways: set[Way] = set()
        self._over_fabric: dict[int, int] = {}  # the number of the latest run by its trace's id

    @override
    def run(self, trial: Trial) -> ArenaResult:
        ended = self._arena.run(trial)
        self.runs += 1
        self.ways.add(trial.way)
        if trial.way == "ranks":
            self._over_fabric[id(ended.trace)] = self.runs
        if self.runs == self._last:
            raise LastRunReached(ended)
        return ended

    def run_of(self, verdict: Verdict) -> int:
        """Return the number of the run over the fabric that the verdict shows, which still has its trace; 0 if it has none."""
        return self._over_fabric.get(id(verdict.trace), 0)
