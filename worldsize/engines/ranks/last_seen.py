"""The last known stack of a rank, in a file that outlives its process: a killed process cannot report it.

The rank's watch thread notes the main thread's stack at every tick; `os._exit` and `os.kill` note it when called. A call
that holds Python's lock while it waits, as some of TensorFlow's do, blocks every thread: then a signal makes
`faulthandler`, which needs no lock, write the stack. A kill from outside is known only to the last tick.
"""

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
_DEEPEST = 5000  # frames followed at most
_ANSWER_S = 0.2  # for a process to write its stack after the signal
_ROW = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
STACK_SIGNAL = getattr(signal, "SIGUSR2", None)

Rows = tuple[tuple[str, int, str], ...]  # file, line, function; outermost first


@dataclass
class _Noted:
    """A stack's file and its contents, open only while written: ranks that stay have a file for each order, and most orders end
    before there is anything to note.
    """

    path: Path
    rows: Rows = ()


class LastSeen:
    """The writer's end of a last-seen stack. `below` is a function, as (file, name): only frames it calls are noted."""

    def __init__(self, path: Path, below: tuple[str, str]) -> None:
        self.move_to(path, below)

    def move_to(self, path: Path, below: tuple[str, str]) -> None:
        """Switch to another file for the stack, and to the frames below another function."""
        self._below = below
        self._noted = _Noted(path)

    def seen(self) -> Rows:
        """Return the main thread's stack as seen now, called from another thread; () if it is not below `below`."""
        with collected_later():
            return self._callers(sys._current_frames().get(threading.main_thread().ident))

    def note(self) -> Rows:
        """Write down the main thread's stack, as last seen, if it has changed, and return it."""
        noted = self._noted  # read first, so that a stack never goes into a later order's file
        seen = self.seen()
        self._write(seen, noted)
        return seen

    def _write(self, seen: Rows, noted: _Noted) -> None:
        if seen and seen != noted.rows:
            noted.rows = seen
            with suppress(OSError):  # a full disk loses the note, not the rank
                file = os.open(noted.path, os.O_WRONLY | os.O_CREAT, 0o600)
                try:
                    os.pwrite(file, pickle.dumps(seen), 0)  # a pickle ends itself: leftovers of a longer one are ignored
                finally:
                    os.close(file)

    def _callers(self, frame: FrameType | None) -> Rows:
        """Return `frame` and its callers down to `below`; both ends only of a deep recursion."""
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
        """Note the stack whenever this process, but not a child of it, calls `os._exit` or `os.kill`."""
        os._exit = self._noting(os._exit)
        os.kill = self._noting(os.kill)

    def _noting(self, leave: Callable) -> Callable:
        own_pid = os.getpid()

        @functools.wraps(leave)
        def noted(*args, **kwargs):
            if os.getpid() == own_pid:
                self._write(self._callers(sys._getframe(1)), self._noted)
            return leave(*args, **kwargs)

        return noted


@contextmanager
def collected_later() -> Iterator[None]:
    """Look at other threads' frames in this block without garbage collection.

    Python 3.11 may collect garbage while it makes a frame object. A finalizer that releases Python's lock, as torch's do, then
    lets the other thread leave that frame, and the write corrupts memory.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def last_seen(path: Path) -> tuple[Frame, ...]:
    """Return the stack that a killed rank noted last, from its file; () if there is none."""
    with suppress(OSError, EOFError, pickle.UnpicklingError):
        return tuple(Frame(*row) for row in pickle.loads(path.read_bytes()))
    return ()


def tell_stack_on_signal(path: Path) -> None:
    """Make `STACK_SIGNAL` write this process's stack to `path`, whatever the process is doing."""
    if STACK_SIGNAL is not None:
        faulthandler.register(STACK_SIGNAL, file=open(path, "w"), all_threads=False)  # noqa: SIM115


def stack_of(pid: int, path: Path, below: tuple[str, str]) -> tuple[Frame, ...]:
    """Return the current stack of process `pid`, asked by `STACK_SIGNAL`; () if it does not answer."""
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
