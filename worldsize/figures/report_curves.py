"""Curves of what ranks reported: one panel a name, one line a rank, told apart by colour, dashes and marker.

Curves are not smoothed, only thinned where there are more points than pixels. `step` is the x axis, else `epoch`, else the time;
`steps` and `epochs` are totals for progress; every other name is a curve. `report` records the numbers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from worldsize import failures, units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame.inputs import waits_for

ReportPoint = tuple[float, float | None]  # y is None where it is not finite

PLACES = ("step", "epoch")  # progress of a rank, not results
TOTALS = {"step": "steps", "epoch": "epochs"}
UNITS = ("s", "ms", "us", "B", "kB", "MB", "GB", "TB")  # after the last underscore of a name
_NO_CURVES = {"t", *PLACES, *TOTALS.values()}


def curve_names(rows: Iterable[dict[str, float]]) -> list[str]:
    """Return the names in a rank's rows that are curves, in the order in which they first came."""
    found: dict[str, None] = {}
    for row in rows:
        found.update(dict.fromkeys(row))
    return [name for name in found if name not in _NO_CURVES]


def label(name: str) -> str:
    """Return a reported name for people: "kept_for_backward_kB" is "kept for backward (kB)", "step_us" is "step (µs)"."""
    words = name.split("_")
    if len(words) < 2 or words[-1] not in UNITS or words[-2] == "per":
        return " ".join(words)
    unit = words[-1].replace("us", "µs")
    return f"{' '.join(words[:-1])} ({unit})"


@dataclass
class Axis:
    """The place of each of a rank's reported rows on the x axis. Steps that begin again are laid end to end."""

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
    axis, curve = Axis(), []
    for row in rows:
        x = axis.x(row)  # for every row: rows without this name move the axis on too
        if name in row:
            curve.append((x, _finite(row[name], 5)))
    return curve


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
    """Return a rank's progress from 0 to 1, where its reports say of how many steps or epochs.

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
    """Round a reported number to as many digits as a screen can show; None for infinity and NaN, which JSON lacks."""
    if not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


MOST_POINTS = 300
MOST_PANELS = 3
MOST_NAMED = 8
MARKERS_A_LINE = 6
DASHES = ("-", (0, (6, 1.5)), (0, (3, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
HEIGHT_IN = 2.5
LEGEND_IN = 1.15
MARGINS = {"left": 0.6 / base.WIDTH_IN, "bottom": 0.5 / HEIGHT_IN, "top": 1 - 0.32 / HEIGHT_IN, "wspace": 0.33}
FLAT_RATIO = 0.01
PEAK_RATIO = 2

Rows = Sequence[Sequence[dict[str, float]]]
Curves = dict[int, list[ReportPoint]]  # by rank


def names(reports: Rows) -> list[str]:
    """Return the panels: all names that a rank reported, except steps, epochs and times."""
    return curve_names(chain(*reports))


def reports(of: Any) -> Picture:
    """Draw the curves that a run's ranks reported with `report(…)`, one line a rank."""
    if waits_for(of):
        return base.not_yet(waits_for(of))
    if not names(of.reports):
        return base.notice("nothing was reported")
    return draw(of.reports, of.tasks)


@base.plain_style
def draw(reports: Rows, tasks: failures.TaskNames = ()) -> Picture:
    """Draw a panel for each name and a line for each rank, from the rows that the ranks reported.

    `reports[rank]` are the rows of a rank; at least one of them holds a curve. `tasks` names the ranks.
    """
    shown = names(reports)[:MOST_PANELS]
    reported = set().union(*chain(*reports))
    x_name = next((place for place in PLACES if place in reported), "time since the launch (s)")

    made = Picture(base.WIDTH_IN, HEIGHT_IN)
    made.set_layout_engine(None)  # layout would take half of the drawing time, and every run ends with this picture
    right = 0.98
    if len(reports) > 1:
        right = 1 - (LEGEND_IN + 0.15) / base.WIDTH_IN
    made.subplots_adjust(**MARGINS, right=right)

    findings = []
    for number, name in enumerate(shown, 1):
        ax = made.add_subplot(1, len(shown), number)
        curves: Curves = {}
        for rank, rows in enumerate(reports):
            line = points(rows, name)
            if line:
                curves[rank] = line

        _panel(ax, curves, name, x_name, tasks)
        findings.append(finding(curves, label(name), x_name, tasks))
        base.headline(ax, findings[0] if len(shown) == 1 else label(name))
    if len(reports) > 1:
        _legend(made)

    ends = []
    for rank, rows in enumerate(reports[:MOST_NAMED]):
        if rows:
            latest: dict[str, float] = {}
            for row in rows:
                latest |= row
            values = {label(name): latest[name] for name in shown if name in latest}
            at = f"{failures.name(rank, tasks).capitalize()} ends at {base.listed(values, units.number)}"
            ends.append(f"{at} after {units.count(len(rows), 'report')}.")
    who = units.count(len(reports), "task" if tasks else "rank")
    made.alt = f"Curves of {who}: {'; '.join(findings)}. {' '.join(ends)}"
    return made


def _panel(ax: Axes, curves: Curves, name: str, x_name: str, tasks: failures.TaskNames) -> None:
    for rank, points in curves.items():
        shown = points[:: math.ceil(len(points) / MOST_POINTS)] + points[-1:]
        xs, ys = np.array(shown, float).T  # None becomes NaN
        every = (rank * len(xs) // (2 * MARKERS_A_LINE) // len(curves), max(1, len(xs) // MARKERS_A_LINE))
        ax.plot(
            xs, ys, color=base.colour(rank), linestyle=DASHES[rank % len(DASHES)], linewidth=tokens.LINE_PT,
            marker=base.marker(rank), markevery=every, markersize=6, markeredgecolor=base.INK, markeredgewidth=0.5,
            label=failures.name(rank, tasks),
        )  # fmt: skip
        for (x, y), (_, after) in pairwise(points):
            if y is not None and after is None:  # the last finite number
                ax.plot(x, y, marker="x", markersize=11, markeredgewidth=2.5, color=base.INK, zorder=5)

    base.unframe(ax, "top", "right")
    ax.tick_params(colors=base.INK, labelsize=9, length=0)
    ax.grid(axis="y", color=base.RULE, linewidth=tokens.HAIR_PT)
    ax.set_xlabel(x_name, fontsize=tokens.LABEL_PT, color=base.INK)
    ax.set_ylabel(label(name), fontsize=tokens.LABEL_PT, color=base.INK)
    ax.xaxis.set_major_formatter(lambda value, _: units.number(value))


def _legend(made: Picture) -> None:
    handles, labels = made.axes[0].get_legend_handles_labels()
    if len(labels) > MOST_NAMED:
        handles = handles[:MOST_NAMED]
        labels = [*labels[: MOST_NAMED - 1], f"{labels[MOST_NAMED - 1]} … {labels[-1]}"]
    made.legend(
        handles, labels, loc="upper right", bbox_to_anchor=(1, MARGINS["top"] + 0.03), fontsize=tokens.SMALL_PT,
        frameon=False, handlelength=3.5,
    )  # fmt: skip


def finding(curves: Curves, name: str, x_name: str, tasks: failures.TaskNames = ()) -> str:
    """Return the headline of a panel: where its curves begin and end, or which rank first met a number that is not finite.

    A number that is not finite comes first.
    """
    for rank, points in curves.items():
        for x, y in points:
            if y is None:
                at = f"{x_name} {units.number(x)}" if x_name in PLACES else units.seconds(x)
                return f"{name} of {failures.name(rank, tasks)} is no finite number at {at}"

    begins, peaks, ends = {}, {}, {}
    for rank, points in curves.items():
        _, ys = zip(*points, strict=True)
        begins[rank], peaks[rank], ends[rank] = ys[0], max(ys), ys[-1]
    first, peak, last = (sum(of_rank.values()) / len(curves) for of_rank in (begins, peaks, ends))

    if peak > PEAK_RATIO * max(abs(first), abs(last)):
        return f"{name} rises to {_peaks(peaks, tasks)} and ends at {units.number(last)}"
    if abs(last - first) <= FLAT_RATIO * abs(first):
        return f"{name} stays at {units.number(last)}{_spread(curves, ends, tasks)}"

    way = "rises"
    if last < first:
        way = "falls"
    return f"{name} {way} from {units.number(first)} to {units.number(last)}{_spread(curves, ends, tasks)}"


def _peaks(peaks: Mapping[int, float], tasks: failures.TaskNames) -> str:
    """Say how high the reported curves rise: the lowest and the highest peak, each with its rank, where they differ."""
    low, high = min(peaks, key=peaks.get), max(peaks, key=peaks.get)
    if peaks[low] == peaks[high]:
        return units.number(peaks[high])

    least, most = failures.name(low, tasks), failures.name(high, tasks)
    return f"{units.number(peaks[low])} on {least}, to {units.number(peaks[high])} on {most},"


def _spread(curves: Curves, ends: Mapping[int, float], tasks: failures.TaskNames) -> str:
    """Say how far apart the ranks' reported curves end."""
    if len(curves) < 2:
        return ""

    every = list(curves.values())
    if every.count(every[0]) == len(every):
        return ", the same on every rank"

    low, high = min(ends, key=ends.get), max(ends, key=ends.get)
    if ends[low] == ends[high]:
        return " on every rank"
    least, most = failures.name(low, tasks), failures.name(high, tasks)
    return f" on average ({least} lowest {units.number(ends[low])}, {most} highest {units.number(ends[high])})"
