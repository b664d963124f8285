"""Distributions: one lane a sample, in it a bar for each value, as high as its share, and a mark at the mean.

Lanes share the axis of values, so that a tail which one lane has and another has not is seen at once. Bars are scaled
in each lane by its own highest, since it is shape and reach that are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from worldsize import units
from worldsize.figures import base
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading

MOST_BARS = 60
LANE_IN = 0.62
BAR_HEIGHT = 0.72


@dataclass(frozen=True)
class Sample:
    """One lane: whole numbers that were measured, None for an exercise not yet written; `expected` is a mean foretold."""

    name: str
    values: Sequence[int] | None
    expected: float | None = None


@base.plain_style
def spreads(rows: Iterable[Sample], asks: str = "", *, x: str) -> Picture:
    """Distributions of whole numbers, a lane a sample, each with its mean; `x` names the axis of values.

    `asks` is the question over the picture; ValueError where it is none.
    """
    rows = tuple(rows)
    if not rows:
        return base.notice("nothing was measured")

    largest = max((max(row.values) for row in rows if row.values), default=1)
    width = max(1, math.ceil((largest + 1) / MOST_BARS))  # of a bar, in values
    picture = Picture(base.WIDTH_IN, 1.1 + LANE_IN * len(rows))
    ax = picture.plot_area()
    for index, row in enumerate(rows):
        _lane(ax, index, row, width, largest)

    ax.set_yticks(np.arange(len(rows)) - 0.3, list(map(attrgetter("name"), rows)))
    ax.set_ylim(len(rows) - 0.9, -1.05)
    ax.set_xlim(-0.02 * largest - 0.6 * width, largest * 1.12 + width)
    ax.set_xlabel(x, fontsize=9, color=base.INK)
    _legend(ax, rows)

    found = finding(rows)
    heading.head(picture, asks, found, "grey number: the largest value")
    picture.alt = heading.alt(asks, found, *map(_words, rows))
    return picture


def finding(rows: Sequence[Sample]) -> str:
    """What distributions say: who reaches farthest, whether the means tie, and how far they are from what was foretold."""
    known = [row for row in rows if row.values]
    means = {row.name: float(np.mean(row.values)) for row in known}
    far = findings.ranked({row.name: max(row.values) for row in known}, ("reaches", "reach"), word="farthest")
    said = [findings.line(far)]

    if len(known) > 1:
        said.append(_means(means))
    foretold = {row.name: row.expected for row in known if row.expected}
    off = {name: means[name] / expected - 1 for name, expected in foretold.items()}
    if off:
        worst = max(off, key=lambda name: abs(off[name]))
        said.append(_off(off[worst], worst, len(off)))
    return findings.line(*said)


def _means(means: dict[str, float]) -> str:
    if len(findings.leaders(means)) == len(means):
        return f"the means tie at about {units.number(np.mean(list(means.values())))}"
    return f"means from {units.number(min(means.values()))} to {units.number(max(means.values()))}"


def _off(part: float, name: str, count: int) -> str:
    """How far the mean that is farthest from its prediction is from it."""
    if abs(part) <= findings.TIE:
        return f"{count} of {count} means within 5 % of the prediction"
    way = "above"
    if part < 0:
        way = "below"
    return f"the mean of {name} is {round(100 * abs(part))} % {way} the prediction"


def _lane(ax: Axes, index: int, row: Sample, width: int, largest: int) -> None:
    ax.axhline(index, color=base.RULE, linewidth=0.8, zorder=0)
    if not row.values:
        ax.text(0, index - 0.3, "not yet", fontsize=9, color=base.INK, va="center")
        return

    values = np.asarray(row.values)
    counts = np.bincount(values // width)
    places = np.flatnonzero(counts)
    heights = BAR_HEIGHT * counts[places] / counts.max()
    heights = np.maximum(heights, 0.02)  # a single value far out shall be seen

    look = {"color": base.colour(index), "edgecolor": base.INK, "linewidth": 0.4, "hatch": base.hatch(index)}
    ax.bar(places * width + (width - 1) / 2, -heights, 0.9 * width, index, zorder=2, **look)
    ax.plot(values.mean(), index + 0.07, marker="^", color=base.INK, markersize=7, zorder=4, clip_on=False)

    if row.expected is not None:
        ends = [index, index - BAR_HEIGHT - 0.08]
        ax.plot([row.expected] * 2, ends, color=base.INK, linewidth=1.3, linestyle=(0, (3, 2)))
    ax.text(values.max() + width, index - 0.13, f"{values.max()}", fontsize=8, color=base.QUIET_INK, va="center")


def _legend(ax: Axes, rows: Sequence[Sample]) -> None:
    entries = [Line2D([], [], marker="^", color=base.INK, linestyle="none", markersize=7, label="mean, measured")]
    if any(row.expected is not None for row in rows):
        predicted = Line2D([], [], color=base.INK, linewidth=1.3, linestyle=(0, (3, 2)), label="mean, predicted")
        entries.append(predicted)
    ax.legend(handles=entries, loc="lower right", bbox_to_anchor=(1.01, 0.99), ncols=2, fontsize=9, frameon=False)


def _words(row: Sample) -> str:
    if not row.values:
        return f"{row.name}: not yet"

    mean = units.number(float(np.mean(row.values)))
    if row.expected is not None:
        mean += f", predicted {units.number(row.expected)}"
    return f"{row.name}: mean {mean}, from {min(row.values)} to {max(row.values)}"
