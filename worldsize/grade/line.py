"""A rank's line to the broker: requests and their answers over one socket, and the wire that the fabric sees on it.

The same code serves a submission's rank behind its walls and a rank that the check plays in the grader. Several
threads of a rank may wait at once: whoever reads hands the others their answers. Left out: what is true (`broker`).
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from worldsize.fabric import Arrival
from worldsize.grade.frames import MAX_BLOB_BYTES, Reader, pack
from worldsize.wires import CODES, mismatch, raw

_CHUNK = 1 << 18


class LineLost(ConnectionError):
    """The run is over for everybody."""


class Line:
    """Frames to the broker and back. `is_alone` says whether no other thread of this rank could send meanwhile."""

    def __init__(self, channel: socket.socket, is_alone: Callable[[], bool]) -> None:
        self._channel, self._is_alone = channel, is_alone
        self._reader = Reader()
        self._writing, self._waking = threading.Lock(), threading.Condition()
        self._answers: dict[int, tuple[dict, bytes]] = {}
        self._asked, self._reading = 0, False

    def tell(self, message: dict[str, Any], blob: Any = b"") -> None:
        with self._writing:
            self._channel.sendall(pack(message, blob))

    def ask(self, message: dict[str, Any], blob: Any = b"") -> tuple[dict, bytes]:
        """The broker's answer, whenever it comes."""
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
            self._read_one()

    def _read_one(self) -> None:
        try:
            answer, blob = self.read()
        finally:
            with self._waking:
                self._reading = False
                self._waking.notify_all()
        with self._waking:
            self._answers[answer["to"]] = answer, blob
            self._waking.notify_all()

    def read(self) -> tuple[dict, bytes]:
        """The next frame. Raises LineLost."""
        while (frame := self._reader.next()) is None:
            data = self._channel.recv(_CHUNK)
            if not data:
                raise LineLost("the run is over")
            self._reader.feed(data)
        return frame


class _Posted:
    def __init__(self, line: Line, number: int) -> None:
        self._line, self._number = line, number

    def wait(self) -> None:
        self._line.ask({"op": "wait", "post": self._number})


class BrokerWire:
    """A wire whose every message goes through the broker, which matches, shapes and records it."""

    def __init__(self, line: Line, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self._line, self._posts = line, 0
        self._numbering = threading.Lock()

    now = staticmethod(time.monotonic)

    def post(self, x: torch.Tensor, to: int, tag: int, stamp_s: float) -> _Posted:
        if x.dtype not in CODES:
            raise ValueError(f"send: expected a plain dtype, got {x.dtype}")
        if x.nbytes > MAX_BLOB_BYTES:
            raise ValueError(f"send: a graded message has at most {MAX_BLOB_BYTES} bytes, got {x.nbytes}")
        with self._numbering:
            self._posts += 1
            number = self._posts
            message = {"op": "post", "post": number, "to": int(to), "tag": int(tag), **_kind(x)}
            self._line.tell(message, memoryview(raw(x).numpy()))
        return _Posted(self._line, number)

    def take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        message = {"op": "take", "from": None if frm is None else int(frm), "tag": int(tag), **_kind(out)}
        answer, blob = self._line.ask(message)
        source = answer["source"]
        if "dtype" in answer:
            kind = [answer["dtype"], len(answer["shape"]), *answer["shape"]]
            raise ValueError(mismatch(kind, out, self.rank, source, tag))
        if blob:
            raw(out).copy_(torch.frombuffer(bytearray(blob), dtype=torch.uint8))
        return Arrival(source, out.nbytes, 0.0)

    def compute(self, seconds: float) -> None:
        self._line.tell({"op": "compute", "seconds": float(seconds)})
        time.sleep(seconds)
        self._line.tell({"op": "computed"})


def _kind(x: torch.Tensor) -> dict[str, Any]:
    return {"dtype": CODES[x.dtype], "shape": list(x.shape)}
