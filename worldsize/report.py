"""What a rank tells while it runs: `report(step=3, loss=0.21)` and `with span("forward"): …`.

Both only append to lists of the rank's process; its line to the agent carries them away ten times a second. Outside a
rank they do nothing, so that a function can be tried in the notebook first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

KINDS = ("compute", "wait")


class ReportBuffer:
    """Where a rank's reports and spans gather. Times are seconds since the launch."""

    def __init__(self, origin_s: float) -> None:
        self.origin_s = origin_s
        self.rows: list[dict[str, Any]] = []
        self.spans: list[tuple[str, float, float, str]] = []  # kind, start, end, label
        self.waiting: tuple[str, float] | None = None  # the label of a wait that goes on, and since when


_gathering: list[ReportBuffer] = []  # at most one: the rank that this process is


def gather(origin_s: float) -> ReportBuffer:
    """Begin to keep in this process, which is a rank, what `report` and `span` tell."""
    _gathering[:] = [ReportBuffer(origin_s)]
    return _gathering[0]


def launched_s() -> float | None:
    """Return the moment on `time.monotonic` from which a rank's reports and messages count; None outside a rank."""
    return _gathering[0].origin_s if _gathering else None


def report(**values: float) -> None:
    """Tell the notebook a few numbers while a rank runs: `report(step=3, loss=0.21)`.

    `step` is the x axis, the others are curves. `epoch` serves as x axis where there is no step; with `steps` or
    `epochs`, how many there will be, the live view shows how far the rank is: `report(step=3, steps=100,
    loss=0.21)`. Raises ValueError for a value that is not a number.
    """
    row = {name: _number(name, value) for name, value in values.items()}
    for gathered in _gathering:
        gathered.rows.append({"t": time.monotonic() - gathered.origin_s, **row})


@contextmanager
def span(label: str, kind: str = "compute") -> Iterator[None]:
    """A rank reports a stretch of its time, to be drawn in the timeline: `with span("forward"): …`."""
    if kind not in KINDS:
        raise ValueError(f"span({label!r}): expected kind as one of {', '.join(KINDS)}, got {kind!r}")

    start_s = time.monotonic()
    for gathered in _gathering if kind == "wait" else ():
        gathered.waiting = label, start_s - gathered.origin_s
    try:
        yield
    finally:
        for gathered in _gathering:
            zero = gathered.origin_s
            gathered.spans.append((kind, start_s - zero, time.monotonic() - zero, label))
            if kind == "wait":
                gathered.waiting = None


def _number(name: str, value: Any) -> float:
    if hasattr(value, "detach"):
        value = value.detach()  # PyTorch warns where a loss that has its graph becomes a number

    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"report({name}=…): expected a number, got {type(value).__name__}") from None
