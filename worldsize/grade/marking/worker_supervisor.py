"""Mark submissions in a worker process, which is replaced when it is lost or full.

A submission whose worker is killed, fails or hangs is tried again, each time in a fresh worker; after `ATTEMPTS` tries
its row is "lost", which is not a mark.
"""

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import msgspec

from worldsize.grade.isolation import cgroups
from worldsize.grade.isolation.bubblewrap import FRESH, UNSAFE
from worldsize.grade.isolation.shared_time import Patience
from worldsize.grade.marking import rows
from worldsize.grade.marking.mark_submission import MarkingOrder, MarkingTask
from worldsize.grade.marking.rows import GradeRow

_START_S, _FRESH_S = 120.0, 900.0  # extra: for a worker's first task; where every rank gets a fresh sandbox
_GRACE_S = 30.0
_LEAVE_S = 2.0  # a sandbox ends shortly after its worker
ATTEMPTS = 3


class WorkerSupervisor:
    """A supervisor of one worker at a time, which is replaced when it has lost a submission or is full."""

    def __init__(self, order: MarkingOrder) -> None:
        self._order = order
        self._worker: Worker | None = None

    def mark(self, task: MarkingTask) -> GradeRow:
        """Return the row of the first attempt that was not lost, or of the last attempt."""
        for attempt in range(1, ATTEMPTS + 1):
            if self._worker is None:
                self._worker = Worker(self._order)
            try:
                made = self._worker.mark(task)
            except WorkerLost as error:
                made = task.row("lost", str(error), self._order.seed, unsafe=self._order.mode == UNSAFE)

            made = replace(made, attempt=attempt)
            if made.state == "lost" or self._worker.is_full:
                self.close()
            if made.state != "lost":
                break
        return made

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None


class WorkerLost(RuntimeError):
    """The end of a worker that gave no row; the message says why, for a person."""


class Worker:
    """This side of a `worker_process`, and the time that a submission may take in it."""

    def __init__(self, order: MarkingOrder) -> None:
        self._wall_s = order.limits.wall_s + order.limits.playing.wall_s
        self._more_s = _GRACE_S
        if order.mode == FRESH:
            self._more_s += _FRESH_S
        self._first = True
        self.is_full = False  # submissions have left too much in its memory

        self._process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-m", "worldsize.grade.marking.worker_process", str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
        self._send(order)

    def mark(self, task: MarkingTask) -> GradeRow:
        """Have the worker mark, and return the task's row. Raises WorkerLost if the process ends or takes too long."""
        more_s = self._more_s
        if self._first:
            more_s += _START_S
            self._first = False
        self._send(task)

        patience = Patience(self._wall_s, more_s)
        heard = bytearray()
        while not heard.endswith(b"\n"):
            left_s = patience.left_s()
            if left_s <= 0:
                own_s = self._wall_s + more_s
                raise WorkerLost(f"the process that marked it made no row in {own_s:g} s of its own machine time")
            if not select.select([self._process.stdout], [], [], left_s)[0]:
                continue

            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                raise WorkerLost("the process that marked it ended before it made a row")
            heard += data

        answer = json.loads(heard)
        self.is_full = answer["full"]
        return rows.from_dict(answer["row"])

    def _send(self, message: MarkingOrder | MarkingTask) -> None:
        """Send the worker a message. The next read notices if the process is gone."""
        with suppress(OSError):
            self._process.stdin.write(json.dumps(msgspec.to_builtins(message)).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End the worker and its sandbox."""
        self._process.kill()
        self._process.wait()
        cgroups.remove_left_behind(_LEAVE_S)
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                stream.close()
