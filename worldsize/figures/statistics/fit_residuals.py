"""A residual plot: measured times with lines through them, and below them how far each line is off.

A pattern in the residuals says that the model lacks something, scatter that it does not: J. Tukey, "Exploratory data
analysis", 1977. Errors are relative, since sizes and times span decades.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from operator import attrgetter
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading, scales

LEAST_RUN = 3  # neighbours off to one side make a pattern
MOST_PERCENT = 100  # larger errors are drawn at the edge


@dataclass(frozen=True)
class Line:
    """A fitted line, seconds = alpha_s + size / bandwidth; `alpha_bandwidth` is None for an exercise not yet written."""

    name: str
    alpha_bandwidth: tuple[float, float] | None

    def seconds(self, size_bytes: float) -> float:
        alpha_s, bandwidth = self.alpha_bandwidth or (0.0, float("inf"))
        return alpha_s + size_bytes / bandwidth

    def error(self, size_bytes: float, seconds: float) -> float:
        """Return the fitted line's error relative to the measurement: −0.2 where it says a fifth too little."""
        return self.seconds(size_bytes) / seconds - 1


@base.plain_style
def residuals(
    seconds: Mapping[float, float] | None,
    lines: Iterable[Line],
    asks: str = "",
    left_out: Sequence[float] = (),
    marks: Mapping[float, str] = MappingProxyType({}),
    points: str = "measured",
) -> Picture:
    """Draw times by size with lines through them, and below how far each line is off; `marks` are words at some sizes.

    `points` says where the times come from, if they were not measured; sizes in `left_out` were not fitted and are hollow.
    `asks` is the question above the picture; ValueError unless it ends in "?".
    """
    lines = tuple(lines)
    if not seconds:
        return base.notice("nothing was measured")

    panels, height_in = 1, 2.9
    if any(map(attrgetter("alpha_bandwidth"), lines)):
        panels, height_in = 2, 5.2
    picture = Picture(base.WIDTH_IN, height_in)
    axes = picture.subplots(panels, 1, sharex=True, squeeze=False, height_ratios=[1] * panels)[:, 0]
    for ax in axes:
        base.unframe(ax, "top", "right", "left")
        ax.tick_params(which="both", colors=base.INK, labelsize=9, length=0)
        base.grid(ax)

    _times(axes[0], seconds, lines, left_out, points)
    for ax in axes[1:]:
        _errors(ax, seconds, lines, left_out)
    for ax, size_bytes in product(axes, marks):
        ax.axvline(size_bytes, color=base.QUIET_INK, linewidth=tokens.THIN_PT, linestyle=(0, (1, 2)))
    for size_bytes, words in marks.items():
        axes[-1].annotate(
            f" {words}", (size_bytes, 1), (2, -2), ("data", "axes fraction"), "offset points", va="top",
            fontsize=tokens.SMALL_PT, color=base.QUIET_INK,
        )  # fmt: skip
    scales.log_axis(axes[-1].xaxis, "size of the message", units.size)

    small = ""
    if left_out:
        small = "filled: fitted; hollow: left out of the fit"
    statement = finding(lines, seconds, left_out)
    heading.head(picture, asks, statement, small)
    small, large = min(seconds), max(seconds)
    extremes = f"{points.capitalize()}: {units.size(small)} take {units.seconds(seconds[small])}"
    extremes += f", {units.size(large)} {units.seconds(seconds[large])}"
    heading.tell(picture, asks, statement, extremes, *(_words(line, seconds, left_out) for line in lines))
    return picture


def finding(lines: Sequence[Line], seconds: Mapping[float, float], left_out: Sequence[float]) -> str:
    """Say how far each line is off at worst, the better one first, and for a single line whether errors have a pattern."""
    known = [line for line in lines if line.alpha_bandwidth]
    if not known:
        return "No line is fitted yet"

    off = {}
    for line in known:
        off[line.name] = max(abs(line.error(m, seconds[m])) for m in _judged(seconds, left_out))
    clauses = [f"{name} is at most {_part(off[name])} off" for name in sorted(off, key=off.get)]
    if 1 < len(findings.leaders(off)) == len(off):
        return f"{findings.both(list(off))} tie: at most {_part(max(off.values()))} off"
    if len(known) == 1:
        clauses.append(pattern(known[0], seconds))
    return findings.line(*clauses)


def pattern(line: Line, seconds: Mapping[float, float]) -> str:
    """Say whether a fitted line is off to one side over ranges of neighbouring sizes; an error up to 5 % has no side.

    Three neighbours on one side make a pattern. The rule of thumb: scatter changes sides more often.
    """
    def side(size: float) -> str:
        error = line.error(size, seconds[size])
        if abs(error) <= findings.TIE:
            return ""
        return "too much" if error > 0 else "too little"

    ranges = []
    for says, neighbours in groupby(sorted(seconds), key=side):
        sizes = list(neighbours)
        if says and len(sizes) >= LEAST_RUN:
            ranges.append(f"{says} from {units.size(sizes[0])} to {units.size(sizes[-1])}")

    if not any(map(side, seconds)):
        return "no pattern: nowhere is it 5 % off"
    if not ranges:
        return "no pattern: its errors change sides"
    return f"a pattern: it says {', '.join(ranges)}"


def _part(error: float) -> str:
    return units.number(float(f"{100 * error:.2g}"), "%")  # two significant digits


def _judged(seconds: Mapping[float, float], left_out: Sequence[float]) -> list[float]:
    """Return the sizes that judge a line: those left out of the fit, or all where none were."""
    return [size for size in seconds if size in left_out] or list(seconds)


def _times(
    ax: Axes, seconds: Mapping[float, float], lines: Sequence[Line], left_out: Sequence[float], points: str
) -> None:
    _points(ax, seconds, left_out, base.INK, "o", points)
    sizes = np.geomspace(min(seconds), max(seconds), 200)
    for index, line in enumerate(lines):
        look = {"color": base.algorithm(index), "linewidth": tokens.LINE_PT, "linestyle": (0, (4, 2))}
        if index == 0:
            look["linestyle"] = "-"
        if line.alpha_bandwidth:
            drawn = line.seconds(sizes) > min(seconds.values()) / 10  # much lower, it would stretch the axis
            ax.plot(sizes[drawn], line.seconds(sizes[drawn]), label=line.name, **look)
        else:
            ax.plot([], [], label=f"{line.name}: not yet", **look)

    ax.set_xscale("log")
    scales.log_axis(ax.yaxis, "time of a message", units.seconds)
    ax.legend(fontsize=tokens.LABEL_PT, frameon=False, loc="upper left")


def _errors(ax: Axes, seconds: Mapping[float, float], lines: Sequence[Line], left_out: Sequence[float]) -> None:
    worst = 0.0
    for index, line in enumerate(lines):
        if not line.alpha_bandwidth:
            continue
        drawn = {}
        for size_bytes in sorted(seconds):
            percent = 100 * line.error(size_bytes, seconds[size_bytes])
            worst = max(worst, abs(percent))
            drawn[size_bytes] = max(-MOST_PERCENT, min(MOST_PERCENT, percent))  # `worst` keeps the true error
        ax.plot(list(drawn), list(drawn.values()), color=base.algorithm(index), linewidth=tokens.THIN_PT)
        _points(ax, drawn, left_out, base.algorithm(index), base.marker(index))

    ax.axhline(0, color=base.INK, linewidth=tokens.LINE_PT)
    limit = min(1.15 * MOST_PERCENT, max(5.0, 1.3 * worst))
    ax.set_ylim(-limit, limit)
    ax.yaxis.set_major_formatter(lambda percent, _: f"{percent:+.0f} %" if round(percent) else "0")
    ax.set_ylabel("the line is off by", fontsize=tokens.LABEL_PT, color=base.QUIET_INK)

    if worst > MOST_PERCENT:
        edge = f"further off than {MOST_PERCENT} %: drawn at the edge"
        look = {"ha": "right", "fontsize": tokens.SMALL_PT, "color": base.QUIET_INK}
        ax.annotate(edge, (1, 0), (0, 3), "axes fraction", "offset points", **look)


def _points(
    ax: Axes, values: Mapping[float, float], left_out: Sequence[float], colour: str, marker: str, label: str | None = None
) -> None:
    """Draw, in a residual plot, fitted points filled, with the label, and points left out of the fit hollow."""
    sizes, ys = np.array(sorted(values.items())).T
    hollow = np.isin(sizes, list(left_out))
    look = {"color": colour, "marker": marker, "markersize": 6, "linestyle": "none", "zorder": 3}
    ax.plot(sizes[~hollow], ys[~hollow], markerfacecolor=colour, label=label, **look)
    ax.plot(sizes[hollow], ys[hollow], markerfacecolor=base.PAPER, **look)


def _words(line: Line, seconds: Mapping[float, float], left_out: Sequence[float]) -> str:
    if not line.alpha_bandwidth:
        return f"{line.name}: not yet"

    where = "all sizes"
    if left_out:
        where = "the sizes left out"

    worst = max(_judged(seconds, left_out), key=lambda m: abs(line.error(m, seconds[m])))
    off = abs(line.error(worst, seconds[worst]))
    return f"{line.name}: of {where}, {units.size(worst)} is worst, off by {units.number(round(100 * off))} %"
