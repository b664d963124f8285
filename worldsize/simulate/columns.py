"""The messages of a simulation in columns: nine numbers per message, and objects only on request.

A run of 1,024 ranks has millions of messages; as `Transfer`s they would take gigabytes. `world.py` fills the columns.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from worldsize.trace import Span, Trace, Transfer

NEVER = float("nan")  # no receiver has taken the message, or its sender has not waited for it


@dataclass
class MessageColumns:
    """Columns with a row per message, in the order in which they were sent. Seconds are on the simulated clock.

    `start_s`: sent; `wait_s`: the sender began to wait for the message; `left_s`: that wait was over; `recv_start_s`: the
    receiver began to wait; `end_s`: wholly received. The last four are NaN until they happen.
    """

    src: array = field(default_factory=lambda: array("i"))
    dst: array = field(default_factory=lambda: array("i"))
    tag: array = field(default_factory=lambda: array("i"))
    size_bytes: array = field(default_factory=lambda: array("q"))
    start_s: array = field(default_factory=lambda: array("d"))
    wait_s: array = field(default_factory=lambda: array("d"))
    left_s: array = field(default_factory=lambda: array("d"))
    recv_start_s: array = field(default_factory=lambda: array("d"))
    end_s: array = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.src)

    def as_arrays(self) -> dict[str, np.ndarray]:
        """Return copies of the columns, {name: numbers [messages]}."""
        return {name: np.array(column) for name, column in vars(self).items()}

    def trace(self, world_size: int, spans: Iterable[Span]) -> Trace:
        """Return a trace as a run of processes has it: a transfer for every message taken, and the spans of both sides."""
        transfers, timeline = [], list(spans)
        rows = zip(*(column.tolist() for column in vars(self).values()), strict=True)
        for src, dst, tag, size_bytes, start_s, wait_s, left_s, recv_start_s, end_s in rows:
            # NaN differs from itself: the sender has not waited
            left_s = start_s if left_s != left_s else left_s
            wait_start_s = None if wait_s != wait_s else wait_s
            timeline.append(Span(src, "send", start_s, left_s, label=f"to rank {dst}", wait_start_s=wait_start_s))

            if end_s == end_s:
                transfers.append(Transfer(src, dst, size_bytes, start_s, end_s, tag, recv_start_s))
                timeline.append(Span(dst, "recv", recv_start_s, end_s, label=f"from rank {src}"))

        transfers.sort(key=lambda t: (t.start_s, t.end_s))
        timeline.sort(key=lambda s: s.start_s)
        return Trace(world_size, tuple(transfers), tuple(timeline))
