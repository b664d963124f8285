"""The idle limit of a helper that starts ranks: after some minutes without a launch, its memory is worth more than its
speed.

A fork server that has imported a framework holds hundreds of MB; on a server shared by a class, most of them wait for
students who read. `WORLDSIZE_IDLE_MINUTES` sets the limit. `local_engine.py` ends and restarts the helper.
"""

import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any

_VARIABLE = "WORLDSIZE_IDLE_MINUTES"
_USUAL_MIN = 10.0
_NEVER_MIN = 1e7  # longer than a timer can wait, so treated as never


def idle_s() -> float:
    """Return the idle limit in seconds, from `WORLDSIZE_IDLE_MINUTES` (default 10; 0 means never, infinity).

    Raises ValueError if that is no number of minutes.
    """
    setting = os.environ.get(_VARIABLE, "").strip()
    try:
        minutes = float(setting) if setting else _USUAL_MIN
    except ValueError:
        minutes = math.nan

    if not minutes >= 0:
        raise ValueError(f"{_VARIABLE}: expected a number of minutes, or 0 for never, got {setting!r}")
    return minutes * 60 if 0 < minutes < _NEVER_MIN else math.inf


class IdleEnd:
    """Call `end` from a timer thread after `idle_s` seconds without a call of `used`.

    While `at_work` returns True, the idle time starts anew. A single timer serves many launches: when the timer fires, it
    checks how long ago the last launch was.
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
        """Restart the idle time, with a limit of `idle_s` seconds or the last one; infinity never ends."""
        with self._lock:
            self._from_s = self._clock()
            if idle_s is not None:
                self.idle_s = idle_s
            if self._waiting is None or self._from_s + self.idle_s < self._due_s:
                self._wait()

    def stop(self) -> None:
        """Stop counting idle time until the next `used`."""
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
