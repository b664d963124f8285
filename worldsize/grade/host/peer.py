"""A rank as the grader sees it: two non-blocking pipes of frames, and how the rank ended.

`broker.py` and `run.py` give the frames their meaning.
"""

from __future__ import annotations

import os
from typing import Any

from worldsize.engines.plain_values import framed
from worldsize.failures import Failure
from worldsize.grade.frames import Reader
from worldsize.grade.pipes import CHUNK, PipeEnds


class Peer:
    """A rank: its line, its unsent bytes, and its job's result or failure.

    `open` is False once the rank has closed its end: then nothing more comes from it or reaches it.
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
        """Return the size of the last frame."""
        return self._reader.frame_bytes

    @property
    def kept_bytes(self) -> int:
        """Return the bytes held here, on their way from or to the rank."""
        return len(self._unsent) + self._reader.kept_bytes

    def answer(self, message: dict[str, Any], blob: bytes | bytearray = b"") -> None:
        """Queue a frame, which goes as fast as the rank reads."""
        if self.open:
            self._unsent += framed(message, blob)
            self.write()

    def write(self) -> None:
        sent = 0
        try:
            while sent < len(self._unsent):
                with memoryview(self._unsent) as data:
                    sent += os.write(self.line.writes, data[sent : sent + CHUNK])
        except BlockingIOError:
            pass
        except OSError:  # no reader is left; the rank's earlier frames can still be read
            sent = len(self._unsent)
        del self._unsent[:sent]

    def read(self) -> None:
        """Take in the bytes that have come."""
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
        """Return the next whole frame, None if there is none. Raises BadFrame."""
        return self._reader.next()

    def close(self) -> None:
        self.open = False
        self._unsent.clear()
        if not self._closed:
            self._closed = True
            self.line.close()
