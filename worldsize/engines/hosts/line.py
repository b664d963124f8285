"""A line to the other side, head or host: whole messages both ways, which a thread of their own carries.

The one who works waits for a line as for a file descriptor, and never for the network. The carriers are ØMQ's sockets
(`door.py`, `join.py`) and the pipes of a program that ssh started (`pipes.py`). Left out: what messages mean
(`messages.py`).
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable

MAX_MESSAGE_BYTES = 2_000_000
_MOST_WAITING_BYTES = 256_000_000  # that came and were not read: the other side sends faster than anyone works
_EACH_BYTES = 100  # what a message takes here beside its data, so that a million empty ones count too


class LineClosed(OSError):
    """There is no other side any more; the message says why."""


class HostLine:
    """`wake` tells the carrier that there is something to carry, or that the line was closed."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._came: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._going: deque[bytes] = deque()
        self._ended = ""  # why, as the carrier says
        self.closed = False  # by the one who works

        self._readable, self._news = os.pipe()  # holds a byte while there is something to receive

    # ---- for the one who works -------------------------------------------------------------------

    def fileno(self) -> int:
        return self._readable

    def send(self, data: bytes) -> None:
        """Hand a message to the carrier. Raises LineClosed, and ValueError for one that is too long."""
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"expected a message of at most {MAX_MESSAGE_BYTES} bytes, got {len(data)}")
        if self._ended or self.closed:
            raise LineClosed(self._ended or "closed")
        self._going.append(data)
        self._wake()

    def receive(self) -> bytes:
        """The next message, waiting for it. Raises LineClosed when all that came has been received."""
        self.poll(None)
        with self._lock:
            if not self._came:
                raise LineClosed(self._ended)
            data = self._came.popleft()
            self._waiting_bytes -= len(data) + _EACH_BYTES
            if not self._came and not self._ended:
                os.read(self._readable, 1)
        return data

    def poll(self, timeout_s: float | None) -> bool:
        """Whether there is a message, or the end, within that time."""
        ready, _, _ = select.select([self._readable], [], [], timeout_s)
        return bool(ready)

    def close(self) -> None:
        """Hang up, when what was sent has gone."""
        self.closed = True
        self._wake()

    # ---- for the carrier -------------------------------------------------------------------------

    def deliver(self, data: bytes) -> None:
        """A message has come."""
        with self._lock:
            if self._ended:
                return
            quiet = not self._came
            self._came.append(data)
            self._waiting_bytes += len(data) + _EACH_BYTES
            if quiet:
                os.write(self._news, b"!")
        if self._waiting_bytes > _MOST_WAITING_BYTES:
            self.end(f"sent {_MOST_WAITING_BYTES / 1e6:g} MB more than could be read")

    def end(self, why: str) -> None:
        """The other side is gone, or has to go."""
        with self._lock:
            if not self._ended:
                self._ended = why
                if not self._came:
                    os.write(self._news, b"!")  # for good

    @property
    def ended(self) -> bool:
        return bool(self._ended)

    def next_going(self) -> bytes | None:
        """The next message that is to go, which stays the next until it is `gone`."""
        return self._going[0] if self._going else None

    def gone(self) -> None:
        self._going.popleft()
