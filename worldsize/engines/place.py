"""Where a rank was last seen, in a file that outlives it: a process that is killed cannot say where it was.

The rank's watch notes the place of the main thread at every tick, and a function that leaves by itself, through
`os._exit` or `os.kill`, notes it on the spot. A call that holds Python's lock while it waits, as some of TensorFlow's do,
lets no thread note anything: there a signal makes `faulthandler` write the stack, which needs no lock. Left out: the
exact line at which somebody else killed it.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import pickle
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from worldsize.failures import Frame

_MAX_FRAMES = 64
_ANSWER_S = 0.2
_ROW = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
STACK_SIGNAL = getattr(signal, "SIGUSR2", None)


class Place:
    """The writer's end. `below` is the function, as (file, name), whose callees are of interest."""

    def __init__(self, path: Path, below: tuple[str, str]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        self._below = below
        self._last: tuple = ()

    def note(self, frame: FrameType | None) -> None:
        """Write `frame` and its callers down, where that is news."""
        seen = self._walk(frame)
        if seen and seen != self._last:
            self._last = seen
            os.pwrite(self._file, pickle.dumps(seen), 0)  # what a longer one left behind it is not read

    def _walk(self, frame: FrameType | None) -> tuple[tuple[str, int, str], ...]:
        """The callers of `frame`; empty where they changed meanwhile: a thread that runs on may leave anything there."""
        rows: list[tuple[str, int, str]] = []
        while isinstance(frame, FrameType) and len(rows) < _MAX_FRAMES:
            code = frame.f_code
            if (code.co_filename, code.co_name) == self._below:
                return tuple(reversed(rows))
            rows.append((code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        return tuple(reversed(rows)) if isinstance(frame, FrameType) else ()

    def note_on_leaving(self) -> None:
        """Note the place whenever this process, not a child of it, calls `os._exit` or `os.kill`."""
        os._exit, os.kill = self._noting(os._exit), self._noting(os.kill)  # type: ignore[assignment]

    def _noting(self, leave: Callable) -> Callable:
        own_pid = os.getpid()

        @functools.wraps(leave)
        def noted(*args, **kwargs):
            if os.getpid() == own_pid:
                self.note(sys._getframe(1))
            return leave(*args, **kwargs)

        return noted


def last_seen(path: Path) -> tuple[Frame, ...]:
    """The place that was noted last; () where there is none."""
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
        rows = [(file, int(line), name) for file, line, name in _ROW.findall(path.read_text(errors="replace"))]
        outermost = next((i for i, (file, _, name) in enumerate(rows) if (file, name) == below), None)
        if outermost is not None:
            return tuple(Frame(*row) for row in reversed(rows[:outermost]))
    return ()
