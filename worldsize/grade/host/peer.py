"""A rank as the grader sees it: a socket that nobody has to wait for, in frames, and how it ended.

Left out: what the frames mean (`broker`, `run`).
"""

from __future__ import annotations

import socket
from typing import Any

from worldsize.failures import Failure
from worldsize.grade.frames import Reader, pack

_CHUNK = 1 << 18
_MOST_UNREAD_BYTES = 300_000_000


class Peer:
    """One rank: its socket, what is still to be written to it, what came of its job or how it failed."""

    def __init__(self, rank: int, channel: socket.socket, number: int | None) -> None:
        channel.setblocking(False)
        self.rank = rank
        self.channel = channel
        self.number = number
        self.read_bytes = 0
        self.result: dict[str, Any] | None = None
        self.failure: Failure | None = None
        self.open = True
        self._reader = Reader()
        self._unsent = bytearray()

    @property
    def over(self) -> bool:
        return self.result is not None or self.failure is not None

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def answer(self, message: dict[str, Any], blob: bytes | bytearray = b"") -> None:
        """Put a frame on its way; it goes as fast as the rank reads."""
        if self.open and len(self._unsent) < _MOST_UNREAD_BYTES:
            self._unsent += pack(message, blob)
            self.write()

    def write(self) -> None:
        try:
            while self._unsent:
                sent = self.channel.send(self._unsent[:_CHUNK])
                del self._unsent[:sent]
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def read(self) -> None:
        """Take in what has come; `open` is False once the rank has closed its end."""
        try:
            data = self.channel.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""

        self.read_bytes += len(data)
        self._reader.feed(data)
        if not data:
            self.open = False

    def frame(self) -> tuple[dict[str, Any], bytes] | None:
        """The next whole frame. Raises BadFrame."""
        return self._reader.next()

    def close(self) -> None:
        self.open = False
        self.channel.close()
