"""Measured points on predicted curves: how a quantity grows with the world size, or with the size of a message.

A marker is a measurement, a dashed line the formula; each series has its own colour and marker. Left out: fits, which
`cost` makes, and error bars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from worldsize import units
from worldsize.figures.base import INK, QUIET_INK, RULE, Picture, colour, headline, marker, not_yet, plain_style

MeasuredPoint = tuple[float, float | None]  # y is None for an exercise not yet written


@dataclass(frozen=True)
class Curve:
    """One series: what was measured and what a formula says, each as (x, y) points."""

    name: str
    measured: Sequence[MeasuredPoint] = ()
    predicted: Sequence[MeasuredPoint] = ()


@plain_style
def curves(rows: Iterable[Curve], title: str, x: str, y: str, log: bool = False) -> Picture:
    """Measured points on predicted curves; `x` and `y` name the axes, with "(bytes)" or "(s)" for such a unit."""
    rows = tuple(rows)
    if rows and not any(row.predicted or any(b is not None for _, b in row.measured) for row in rows):
        return not_yet(", ".join(row.name for row in rows))
    picture = Picture(8.5, 4.2)
    ax = picture.plot_area()
    for index, row in enumerate(rows):
        _curve(ax, index, row)
    if log:
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_locator(NullLocator())
    else:
        ax.set_ylim(0, 1.06 * ax.get_ylim()[1])  # so that no marker is cut
    _axis(ax.xaxis, x, sorted({p[0] for row in rows for p in row.measured}))
    _axis(ax.yaxis, y, ())
    ax.grid(axis="y", color=RULE, linewidth=0.6)
    ax.set_axisbelow(True)
    # framed: its markers are no points
    ax.legend(fontsize=9, loc="best", handlelength=3, fancybox=False, edgecolor=RULE, framealpha=1)
    headline(ax, title, "markers: measured; dashed lines: predicted")
    picture.alt = ". ".join([title, *(_words(row, x, y) for row in rows)]) + "."
    return picture


def _curve(ax: Axes, index: int, row: Curve) -> None:
    look = {"color": colour(index)}
    known = [point for point in row.measured if point[1] is not None]
    label = row.name if known or not row.measured else f"{row.name}: not yet"
    if row.predicted:
        ax.plot(*zip(*row.predicted, strict=True), linestyle=(0, (4, 2)), linewidth=1.2, **look)
    points = list(zip(*known, strict=True)) or ([], [])
    ax.plot(
        *points, label=label, linestyle="none" if known or not row.predicted else (0, (4, 2)),
        marker=marker(index) if known else None, markersize=8, markeredgecolor=INK, markeredgewidth=0.6, **look,
    )  # fmt: skip


def _axis(axis, name: str, ticks: Sequence[float]) -> None:
    axis.set_label_text(name, fontsize=9, color=INK)
    axis.set_major_formatter(lambda value, _: _text(value, name))
    if ticks:
        axis.set_ticks(ticks)
        axis.set_minor_locator(NullLocator())
    axis.set_tick_params(which="both", colors=INK, labelsize=9)
    axis.label.set_color(QUIET_INK)


def _text(value: float, name: str) -> str:
    if name.endswith("(bytes)"):
        return units.size(value)
    return units.seconds(value) if name.endswith("(s)") else units.number(value)


def _words(row: Curve, x: str, y: str) -> str:
    known = [(a, b) for a, b in row.measured if b is not None]
    if row.measured and not known:
        return f"{row.name}: not yet"
    return f"{row.name}: " + ", ".join(f"{_text(b, y)} at {_text(a, x)}" for a, b in known or row.predicted)
