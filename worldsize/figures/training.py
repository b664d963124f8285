"""How runs train: values step after step, losses against steps and against seconds, and two weights on their way.

A line that a later one lies on is drawn broader, so that both are seen. On a logarithmic scale a value
of zero is drawn at the bottom edge, which the axis names. Left out: ranks that report as they go (`report_curves`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from worldsize import units
from worldsize.figures import base
from worldsize.figures.base import Picture

MARKERS_A_LINE, MARKERS_A_LOSS, MARKERS_A_PATH = 12, 8, 12
BROAD, THIN = 6.0, 1.5
ALIKE = 1e-3  # of the largest value: nobody sees such a difference
FLOOR = 1e-17  # under what float64 resolves at 1
DASHES = ("-", (0, (6, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1)))
ROOM_ABOVE = 30  # what rises over this multiple of the highest start leaves the picture
LossPoint = tuple[int, float, float]  # step, seconds, loss
Weights = tuple[float, float]
GRID = 60
LEVELS = 9
MARGIN = 0.12


@base.plain_style
def histories(rows: Mapping[str, Sequence[float] | None], title: str, y: str, x: str = "step", log: bool = False) -> Picture:
    """A picture of training runs, a line each: values such as the loss after every step.

    A row begins with the value after step 1; None stands for an exercise not yet written. `y` names the axis.
    """
    known = base.written(rows)
    if not known:
        return base.not_yet(", ".join(rows))

    picture = Picture(8.5, 4.0)
    ax = picture.plot_area()
    for index, name in enumerate(rows):
        if name not in known:
            ax.plot([], [], linestyle="none", label=f"{name}: not yet")
            continue
        values = known[name]
        if log:
            values = np.maximum(values, FLOOR)
        _history(ax, index, len(rows), name, values, _width(name, known))

    if log:
        _log_axis(ax, lowest=min(chain(*known.values()), default=FLOOR))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(x, fontsize=9, color=base.INK)
    ax.set_ylabel(y, fontsize=9, color=base.QUIET_INK)
    ax.grid(axis="y", color=base.RULE, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3)

    base.headline(ax, title)
    picture.alt = base.sentences(title, *base.of_each(partial(_history_in_words, x=x, y=y), rows))
    return picture


def _log_axis(ax: Axes, lowest: float) -> None:
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(numticks=9))
    ax.yaxis.set_minor_locator(NullLocator())

    if lowest < FLOOR:
        ax.set_ylim(bottom=FLOOR / 3)
        ax.annotate(
            "0", (0, FLOOR), (-4, 0), ("axes fraction", "data"), "offset points", ha="right", va="center", fontsize=9,
            color=base.INK,
        )  # fmt: skip


def hidden(name: str, rows: Mapping[str, Sequence]) -> bool:
    """Whether, in a picture of training runs, the line of a later run lies on this one, which is then drawn broader.

    `rows` holds the runs in order, each as numbers or as points.
    """
    own = np.array(rows[name], float)
    later = list(rows)[list(rows).index(name) + 1 :]

    for run in later:
        other = np.array(rows[run], float)
        if other.shape == own.shape and np.abs(other - own).max() <= ALIKE * np.abs(own).max():
            return True
    return False


def _width(name: str, rows: Mapping[str, Sequence]) -> float:
    if hidden(name, rows):
        return BROAD
    return THIN


def _history(ax: Axes, index: int, count: int, name: str, values: Sequence[float], width: float) -> None:
    steps = range(1, len(values) + 1)
    stride = max(1, math.ceil(len(values) / MARKERS_A_LINE))
    ax.plot(
        steps, values, color=base.colour(index), linewidth=width, label=name,
        marker=base.marker(index), markersize=6.5, markevery=(index * stride // count, stride),
        markeredgecolor=base.INK, markeredgewidth=0.5, zorder=2 + index,
    )  # fmt: skip


def _history_in_words(values: Sequence[float], x: str, y: str) -> str:
    first, last = units.number(values[0]), units.number(values[-1])
    return f"{y} {first} at the first {x}, {last} at {x} {len(values)}"


@dataclass(frozen=True)
class Descent:
    """One way of training: a point for each step that was looked at; None for an exercise not yet written."""

    name: str
    points: Sequence[LossPoint] | None


@base.plain_style
def descents(rows: Iterable[Descent], title: str, y: str) -> Picture:
    """A picture of training: how the loss falls.

    Losses against steps and against seconds, side by side, on a logarithmic axis that `y` names.

    The steps end where the shortest row ends.
    """
    rows = tuple(rows)
    if not rows:
        return base.notice("nothing was measured")
    known = list(filter(None, map(attrgetter("points"), rows)))
    if not known:
        return base.notice("not yet: " + ", ".join(map(attrgetter("name"), rows)))

    picture = Picture(base.WIDTH_IN, 3.5)
    left, right = picture.subplots(1, 2, sharey=True)
    for index, row in enumerate(rows):
        if row.points:
            steps, seconds, losses = zip(*row.points, strict=True)
            _loss(left, index, row.name, steps, losses)
            _loss(right, index, row.name, seconds, losses)

    last_steps, last_seconds, _ = zip(*(points[-1] for points in known), strict=True)
    _panel(left, "steps (updates of the weights)", min(last_steps))
    _panel(right, "seconds", max(last_seconds))
    left.set_ylabel(y, fontsize=9, color=base.INK)
    _loss_axis(left, known)
    right.legend(fontsize=9, frameon=False, loc="upper right", handlelength=3.5)

    base.headline(left, title)
    left.title.set_wrap(False)
    picture.alt = base.sentences(title, *map(_loss_in_words, rows))
    return picture


def _loss(ax: Axes, index: int, name: str, xs: Sequence[float], losses: Sequence[float]) -> None:
    every = (len(xs) // (3 * MARKERS_A_LOSS) * index % max(1, len(xs)), max(1, len(xs) // MARKERS_A_LOSS))
    ax.plot(
        xs, _drawable(losses), color=base.colour(index), linestyle=DASHES[index % len(DASHES)], linewidth=1.2,
        marker=base.marker(index), markevery=every, markersize=6, markeredgecolor=base.INK, markeredgewidth=0.5,
        label=name,
    )  # fmt: skip


def _drawable(losses: Sequence[float]) -> np.ndarray:
    """Losses on a logarithmic axis; NaN in place of those that it cannot hold."""
    values = np.array(losses, float)
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _panel(ax: Axes, x: str, last: float) -> None:
    base.unframe(ax, "top", "right")
    ax.set_xlim(0, last * 1.02)
    ax.set_xlabel(x, fontsize=9, color=base.INK)
    ax.tick_params(colors=base.INK, labelsize=9, length=0)
    ax.grid(axis="y", color=base.RULE, linewidth=0.6)


def _loss_axis(ax: Axes, known: Sequence[Sequence[LossPoint]]) -> None:
    shown = _drawable([loss for _, _, loss in chain(*known)])
    low, high = 1.0, 1.0
    if not np.isnan(shown).all():
        low, high = np.nanmin(shown), np.nanmax(shown)
    highest_start = max(points[0][2] for points in known)

    subs: tuple[int, ...] = (1,)
    if high < 100 * low:
        subs = (1, 2, 5)

    ax.set_yscale("log")
    ax.set_ylim(low / 1.5, min(high, ROOM_ABOVE * highest_start) * 1.5)
    ax.yaxis.set_major_locator(LogLocator(subs=subs))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(lambda value, _: units.number(value))


def _loss_in_words(row: Descent) -> str:
    if not row.points:
        return f"{row.name}: not yet"

    (_, _, first), (step, seconds, last) = row.points[0], row.points[-1]
    lowest = min((loss for _, _, loss in row.points if math.isfinite(loss)), default=math.nan)
    return (
        f"{row.name}: from {units.number(first)} to {units.number(last)} after {units.count(step, 'step')}"
        f" and {units.seconds(seconds)}, lowest {units.number(lowest)}"
    )


@base.plain_style
def paths(
    rows: Mapping[str, Sequence[Weights] | None], goals: Mapping[str, Weights], loss: Callable[[float, float], float],
    title: str, x: str, y: str,
) -> Picture:  # fmt: skip
    """A picture of training in the plane of two weights.

    How a model of two numbers learns: paths of (x, y) through the contours of `loss`, and stars at the `goals`.

    `rows[name]` are the points of a path, None for one not yet written. `x`, `y` name the axes.
    """
    known: dict[str, list[Weights]] = {}
    for name, path in rows.items():
        if path is not None:
            known[name] = np.array(path, float).tolist()
    if not known:
        return base.not_yet(", ".join(rows))

    picture = Picture(8.5, 4.6)
    ax = picture.plot_area()
    box = _box([*chain(*known.values()), *goals.values()])
    _contours(ax, loss, box)
    for index, name in enumerate(rows):
        if name in known:
            _path(ax, index, name, known[name], _width(name, known))
        else:
            ax.plot([], [], linestyle="none", label=f"{name}: not yet")
    star = {"marker": "*", "markersize": 17, "color": "white", "markeredgecolor": base.INK, "linestyle": "none"}
    for name, (a, b) in goals.items():
        ax.plot(a, b, zorder=9, label=name, **star)

    ax.set_xlim(box[0], box[1])
    ax.set_ylim(box[2], box[3])
    ax.set_xlabel(x, fontsize=9, color=base.INK)
    ax.set_ylabel(y, fontsize=9, color=base.QUIET_INK)
    ax.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.5)

    base.headline(ax, title, "grey: lines of equal loss over all examples")
    picture.alt = base.sentences(title, *base.of_each(_end, known), *base.of_each(_at, goals))
    return picture


def _box(points: Sequence[Weights]) -> tuple[float, float, float, float]:
    """Left, right, bottom, top, with a margin."""
    (left, bottom), (right, top) = np.min(points, axis=0), np.max(points, axis=0)
    wide, high = MARGIN * (right - left or 1), MARGIN * (top - bottom or 1)
    return left - wide, right + wide, bottom - high, top + high


def _contours(ax: Axes, loss: Callable[[float, float], float], box: tuple[float, float, float, float]) -> None:
    xs, ys = np.linspace(box[0], box[1], GRID), np.linspace(box[2], box[3], GRID)
    values = np.array([[float(loss(a, b)) for a in xs] for b in ys])

    low, high = values.min(), values.max()
    levels = low + (high - low) * np.linspace(0.02, 0.9, LEVELS) ** 2  # closer where it is flat
    ax.contour(xs, ys, values, levels=levels, colors=[base.RULE], linewidths=1.0, zorder=1)


def _path(ax: Axes, index: int, name: str, path: Sequence[Weights], width: float) -> None:
    stride = max(1, math.ceil(len(path) / MARKERS_A_PATH))
    look = {"color": base.colour(index), "marker": base.marker(index), "markeredgecolor": base.INK}
    ax.plot(
        *zip(*path, strict=True), linewidth=width, markersize=6, label=name,
        markevery=(index * stride // 2 % stride, stride), markeredgewidth=0.5, zorder=3, **look,
    )  # fmt: skip
    ax.plot(*path[-1], markersize=10, zorder=4, **look)


def _end(path: Sequence[Weights]) -> str:
    return f"ends at {_at(path[-1])}"


def _at(point: Weights) -> str:
    return f"({units.number(point[0])}, {units.number(point[1])})"
