"""How runs train: values step after step, losses against steps and against seconds, and two weights on their way.

A line that a later one lies on is drawn broader, so that both are seen. On a logarithmic scale a value
of zero is drawn at the bottom edge, which the axis names. Left out: ranks that report as they go (`report_curves`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from operator import attrgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading, scales
from worldsize.figures.frame.ends import farthest_off
from worldsize.units import number

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
NEAR = 0.02  # of what the paths span: nobody sees such a distance


@base.plain_style
def histories(
    rows: Mapping[str, Sequence[float] | None], asks: str = "", *, y: str, x: str = "step", log: bool = False,
    mean: bool = False, growth: bool = False, errors: bool = False,
) -> Picture:  # fmt: skip
    """A picture of training runs, a line each: values such as the loss after every step.

    A row begins with the value after step 1; None stands for an exercise not yet written. `y` names the axis. The finding
    says where lines end, or which is highest in the `mean` of its steps; with `growth` how each one runs, with `errors` how far
    each is from zero at worst. `asks` is the question over the picture; ValueError where it is none.
    """
    known = base.written(rows)
    if not known:
        return base.not_yet(", ".join(rows))

    picture = Picture(8.5, 3.6)
    ax = picture.plot_area()
    for index, name in enumerate(rows):
        if name not in known:
            ax.plot([], [], linestyle="none", label=f"{name}: not yet")
            continue
        values = known[name]
        if log:
            values = np.maximum(values, FLOOR)
        _history(ax, index, len(rows), name, values, _width(name, known))

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(x, fontsize=tokens.LABEL_PT, color=base.INK)
    ax.set_ylabel(y, fontsize=tokens.LABEL_PT, color=base.QUIET_INK)
    if log:
        _log_axis(ax, y, lowest=min(chain(*known.values()), default=FLOOR))
    ax.grid(axis="y", color=base.RULE, linewidth=tokens.HAIR_PT)
    ax.set_axisbelow(True)
    ax.legend(fontsize=tokens.LABEL_PT, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3)

    found = means(known) if mean else ends(known, x, y)
    if growth:
        found = findings.line(*(_course(name, values, x) for name, values in known.items()))
    elif errors:
        found = farthest_off(known, x, lambda value: f"{number(value)} {y.partition('(')[2].rstrip(')')}".rstrip())
    heading.head(picture, asks, found)
    picture.alt = heading.alt(asks, found, *base.of_each(partial(_history_in_words, x=x, y=y), rows))
    return picture


def means(rows: Mapping[str, Sequence[float]]) -> str:
    """What lines of training say in the mean of all steps: which is highest."""
    found = {name: sum(values) / len(values) for name, values in rows.items()}
    return f"In the mean of all steps {findings.ranked(found, ('is', 'are'), number, 'highest')}"


def ends(rows: Mapping[str, Sequence[float]], x: str, y: str) -> str:
    """What lines of training say: where one begins and ends; of several which lie on each other, and who ends highest."""
    if len(rows) == 1:
        ((name, values),) = rows.items()
        return findings.line(_course(name, values, x))

    alike = [name for name in rows if hidden(name, rows)]
    if len(alike) == len(rows) - 1:
        return findings.line(f"{findings.both(list(rows))} lie on each other")

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

    lower, higher = findings.extremes(len(last))
    above = f"{findings.both(high)} {findings.verb(high, 'ends', 'end')} {higher}, at {number(last[high[0]])}"
    between = {name: number(value) for name, value in last.items() if name not in (*high, *low)}
    return findings.line(above, findings.between(between), f"{findings.both(low)} {lower}, at {number(last[low[0]])}")


def _course(name: str, values: Sequence[float], x: str) -> str:
    return findings.course(name, enumerate(values, 1), lambda place: f"{x} {place}")


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
        steps, values, color=base.algorithm(index), linewidth=width, label=name,
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
def descents(rows: Iterable[Descent], asks: str = "", *, y: str) -> Picture:
    """A picture of training: how the loss falls.

    Losses against steps and against seconds, side by side, on a logarithmic axis that `y` names.

    The steps end where the shortest row ends. `asks` is the question over the picture; ValueError where it is none.
    """
    rows = tuple(rows)
    if not rows:
        return base.notice("nothing was measured")
    known = list(filter(None, map(attrgetter("points"), rows)))
    if not known:
        return base.notice("not yet: " + ", ".join(map(attrgetter("name"), rows)))

    picture = Picture(base.WIDTH_IN, 3.2)
    left, right = picture.subplots(1, 2, sharey=True)
    for index, row in enumerate(rows):
        if row.points:
            steps, seconds, losses = zip(*row.points, strict=True)
            _loss(left, index, row.name, steps, losses)
            _loss(right, index, row.name, seconds, losses)

    last_steps, last_seconds, _ = zip(*(points[-1] for points in known), strict=True)
    _panel(left, "steps (updates of the weights)", min(last_steps))
    _panel(right, "seconds", max(last_seconds))
    _loss_axis(left, y, known)
    right.legend(fontsize=tokens.LABEL_PT, frameon=False, loc="upper right", handlelength=3.5)

    found = lowest(rows)
    heading.head(picture, asks, found)
    picture.alt = heading.alt(asks, found, *map(_loss_in_words, rows))
    return picture


def lowest(rows: Sequence[Descent]) -> str:
    """What descents say: whose loss is lowest after as many steps, and whose after as many seconds, and who diverges."""
    known = {row.name: row.points for row in rows if row.points}
    if len(known) == 1:
        ((name, points),) = known.items()
        return findings.line(findings.course(name, [(step, loss) for step, _, loss in points], lambda step: f"step {step}"))

    last_step = min(points[-1][0] for points in known.values())
    last_s = min(points[-1][1] for points in known.values())
    by_step = {name: _loss_at(points, 0, last_step) for name, points in known.items()}
    by_time = {name: _loss_at(points, 1, last_s) for name, points in known.items()}

    wild = [name for name, points in known.items() if not points[-1][2] <= ROOM_ABOVE * points[0][2]]
    said = [
        f"lowest after {units.count(last_step, 'step')}: {_low(by_step)}",
        f"after {units.seconds(last_s)}: {_low(by_time)}",
        *(f"{name} diverges" for name in wild),
    ]
    return findings.line(*said)


def _loss_at(points: Sequence[LossPoint], by: int, until: float) -> float:
    """The last loss at or before a step (`by` is 0) or a second (1)."""
    before = [point[2] for point in points if point[by] <= until]
    return [math.nan, *before][-1]


def _low(losses: Mapping[str, float]) -> str:
    names = findings.leaders(losses, largest=False)
    if len(names) > 1:
        return f"{findings.both(names)} tie"
    return findings.both(names) or "nobody"


def _loss(ax: Axes, index: int, name: str, xs: Sequence[float], losses: Sequence[float]) -> None:
    every = (len(xs) // (3 * MARKERS_A_LOSS) * index % max(1, len(xs)), max(1, len(xs) // MARKERS_A_LOSS))
    ax.plot(
        xs, _drawable(losses), color=base.algorithm(index), linestyle=DASHES[index % len(DASHES)], linewidth=tokens.LINE_PT,
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


@base.plain_style
def paths(
    rows: Mapping[str, Sequence[Weights] | None], goals: Mapping[str, Weights], loss: Callable[[float, float], float],
    asks: str = "", *, x: str, y: str,
) -> Picture:  # fmt: skip
    """A picture of training in the plane of two weights.

    How a model of two numbers learns: paths of (x, y) through the contours of `loss`, and stars at the `goals`.

    `rows[name]` are the points of a path, None for one not yet written. `x`, `y` name the axes.
    `asks` is the question over the picture; ValueError where it is none.
    """
    known: dict[str, list[Weights]] = {}
    for name, path in rows.items():
        if path is not None:
            known[name] = np.array(path, float).tolist()
    if not known:
        return base.not_yet(", ".join(rows))

    picture = Picture(8.5, 4.2)
    ax = picture.plot_area()
    box = _box([*chain(*known.values()), *goals.values()])
    _contours(ax, loss, box)
    for index, name in enumerate(rows):
        if name in known:
            _path(ax, index, name, known[name], _width(name, known))
        else:
            ax.plot([], [], linestyle="none", label=f"{name}: not yet")
    star = {"marker": "*", "markersize": 17, "color": base.PAPER, "markeredgecolor": base.INK, "linestyle": "none"}
    for name, (a, b) in goals.items():
        ax.plot(a, b, zorder=9, label=name, **star)

    ax.set_xlim(box[0], box[1])
    ax.set_ylim(box[2], box[3])
    ax.set_xlabel(x, fontsize=tokens.LABEL_PT, color=base.INK)
    ax.set_ylabel(y, fontsize=tokens.LABEL_PT, color=base.QUIET_INK)
    ax.legend(fontsize=tokens.LABEL_PT, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.5)

    found = places(known, goals)
    heading.head(picture, asks, found, "grey: lines of equal loss over all examples")
    picture.alt = heading.alt(asks, found, *base.of_each(_end, known), *base.of_each(_at, goals))
    return picture


def places(paths: Mapping[str, Sequence[Weights]], goals: Mapping[str, Weights]) -> str:
    """What paths say: whether they lie on each other or end in one place, and how far from each goal."""
    reach = np.ptp([*chain(*paths.values()), *goals.values()], axis=0).max() or 1.0
    ends = {name: np.array(path[-1], float) for name, path in paths.items()}
    alike = [name for name in paths if hidden(name, paths)]

    said = ""
    if len(paths) > 1 and len(alike) == len(paths) - 1:
        said = f"{findings.both(list(paths))} lie on each other"
    elif len(paths) > 1:
        apart = max(np.abs(one - other).max() for one, other in combinations(ends.values(), 2))
        said = f"{findings.both(list(paths))} end in one place"
        if apart > NEAR * reach:
            said = f"the {len(paths)} paths end up to {number(apart)} apart"

    return findings.line(said, *(_distance(ends, name, np.array(goal, float), reach) for name, goal in goals.items()))


def _distance(ends: Mapping[str, np.ndarray], goal: str, place: np.ndarray, reach: float) -> str:
    far = {name: float(np.abs(end - place).max()) for name, end in ends.items()}
    worst, best = max(far, key=far.get), min(far, key=far.get)
    if far[worst] <= NEAR * reach:
        return f"{findings.verb(list(ends), 'it ends', 'each ends')} at the {goal}"
    if len(ends) > 1 and not findings.tie(far[worst], far[best]):
        return f"from the {goal} {best} ends {number(far[best])} away, {worst} {number(far[worst])}"
    return f"from the {goal} it is {number(far[worst])}"


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
    look = {"color": base.algorithm(index), "marker": base.marker(index), "markeredgecolor": base.INK}
    ax.plot(
        *zip(*path, strict=True), linewidth=width, markersize=6, label=name,
        markevery=(index * stride // 2 % stride, stride), markeredgewidth=0.5, zorder=3, **look,
    )  # fmt: skip
    ax.plot(*path[-1], markersize=10, zorder=4, **look)


def _end(path: Sequence[Weights]) -> str:
    return f"ends at {_at(path[-1])}"


def _at(point: Weights) -> str:
    return f"({units.number(point[0])}, {units.number(point[1])})"
