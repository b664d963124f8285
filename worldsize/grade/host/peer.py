"""A rank as the grader sees it: two pipes that nobody has to wait for, in frames, and how it ended.

Left out: what the frames mean (`broker`, `run`).
"""

from __future__ import annotations

import os
from typing import Any

from worldsize.failures import Failure
from worldsize.grade.frames import Reader, pack
from worldsize.grade.pipes import CHUNK, PipeEnds


class Peer:
    """One rank: its line, what is still to be written to it, what came of its job or how it failed.

    `open` is False once the rank has closed its end: then no more comes from it, and nothing reaches it.
    """

    def __init__(self, rank: int, line: PipeEnds, number: int | None) -> None:
        for descriptor in line:
            os.set_blocking(descriptor, False)
        self.rank = rank
        self.line = line
        self.number = number
        self.read_bytes = 0
        self.result: dict[str, Any] | None = None
        self.failure: Failure | None = None
        self.open = True
        self._closed = False
        self._reader = Reader()
        self._unsent = bytearray()

    @property
    def over(self) -> bool:
        return self.result is not None or self.failure is not None

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    @property
    def frame_bytes(self) -> int:
        """The size of the frame that came last."""
        return self._reader.frame_bytes

    @property
    def kept_bytes(self) -> int:
        """What lies here on its way from or to the rank."""
        return len(self._unsent) + self._reader.kept_bytes

    def answer(self, message: dict[str, Any], blob: bytes | bytearray = b"") -> None:
        """Put a frame on its way; it goes as fast as the rank reads."""
        if self.open:
            self._unsent += pack(message, blob)
            self.write()

    def write(self) -> None:
        sent = 0
        try:
            while sent < len(self._unsent):
                with memoryview(self._unsent) as data:
                    sent += os.write(self.line.writes, data[sent : sent + CHUNK])
        except BlockingIOError:
            pass
        except OSError:  # nobody will read it; what the rank had said before can still be heard
            sent = len(self._unsent)
        del self._unsent[:sent]

    def read(self) -> None:
        """Take in what has come."""
        try:
            data = os.read(self.line.reads, CHUNK)
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
        self._unsent.clear()
        if not self._closed:
            self._closed = True
            self.line.close()
