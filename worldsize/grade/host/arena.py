"""The grader's arena: the same four ways to run a student's function, each in fresh sandboxes, nothing kept between.

A check hands out plain values and gets plain values back; a callable among `call`'s arguments stays here and is called
from afar. Left out: the run itself (`run`).
"""

from __future__ import annotations

import functools
import linecache
import random
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from worldsize.checks.arena import FUNCTIONS_PROCESS, NOBODY, ArenaResult, PlayedRanks, expect_inputs
from worldsize.engines.cluster import Cluster, serving
from worldsize.grade.frames import encode
from worldsize.grade.host.boxes import Sandbox
from worldsize.grade.host.run import GradedRun, RankJob, RunResult, play
from worldsize.grade.isolation.limits import Meter
from worldsize.links import Link

Cells = list[list[str]]  # [[title, source], …]


class Submitted:
    """A function of a submission, by its name; it is never here."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"`{self.__name__}` is a submission's: expected the arena to run it, got a call in the grader")


class SandboxArena:
    """Runs the functions that `cells` make. `incidents` are the timeouts and crashes so far."""

    def __init__(
        self, sandbox: Sandbox, meter: Meter, cells: Cells, seed: int, draws: random.Random | None = None
    ) -> None:
        self._sandbox, self._meter, self._cells, self._seed = sandbox, meter, cells, seed
        self.draws = draws or random.Random(secrets.randbits(62))
        self.incidents: list[str] = []
        self._runs = 0
        for title, source in cells:
            file = f"<{title}>"
            linecache.cache[file] = (len(source), None, source.splitlines(True), file)

    def call(self, fn: Callable, *args: Any) -> ArenaResult:
        theirs: list[Callable] = []

        def name_of(value: Any) -> Any:
            if isinstance(value, Submitted):
                return value.__name__
            if not callable(value):
                return None
            theirs.append(value)
            return len(theirs) - 1

        job = self._job("call", 0, 1, [fn, *args], name_of)
        result = self._run(
            [job], alone=FUNCTIONS_PROCESS, answer_call=lambda number, values: theirs[number](*values)
        )
        if result.state != "done":
            return ArenaResult(result.state, result.message)
        return ArenaResult("done", returned=(result.values[0].get("returned"),))

    def ranks(
        self, fn: Callable, inputs: Sequence[Any], *more: Any, link: Link | None = None, played: PlayedRanks = NOBODY
    ) -> ArenaResult:
        n = len(inputs)
        players = {rank: play(theirs, rank, n, [inputs[rank], *more]) for rank, theirs in played.items()}
        jobs = [({}, b"") if r in players else self._job("ranks", r, n, [fn, x, *more]) for r, x in enumerate(inputs)]
        return _ended(self._run(jobs, link=link, played=players))

    def group(self, fn: Callable, inputs: Sequence[Any], *more: Any) -> ArenaResult:
        n = len(inputs)
        jobs = [self._job("group", rank, n, [fn, x, *more]) for rank, x in enumerate(inputs)]
        return _ended(self._run(jobs, together=True))

    def tensorflow(
        self, fn: Callable, inputs: Sequence[Any], *more: Any, logical_devices: int = 1, cluster: Cluster | None = None,
        servers: Iterable[str] | None = None, legacy_keras: bool = False, driver: Callable | None = None,
    ) -> ArenaResult:  # fmt: skip
        expect_inputs(inputs, cluster)
        way = {
            "logical_devices": logical_devices, "legacy_keras": legacy_keras, "servers": serving(cluster, servers),
            "cluster": cluster.counts() if cluster else None,
            "driver": f"{driver.__module__}:{driver.__qualname__}" if driver else "",
        }  # fmt: skip
        every = [self._job("tensorflow", rank, len(inputs), [fn, x, *more]) for rank, x in enumerate(inputs)]
        jobs = [({**job, **way}, blob) for job, blob in every]
        names = cluster.tasks() if cluster else ()
        return _ended(self._run(jobs, together=True, framework="tensorflow", tasks=names))

    def try_cells(self) -> RunResult:
        """Run the cells alone: which of them failed, and, where the process did not survive, in which it was."""
        return self._run([self._job("cells", 0, 1, [])], alone="the process")

    def _job(self, mode: str, rank: int, n: int, args: list, name_of: Callable[[Any], Any] | None = None) -> RankJob:
        blob = bytearray()
        values = encode(args, blob, name_of or (lambda value: getattr(value, "__name__", None)))
        numbers = {"rank": rank, "world_size": n, "seed": self._seed, "run": self._runs}
        return {"mode": mode, **numbers, "cells": self._cells, "args": values[1:] and values}, blob

    def _run(self, jobs: list[RankJob], **ways: Any) -> RunResult:
        self._runs += 1
        result = GradedRun(self._sandbox, self._meter, jobs, **ways).go()
        if result.incident:
            self.incidents.append(result.incident)
        return result


def _ended(result: RunResult) -> ArenaResult:
    if result.state != "done":
        return ArenaResult(result.state, result.message, trace=result.trace, waits=result.waits)
    returned = tuple(values.get("returned") for values in result.values)
    inputs = tuple(values.get("input") for values in result.values)
    return ArenaResult("done", returned=returned, inputs=inputs, trace=result.trace)


# ---- which run of a check it is ---------------------------------------------------------------


class LastRunReached(Exception):
    """The run that was asked for has ended; `ended` is what came of it."""

    def __init__(self, ended: ArenaResult) -> None:
        self.ended = ended


class CountingArena:
    """`arena`, whose runs so far are `runs`, the latest one `over_fabric` or not. The run number `last` raises LastRunReached."""

    def __init__(self, arena: Any, last: int | None = None) -> None:
        self._arena, self._last = arena, last
        self.runs, self.over_fabric = 0, False

    def __getattr__(self, name: str) -> Any:
        """Whatever the arena has; a call of one of its ways to run a function counts."""
        found = getattr(self._arena, name)
        return functools.partial(self._counted, found) if callable(found) else found

    def _counted(self, way: Callable[..., ArenaResult], *args: Any, **more: Any) -> ArenaResult:
        ended = way(*args, **more)
        self.runs, self.over_fabric = self.runs + 1, way.__name__ == "ranks"
        if self.runs == self._last:
            raise LastRunReached(ended)
        return ended
