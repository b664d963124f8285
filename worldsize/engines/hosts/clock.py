"""How far the monotonic clock of a host is from this machine's, and how well that is known.

By Cristian's method (Probabilistic clock synchronization, 1989, doi 10.1007/BF01784024): of several echoes the one with
the shortest round trip tells most; the host's answer was somewhere within it. Left out: drift within a run (quartz
clocks part by some 20 µs a second at most; each launch measures anew).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_ECHOES = 20


@dataclass(frozen=True)
class ClockOffset:
    """The host's clock is this machine's plus `seconds`, give or take `error_s`."""

    seconds: float = 0.0
    error_s: float = 0.0


def measured(echo: Callable[[], float], echoes: int = _ECHOES) -> ClockOffset:
    """A `ClockOffset` from `echoes` questions; each `echo` returns the host's clock in seconds."""
    best: ClockOffset | None = None
    for _ in range(echoes):
        asked_s = time.monotonic()
        theirs_s = echo()
        round_trip_s = time.monotonic() - asked_s

        if best is None or round_trip_s / 2 < best.error_s:
            best = ClockOffset(seconds=theirs_s - (asked_s + round_trip_s / 2), error_s=round_trip_s / 2)
    return best or ClockOffset()
