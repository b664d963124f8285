"""Distributions: a lane for each sample, with a bar for each value and a mark at the mean; and a band for each set of curves.

Lanes share the axis of values, so that tails compare; bars are scaled by the lane's own highest, since shape and reach
matter. A band goes from the lowest of several runs to the highest, round the middle one. Overlapping bands count as a tie,
since other seeds may reverse them; runs paired by seed are compared seed by seed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from statistics import median

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import charts, findings, heading
from worldsize.figures.frame.curve_ends import reach, standing
from worldsize.figures.frame.findings import Text

MOST_BARS = 60  # across a lane; with more values, a bar covers several
LANE_IN = 0.62
BAR_HEIGHT = 0.72
MARKERS_A_LINE = 8
BAND = 0.25  # opacity, in the line's colour
Point = tuple[float, float]
Runs = Sequence[Sequence[Point]]


@dataclass(frozen=True)
class Sample:
    """A distribution's lane: measured whole numbers, None for an exercise not yet written; `expected` is the predicted mean.

    `marked` are the values to draw dark, such as one rank's; they are among the values.
    """

    name: str
    values: Sequence[int] | None
    expected: float | None = None
    marked: Sequence[int] = ()


@base.plain_style
def spreads(rows: Iterable[Sample], asks: str = "", *, x: str, mean: bool = False, marked: str = "") -> Picture:
    """Draw distributions of whole numbers, a lane a sample, each with its mean; `x` names the axis, `marked` the dark values.

    The finding begins with how far the tails reach; with `mean`, it begins with the means. `asks` is the question above the
    picture; ValueError unless it ends in "?".
    """
    rows = tuple(rows)
    if not rows:
        return base.notice("nothing was measured")

    measured = [row.values for row in rows if row.values]
    largest = max(map(max, measured), default=1)
    width = max(1, math.ceil((largest + 1) / MOST_BARS))  # of a bar, in values
    picture = Picture(base.WIDTH_IN, 1.1 + LANE_IN * len(rows))
    ax = picture.plot_area()
    tones = charts.tones([row.name for row in rows])
    for index, row in enumerate(rows):
        _lane(ax, index, row, width, largest, tones[row.name])

    ax.set_yticks(np.arange(len(rows)) - 0.3, list(map(attrgetter("name"), rows)))
    ax.set_ylim(len(rows) - 0.9, -1.05)
    ax.set_xlim(-0.02 * largest - 0.6 * width, largest * 1.12 + width)
    ax.set_xlabel(x, fontsize=tokens.LABEL_PT, color=base.INK)

    entries = [Line2D([], [], marker="^", color=base.INK, linestyle="none", markersize=7, label="mean, measured")]
    if any(row.expected is not None for row in rows):
        look = {"color": base.INK, "linewidth": tokens.LINE_PT, "linestyle": (0, (3, 2))}
        entries.append(Line2D([], [], label="mean, predicted", **look))
    if marked and any(len(row.marked) for row in rows):
        entries.append(Patch(facecolor=base.INK, label=marked))
    ax.legend(handles=entries, loc="lower right", bbox_to_anchor=(1.01, 0.99), ncols=3, fontsize=tokens.LABEL_PT, frameon=False)

    found = finding(rows, mean, "%" if "(%" in x else "")
    heading.head(picture, asks, found, "grey number: the largest value")
    heading.tell(picture, asks, found, *[_words(row, marked) for row in rows])
    return picture


def finding(rows: Sequence[Sample], mean: bool = False, unit: str = "") -> str:
    """Say which tail reaches farthest, whether the means tie, and how far they are from the predictions; values in `unit`."""
    text = partial(units.number, unit=unit)
    means, largest, foretold = {}, {}, {}
    for row in rows:
        if row.values:
            means[row.name] = float(np.mean(row.values))
            largest[row.name] = max(row.values)
            if row.expected is not None:
                foretold[row.name] = (means[row.name], row.expected)
    if not means:
        return "Nothing was measured"

    middle = ""
    low, high = min(means, key=means.get), max(means, key=means.get)
    if 1 < len(findings.leaders(means)) == len(means):
        middle = f"the means tie at about {text(np.mean(list(means.values())))}"
    elif len(means) > 1:
        middle = f"the mean is {text(means[low])} with {low}, {text(means[high])} with {high}"

    reaches, off = _reach(largest, text), _foretold(foretold, text)
    if mean:
        return findings.line(middle, off, reaches)
    return findings.line(reaches, middle, off)


def _reach(largest: dict[str, int], text: Text) -> str:
    """Say how far the tails of distributions go, at most and at least."""
    high, low = findings.leaders(largest), findings.leaders(largest, largest=False)
    said = f"the tail reaches {text(largest[high[0]])} with {findings.both(high, len(largest))}"
    if high == low:
        return said
    return f"{said}, {text(largest[low[0]])} with {findings.both(low, len(largest))}"


def _foretold(pairs: dict[str, tuple[float, float]], text: Text) -> str:
    """Say how far the distributions' means, each (measured, predicted), are from their predictions at worst."""
    if not pairs:
        return ""
    if all(findings.tie(*pair) for pair in pairs.values()):
        return findings.verb(list(pairs), "the mean is", "each mean is") + " within 5 % of the prediction"

    worst = max(pairs, key=lambda name: abs(pairs[name][0] - pairs[name][1]))
    measured, predicted = pairs[worst]
    way = "below" if measured < predicted else "above"
    return f"the mean of {worst}, {text(measured)}, is {way} the prediction, {text(predicted)}"


def _lane(ax: Axes, index: int, row: Sample, width: int, largest: int, tone: str) -> None:
    ax.axhline(index, color=base.RULE, linewidth=tokens.THIN_PT, zorder=0)
    if not row.values:
        ax.text(0, index - 0.3, "not yet", fontsize=tokens.LABEL_PT, color=base.INK, va="center")
        return

    values = np.asarray(row.values)
    counts = np.bincount(values // width)
    places = np.flatnonzero(counts)
    heights = BAR_HEIGHT * counts[places] / counts.max()
    heights = np.maximum(heights, 0.02)  # keep a single value far out visible

    middles = places * width + (width - 1) / 2
    ax.bar(middles, -heights, 0.9 * width, index, zorder=2, facecolor=tone, **charts.FLAT)  # upwards: y points down
    if len(row.marked):
        dark = np.bincount(np.asarray(row.marked) // width, minlength=len(counts))[places]
        ax.bar(middles, -heights * dark / counts[places], 0.9 * width, index, zorder=3, facecolor=base.INK, **charts.FLAT)
    ax.plot(values.mean(), index + 0.07, marker="^", color=base.INK, markersize=7, zorder=4, clip_on=False)

    if row.expected is not None:
        ends = [index, index - BAR_HEIGHT - 0.08]
        ax.plot([row.expected] * 2, ends, color=base.INK, linewidth=tokens.LINE_PT, linestyle=(0, (3, 2)))
    ax.text(values.max() + width, index - 0.13, f"{values.max()}", fontsize=tokens.SMALL_PT, color=base.QUIET_INK, va="center")


def _words(row: Sample, marked: str = "") -> str:
    if not row.values:
        return f"{row.name}: not yet"

    mean = units.number(float(np.mean(row.values)))
    if row.expected is not None:
        mean += f", predicted {units.number(row.expected)}"
    words = f"{row.name}: mean {mean}, from {min(row.values)} to {max(row.values)}"
    if marked and len(row.marked):
        words += f", {marked} from {min(row.marked)} to {max(row.marked)}"
    return words


@dataclass(frozen=True)
class Band:
    """A distribution of curves at each x: the median, the lowest and the highest value."""

    xs: tuple[float, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    columns: tuple[tuple[float, ...], ...]  # at each x the values of all runs, in their order

    @property
    def runs(self) -> int:
        return len(self.columns[0])


def band(name: str, runs: Runs) -> Band:
    """Return the band of several runs, each [(x, y)]. Raises ValueError where their x differ, or where there is no point."""
    xs, ys = [], []
    for run in runs:
        xs.append([x for x, _ in run])
        ys.append([y for _, y in run])
    if not any(xs) or xs.count(xs[0]) < len(xs):
        raise ValueError(
            f"figures.bands: expected all runs in {name!r} to have their points at the same x, got {list(map(len, xs))} points"
        )

    columns = list(zip(*ys, strict=True))
    return Band(tuple(xs[0]), tuple(map(median, columns)), tuple(map(min, columns)), tuple(map(max, columns)), tuple(columns))


@base.plain_style
def bands(rows: Mapping[str, Runs | None], asks: str = "", *, x: str, y: str, paired: bool = False) -> Picture:
    """Draw a line and a band for each row of runs, `rows[name]` = [[(x, y), …], …]; None for an exercise not yet written.

    `paired`: run k of every row had the same seed, so rows are compared run by run. `x` and `y` name the axes. `asks` is
    the question above the picture; ValueError unless it ends in "?".
    """
    known = {name: band(name, runs) for name, runs in base.written(rows).items()}
    if not known:
        return base.not_yet(*rows)

    picture = Picture(8.5, 3.6)
    ax = picture.plot_area()
    tones = charts.tones(list(rows))
    for index, name in enumerate(rows):
        if name in known:
            _band(ax, index, len(rows), name, known[name], tones[name])
        else:
            ax.plot([], [], linestyle="none", label=f"{name}: not yet")

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(x, fontsize=tokens.LABEL_PT, color=base.INK)
    ax.set_ylabel(y, fontsize=tokens.LABEL_PT, color=base.QUIET_INK)
    base.grid(ax)
    statement = ends(known, x, paired)
    most = max(envelope.runs for envelope in known.values())
    note = f"lines: the middle one of {most} runs; bands: from the lowest to the highest" if most > 1 else ""
    heading.head(picture, asks, statement, note)
    named = [charts.end(known[name].xs, known[name].middle, name, tones[name]) if name in known else None for name in rows]
    if not charts.name_ends(picture, ax, named):
        charts.legend_beside(ax)
    sentences = []
    for name in rows:
        course = "not yet"
        if name in known:
            envelope = known[name]
            begin = f"{reach(envelope.columns[0])} at {x} {units.number(envelope.xs[0])}"
            course = f"from {begin} to {reach(envelope.columns[-1])} at {x} {units.number(envelope.xs[-1])}"
        sentences.append(f"{name}: {course}")
    heading.tell(picture, asks, statement, *sentences)
    return picture


def ends(known: Mapping[str, Band], x: str, paired: bool = False) -> str:
    """Say which band is lowest and highest, and which tie, at the last x they share. `paired` as in `bands`."""
    shared = set.intersection(*map(set, map(attrgetter("xs"), known.values())))
    if not shared:
        return ""

    last = max(shared)
    runs = {name: one.columns[one.xs.index(last)] for name, one in known.items()}
    return standing(f"at {x} {units.number(last)}", runs, paired)


def _band(ax: Axes, index: int, count: int, name: str, envelope: Band, tone: str) -> None:
    stride = max(1, len(envelope.xs) // MARKERS_A_LINE)
    if envelope.runs > 1:
        ax.fill_between(envelope.xs, envelope.low, envelope.high, color=tone, alpha=BAND, linewidth=0, zorder=1)
    ax.plot(
        envelope.xs, envelope.middle, color=tone, linewidth=tokens.LINE_PT, label=name, marker=base.marker(index), markersize=6.5,
        markevery=(index * stride // count, stride), markeredgewidth=0, zorder=2 + index,
    )  # fmt: skip
