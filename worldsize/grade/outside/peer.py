"""A rank as the grader sees it: two non-blocking pipes of frames, and how the rank ended.

`broker.py` and `sandboxed_run.py` give the frames their meaning.
"""

import os
from typing import Any

from worldsize.failures import Failure
from worldsize.grade.frames import Reader, framed
from worldsize.grade.pipes import CHUNK, PipeEnds


class Peer:
    """A peer of the grader, a rank: its line, the `reader` of its frames, its unsent bytes, and its job's result or failure.

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
        self.unsent = bytearray()
        self.reader = Reader()
        self._closed = False

    @property
    def over(self) -> bool:
        return self.result is not None or self.failure is not None

    @property
    def kept_bytes(self) -> int:
        """Return the bytes held here, on their way from or to the peer."""
        return len(self.unsent) + self.reader.kept_bytes

    def answer(self, message: dict[str, Any], blob: bytes | bytearray = b"") -> None:
        """Queue a frame for this peer, which goes as fast as the rank reads."""
        if self.open:
            self.unsent += framed(message, blob)
            self.write()

    def write(self) -> None:
        sent = 0
        try:
            while sent < len(self.unsent):
                with memoryview(self.unsent) as data:
                    sent += os.write(self.line.writes, data[sent : sent + CHUNK])
        except BlockingIOError:
            pass
        except OSError:  # no reader is left; the rank's earlier frames can still be read
            sent = len(self.unsent)
        del self.unsent[:sent]

    def read(self) -> None:
        """Take in the bytes that have come from the rank, the peer."""
        try:
            data = os.read(self.line.reads, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""

        self.read_bytes += len(data)
        self.reader.feed(data)
        if not data:
            self.open = False

    def close(self) -> None:
        self.open = False
        self.unsent.clear()
        if not self._closed:
            self._closed = True
            self.line.close()
