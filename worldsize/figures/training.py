"""Training runs as curves: values step after step, and losses against steps and against seconds.

A line that a later line covers is drawn broader, so that both are seen. On a logarithmic scale a value of zero is drawn at
the bottom edge, which the axis names.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import charts, findings, heading, scales
from worldsize.figures.frame.curve_ends import farthest_off
from worldsize.units import number

MARKERS_A_LINE, MARKERS_A_LOSS = 12, 8
STEM_GAP = 0.25  # of a step
BROAD, THIN = 6.0, 1.5  # points; broad shows on both sides of a line above it
ALIKE = 1e-3  # of the largest value: a smaller difference is invisible
FLOOR = 1e-17  # below what float64 resolves at 1: stands for zero on a logarithmic axis
DASHES = ("-", (0, (6, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1)))
LESS_IS_BETTER = re.compile(r"\b(loss|error|difference|seconds|time)")
ROOM_ABOVE = 30  # times the start: a loss above leaves the picture, and a run that ends above diverges
LossPoint = tuple[int, float, float]  # step, seconds, loss


@base.plain_style
def histories(
    rows: Mapping[str, Sequence[float] | None], asks: str = "", *, y: str, x: str = "step", log: bool = False,
    mean: bool = False, growth: bool = False, errors: bool = False, rounding: float | None = None,
    marked: tuple[str, Sequence[int]] | None = None,
) -> Picture:  # fmt: skip
    """Draw training runs, a line each: values such as the loss after every step.

    A row begins with the value after step 1; None stands for an exercise not yet written. `y` names the axis. The finding
    says where lines end; with `mean`, which is highest in the mean of its steps; with `growth`, how each one runs; with
    `errors`, how far each is from zero at worst; with `rounding`, which lines stay under that difference; with `marked`, a
    name and steps, which is highest in the mean of these steps. `asks` is the question above the picture; ValueError unless
    it ends in "?".
    """
    known = base.written(rows)
    if not known:
        return base.not_yet(*rows)

    picture = Picture(8.5, 3.6)
    ax = picture.plot_area()
    tones = charts.tones(list(rows))
    drawn = {name: np.maximum(values, FLOOR) if log else values for name, values in known.items()}
    for index, name in enumerate(rows):
        if name not in known:
            ax.plot([], [], linestyle="none", label=f"{name}: not yet")
            continue
        if errors:
            _stems(ax, index, len(rows), name, drawn[name], tones[name])
            continue
        _history(ax, index, len(rows), name, drawn[name], width(name, known), tones[name])

    if marked is not None:
        for k, step in enumerate(marked[1]):
            ax.axvline(
                step, color=base.QUIET_INK, linewidth=tokens.HAIR_PT, linestyle=(0, (1, 2)), zorder=0,
                label="_" if k else marked[0],  # one entry: the legend skips a label that begins with "_"
            )  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(x, fontsize=tokens.LABEL_PT, color=base.INK)
    ax.set_ylabel(y, fontsize=tokens.LABEL_PT, color=base.QUIET_INK)
    if log:
        _log_axis(ax, y, lowest=min(chain(*known.values()), default=FLOOR))
    base.grid(ax)
    if rounding is not None:
        ax.axhline(rounding, color=base.QUIET_INK, linewidth=tokens.LINE_PT, linestyle=(0, (1, 2)))

    note = "" if rounding is None else f"dotted line: {number(rounding)}; a difference under it is rounding"
    finding = _finding(known, x, y, mean, growth, errors, rounding)
    if marked is not None:
        finding = at_marks(known, *marked)
    heading.head(picture, asks, finding, note)
    ends = []
    for name in rows:
        values = drawn.get(name, ())
        ends.append(charts.end(range(1, len(values) + 1), list(values), name, tones[name]))
    if marked is not None or not charts.name_ends(picture, ax, ends):
        charts.legend_beside(ax)
    sentences = []
    for name, values in rows.items():
        course = "not yet"
        if values is not None:
            first, last = number(values[0]), number(values[-1])
            course = f"{y} {first} at the first {x}, {last} at {x} {len(values)}"
        sentences.append(f"{name}: {course}")
    heading.tell(picture, asks, finding, *sentences)
    return picture


def _finding(
    rows: Mapping[str, Sequence[float]], x: str, y: str, mean: bool, growth: bool, errors: bool, rounding: float | None
) -> str:
    """Return the training runs' finding that the flags of `histories` select."""
    if mean:
        return means(rows)
    if rounding is not None:
        return equal(rows, x, rounding)
    if errors:
        return farthest_off(rows, x, lambda value: f"{number(value)} {y.partition('(')[2].rstrip(')')}".rstrip())
    if growth:
        at = partial("{} {}".format, x)
        courses = [findings.course(name, enumerate(values, 1), at) for name, values in rows.items()]
        return findings.line(*courses)
    return ends(rows, x, y)


def equal(rows: Mapping[str, Sequence[float]], x: str, rounding: float) -> str:
    """Say which training runs' differences stay under `rounding`, and from which step on others exceed it."""
    over, under = [], []
    for name, values in rows.items():
        first = next((step for step, value in enumerate(values, 1) if not value <= rounding), None)
        if first is None:
            under.append(name)
        else:
            over.append(f"{name} differs from {x} {first} on, by {number(values[-1])} at the end")

    same = ""
    if under:
        same = f"{findings.both(under, len(rows))} {findings.verb(under, 'stays', 'stay')} equal up to rounding"
    return findings.line(same, *over)


def means(rows: Mapping[str, Sequence[float]]) -> str:
    """Say which training run is highest in the mean of its steps."""
    found = {name: sum(values) / len(values) for name, values in rows.items()}
    return f"In the mean of all steps {findings.ranked(found, ('is', 'are'), number, 'highest')}"


def at_marks(rows: Mapping[str, Sequence[float]], what: str, steps: Sequence[int]) -> str:
    """Say which training run is highest in the mean of the marked steps, counted from 1."""
    averages = {}
    for name, values in rows.items():
        there = [values[step - 1] for step in steps if step <= len(values)]
        if there:
            averages[name] = sum(there) / len(there)
    if not averages:
        return f"No line has a step with {what}"
    return f"In the mean of the steps with {what} {findings.ranked(averages, ('is', 'are'), number, 'highest')}"


def ends(rows: Mapping[str, Sequence[float]], x: str, y: str) -> str:
    """Describe where training runs end: one run's course, or which of several coincide and which end highest and lowest."""
    if len(rows) == 1:
        ((name, values),) = rows.items()
        return findings.line(findings.course(name, enumerate(values, 1), partial("{} {}".format, x)))

    alike = [name for name in rows if hidden(name, rows)]
    if len(alike) == len(rows) - 1:
        return findings.line(f"{findings.both(list(rows))} coincide")

    last = findings.known({name: values[-1] for name, values in rows.items()})
    high, low = findings.leaders(last), findings.leaders(last, largest=False)
    if not last:
        return f"No line ends at a finite {y}"
    if len(last) == 1:
        wild = [name for name in rows if name not in last]
        ((name, value),) = last.items()
        return findings.line(f"{name} ends at {number(value)}", f"{findings.both(wild)} at no finite {y}")
    if len(high) == len(last):
        return findings.line(f"{findings.both(high)} all end at about {number(last[high[0]])}")

    best, worst = findings.extremes(len(last))
    first, behind = low, high
    if not LESS_IS_BETTER.search(y):
        first, behind, best, worst = high, low, worst, best
    ahead = f"{findings.both(first, len(last))} {findings.verb(first, 'ends', 'end')} {best}, at {number(last[first[0]])}"
    between = {name: number(value) for name, value in last.items() if name not in (*high, *low)}
    last_of_all = f"{findings.both(behind, len(last))} {worst}, at {number(last[behind[0]])}"
    return findings.line(ahead, last_of_all, findings.between(between))


def _log_axis(ax: Axes, name: str, lowest: float) -> None:
    ax.set_yscale("log")
    scales.log_axis(ax.yaxis, name, lambda value: f"{value:.0e}" if value < 1e-3 else number(value))

    if lowest < FLOOR:
        ax.set_ylim(bottom=FLOOR / 3)
        ax.yaxis.set_major_locator(FixedLocator([tick for tick in ax.yaxis.get_majorticklocs() if tick > 30 * FLOOR]))
        ax.annotate(
            "0", (0, FLOOR), (-4, 0), ("axes fraction", "data"), "offset points", ha="right", va="center",
            fontsize=tokens.LABEL_PT,
        )  # fmt: skip


def hidden(name: str, rows: Mapping[str, Sequence]) -> bool:
    """Tell whether a later line in the picture covers this training run's line.

    `rows` holds the runs in order, each as numbers or as points.
    """
    own = np.array(rows[name], float)
    later = list(rows)[list(rows).index(name) + 1 :]

    for run in later:
        other = np.array(rows[run], float)
        if other.shape == own.shape and np.abs(other - own).max() <= ALIKE * np.abs(own).max():
            return True
    return False


def width(name: str, rows: Mapping[str, Sequence]) -> float:
    """Return the width of a training run's line: broad where a later line covers it."""
    if hidden(name, rows):
        return BROAD
    return THIN


def _history(
    ax: Axes, index: int, count: int, name: str, values: Sequence[float], width: float, tone: str
) -> None:
    steps = range(1, len(values) + 1)
    stride = max(1, math.ceil(len(values) / MARKERS_A_LINE))
    ax.plot(
        steps, values, color=tone, linewidth=width, label=name,
        # each line begins elsewhere, so that the markers of lines that coincide are all seen
        marker=base.marker(index), markersize=6.5, markevery=(index * stride // count, stride),
        markeredgewidth=0, zorder=2 + index,
    )  # fmt: skip


def _stems(ax: Axes, index: int, count: int, name: str, values: Sequence[float], tone: str) -> None:
    """Draw each value of a row apart, on a stem from zero, since nothing lies between two of them; rows stand side by side."""
    places = [step + STEM_GAP * (index - (count - 1) / 2) for step in range(1, len(values) + 1)]
    ax.vlines(places, 0, values, color=tone, linewidth=tokens.LINE_PT)
    ax.plot(places, values, color=tone, linestyle="none", label=name, marker=base.marker(index), markersize=5, markeredgewidth=0)


@dataclass(frozen=True)
class Descent:
    """A way of training: a point for each step that was looked at; None for an exercise not yet written."""

    name: str
    points: Sequence[LossPoint] | None


@base.plain_style
def descents(rows: Iterable[Descent], asks: str = "", *, y: str) -> Picture:
    """Draw how losses fall, against steps and against seconds side by side, on a logarithmic axis that `y` names.

    The axis of steps ends where the shortest row ends. `asks` is the question above the picture; ValueError unless it ends
    in "?".
    """
    rows = tuple(rows)
    if not rows:
        return base.notice("nothing was measured")
    known = list(filter(None, map(attrgetter("points"), rows)))
    if not known:
        return base.notice("not yet: " + ", ".join(map(attrgetter("name"), rows)))

    picture = Picture(base.WIDTH_IN, 3.2)
    left, right = picture.subplots(1, 2, sharey=True)
    tones = charts.tones([row.name for row in rows])
    for index, row in enumerate(rows):
        if row.points:
            steps, seconds, losses = zip(*row.points, strict=True)
            _loss(left, index, row.name, steps, losses, tones[row.name])
            _loss(right, index, row.name, seconds, losses, tones[row.name])

    last_steps, last_seconds, _ = zip(*(points[-1] for points in known), strict=True)
    _panel(left, "steps (updates of the weights)", min(last_steps))
    _panel(right, "seconds", max(last_seconds))
    _loss_axis(left, y, known)
    right.legend(fontsize=tokens.LABEL_PT, frameon=False, loc="upper right", handlelength=3.5)

    found = lowest(rows)
    heading.head(picture, asks, found)
    heading.tell(picture, asks, found, *map(_loss_in_words, rows))
    return picture


def lowest(rows: Sequence[Descent]) -> str:
    """Say which training runs diverge, and whose loss is lowest after as many steps and after as many seconds."""
    known = {row.name: row.points for row in rows if row.points}
    if len(known) == 1:
        ((name, points),) = known.items()
        curve = [(step, loss) for step, _, loss in points]
        return findings.line(findings.course(name, curve, "step {}".format))

    last_steps, last_seconds, _ = zip(*(points[-1] for points in known.values()), strict=True)
    last_step, last_s = min(last_steps), min(last_seconds)
    clauses, by_step, by_time = [], {}, {}
    for name, points in known.items():
        if not points[-1][2] <= ROOM_ABOVE * points[0][2]:  # or it is NaN
            clauses.append(f"{name} diverges")
        by_step[name] = _loss_at(points, 0, last_step)
        by_time[name] = _loss_at(points, 1, last_s)

    clauses.append(f"lowest after {units.count(last_step, 'step')}: {_low(by_step)}")
    return findings.line(*clauses, f"after {units.seconds(last_s)}: {_low(by_time)}")


def _loss_at(points: Sequence[LossPoint], by: int, until: float) -> float:
    """Return a training's last loss at or before a step (`by` 0) or a second (`by` 1); NaN where there is none."""
    last = math.nan
    for point in points:
        if point[by] <= until:
            last = point[2]
    return last


def _low(losses: Mapping[str, float]) -> str:
    names = findings.leaders(losses, largest=False)
    if len(names) > 1:
        return f"{findings.both(names)} tie"
    return findings.both(names) or "nobody"


def _loss(ax: Axes, index: int, name: str, xs: Sequence[float], losses: Sequence[float], tone: str) -> None:
    every = (len(xs) // (3 * MARKERS_A_LOSS) * index % max(1, len(xs)), max(1, len(xs) // MARKERS_A_LOSS))
    ax.plot(
        xs, _drawable(losses), color=tone, linestyle=DASHES[index % len(DASHES)], linewidth=tokens.LINE_PT,
        marker=base.marker(index), markevery=every, markersize=6, markeredgewidth=0, label=name,
    )  # fmt: skip


def _drawable(losses: Sequence[float]) -> np.ndarray:
    """Return training losses as an array, with NaN for values that a logarithmic axis cannot hold."""
    values = np.array(losses, float)
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _panel(ax: Axes, x: str, last: float) -> None:
    base.unframe(ax, "top", "right")
    ax.set_xlim(0, last * 1.02)
    ax.set_xlabel(x, fontsize=tokens.LABEL_PT, color=base.INK)
    ax.tick_params(colors=base.INK, labelsize=9, length=0)
    ax.grid(axis="y", color=base.RULE, linewidth=tokens.HAIR_PT)


def _loss_axis(ax: Axes, name: str, known: Sequence[Sequence[LossPoint]]) -> None:
    shown = _drawable([loss for _, _, loss in chain(*known)])
    low, high = 1.0, 1.0
    if not np.isnan(shown).all():
        low, high = np.nanmin(shown), np.nanmax(shown)
    highest_start = max(points[0][2] for points in known)

    ax.set_yscale("log")
    ax.set_ylim(low / 1.5, min(high, ROOM_ABOVE * highest_start) * 1.5)
    scales.log_axis(ax.yaxis, name, units.number)


def _loss_in_words(row: Descent) -> str:
    if not row.points:
        return f"{row.name}: not yet"

    (_, _, first), (step, seconds, last) = row.points[0], row.points[-1]
    lowest = min((loss for _, _, loss in row.points if math.isfinite(loss)), default=math.nan)
    return (
        f"{row.name}: from {units.number(first)} to {units.number(last)} after {units.count(step, 'step')}"
        f" and {units.seconds(seconds)}, lowest {units.number(lowest)}"
    )
