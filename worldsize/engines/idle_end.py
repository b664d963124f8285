"""When a helper that starts ranks has had nothing to do for so long that its memory is better given back.

A fork server that has imported a framework holds hundreds of MB. On a server that a class shares, most of them wait for
students who read. `WORLDSIZE_IDLE_MINUTES` says after how many minutes without a launch they end. Left out: what ends, and
how it starts again (`agent_client.py`).
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any

_VARIABLE = "WORLDSIZE_IDLE_MINUTES"
_USUAL_MIN = 10.0
_NEVER_MIN = 1e7  # more than a timer can wait


def idle_s() -> float:
    """Seconds without a launch after which a helper ends, as `WORLDSIZE_IDLE_MINUTES` says: infinite where that is 0.

    Raises ValueError for what is no number of minutes.
    """
    said = os.environ.get(_VARIABLE, "").strip()
    try:
        minutes = float(said) if said else _USUAL_MIN
    except ValueError:
        minutes = math.nan
    if not minutes >= 0:
        raise ValueError(f"{_VARIABLE}: expected a number of minutes, or 0 for never, got {said!r}")
    return minutes * 60 if 0 < minutes < _NEVER_MIN else math.inf


class IdleEnd:
    """Calls `end`, in a thread, once there was nothing to do for as long as the last `used` said.

    `at_work` says whether there is something to do although nobody called `used`. One timer serves many launches: it looks
    how long ago the last one was when it is due.
    """

    def __init__(
        self,
        end: Callable[[], None],
        at_work: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        timer: Callable[[float, Callable[[], None]], Any] = threading.Timer,
    ) -> None:
        self._end, self._at_work = end, at_work
        self._clock, self._timer = clock, timer
        self.idle_s = math.inf
        self._from_s = 0.0
        self._waiting: Any = None
        self._due_s = math.inf
        self._lock = threading.Lock()

    def used(self, idle_s: float | None = None) -> None:
        """Begin to count anew, to `idle_s` seconds or as many as before; infinitely many are never over."""
        with self._lock:
            self._from_s = self._clock()
            if idle_s is not None:
                self.idle_s = idle_s
            if self._waiting is None or self._from_s + self.idle_s < self._due_s:
                self._wait()

    def stop(self) -> None:
        """Count no more until the next `used`."""
        with self._lock:
            self._cancel()

    def _look(self) -> None:
        with self._lock:
            if self._at_work():
                self._from_s = self._clock()
            if self._clock() < self._from_s + self.idle_s:
                self._wait()
                return
            self._cancel()
        self._end()

    def _wait(self) -> None:
        self._cancel()
        if self.idle_s < math.inf:
            self._due_s = self._from_s + self.idle_s
            self._waiting = self._timer(self._due_s - self._clock(), self._look)
            self._waiting.daemon = True
            self._waiting.start()

    def _cancel(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting, self._due_s = None, math.inf
