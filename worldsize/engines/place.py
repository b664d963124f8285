"""Where a rank was last seen, in a file that outlives it: a process that is killed cannot say where it was.

The rank's watch notes the place of the main thread at every tick, and a function that leaves by itself, through
`os._exit` or `os.kill`, notes it on the spot. Left out: the exact line at which somebody else killed it.
"""

from __future__ import annotations

import functools
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from worldsize.failures import Frame

_MAX_FRAMES = 64


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
        rows: list[tuple[str, int, str]] = []
        while frame is not None and len(rows) < _MAX_FRAMES:
            code = frame.f_code
            if (code.co_filename, code.co_name) == self._below:
                return tuple(reversed(rows))
            rows.append((code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        return tuple(reversed(rows)) if frame is not None else ()

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
