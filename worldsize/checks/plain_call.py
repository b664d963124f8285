"""A student's plain function, called in the notebook's own process: with copies of what it is given, for a limited time.

So it ends as it would in a grade, where every call has a process of its own.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from worldsize.arrays import plain

_AGAIN_S = 0.5  # a bare `except:` may have caught the first one


class TimeUp(BaseException):
    """The time of a plain call is over. No `except Exception` of a student's should catch it."""


def call(fn: Callable, args: tuple, limit_s: float) -> Any:
    """A plain call of a student's function with its own copies of `args`: what it returns, plain.

    Raises what the function raises, and TimeUp after `limit_s`.
    """
    copies = [handed_out(value) for value in args]
    with limited(limit_s):
        return plain(fn(*copies))


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
    """End what runs inside with TimeUp after `limit_s`.

    The system tells the main thread alone that time is up; in another thread there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    over = False

    def time_up(number: int, frame: FrameType | None) -> None:
        if not over:
            raise TimeUp

    began_s = time.monotonic()
    handler = signal.signal(signal.SIGALRM, time_up)
    before_s, every_s = signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
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
