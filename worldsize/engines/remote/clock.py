"""The offset of a host's monotonic clock from this machine's, and its error bound.

By Cristian's method (Probabilistic clock synchronization, 1989, doi 10.1007/BF01784024): of several echoes the one with
the shortest round trip is the most exact, because the host answered within it. Drift within a run is ignored (quartz
clocks drift apart by some 20 µs a second at most; a launch renews a measurement older than 10 s).
"""

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
    """Return a `ClockOffset` from `echoes` questions; each `echo` returns the host's clock in seconds."""
    best: ClockOffset | None = None
    for _ in range(echoes):
        asked_s = time.monotonic()
        theirs_s = echo()
        round_trip_s = time.monotonic() - asked_s

        if best is None or round_trip_s / 2 < best.error_s:
            best = ClockOffset(seconds=theirs_s - (asked_s + round_trip_s / 2), error_s=round_trip_s / 2)
    return best or ClockOffset()
