"""Where a rank was last seen, in a file that outlives it: a process that is killed cannot say where it was.

The rank's watch notes the place of the main thread at every tick, and a function that leaves by itself, through
`os._exit` or `os.kill`, notes it on the spot. A call that holds Python's lock while it waits, as some of TensorFlow's do,
lets no thread note anything: there a signal makes `faulthandler` write the stack, which needs no lock. Left out: the
exact line at which somebody else killed it.
"""

from __future__ import annotations

import faulthandler
import functools
import gc
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from worldsize.failures import Frame

_END = 32  # frames kept of either end of a deep recursion
_DEEPEST = 5000
_ANSWER_S = 0.2
_ROW = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
STACK_SIGNAL = getattr(signal, "SIGUSR2", None)

Rows = tuple[tuple[str, int, str], ...]  # file, line, function; outermost first


@dataclass
class _Noted:
    """A file, and what is in it. It is open only while it is written: a rank that stays has one for everything that it does,
    and most of that is over before there is anything to note."""

    path: Path
    rows: Rows = ()


class LastSeen:
    """The writer's end. `below` is the function, as (file, name), whose callees are of interest."""

    def __init__(self, path: Path, below: tuple[str, str]) -> None:
        self._below = below
        self._noted = _Noted(path)

    def move_to(self, path: Path, below: tuple[str, str]) -> None:
        """From now on, write to another file what is below another function."""
        self._below = below
        self._noted = _Noted(path)

    def seen(self) -> Rows:
        """Where the main thread is, asked by another one; () where it is not below `below`."""
        with _no_collection():
            return self._callers(sys._current_frames().get(threading.main_thread().ident or 0))

    def note(self) -> None:
        """Write down where the main thread is, where that is news."""
        noted = self._noted  # before it looks: what is seen is never of a later file
        self._write(self.seen(), noted)

    def _write(self, seen: Rows, noted: _Noted) -> None:
        if seen and seen != noted.rows:
            noted.rows = seen
            with suppress(OSError):  # a full disk costs the place, not the rank
                file = os.open(noted.path, os.O_WRONLY | os.O_CREAT, 0o600)
                try:
                    os.pwrite(file, pickle.dumps(seen), 0)  # what a longer one left behind it is not read
                finally:
                    os.close(file)

    def _callers(self, frame: FrameType | None) -> Rows:
        """`frame` and its callers down to `below`; of a deep recursion both ends."""
        rows: list[tuple[str, int, str]] = []
        while frame is not None and len(rows) < _DEEPEST:
            code = frame.f_code
            if (code.co_filename, code.co_name) == self._below:
                break
            rows.append((code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back

        if frame is None:
            return ()
        if len(rows) > 2 * _END:
            rows = rows[:_END] + rows[-_END:]
        return tuple(reversed(rows))

    def note_on_leaving(self) -> None:
        """Note the place whenever this process, not a child of it, calls `os._exit` or `os.kill`."""
        os._exit = self._noting(os._exit)  # type: ignore[assignment]
        os.kill = self._noting(os.kill)  # type: ignore[assignment]

    def _noting(self, leave: Callable) -> Callable:
        own_pid = os.getpid()

        @functools.wraps(leave)
        def noted(*args, **kwargs):
            if os.getpid() == own_pid:
                self._write(self._callers(sys._getframe(1)), self._noted)
            return leave(*args, **kwargs)

        return noted


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python 3.11 may collect garbage in the midst of making a frame object. A finalizer that gives up Python's lock, as
    torch's do, then lets the other thread leave that frame, and what is written to is no frame any more."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def last_seen(path: Path) -> tuple[Frame, ...]:
    """Where a rank that was killed was last seen, read from its file.

    The place that was noted last; () where there is none.
    """
    with suppress(OSError, EOFError, pickle.UnpicklingError):
        return tuple(Frame(*row) for row in pickle.loads(path.read_bytes()))
    return ()


def tell_stack_on_signal(path: Path) -> None:
    """From now on, `STACK_SIGNAL` writes this process's stack to `path`, whatever it is doing."""
    if STACK_SIGNAL is not None:
        faulthandler.register(STACK_SIGNAL, file=open(path, "w"), all_threads=False)  # noqa: SIM115


def stack_of(pid: int, path: Path, below: tuple[str, str]) -> tuple[Frame, ...]:
    """Where the process `pid`, which tells its stack on a signal, is at this moment; () where it does not say."""
    if STACK_SIGNAL is None or not path.exists():
        return ()

    path.write_text("")
    with suppress(ProcessLookupError):
        os.kill(pid, STACK_SIGNAL)

    until_s = time.monotonic() + _ANSWER_S
    while time.monotonic() < until_s:
        time.sleep(0.01)
        frames: list[Frame] = []
        for file, line, function in _ROW.findall(path.read_text(errors="replace")):
            if (file, function) == below:
                return tuple(reversed(frames))
            frames.append(Frame(file, int(line), function))
    return ()
