"""Curves of what ranks reported: one panel a name, one line a rank, told apart by colour, dashes and marker.

Curves are not smoothed, only thinned where there are more points than pixels. `report` records the numbers.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from worldsize import failures, units
from worldsize.figures import base, report_series, tokens
from worldsize.figures.base import Picture
from worldsize.figures.inputs import waits_for
from worldsize.figures.report_series import ReportPoint

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
    return report_series.curve_names(chain(*reports))


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
    x_name = next((place for place in report_series.PLACES if place in reported), "time since the launch (s)")

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
            points = report_series.points(rows, name)
            if points:
                curves[rank] = points

        _panel(ax, curves, name, x_name, tasks)
        findings.append(finding(curves, report_series.label(name), x_name, tasks))
        base.headline(ax, findings[0] if len(shown) == 1 else report_series.label(name))
    if len(reports) > 1:
        _legend(made)

    ends = []
    for rank, rows in enumerate(reports[:MOST_NAMED]):
        if rows:
            latest: dict[str, float] = {}
            for row in rows:
                latest |= row
            values = {report_series.label(name): latest[name] for name in shown if name in latest}
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
    ax.set_ylabel(report_series.label(name), fontsize=tokens.LABEL_PT, color=base.INK)
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
                at = f"{x_name} {units.number(x)}" if x_name in report_series.PLACES else units.seconds(x)
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
    """Say how high the curves rise: the lowest and the highest peak, each with its rank, where they differ."""
    low, high = min(peaks, key=peaks.get), max(peaks, key=peaks.get)
    if peaks[low] == peaks[high]:
        return units.number(peaks[high])

    least, most = failures.name(low, tasks), failures.name(high, tasks)
    return f"{units.number(peaks[low])} on {least}, to {units.number(peaks[high])} on {most},"


def _spread(curves: Curves, ends: Mapping[int, float], tasks: failures.TaskNames) -> str:
    """Say how far apart the ranks end."""
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
