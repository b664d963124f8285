"""A rank's channel to the broker: requests and their answers over one line.

The same code serves a submission's rank in its sandbox and a rank that the check plays in the grader. Several threads
of a rank may wait at once: the thread that reads hands the others their answers.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

from worldsize.grade.frames import Reader, framed
from worldsize.grade.pipes import CHUNK, PipeEnds


def write_frame(line: PipeEnds, message: dict[str, Any], blob: Any = b"") -> None:
    """Write a whole frame of the channel to the other side of `line`."""
    left = memoryview(framed(message, blob))
    while left:
        left = left[os.write(line.writes, left) :]


class ChannelLost(ConnectionError):
    """The end of the channel, and of the run for every rank."""


class BrokerChannel:
    """Frames to the broker and back. `is_alone` tells whether no other thread of this rank can send."""

    def __init__(self, line: PipeEnds, is_alone: Callable[[], bool]) -> None:
        self._line = line
        self._is_alone = is_alone
        self._reader = Reader()
        self._writing = threading.Lock()
        self._waking = threading.Condition()
        self._answers: dict[int, tuple[dict, bytes]] = {}
        self._asked = 0
        self._reading = False

    def tell(self, message: dict[str, Any], blob: Any = b"") -> None:
        with self._writing:
            write_frame(self._line, message, blob)

    def ask(self, message: dict[str, Any], blob: Any = b"") -> tuple[dict, bytes]:
        """Send the broker a request, and return the broker's answer when it comes."""
        with self._waking:
            self._asked += 1
            number = self._asked

        self.tell({**message, "ask": number, "alone": self._is_alone()}, blob)
        while True:
            with self._waking:
                while self._reading and number not in self._answers:
                    self._waking.wait()
                if number in self._answers:
                    return self._answers.pop(number)
                self._reading = True

            try:
                answer, content = self.read()
            finally:
                with self._waking:
                    self._reading = False
                    self._waking.notify_all()

            with self._waking:
                self._answers[answer["to"]] = answer, content
                self._waking.notify_all()

    def read(self) -> tuple[dict, bytes]:
        """Return the next frame from the broker. Raises ChannelLost if the line is closed."""
        while (frame := self._reader.next()) is None:
            data = os.read(self._line.reads, CHUNK)
            if not data:
                raise ChannelLost("the run is over")
            self._reader.feed(data)
        return frame
