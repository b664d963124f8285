"""A rank's reports while it runs: `report(step=3, loss=0.21)` and `with span("forward"): …`.

Both calls only append to lists of the rank's process, which its connection to the agent empties ten times a second. Outside a
rank both do nothing, so that a function can be tried in the notebook first.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

KINDS = ("compute", "wait")


class ReportBuffer:
    """The store of a rank's reports and spans. Times are seconds since the launch."""

    def __init__(self, origin_s: float) -> None:
        self.origin_s = origin_s
        self.rows: list[dict[str, Any]] = []
        self.spans: list[tuple[str, float, float, str]] = []  # kind, start, end, label
        self.waiting: tuple[str, float] | None = None  # the label and the start of a wait that goes on


_gathering: list[ReportBuffer] = []  # at most one: the rank that this process is


def gather(origin_s: float) -> ReportBuffer:
    """Begin to keep a rank's calls of `report` and `span` in this process, which is a rank."""
    _gathering[:] = [ReportBuffer(origin_s)]
    return _gathering[0]


def launched_s() -> float | None:
    """Return the moment on `time.monotonic` from which a rank's reports and messages count; None outside a rank."""
    return _gathering[0].origin_s if _gathering else None


def report(**values: float) -> None:
    """Report a few numbers to the notebook while a rank runs: `report(step=3, loss=0.21)`.

    `step` is the x axis, the others are curves. `epoch` is the x axis if there is no step. With the totals `steps` or `epochs`,
    the live view shows the rank's progress: `report(step=3, steps=100, loss=0.21)`. Raises ValueError for a value that is not a
    number.
    """
    row = {name: _number(name, value) for name, value in values.items()}
    for gathered in _gathering:
        gathered.rows.append({"t": time.monotonic() - gathered.origin_s, **row})


@contextmanager
def span(label: str, kind: str = "compute") -> Iterator[None]:
    """Record a stretch of a rank's time, to be drawn in the timeline: `with span("forward"): …`."""
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
        value = value.detach()  # PyTorch warns if a loss with a graph becomes a number

    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"report({name}=…): expected a number, got {type(value).__name__}") from None
