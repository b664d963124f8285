"""The wire below a graded rank's fabric: every message is a frame to the broker and back.

`broker_channel.py` carries the frames.
"""

import threading
import time
from typing import Any

import torch

from worldsize.fabric.gloo import CODES, raw
from worldsize.fabric.tensor_kinds import TensorKind, kind_mismatch
from worldsize.fabric.wire import Arrival
from worldsize.grade.frames import MAX_BLOB_BYTES
from worldsize.grade.inside.broker_channel import BrokerChannel

WEIGHED = (torch.float32, torch.float64)  # dtypes of declared work


class _Posted:
    def __init__(self, channel: BrokerChannel, number: int) -> None:
        self._channel, self._number = channel, number

    def wait(self) -> None:
        self._channel.ask({"op": "wait", "post": self._number})


class BrokerWire:
    """A wire that sends every message through the broker, which matches, shapes and records it."""

    def __init__(self, channel: BrokerChannel, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self._channel = channel
        self._posts = 0
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
            self._channel.tell(message, memoryview(raw(x).numpy()))
        return _Posted(self._channel, number)

    def take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        message = {"op": "take", "from": None if frm is None else int(frm), "tag": int(tag), **_kind(out)}
        answer, blob = self._channel.ask(message)

        source = answer["source"]
        if "dtype" in answer:
            expected = TensorKind(CODES[out.dtype], tuple(out.shape))
            got = TensorKind(answer["dtype"], tuple(answer["shape"]))
            raise ValueError(kind_mismatch(self.rank, source, tag, str(expected), str(got)))
        if blob:
            raw(out).copy_(torch.frombuffer(bytearray(blob), dtype=torch.uint8))
        return Arrival(source, out.nbytes, 0.0)

    def compute(self, seconds: float, x: torch.Tensor | None = None) -> torch.Tensor | None:
        """Do a graded rank's declared work, which begins and ends when the broker says so.

        Only then does the broker tell the weights on the columns of `x`, so no rank can skip the wait.
        """
        message: dict[str, Any] = {"op": "compute", "seconds": float(seconds)}
        if x is None or x.dtype not in WEIGHED or not x.dim():
            self._channel.ask(message)
            return x

        _, weights = self._channel.ask({**message, **_kind(x)}, memoryview(raw(x.detach().contiguous()).numpy()))
        return x * torch.frombuffer(bytearray(weights), dtype=torch.float64).to(x.dtype)


def _kind(x: torch.Tensor) -> dict[str, Any]:
    return {"dtype": CODES[x.dtype], "shape": list(x.shape)}
