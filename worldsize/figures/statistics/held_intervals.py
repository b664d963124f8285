"""Forecasts against measurements, in groups: an interval and its middle each, relative to the measurement.

An interval that holds crosses the line "as measured"; one that misses has another colour and a cross. Middles are sorted in
each group, so that a bias shows as a curve above or below the line. Nine in ten of 90 % intervals should hold: T. Gneiting,
F. Balabdaoui and A. Raftery, "Probabilistic forecasts, calibration and sharpness", J. Royal Statistical Society B 69, 2007.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading
from worldsize.units import number

MOST_PERCENT = 100  # larger errors are drawn at the edge
GAP = 2  # places between groups
NAME_COLUMNS = 14  # a longer name breaks at its comma
# of an interval, by whether it holds: its name, colour, marker and line
LOOKS = {True: ("holds", 0, "o", "-"), False: ("misses", 1, "X", (0, (2, 1)))}


@dataclass(frozen=True)
class Forecast:
    """A forecast, (low, middle, high), and its measurement, in one unit; all above 0."""

    low: float
    middle: float
    high: float
    measured: float

    @property
    def holds(self) -> bool:
        return bool(self.low <= self.measured <= self.high)

    @property
    def off(self) -> float:
        """Return the forecast middle's error relative to the measurement: −0.2 where it says a fifth too little."""
        return self.middle / self.measured - 1

    @property
    def half_width(self) -> float:
        """Return half of the forecast's interval, relative to its middle."""
        return (self.high - self.low) / 2 / self.middle


Groups = Mapping[str, Sequence[Forecast] | None]


@base.plain_style
def intervals(groups: Groups, asks: str = "", nominal: float = 0.9) -> Picture:
    """Draw intervals of forecasts relative to the measurement, in groups; None for an exercise not yet written.

    `nominal` is the share that should hold. `asks` is the question above the picture; ValueError unless it ends in "?".
    """
    written = {name: rows for name, rows in groups.items() if rows}
    if not written:
        return base.not_yet(*groups)

    picture = Picture(base.WIDTH_IN, 3.2)
    ax = picture.plot_area()
    start, places, names = 0, [], []
    for name, rows in written.items():
        _group(ax, start, sorted(rows, key=attrgetter("off")))
        places.append(start + (len(rows) - 1) / 2)
        if len(name) > NAME_COLUMNS:
            name = name.replace(", ", ",\n", 1)
        names.append(name)
        start += len(rows) + GAP

    ax.axhline(0, color=base.INK, linewidth=tokens.LINE_PT, zorder=1)
    ax.set_xlim(-1.5, start - GAP + 0.5)
    _y_axis(ax, list(chain(*written.values())))
    ax.set_xticks(places, names)

    entries = []
    for label, index, marker, dashes in LOOKS.values():
        look = {"color": base.algorithm(index), "marker": marker, "linestyle": dashes, "markeredgecolor": base.INK}
        entries.append(Line2D([], [], label=label, markersize=5, markeredgewidth=0.4, **look))
    ax.legend(handles=entries, loc="upper left", ncols=2, fontsize=tokens.LABEL_PT, frameon=False)

    found = finding(written, nominal)
    heading.head(picture, asks, found, "a line for each forecast, in each group sorted by how far its middle is off")
    heading.tell(picture, asks, found, *base.of_each(_words, groups))
    return picture


def finding(groups: Mapping[str, Sequence[Forecast]], nominal: float) -> str:
    """Say how many forecasts hold against how many should, how wide they are, and how far their middles are off."""
    rows = list(chain(*groups.values()))
    held = sum(row.holds for row in rows)
    share = number(round(100 * held / len(rows)), "%")
    width = np.mean([row.half_width for row in rows])
    off = np.mean([abs(row.off) for row in rows])
    said = f"{held} of {len(rows)} intervals hold, {share} ({number(100 * nominal)} % should)"
    return findings.line(said, f"on average ± {_percent(width)} wide, the middle {_percent(off)} off")


def _percent(part: float) -> str:
    return number(float(f"{100 * part:.2g}"), "%")


def _group(ax: Axes, start: int, rows: Sequence[Forecast]) -> None:
    drawn: dict[bool, list[tuple[float, ...]]] = {True: [], False: []}
    for place, row in enumerate(rows, start):
        drawn[row.holds].append((place, *_shown(row)))

    for holds, size in ((True, 4), (False, 6)):
        if drawn[holds]:
            places, low, middle, high = zip(*drawn[holds], strict=True)
            _, index, marker, dashes = LOOKS[holds]
            colour = base.algorithm(index)
            ax.vlines(places, low, high, color=colour, linewidth=tokens.LINE_PT, linestyle=dashes, zorder=2)
            ax.plot(
                places, middle, linestyle="none", marker=marker, markersize=size, color=colour,
                markeredgecolor=base.INK, markeredgewidth=0.4, zorder=3,
            )  # fmt: skip


def _shown(row: Forecast) -> list[float]:
    """Return a forecast's low, middle and high, in per cent off the measurement, no further off than `MOST_PERCENT`."""
    percents = 100 * (np.array([row.low, row.middle, row.high]) / row.measured - 1)
    return np.clip(percents, -MOST_PERCENT, MOST_PERCENT).tolist()


def _y_axis(ax: Axes, rows: Sequence[Forecast]) -> None:
    ends = [0.0, *chain(*map(_shown, rows))]
    room = max(2.0, 0.1 * (max(ends) - min(ends)))
    ax.set_ylim(min(ends) - room, max(ends) + 2 * room)  # above, the legend
    ax.yaxis.set_major_locator(MaxNLocator(6))
    ax.yaxis.set_major_formatter(lambda value, _: "as measured" if not round(value, 6) else f"{value:+g} %")
    base.grid(ax)
    ax.set_ylabel("forecast", fontsize=tokens.LABEL_PT, color=base.QUIET_INK)


def _words(rows: Sequence[Forecast]) -> str:
    held = sum(row.holds for row in rows)
    off = [100 * row.off for row in rows]
    return f"{held} of {len(rows)} hold, middles off by {min(off):+.0f} to {max(off):+.0f} %"
