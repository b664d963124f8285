"""The rows that a rank reports, as series of points: the x axis, the curves, and how many points are enough.

`step` is the x axis, else `epoch`, else the time; `steps` and `epochs` are totals for progress. Every other name is a
curve.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

ReportPoint = tuple[float, float | None]  # y is None where it is not finite

PLACES = ("step", "epoch")  # progress of a rank, not results
TOTALS = {"step": "steps", "epoch": "epochs"}
UNITS = ("s", "ms", "us", "B", "kB", "MB", "GB")  # after the last underscore of a name
_NO_CURVES = {"t", *PLACES, *TOTALS.values()}


def curve_names(rows: Iterable[dict[str, float]]) -> list[str]:
    """Return the names in a rank's rows that are curves, in the order in which they first came."""
    found: dict[str, None] = {}
    for row in rows:
        found.update(dict.fromkeys(row))
    return [name for name in found if name not in _NO_CURVES]


def label(name: str) -> str:
    """Return a name for people: "kept_for_backward_kB" is "kept for backward (kB)"."""
    words = name.split("_")
    if len(words) < 2 or words[-1] not in UNITS or words[-2] == "per":
        return " ".join(words)
    return f"{' '.join(words[:-1])} ({words[-1]})"


@dataclass
class Axis:
    """The place of each of a rank's rows on the x axis. Steps that begin again are laid end to end."""

    name: str = "time (s)"
    last: float | None = None
    offset: float = 0.0

    def x(self, row: dict[str, float]) -> float:
        given = [name for name in PLACES if math.isfinite(row.get(name, math.nan))]
        if not given and self.last is None:
            return row.get("t", 0.0)
        if not given:
            return self.last

        self.name, place = given[0], row[given[0]]
        if self.last is not None and place + self.offset < self.last:
            self.offset = self.last + 1 - place

        self.last = place + self.offset
        return self.last


def points(rows: Iterable[dict[str, float]], name: str) -> list[ReportPoint]:
    """Return all points (x, y) that one rank's rows give for the curve `name`."""
    axis, found = Axis(), []
    for row in rows:
        x = axis.x(row)  # for every row: rows without this name move the axis on too
        if name in row:
            found.append((x, _finite(row[name], 5)))
    return found


@dataclass
class ReportCurve:
    """A curve while it grows: every `stride`-th point, at most `keep` of them, and always the last point."""

    keep: int
    stride: int = 1
    count: int = 0
    points: list[ReportPoint] = field(default_factory=list)
    last: ReportPoint | None = None
    sent: int = 0

    def add(self, x: float, y: float) -> None:
        self.last = (_finite(x, 7) or 0.0, _finite(y, 5))
        if self.count % self.stride == 0:
            self.points.append(self.last)

        self.count += 1
        if len(self.points) > self.keep:
            # indices change, so the live view has to send all points anew
            self.points, self.stride, self.sent = self.points[::2], 2 * self.stride, 0

    def part(self, start: int) -> dict[str, Any]:
        """Return the points from index `start` on; a reader with earlier points puts these in place of all later ones."""
        shown = self.points[start:]
        if self.last and (self.count - 1) % self.stride:
            shown.append(self.last)

        return {"at": start, "x": [x for x, _ in shown], "y": [y for _, y in shown]}


def share(latest: dict[str, float]) -> float | None:
    """Return a rank's progress from 0 to 1, where its rows say of how many steps or epochs.

    `report(step=3, steps=100)` says so; None where nothing does.
    """
    for name, total in TOTALS.items():
        if name in latest and latest.get(total, 0) > 0:
            part = latest[name] / latest[total]
            if not math.isfinite(part):
                return None
            return round(min(1.0, max(0.0, part)), 3)
    return None


def _finite(value: float, digits: int) -> float | None:
    """Round to as many digits as a screen can show; None for infinity and NaN, which JSON lacks."""
    if not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")
