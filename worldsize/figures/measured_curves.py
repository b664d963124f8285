"""Measured points on predicted curves: how a quantity grows with the world size, or with the size of a message.

A marker is a measurement, a dashed line the formula; each series has its own colour and marker. Left out: fits, which
`cost` makes, and error bars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from worldsize import units
from worldsize.figures import base
from worldsize.figures.base import Picture

PREDICTED = (0, (4, 2))  # dashes
MeasuredPoint = tuple[float, float | None]  # y is None for an exercise not yet written


@dataclass(frozen=True)
class Curve:
    """One series: what was measured and what a formula says, each as (x, y) points."""

    name: str
    measured: Sequence[MeasuredPoint] = ()
    predicted: Sequence[MeasuredPoint] = ()

    @property
    def known(self) -> list[tuple[float, float]]:
        """What was measured, without exercises not yet written."""
        return [(x, y) for x, y in self.measured if y is not None]


@base.plain_style
def curves(rows: Iterable[Curve], title: str, x: str, y: str, log: bool = False) -> Picture:
    """Measured points on predicted curves; `x` and `y` name the axes, with "(bytes)" or "(s)" for such a unit."""
    rows = tuple(rows)
    if rows and not any(row.predicted or row.known for row in rows):
        return base.not_yet(", ".join(map(attrgetter("name"), rows)))

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

    places: set[float] = set()
    for row in rows:
        places.update(place for place, _ in row.measured)
    _axis(ax.xaxis, x, sorted(places))
    _axis(ax.yaxis, y, ())
    ax.grid(axis="y", color=base.RULE, linewidth=0.6)
    ax.set_axisbelow(True)
    # framed: its markers are no points
    ax.legend(fontsize=9, loc="best", handlelength=3, fancybox=False, edgecolor=base.RULE, framealpha=1)

    base.headline(ax, title, "markers: measured; dashed lines: predicted")
    picture.alt = base.sentences(title, *(_words(row, x, y) for row in rows))
    return picture


def _curve(ax: Axes, index: int, row: Curve) -> None:
    look = {"color": base.colour(index)}
    if row.predicted:
        ax.plot(*zip(*row.predicted, strict=True), linestyle=PREDICTED, linewidth=1.2, **look)

    if row.known:
        ax.plot(
            *zip(*row.known, strict=True), label=row.name, linestyle="none", marker=base.marker(index), markersize=8,
            markeredgecolor=base.INK, markeredgewidth=0.6, **look,
        )  # fmt: skip
    else:  # a line of the legend alone
        label, dashes = row.name, "none"
        if row.measured:
            label = f"{row.name}: not yet"
        if row.predicted:
            dashes = PREDICTED
        ax.plot([], [], label=label, linestyle=dashes, **look)


def _axis(axis, name: str, ticks: Sequence[float]) -> None:
    axis.set_label_text(name, fontsize=9, color=base.INK)
    axis.set_major_formatter(lambda value, _: _text(value, name))
    if ticks:
        axis.set_ticks(ticks)
        axis.set_minor_locator(NullLocator())
    axis.set_tick_params(which="both", colors=base.INK, labelsize=9)
    axis.label.set_color(base.QUIET_INK)


def _text(value: float, name: str) -> str:
    if name.endswith("(bytes)"):
        return units.size(value)
    if name.endswith("(s)"):
        return units.seconds(value)
    return units.number(value)


def _words(row: Curve, x: str, y: str) -> str:
    if row.measured and not row.known:
        return f"{row.name}: not yet"

    told = [f"{_text(b, y)} at {_text(a, x)}" for a, b in row.known or row.predicted]
    return f"{row.name}: {', '.join(told)}"
