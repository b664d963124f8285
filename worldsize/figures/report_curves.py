"""The curves of what ranks reported: one panel a name, one line a rank, told apart by colour, dashes and marker.

Left out: smoothing (the curve is what was reported, thinned where there are more points than pixels), and where the
numbers come from (`report`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from worldsize import failures, units
from worldsize.figures import report_series
from worldsize.figures.base import INK, RULE, WIDTH_IN, Picture, colour, headline, marker, not_yet, notice, plain_style
from worldsize.figures.inputs import waits_for
from worldsize.figures.report_series import ReportPoint

MOST_POINTS = 300
MOST_PANELS = 3
MOST_NAMED = 8
MARKERS_A_LINE = 6
DASHES = ("-", (0, (6, 1.5)), (0, (3, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
HEIGHT_IN = 2.5
LEGEND_IN = 1.15
MARGINS = {"left": 0.6 / WIDTH_IN, "bottom": 0.5 / HEIGHT_IN, "top": 1 - 0.32 / HEIGHT_IN, "wspace": 0.33}
FLAT_RATIO = 0.01
PEAK_RATIO = 2

Rows = Sequence[Sequence[dict[str, float]]]


def names(reports: Rows) -> list[str]:
    """For the picture of report curves, its panels: all that some rank reported but steps, epochs and times."""
    return report_series.curve_names(row for rows in reports for row in rows)


def reports(of: Any) -> Picture:
    """The picture of the curves that a run's ranks told with `report(…)`, one line a rank."""
    if waits_for(of):
        return not_yet(waits_for(of))
    return draw(of.reports, of.tasks) if names(of.reports) else notice("nothing was reported")


@plain_style
def draw(reports: Rows, tasks: failures.TaskNames = ()) -> Picture:
    """The picture of report curves: a panel a name, a line a rank, from the rows that each rank reported.

    `reports[rank]` are the rows of a rank; at least one of them holds a curve. `tasks` names the ranks.
    """
    shown = names(reports)[:MOST_PANELS]
    made = Picture(WIDTH_IN, HEIGHT_IN)
    made.set_layout_engine(None)  # half of the time that drawing takes; every run ends with it
    made.subplots_adjust(**MARGINS, right=1 - (LEGEND_IN + 0.15) / WIDTH_IN if len(reports) > 1 else 0.98)
    findings, x_name = [], _x_name(reports)
    for number, name in enumerate(shown):
        ax = made.add_subplot(1, len(shown), number + 1)
        curves = {rank: points for rank, rows in enumerate(reports) if (points := report_series.points(rows, name))}
        _panel(ax, curves, name, x_name, tasks)
        findings.append(finding(curves, name, x_name, tasks))
        headline(ax, findings[-1] if len(shown) == 1 else name)
    if len(reports) > 1:
        _legend(made)
    who = units.count(len(reports), "task" if tasks else "rank")
    made.alt = f"Curves of {who}: {'; '.join(findings)}. {_ends(reports, shown, tasks)}"
    return made


def _panel(ax: Axes, curves: dict[int, list[ReportPoint]], name: str, x_name: str, tasks: failures.TaskNames) -> None:
    for rank, points in curves.items():
        shown = points[:: math.ceil(len(points) / MOST_POINTS)] + points[-1:]
        xs, ys = zip(*((x, math.nan if y is None else y) for x, y in shown), strict=True)
        every = (rank * len(xs) // (2 * MARKERS_A_LINE) // len(curves), max(1, len(xs) // MARKERS_A_LINE))
        ax.plot(
            xs, ys, color=colour(rank), linestyle=DASHES[rank % len(DASHES)], linewidth=1.4, marker=marker(rank),
            markevery=every, markersize=6, markeredgecolor=INK, markeredgewidth=0.5, label=failures.name(rank, tasks),
        )  # fmt: skip
        _lost(ax, points)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.tick_params(colors=INK, labelsize=9, length=0)
    ax.grid(axis="y", color=RULE, linewidth=0.6)
    ax.set_xlabel(x_name, fontsize=9, color=INK)
    ax.set_ylabel(name, fontsize=9, color=INK)
    ax.xaxis.set_major_formatter(lambda value, _: units.number(value))


def _legend(made: Picture) -> None:
    handles, labels = made.axes[0].get_legend_handles_labels()
    if len(labels) > MOST_NAMED:
        handles, labels = (
            handles[:MOST_NAMED],
            [*labels[: MOST_NAMED - 1], f"{labels[MOST_NAMED - 1]} … {labels[-1].split()[-1]}"],
        )
    made.legend(handles, labels, loc="upper right", fontsize=8, frameon=False, handlelength=3.5)


def _lost(ax: Axes, points: list[ReportPoint]) -> None:
    """A cross where a rank's last finite number stands, if a value after it is none."""
    for (x, y), (_, after) in zip(points, points[1:], strict=False):
        if y is not None and after is None:
            ax.plot(x, y, marker="x", markersize=11, markeredgewidth=2.5, color=INK, zorder=5)


def _x_name(reports: Rows) -> str:
    present = {name for rows in reports for row in rows for name in row}
    return next((name for name in report_series.PLACES if name in present), "time since the launch (s)")


def finding(curves: dict[int, list[ReportPoint]], name: str, x_name: str, tasks: failures.TaskNames = ()) -> str:
    """Headline over report curves, what they do in words: where they begin and end, or who met a number that is none.

    A number that is none comes first.
    """
    for rank, points in curves.items():
        lost = next((x for x, y in points if y is None), None)
        if lost is not None:
            at = f"{x_name} {units.number(lost)}" if x_name in report_series.PLACES else units.seconds(lost)
            return f"{name} of {failures.name(rank, tasks)} is no finite number at {at}"
    first, last = (sum(points[i][1] for points in curves.values()) / len(curves) for i in (0, -1))
    peak = sum(max(y for _, y in points) for points in curves.values()) / len(curves)
    if peak > PEAK_RATIO * max(abs(first), abs(last)):
        return f"{name} rises to {units.number(peak)} and ends at {units.number(last)}{_peaks(curves, tasks)}"
    if abs(last - first) <= FLAT_RATIO * abs(first):
        return f"{name} stays at {units.number(last)}{_spread(curves, tasks)}"
    way = "falls" if last < first else "rises"
    return f"{name} {way} from {units.number(first)} to {units.number(last)}{_spread(curves, tasks)}"


def _peaks(curves: dict[int, list[ReportPoint]], tasks: failures.TaskNames) -> str:
    """Which ranks rise least and most."""
    peaks = {rank: max(y for _, y in points) for rank, points in curves.items()}
    low, high = min(peaks, key=peaks.get), max(peaks, key=peaks.get)
    if peaks[low] == peaks[high]:
        return ""
    least, most = failures.name(low, tasks), failures.name(high, tasks)
    return f" ({least} rises to {units.number(peaks[low])}, {most} to {units.number(peaks[high])})"


def _spread(curves: dict[int, list[ReportPoint]], tasks: failures.TaskNames) -> str:
    """How far apart the ranks end."""
    if len(curves) < 2:
        return ""
    ends = {rank: points[-1][1] for rank, points in curves.items()}
    low, high = min(ends, key=ends.get), max(ends, key=ends.get)
    if all(points == next(iter(curves.values())) for points in curves.values()):
        return ", the same on every rank"
    if ends[low] == ends[high]:
        return " on every rank"
    least, most = failures.name(low, tasks), failures.name(high, tasks)
    return f" ({least} lowest {units.number(ends[low])}, {most} highest {units.number(ends[high])})"


def _ends(reports: Rows, names: Sequence[str], tasks: failures.TaskNames) -> str:
    return " ".join(_end(failures.name(rank, tasks), rows, names) for rank, rows in enumerate(reports[:MOST_NAMED]) if rows)


def _end(who: str, rows: Any, names: Sequence[str]) -> str:
    latest = {name: value for row in rows for name, value in row.items()}
    values = ", ".join(f"{name} {units.number(latest[name])}" for name in names if name in latest)
    return f"{who.capitalize()} ends at {values} after {units.count(len(rows), 'report')}."
