"""A student's plain function, called in the notebook's own process: with copies of what it is given, for a limited time.

So it ends as it would in a grade, where every call has a process of its own.
"""

from __future__ import annotations

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

_LOOK_S = 0.25  # and once more so long after a bare `except:` has caught the first one
MOST_IMPORT_S = 120.0  # what imports for longer is taken for a module that never ends
_IMPORTS = "<frozen importlib._bootstrap>"


class TimeUp(BaseException):
    """The time of a plain call is over. No `except Exception` of a student's should catch it."""


def call(fn: Callable, args: tuple, limit_s: float) -> tuple[Any, tuple]:
    """A plain call of a student's function with its own copies of `args`: what it returns, and the copies afterwards, plain.

    Raises what the function raises, and TimeUp after `limit_s`.
    """
    copies = [handed_out(value) for value in args]
    with limited(limit_s):
        returned = plain(fn(*copies))
    return returned, plain(copies)


def handed_out(value: Any) -> Any:
    """A copy of what a check hands to a student's plain function, which may change it as it likes.

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
    if callable(value) and _is_ours(value):
        return _from_afar(value)
    return value


def _is_ours(value: Callable) -> bool:
    """Whether a callable is the check's own, and not a second function of the student's."""
    module = getattr(value, "__module__", None) or ""
    return module.partition(".")[0] == __name__.partition(".")[0]


def _from_afar(theirs: Callable) -> Callable:
    def call(*args: Any) -> Any:
        return handed_out(theirs(*map(plain, args)))

    return call


@contextmanager
def limited(limit_s: float) -> Iterator[None]:
    """End what runs inside with TimeUp after `limit_s`, in which the first import of a library does not count.

    An import is not broken off either: half of a library would spoil every later call in this process. The system tells the
    main thread alone that time is up; in another thread there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    over = False
    outside = sys._getframe(2)  # beyond this generator and the context manager made of it
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
            over = True  # an alarm from here on must not keep the next lines from being done
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if before_s:  # somebody else's alarm goes on where it was
            left_s = before_s - (time.monotonic() - began_s)
            signal.setitimer(signal.ITIMER_REAL, max(left_s, 1e-6), every_s)


def _imports(frame: FrameType | None, outside: FrameType) -> bool:
    """Tell whether the code of `frame` runs because a module is being imported by what `outside` has called."""
    while frame is not None and frame is not outside:
        if frame.f_code.co_filename == _IMPORTS:
            return True
        frame = frame.f_back
    return False
