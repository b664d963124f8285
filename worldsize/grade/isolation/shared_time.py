"""Time that a run lost to whatever else runs on the machine: a limit in seconds shall not judge the machine's load.

The kernel says of every thread how long it was ready and did not run (`/proc/PID/task/TID/schedstat`, the second number,
in ns), and of the machine how long its processors were busy (`/proc/stat`). A run lost no more than its longest waiting
thread waited, and no more than the others' work took, spread over all processors. Where the kernel does not say, nothing
was lost.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from worldsize.grade.isolation.limits import MOST, descendants, usage

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = slice(1, 4)  # user, nice, system
_LOOK_S = 0.5


class SharedTime:
    """Begins with a run whose processes are new: what their threads waited is this run's."""

    def __init__(self) -> None:
        self._began_s = self._looked_s = time.monotonic()
        self._busy_s = _busy_s()
        self._thread = threading.get_native_id()
        self._waited_s = _waited_s(os.getpid(), self._thread)
        self._theirs_s = 0.0

    def look(self, servers: Sequence[int], now_s: float) -> None:
        """From time to time: what ranks waited that have ended, nobody knows any more."""
        if now_s >= self._looked_s + _LOOK_S:
            self._looked_s = now_s
            theirs = [_longest_wait_s(process) for server in servers for process in descendants(server)]
            self._theirs_s = max([self._theirs_s, *theirs])

    def lost_s(self, servers: Sequence[int]) -> float:
        """Seconds that the run below `servers` lost so far, also those in which the thread that serves it waited."""
        self.look(servers, self._looked_s + _LOOK_S)
        ours = _waited_s(os.getpid(), self._thread) - self._waited_s
        others_s = _busy_s() - self._busy_s - sum(usage(server).cpu_s for server in servers)
        return max(0.0, min(ours + self._theirs_s, others_s / (os.cpu_count() or 1)))

    def deadline_s(self, limit_s: float, servers: Sequence[int]) -> float:
        """When a run is over that may take `limit_s` of a machine of its own, on the clock of `time.monotonic`."""
        return self._began_s + min(limit_s + self.lost_s(servers), MOST * limit_s)


class Patience:
    """How long somebody waits for a process: `limit_s` of a machine of its own, and `more_s` besides."""

    def __init__(self, limit_s: float, more_s: float) -> None:
        self._began_s = time.monotonic()
        self._busy_s = _busy_s()
        self._limit_s, self._more_s = limit_s, more_s

    def left_s(self) -> float:
        """It ends sooner where the machine has nothing else to do."""
        busy_s = (_busy_s() - self._busy_s) / (os.cpu_count() or 1)
        limit_s = min(self._limit_s + busy_s, MOST * self._limit_s)
        return self._began_s + limit_s + self._more_s - time.monotonic()


def _longest_wait_s(process: int) -> float:
    try:
        threads = os.listdir(_PROC / str(process) / "task")
    except OSError:
        return 0.0
    return max((_waited_s(process, int(thread)) for thread in threads), default=0.0)


def _waited_s(process: int, thread: int) -> float:
    try:
        return int((_PROC / str(process) / "task" / str(thread) / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _busy_s() -> float:
    """Of all processors together, since the machine began."""
    try:
        with open(_PROC / "stat") as file:
            return sum(map(int, file.readline().split()[_BUSY])) / _TICKS
    except (OSError, ValueError):
        return 0.0
