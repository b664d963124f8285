"""Call a student's plain function in the notebook's own process: with copied arguments, for a limited time.

The call ends as it would in a grade, where every call has its own process.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from worldsize.arrays import plain

_LOOK_S = 0.25  # the alarm repeats: a bare `except:` may have caught the first TimeUp
MOST_IMPORT_S = 120.0  # so long after the call began, an import counts against its limit, too
_IMPORTS = "<frozen importlib._bootstrap>"


class TimeUp(BaseException):
    """The end of a plain call's time. A BaseException, so that a student's `except Exception` does not catch it."""


def call(fn: Callable, args: tuple, limit_s: float) -> tuple[Any, tuple]:
    """Call a plain function, `fn`, with its own copies of `args`. Return its value and the copies afterwards, both plain.

    Raises what the function raises, and TimeUp after `limit_s` seconds.
    """
    copies = [handed_out(value) for value in args]
    with limited(limit_s):
        returned = plain(fn(*copies))
    return returned, plain(copies)


def handed_out(value: Any) -> Any:
    """Return a copy of a check's value, which a student's plain function may change freely.

    A callable of the check's own gets plain values, and its value is copied too.
    """
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [handed_out(v) for v in value]
    if isinstance(value, tuple):
        return tuple(handed_out(v) for v in value)
    if isinstance(value, dict):
        return {handed_out(k): handed_out(v) for k, v in value.items()}
    if callable(value):
        module = getattr(value, "__module__", None) or ""
        if module.partition(".")[0] == __name__.partition(".")[0]:  # the check's own, no second function of the student's
            return _from_afar(value)
    return value


def _from_afar(theirs: Callable) -> Callable:
    def call(*args: Any) -> Any:
        return handed_out(theirs(*map(plain, args)))

    call.__qualname__ = call.__name__  # a TypeError quotes it, and a grader's stand-in has the same
    return call


@contextmanager
def limited(limit_s: float) -> Iterator[None]:
    """Raise TimeUp inside after `limit_s` seconds, in which the first import of a library does not count.

    An import is not interrupted either: half a library would break every later call in this process. Signals reach only the
    main thread; another thread has no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    over = False
    outside = sys._getframe(2)  # the caller's frame, beyond this generator and its context manager
    began_s = looked_s = time.monotonic()
    ends_s = began_s + limit_s

    def look(number: int, frame: FrameType | None) -> None:
        nonlocal looked_s, ends_s
        since_s, looked_s = looked_s, time.monotonic()
        if looked_s - began_s < MOST_IMPORT_S and _imports(frame, outside):
            ends_s += looked_s - since_s
        elif looked_s >= ends_s and not over:
            raise TimeUp

    handler = signal.signal(signal.SIGALRM, look)
    before_s, every_s = signal.setitimer(signal.ITIMER_REAL, min(limit_s, _LOOK_S), _LOOK_S)
    try:
        try:
            yield
        finally:
            over = True  # an alarm from here on must not interrupt the clean-up
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if before_s:  # an alarm set before goes on with the time it had left
            left_s = before_s - (time.monotonic() - began_s)
            signal.setitimer(signal.ITIMER_REAL, max(left_s, 1e-6), every_s)


def _imports(frame: FrameType | None, outside: FrameType) -> bool:
    """Return whether `frame`, of a plain call, runs because a module is being imported by code that `outside` has called."""
    while frame not in (None, outside):
        if frame.f_code.co_filename == _IMPORTS:
            return True
        frame = frame.f_back
    return False
