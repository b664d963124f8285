"""A small cluster: ranks that train together, are killed at given moments, and restart from their last checkpoint.

`live_day` starts a supervisor, the counterpart of torchrun's agent: a fresh process without torch, so that it forks a rank in a
millisecond. The supervisor kills ranks with SIGKILL, and restarts all ranks when one has died. A step's work is declared (a rank
sleeps); its all-reduce, over sockets through rank 0, is real. Every rank draws its numbers by step and rank, and their sums are
exact, so the weights after a step are the same bits however often ranks were killed. Left out: machines that return late,
failures detected late, and torch.
"""

import json
import math
import mmap
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from worldsize.report import report

Save = Callable[[Path, bytes], None]
_WORK_S, _SAFE_S, _LIFE, _BEGAN_S, _STEPS, _STEPS_S, _SAVES, _SAVES_S = range(8)  # indices of rank 0's figures in shared memory
_NUMBERS = 100  # parameters of the model
_RATE = 0.1
_LOOK_S = 0.05  # at most, between two looks at the plan
_TELL_S = 0.25  # between two lines of news
_APART_S = 0.02  # seconds between two points of a day's course
_LOST = 75  # exit code of a rank that has lost another rank


@dataclass(frozen=True)
class DayPlan:
    """A cluster's day: `day_s` seconds of `ranks` ranks, `step_s` of declared work per step, a save every `steps_between` steps.

    A save holds all ranks up for `save_s` seconds plus its real duration. `failures` are (second, rank). Reports scale the day
    to so many `hours`.
    """

    ranks: int
    day_s: float
    step_s: float
    steps_between: int
    save_s: float
    failures: tuple[tuple[float, int], ...] = ()
    hours: int = 24


def live_day(plan: DayPlan, save: Save) -> dict:
    """Train for a day with live ranks that are killed; `save(path, data)` writes their checkpoint. Reports hours on the way.

    Returns measurements, in seconds: "work_s" kept at the end of the day; "course", the points (second, work kept so far);
    "step_s" of a step; "interval_s" of work between two saves; "save_s" of a save; "restart_s" from a kill to the next first
    step (the median of "restarts_s", the restarts that no other kill disturbed; NaN if there is none). Also "kills", the number
    of killed ranks, and "step" and "weights" of the last checkpoint. Raises RuntimeError if the supervisor fails.
    """
    with tempfile.TemporaryDirectory(prefix="worldsize-day-") as folder:
        path = Path(folder) / "checkpoint"
        save(path, pickle.dumps((0, 0.0, np.zeros(_NUMBERS))))
        return supervised(folder, _Supervisor, plan, path, save)


def supervised(folder: str, supervisor: type, *job: Any) -> dict:
    """Return the result of `supervisor(*job).run()` in a fresh process, which ends with the supervisor's `end()`.

    The supervisor's progress lines are reported. Raises RuntimeError if it fails.
    """
    import cloudpickle  # pickles a notebook's function by value

    module = supervisor.__module__
    (Path(folder) / "plan").write_bytes(cloudpickle.dumps((supervisor, job)))
    command = [sys.executable, "-c", f"import sys; from {__name__} import supervise; supervise(sys.argv[1])", folder]
    paths = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}) as process:
        for line in process.stdout or ():
            report(**json.loads(line))
    if process.returncode:
        raise RuntimeError(f"{module}: the supervisor ended with code {process.returncode}; its output is in this log")
    return pickle.loads((Path(folder) / "result").read_bytes())


def undisturbed(step: int, ranks: int) -> np.ndarray:
    """Return the weights of `live_day` after `step` steps on `ranks` ranks, computed without other processes."""
    weights = np.zeros(_NUMBERS)
    for k in range(step):
        _update(weights, sum(_sample(k, rank) for rank in range(ranks)), ranks)
    return weights


def supervise(folder: str) -> None:
    """Run the plan in `folder` inside the cluster supervisor's process. Write the result there and progress lines to stdout."""
    make, job = pickle.loads((Path(folder) / "plan").read_bytes())
    supervisor = make(*job)
    try:
        result = supervisor.run()
    finally:
        supervisor.end()
    (Path(folder) / "result").write_bytes(pickle.dumps(result))


class _Supervisor:
    """The supervisor of one day's ranks in a cluster: it starts, kills and restarts them."""

    def __init__(self, plan: DayPlan, path: Path, save: Save) -> None:
        self.plan, self.path, self.save = plan, path, save
        self.told = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.float64)  # shared with every process forked from here
        self.life = 0
        self.ranks: list[BaseProcess] = []
        self.restarts_s: list[float] = []
        self.course = [(0.0, 0.0)]
        _sample(0, 0)  # NumPy loads its generators at the first call: once here, or in every rank of every life

    def run(self) -> dict:
        self._start()
        while not self._working():
            self._wait(_LOOK_S)
        dawn_s = time.monotonic()
        coming, told_s = list(self.plan.failures), 0.0
        killed_s, killed_life = math.nan, self.life

        while (now_s := time.monotonic() - dawn_s) < self.plan.day_s:
            if now_s >= self.course[-1][0] + _APART_S:
                self.course.append((now_s, float(self.told[_WORK_S])))
            if now_s >= told_s:
                told_s, hours = now_s + _TELL_S, self.plan.hours / self.plan.day_s
                news = {"step": now_s * hours, "steps": self.plan.hours, "kept": float(self.told[_WORK_S]) * hours}
                print(json.dumps(news), flush=True)

            if self._working() and self.life > killed_life:
                self.restarts_s.append(float(self.told[_BEGAN_S]) - dawn_s - killed_s)
                killed_life = self.life
            if coming and now_s >= coming[0][0]:
                self.ranks[coming.pop(0)[1]].kill()
                killed_s, killed_life = now_s, self.life
            elif not all(rank.is_alive() for rank in self.ranks):
                for number, rank in enumerate(self.ranks):
                    if rank.exitcode not in (None, -signal.SIGKILL, _LOST):
                        code = rank.exitcode
                        raise RuntimeError(f"live_day: rank {number} ended by itself, with code {code}; its error is above")
                self.course += [(now_s, float(self.told[_WORK_S])), (now_s, float(self.told[_SAFE_S]))]
                self.end()
                self._start()

            until_s = self.plan.day_s
            if coming:
                until_s = min(until_s, coming[0][0])
            self._wait(min(_LOOK_S, max(0.0, until_s - now_s)))

        self.course.append((self.plan.day_s, float(self.told[_WORK_S])))
        self.end()  # before the last checkpoint is read
        return self._measured(len(self.plan.failures) - len(coming))

    def _measured(self, kills: int) -> dict:
        figures = self.told
        step_s = float(figures[_STEPS_S] / max(1, figures[_STEPS]))
        step, _, weights = pickle.loads(self.path.read_bytes())
        return {
            "work_s": self.course[-1][1], "course": self.course, "step_s": step_s,
            "interval_s": step_s * self.plan.steps_between,
            "save_s": float(figures[_SAVES_S] / figures[_SAVES]) if figures[_SAVES] else math.nan,
            "restart_s": statistics.median(self.restarts_s) if self.restarts_s else math.nan,
            "restarts_s": self.restarts_s, "kills": kills, "step": step, "weights": weights,
        }  # fmt: skip

    def _working(self) -> bool:
        """Return True once the cluster's ranks of this life have begun their first step."""
        return self.told[_LIFE] == self.life

    def _start(self) -> None:
        self.life += 1
        self.told[_WORK_S] = self.told[_SAFE_S]  # unsaved work is lost
        lines = [socket.socketpair() for _ in range(self.plan.ranks)]  # one pair per rank, between rank 0 and that rank
        fork = multiprocessing.get_context("fork")
        for rank in range(self.plan.ranks):
            own = fork.Process(target=_rank, args=(rank, lines, self), daemon=True)
            own.start()
            self.ranks.append(own)
        for pair in lines:
            for end in pair:
                end.close()

    def _wait(self, at_most_s: float) -> None:
        """Wait until a rank of the cluster has died, at most `at_most_s` seconds."""
        multiprocessing.connection.wait([rank.sentinel for rank in self.ranks], at_most_s)

    def end(self) -> None:
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            rank.join()
        self.ranks.clear()


def _rank(rank: int, lines: list[tuple[socket.socket, socket.socket]], day: _Supervisor) -> None:
    """Train in a rank of the cluster until it is killed or has lost another rank."""
    own = [here for here, _ in lines] if rank == 0 else [lines[rank][1]]
    for pair in lines:
        for end in pair:
            if end not in own:
                end.close()  # so that a line closes when the process at its other end ends

    plan, figures = day.plan, day.told
    step, work_s, weights = pickle.loads(day.path.read_bytes())
    nothing = np.zeros(1)
    _all_reduce(rank, own, nothing)
    if rank == 0:
        figures[_WORK_S] = figures[_SAFE_S] = work_s
        figures[_BEGAN_S], figures[_LIFE] = time.monotonic(), day.life

    while True:
        began_s = time.monotonic()
        total = _sample(step, rank)
        time.sleep(plan.step_s)
        _all_reduce(rank, own, total)
        _update(weights, total, plan.ranks)
        step += 1
        took_s = time.monotonic() - began_s
        work_s += took_s
        if rank == 0:
            figures[_WORK_S] = work_s
            figures[_STEPS] += 1
            figures[_STEPS_S] += took_s

        if step % plan.steps_between == 0:
            began_s = time.monotonic()
            if rank == 0:
                time.sleep(plan.save_s)  # a large checkpoint is safe only once its last byte is written
                day.save(day.path, pickle.dumps((step, work_s, weights)))
                figures[_SAFE_S] = work_s
            _all_reduce(rank, own, nothing)
            if rank == 0:
                figures[_SAVES] += 1
                figures[_SAVES_S] += time.monotonic() - began_s


def _all_reduce(rank: int, lines: list[socket.socket], x: np.ndarray) -> None:
    """Replace x by the sum of all ranks' x, through the cluster's rank 0. Ends this process if another rank is lost."""
    try:
        if rank:
            lines[0].sendall(x.tobytes())
            x[:] = np.frombuffer(exactly(lines[0], x.nbytes), x.dtype)
            return

        for line in lines[1:]:
            x += np.frombuffer(exactly(line, x.nbytes), x.dtype)
        for line in lines[1:]:
            line.sendall(x.tobytes())
    except (OSError, EOFError):
        os._exit(_LOST)  # the supervisor ends and restarts all ranks


def exactly(line: socket.socket, count: int) -> bytes:
    """Return the next `count` bytes from a live rank's socket. Raises EOFError if its other end is gone."""
    data = b""
    while len(data) < count:
        part = line.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _sample(step: int, rank: int) -> np.ndarray:
    """Return a live rank's numbers for a step: eighths, so that the sum over ranks is exact in any order."""
    return np.random.default_rng((step, rank)).integers(-8, 9, _NUMBERS) / 8


def _update(weights: np.ndarray, total: np.ndarray, ranks: int) -> None:
    """Take a live cluster's step of gradient descent on the mean of ½ |weights − sample|²."""
    weights -= _RATE * (weights - total / ranks)
