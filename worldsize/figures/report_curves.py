"""Curves of what ranks reported: one panel a name, one line a rank, with the ranks' names at the lines' ends.

Up to four ranks are told apart by colour, dashes and marker. Of more ranks the lines are pale; their mean stands out, and
the ranks that end lowest and highest. Curves are not smoothed, only thinned where there are more points than pixels.
`step` is the x axis, else `epoch`, else the time; `steps` and `epochs` are totals for progress; every other name is a
curve. `report` records the numbers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation

from worldsize import failures, units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import charts
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
MOST_OWN = 4  # ranks whose lines all stand out
LEFT_IN, NAME_IN, GAP_IN = 0.6, 0.75, 0.55  # left of the panels, right of each for the names, between panels for the numbers
BOTTOM, TOP = 0.5 / HEIGHT_IN, 1 - 0.32 / HEIGHT_IN
LINE_HEIGHT = 1.3  # times the size of a name's letters: the least distance between two names
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
def draw(reports: Rows, tasks: failures.TaskNames = (), failed: int | None = None) -> Picture:
    """Draw a panel for each name and a line for each rank, from the rows that the ranks reported.

    `reports[rank]` are the rows of a rank; at least one of them holds a curve. `tasks` names the ranks. A rank that `failed`
    first is in the title, and its curve ends with a cross.
    """
    shown = names(reports)[:MOST_PANELS]
    reported = set().union(*chain(*reports))
    x_name = next((place for place in PLACES if place in reported), "time since the launch (s)")

    made = Picture(base.WIDTH_IN, HEIGHT_IN)
    made.set_layout_engine(None)  # layout would take half of the drawing time, and every run ends with this picture
    gaps_in = NAME_IN + GAP_IN
    panel_in = (base.WIDTH_IN - LEFT_IN - len(shown) * NAME_IN - (len(shown) - 1) * GAP_IN) / len(shown)
    made.subplots_adjust(
        LEFT_IN / base.WIDTH_IN, BOTTOM, 1 - NAME_IN / base.WIDTH_IN, TOP, wspace=gaps_in / panel_in,
    )  # fmt: skip

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
        words = finding(curves, label(name), x_name, tasks, "brief" if len(shown) > 1 else "title")
        if failed is not None:
            _cross(ax, curves.get(failed, ()))
            words = label(name)
            if number == 1:
                words = findings[0] = broken_off(failed, curves, x_name, tasks)
        base.headline(ax, words)

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
    every = list(curves.values())
    if len(every) > 1 and every.count(every[0]) == len(every):
        everybody = failures.names(list(curves), tasks) if len(curves) < MOST_OWN else f"all {len(curves)}"
        ends = [_line(ax, every[0], everybody, base.INK, "-", "")]
    elif len(curves) <= MOST_OWN:
        ends = []
        for rank, curve in curves.items():
            dashes = DASHES[rank % len(DASHES)]
            ends.append(_line(ax, curve, failures.name(rank, tasks), base.colour(rank), dashes, base.marker(rank)))
    else:
        ends = _many(ax, curves, tasks)

    for curve in every:
        for (x, y), (_, after) in pairwise(curve):
            if y is not None and after is None:  # the last finite number
                ax.plot(x, y, marker="x", markersize=11, markeredgewidth=2.5, color=base.INK, zorder=5)

    base.unframe(ax, "top", "right")
    ax.tick_params(colors=base.INK, labelsize=9, length=0)
    ax.grid(axis="y", color=base.RULE, linewidth=tokens.HAIR_PT)
    ax.set_xlabel(x_name, fontsize=tokens.LABEL_PT, color=base.INK)
    ax.set_ylabel(label(name), fontsize=tokens.LABEL_PT, color=base.INK)
    ax.xaxis.set_major_formatter(lambda value, _: units.number(value))
    if len(curves) > 1:
        _name_ends(ax, [each for each in ends if each is not None])


def _line(ax: Axes, curve: Sequence[ReportPoint], name: str, tone: str, dashes: Any, marker: str) -> charts.End | None:
    """Draw a rank's reported curve, thinned to the width of the panel, and return its end."""
    shown = [*curve[:: math.ceil(len(curve) / MOST_POINTS)], *curve[-1:]]
    xs, ys = np.array(shown, float).T  # None becomes NaN
    # marks from the left to the right of a curve, at other places on each rank's
    place = len(ax.lines) * len(xs) // (2 * MARKERS_A_LINE) // MOST_OWN
    ax.plot(
        xs, ys, color=tone, linestyle=dashes, linewidth=tokens.LINE_PT, marker=marker,
        markevery=(place, max(1, len(xs) // MARKERS_A_LINE)), markersize=6, markeredgecolor=base.INK, markeredgewidth=0.5,
        label=name,
    )  # fmt: skip
    return charts.end(xs.tolist(), ys.tolist(), name, tone)


def _many(ax: Axes, curves: Curves, tasks: failures.TaskNames) -> list[charts.End | None]:
    """Draw the reported curves of many ranks: pale ones, the lowest and the highest at the end in their colour, and the mean."""
    last = {rank: y for rank, curve in curves.items() for _, y in curve if y is not None}
    extremes = [min(last, key=last.get), max(last, key=last.get)] if last else []
    for rank, curve in curves.items():
        if rank not in extremes:
            shown = [*curve[:: math.ceil(len(curve) / MOST_POINTS)], *curve[-1:]]
            xs, ys = np.array(shown, float).T
            ax.plot(xs, ys, color=base.RULE, linewidth=tokens.HAIR_PT, label=failures.name(rank, tasks))

    ends = [
        _line(ax, curves[rank], failures.name(rank, tasks), base.colour(rank), DASHES[1], base.marker(rank))
        for rank in dict.fromkeys(extremes)
    ]
    middle = mean(curves)
    if len(middle) > 1:
        ends.append(_line(ax, middle, "mean", base.INK, "-", ""))
        ax.lines[-1].set(linewidth=tokens.STRONG_PT, zorder=4)
    return ends


def mean(curves: Curves) -> list[ReportPoint]:
    """Return the mean of reported curves at each x for which every rank has a finite number."""
    ys: dict[float, list[float]] = {}
    for curve in curves.values():
        for x, y in dict(curve).items():
            if y is not None:
                ys.setdefault(x, []).append(y)
    return [(x, sum(there) / len(there)) for x, there in sorted(ys.items()) if len(there) == len(curves)]


def _name_ends(ax: Axes, ends: Sequence[charts.End]) -> None:
    """Write the names of a panel's lines right of it, each at the height of its line's end, or moved so that none overlap."""
    shift = ScaledTranslation(11 / 72, 0, ax.figure.dpi_scale_trans)
    ax.get_ylim()  # only now do the limits fit the lines
    axes, pitch = ax.get_window_extent(), LINE_HEIGHT * tokens.LABEL_PT / 72 * ax.figure.dpi
    tall, heights, lowest = axes.height, {}, -math.inf
    for each in sorted(ends, key=lambda each: each.y):
        wanted = ax.transData.transform((each.x, each.y))[1] - axes.y0
        heights[each] = lowest = max(wanted, lowest + pitch)
    above = max(0.0, max(heights.values(), default=0.0) - tall)  # names that stand on each other may rise over the panel
    looks = {line.get_label(): line for line in ax.lines}
    beside = {"xycoords": "axes fraction", "va": "center", "fontsize": tokens.LABEL_PT, "annotation_clip": False}
    for each, height in heights.items():
        place = (height - above) / tall
        marker = looks[each.name].get_marker()
        if marker:
            look = {"edgecolors": base.INK, "linewidths": 0.5, "clip_on": False}
            ax.scatter(1, place, 36, each.tone, marker=marker, transform=ax.transAxes + shift, **look)
        ax.annotate(each.name, (1, place), (18 if marker else 9, 0), textcoords="offset points", color=base.INK, **beside)


def _cross(ax: Axes, curve: Sequence[ReportPoint]) -> None:
    """Mark the end of the curve of a rank that failed."""
    points = [point for point in curve if point[1] is not None]
    if points:
        ax.plot(*points[-1], marker="X", markersize=10, color=tokens.BAD.light, markeredgecolor=base.PAPER, zorder=6)


def broken_off(failed: int, curves: Curves, x_name: str, tasks: failures.TaskNames = ()) -> str:
    """Return the headline of curves whose run broke off: "Rank 2 failed after step 14"."""
    who = failures.name(failed, tasks)
    words = f"{who[:1].upper()}{who[1:]} failed"
    if not curves.get(failed):
        return f"{words} before its first report"
    last = curves[failed][-1][0]
    return f"{words} after {x_name} {units.number(last)}" if x_name in PLACES else f"{words} after {units.seconds(last)}"


def finding(
    curves: Curves, name: str, x_name: str, tasks: failures.TaskNames = (), told: Literal["all", "title", "brief"] = "all"
) -> str:
    """Return what a panel's curves do: where they begin and end, or which rank first met a number that is not finite.

    A number that is not finite comes first. A "title" leaves out the ranks that end lowest and highest, whose names stand at
    their lines; a "brief" one, with other panels beside it, says the end alone.
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
        highest = units.number(max(peaks.values())) if told == "brief" else _peaks(peaks, tasks)
        return f"{name} rises to {highest} and ends at {units.number(last)}"

    spread = {"all": _spread(curves, ends, tasks), "title": _average(curves, ends), "brief": ""}[told]
    if abs(last - first) <= FLAT_RATIO * abs(first):
        return f"{name} stays at {units.number(last)}{spread}"
    way = "falls" if last < first else "rises"
    begin = "" if told == "brief" else f" from {units.number(first)}"
    return f"{name} {way}{begin} to {units.number(last)}{spread}"


def _peaks(peaks: Mapping[int, float], tasks: failures.TaskNames) -> str:
    """Say how high the reported curves rise: the lowest and the highest peak, each with its rank, where they differ."""
    low, high = min(peaks, key=peaks.get), max(peaks, key=peaks.get)
    if peaks[low] == peaks[high]:
        return units.number(peaks[high])

    least, most = failures.name(low, tasks), failures.name(high, tasks)
    return f"{units.number(peaks[low])} on {least}, to {units.number(peaks[high])} on {most},"


def _average(curves: Curves, ends: Mapping[int, float]) -> str:
    """Say of the reported curves' end whether it is a mean, where the ranks' curves are not one line."""
    every = list(curves.values())
    if every.count(every[0]) == len(every):
        return ""
    return " on every rank" if len(set(ends.values())) == 1 else " on average"


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
