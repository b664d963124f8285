"""Signals while ranks take their turns: the real time limit, waits for something outside, and the stop button.

A handler may run between any two instructions, and its exception hits whatever code runs there. A `Watch` therefore raises only
inside a rank's greenlet; the exception leaves it at the line that gave the turn. Between turns the watch keeps the exception, and
`ProcessState.enter` raises it before the next turn. `outcome.py` writes the message.
"""

import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from greenlet import getcurrent

from worldsize.simulate.early_ends import Abandoned

_TICK_S = 0.5  # between two alarms
_SOON_S = 0.002  # until an alarm that came at a bad moment is repeated
_TELLS_AFTER_S = 3.0  # and then after twice as long each time
_STILL_TICKS = 6  # after so many ticks without a turn and without computing, the rank waits for something outside
_IMPORT_S = 30.0  # a broken-off import leaves a half-made package that no later import mends, so the import may end first
_SWALLOWED = ("__del__", "_remove")  # finalizers, and callbacks of weak references
_FINALIZE = weakref.finalize.__call__.__code__

_real_monotonic = time.monotonic


class TimeIsUp(Exception):
    """The watch's real time limit of a simulation has passed."""


class WaitsOutside(RuntimeError):
    """A simulated rank waits for something that is not a message."""


class Turns(Protocol):
    """The world whose turns a watch counts."""

    switches: int

    def progress(self) -> str: ...


class Watch:
    """A watch that ends a simulation if it takes too long, waits outside, or is interrupted; the next turn raises `due`."""

    def __init__(self, world: Turns) -> None:
        self.due: BaseException | None = None
        self._world = world
        self._seen = (0, 0.0, 0.0)
        self._still = 0

    @contextmanager
    def set(self, timeout_s: float) -> Iterator[None]:
        """Watch the turns run inside. Does nothing on Windows and outside the main thread, the only one that gets signals.

        Raises KeyboardInterrupt at the end if the stop button came between turns and was not handled.
        """
        if threading.current_thread() is not threading.main_thread() or os.name == "nt":
            yield
            return

        self._outside = getcurrent()
        self._told = sys.stdout
        self._began_s = self._due_s = _real_monotonic()
        self._ends_s = self._began_s + timeout_s
        self._tells_after_s = _TELLS_AFTER_S

        try:
            with self._interrupts_kept(), self._alarms(), self._nothing_swallowed():
                yield
        finally:
            if self.take_interrupt():
                raise KeyboardInterrupt

    def take_due(self) -> BaseException:
        due, self.due = self.due, None
        return due

    def take_interrupt(self) -> BaseException | None:
        """Return, once, the watch's interrupt that came between turns."""
        return self.take_due() if isinstance(self.due, KeyboardInterrupt) else None

    def keep(self, error: BaseException) -> None:
        """Keep, as the watch, an interrupt that arrived in a turn in which it could not be raised."""
        if isinstance(error, KeyboardInterrupt):
            self.due = error

    @contextmanager
    def _interrupts_kept(self) -> Iterator[None]:
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield  # another handler knows best when to raise
            return

        signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextmanager
    def _alarms(self) -> Iterator[None]:
        before = signal.signal(signal.SIGALRM, self._alarm)
        their_s, their_tick_s = signal.setitimer(signal.ITIMER_REAL, _TICK_S, _TICK_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
            if their_s:
                left_s = their_s - (_real_monotonic() - self._began_s)
                signal.setitimer(signal.ITIMER_REAL, max(left_s, _SOON_S), their_tick_s)

    @contextmanager
    def _nothing_swallowed(self) -> Iterator[None]:
        """Raise again, soon and elsewhere, what was raised in a callback whose exceptions Python only prints."""
        before = sys.unraisablehook

        def again(unraisable: Any) -> None:
            if not isinstance(unraisable.exc_value, (Abandoned, KeyboardInterrupt)):
                before(unraisable)
                return
            self.keep(unraisable.exc_value)
            signal.setitimer(signal.ITIMER_REAL, _SOON_S, _TICK_S)

        sys.unraisablehook = again
        try:
            yield
        finally:
            sys.unraisablehook = before

    def _interrupt(self, _: int, frame: FrameType | None) -> None:
        if getcurrent() is self._outside or any(_inside(frame)):
            self.due = KeyboardInterrupt()
            return  # the next turn raises it, or the next alarm in this turn
        raise KeyboardInterrupt

    def _alarm(self, _: int, frame: FrameType | None) -> None:
        if self.due is None:
            self._due_s = _real_monotonic()

        if not isinstance(self.due, KeyboardInterrupt):
            reason = self._reason()
            if reason is not None:
                self.due = Abandoned(reason)

        if self.due is None or getcurrent() is self._outside:
            return

        swallowed, imports = _inside(frame)
        may_end = imports and _real_monotonic() < self._due_s + _IMPORT_S
        if swallowed or may_end:
            signal.setitimer(signal.ITIMER_REAL, _SOON_S, _TICK_S)  # Python would swallow an exception in a finalizer
            return
        if isinstance(self.due, Abandoned):
            raise Abandoned(self.due.reason)  # `due` stays set: the rank's function may catch this one
        raise self.take_due()

    def _reason(self) -> Exception | None:
        """Return the watch's reason to end the simulation now, or None."""
        queued_s = 0.0  # the seconds that this thread was ready without a core, which only Linux tells
        with suppress(OSError, IndexError, ValueError):
            queued_s = int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
        turns, computed_s, _ = seen = (self._world.switches, time.process_time(), queued_s)
        # a thread that waited for a core half of the tick was starved, not idle
        starved = queued_s - self._seen[2] > 0.5 * _TICK_S
        moved = turns != self._seen[0] or computed_s - self._seen[1] > 0.02 * _TICK_S or starved
        self._still = 0 if moved else self._still + 1
        self._seen = seen

        now_s = _real_monotonic()
        if now_s - self._began_s > self._tells_after_s:
            self._tells_after_s *= 2
            with suppress(OSError, RuntimeError, ValueError):  # the handler may have interrupted a write to the same stream
                self._told.write(f"simulating for {now_s - self._began_s:.0f} s: {self._world.progress()}\n")

        if now_s > self._ends_s:
            return TimeIsUp()
        return WaitsOutside() if self._still >= _STILL_TICKS else None


def _inside(frame: FrameType | None) -> tuple[bool, bool]:
    """Return whether a watched frame is inside a call whose exceptions Python swallows, and whether it is inside an import."""
    swallowed = imports = False
    while frame is not None:
        code = frame.f_code
        swallowed |= code.co_name in _SWALLOWED or code is _FINALIZE
        imports |= code.co_filename == "<frozen importlib._bootstrap>"
        frame = frame.f_back
    return swallowed, imports
