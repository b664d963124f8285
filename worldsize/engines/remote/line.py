"""A line to the other side, head or host: whole messages both ways, carried by a thread of its own.

The user of a line waits for it as for a file descriptor, never for the network. Carriers are ØMQ sockets (`head_listener.py`,
`host_program.py`) and the pipes of a program that ssh started (`pipes.py`). `host_messages.py` defines the messages.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable

MAX_MESSAGE_BYTES = 2_000_000
_MOST_WAITING_BYTES = 256_000_000  # received and unread; more means that the other side sends too fast
_EACH_BYTES = 100  # overhead of a message, so that a million empty ones count too


class LineClosed(OSError):
    """The line is closed, the other side gone; the message says why."""


class HostLine:
    """A line's two queues. `wake` tells the carrier to send, or that the line was closed."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._came: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._going: deque[bytes] = deque()
        self.ended = ""  # why the other side is gone
        self.closed = False  # by the user

        self._readable, self._news = os.pipe()  # holds a byte while there is something to receive

    # ---- for the user ----------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._readable

    def send(self, data: bytes) -> None:
        """Queue a message for the line's carrier. Raises LineClosed, and ValueError for a message that is too long."""
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"expected a message of at most {MAX_MESSAGE_BYTES} bytes, got {len(data)}")
        if self.ended or self.closed:
            raise LineClosed(self.ended or "closed")
        self._going.append(data)
        self._wake()

    def receive(self) -> bytes:
        """Wait for the line's next message and return it. Raises LineClosed after the last one."""
        self.poll(None)

        with self._lock:
            if not self._came:
                raise LineClosed(self.ended)

            data = self._came.popleft()
            self._waiting_bytes -= len(data) + _EACH_BYTES
            if not self._came and not self.ended:
                os.read(self._readable, 1)
        return data

    def poll(self, timeout_s: float | None) -> bool:
        """Wait at most `timeout_s`; return whether the line has a message, or its end."""
        ready, _, _ = select.select([self._readable], [], [], timeout_s)
        return bool(ready)

    def close(self) -> None:
        """Close the line once all queued messages are sent."""
        self.closed = True
        self._wake()

    # ---- for the carrier -------------------------------------------------------------------------

    def deliver(self, data: bytes) -> None:
        """Queue a received message; end the line if too many are unread."""
        with self._lock:
            if self.ended:
                return
            quiet = not self._came
            self._came.append(data)
            self._waiting_bytes += len(data) + _EACH_BYTES
            if quiet:
                os.write(self._news, b"!")

        if self._waiting_bytes > _MOST_WAITING_BYTES:
            self.end(f"the other side sent {_MOST_WAITING_BYTES / 1e6:g} MB more than could be read")

    def end(self, why: str) -> None:
        """Mark the line's other side as gone, for the reason `why`; the first reason counts."""
        with self._lock:
            if not self.ended:
                self.ended = why
                if not self._came:
                    os.write(self._news, b"!")  # never read: the line stays readable

    def next_going(self) -> bytes | None:
        """Return the line's next message to send, which stays next until `gone` is called."""
        return self._going[0] if self._going else None

    def gone(self) -> None:
        self._going.popleft()
