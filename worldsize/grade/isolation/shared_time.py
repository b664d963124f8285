"""Time that a run lost to other work on the machine: a limit in seconds must not judge the machine's load.

The kernel tells how long each thread was ready but did not run (`/proc/PID/task/TID/schedstat`, second number, in ns),
and how long the processors were busy (`/proc/stat`). A run lost at most what its longest waiting thread waited, and at
most the others' work spread over all processors; without these files, it lost nothing.
"""

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from worldsize.grade.isolation.limits import MOST, descendants, usage

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = slice(1, 4)  # user, nice, system
_LOOK_S = 0.5


class SharedTime:
    """The time that a run loses, from its beginning, when all its processes are new."""

    def __init__(self) -> None:
        self._began_s = self._looked_s = time.monotonic()
        self._busy_s = _busy_s()
        self._thread = threading.get_native_id()
        self._waited_s = _waited_s(os.getpid(), self._thread)
        self._theirs_s = 0.0

    def look(self, servers: Sequence[int], now_s: float) -> None:
        """Update the longest wait of a rank, every `_LOOK_S` at most: an ended rank's wait can no longer be read."""
        if now_s < self._looked_s + _LOOK_S:
            return

        self._looked_s = now_s
        for process in chain.from_iterable(map(descendants, servers)):
            with suppress(OSError):
                for thread in os.listdir(_PROC / str(process) / "task"):
                    self._theirs_s = max(self._theirs_s, _waited_s(process, int(thread)))

    def lost_s(self, servers: Sequence[int]) -> float:
        """Return the seconds that the run below `servers` lost so far, with the waits of the thread that serves it."""
        self.look(servers, self._looked_s + _LOOK_S)
        ours = _waited_s(os.getpid(), self._thread) - self._waited_s
        others_s = _busy_s() - self._busy_s - usage(servers).cpu_s
        return max(0.0, min(ours + self._theirs_s, others_s / (os.cpu_count() or 1)))

    def deadline_s(self, limit_s: float, servers: Sequence[int]) -> float:
        """Return the end, by `time.monotonic`, of a run that may take `limit_s` of a machine of its own.

        Lost time extends the run to at most `MOST * limit_s`.
        """
        return self._began_s + min(limit_s + self.lost_s(servers), MOST * limit_s)


class Patience:
    """A time limit on a process: `limit_s` of a machine of its own, and `more_s` besides."""

    def __init__(self, limit_s: float, more_s: float) -> None:
        self._began_s = time.monotonic()
        self._busy_s = _busy_s()
        self._limit_s, self._more_s = limit_s, more_s

    def left_s(self) -> float:
        """Return the seconds left; processors that others keep busy extend `limit_s`, up to `MOST` times."""
        busy_s = (_busy_s() - self._busy_s) / (os.cpu_count() or 1)
        limit_s = min(self._limit_s + busy_s, MOST * self._limit_s)
        return self._began_s + limit_s + self._more_s - time.monotonic()


def _waited_s(process: int, thread: int) -> float:
    try:
        return int((_PROC / str(process) / "task" / str(thread) / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _busy_s() -> float:
    """Return the busy seconds of all processors together, with whatever shares them, since boot."""
    try:
        with open(_PROC / "stat") as file:
            return sum(map(int, file.readline().split()[_BUSY])) / _TICKS
    except (OSError, ValueError):
        return 0.0
