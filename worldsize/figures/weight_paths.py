"""Two weights on their way: the paths of small models through the contours of a loss, and the goals that they should reach.

A path that a later path covers is drawn broader, so that both are seen.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, combinations, product

import numpy as np
from matplotlib.axes import Axes

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading
from worldsize.figures.training import hidden, width
from worldsize.units import number

MARKERS_A_PATH = 12
Weights = tuple[float, float]
GRID = 60
LEVELS = 9
MARGIN = 0.12
NEAR = 0.02  # of what the paths span: a smaller distance is hardly visible


@base.plain_style
def paths(
    rows: Mapping[str, Sequence[Weights] | None], goals: Mapping[str, Weights], loss: Callable[[float, float], float],
    asks: str = "", *, x: str, y: str,
) -> Picture:  # fmt: skip
    """Draw training in the plane of two weights: paths of (x, y) through the contours of `loss`, and stars at the `goals`.

    `rows[name]` are the points of a path, None for one not yet written. `x`, `y` name the axes. `asks` is the question
    above the picture; ValueError unless it ends in "?".
    """
    known: dict[str, list[Weights]] = {}
    for name, path in rows.items():
        if path is not None:
            known[name] = np.array(path, float).tolist()
    if not known:
        return base.not_yet(*rows)

    picture = Picture(8.5, 4.2)
    ax = picture.plot_area()
    points = [*chain(*known.values()), *goals.values()]
    (left, bottom), (right, top) = np.min(points, axis=0), np.max(points, axis=0)
    wide, high = MARGIN * (right - left or 1), MARGIN * (top - bottom or 1)
    box = left - wide, right + wide, bottom - high, top + high
    _contours(ax, loss, box)
    for index, name in enumerate(rows):
        if name in known:
            _path(ax, index, name, known[name], width(name, known))
        else:
            ax.plot([], [], linestyle="none", label=f"{name}: not yet")
    star = {"marker": "*", "markersize": 17, "color": base.PAPER, "markeredgecolor": base.INK, "linestyle": "none"}
    for name, (a, b) in goals.items():
        ax.plot(a, b, zorder=9, label=name, **star)

    ax.set_xlim(*box[:2])
    ax.set_ylim(*box[2:])
    ax.set_xlabel(x, fontsize=tokens.LABEL_PT, color=base.INK)
    ax.set_ylabel(y, fontsize=tokens.LABEL_PT, color=base.QUIET_INK)
    ax.legend(fontsize=tokens.LABEL_PT, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.5)

    found = places(known, goals)
    heading.head(picture, asks, found, "grey: lines of equal loss over all examples")
    told = [f"{name}: ends at {_at(path[-1])}" for name, path in known.items()]
    heading.tell(picture, asks, found, *told, *base.of_each(_at, goals))
    return picture


def places(paths: Mapping[str, Sequence[Weights]], goals: Mapping[str, Weights]) -> str:
    """Say whether paths coincide or end in one place, and how far from each goal."""
    reach = np.ptp([*chain(*paths.values()), *goals.values()], axis=0).max() or 1.0
    ends = {name: np.array(path[-1], float) for name, path in paths.items()}
    covered = sum(hidden(name, paths) for name in paths)

    clause, apart = "", 0.0
    if 0 < covered == len(paths) - 1:
        clause = f"{findings.both(list(paths))} coincide"
    elif len(paths) > 1:
        apart = max(np.abs(one - other).max() for one, other in combinations(ends.values(), 2))
        clause = f"{findings.both(list(paths))} end in one place"
        if apart > NEAR * reach:
            clause = f"the {len(paths)} paths end up to {number(apart)} apart"

    distances = [_distance(ends, name, np.array(goal, float), reach) for name, goal in goals.items()]
    if apart > NEAR * reach:
        return findings.line(*distances, clause)
    return findings.line(clause, *distances)


def _distance(ends: Mapping[str, np.ndarray], goal: str, place: np.ndarray, reach: float) -> str:
    far = {name: float(np.abs(end - place).max()) for name, end in ends.items()}
    worst, best = max(far, key=far.get), min(far, key=far.get)
    if far[worst] <= NEAR * reach:
        return f"{findings.verb(list(ends), 'it ends', 'each ends')} at the {goal}"
    if len(ends) > 1 and not findings.tie(far[worst], far[best]):
        if len(ends) > 2:
            return f"they end {number(far[best])} to {number(far[worst])} from the {goal}"
        return f"from the {goal} {best} ends {number(far[best])} away, {worst} {number(far[worst])}"
    return f"{findings.verb(list(ends), 'it ends', 'each ends')} {number(far[worst])} from the {goal}"


def _contours(ax: Axes, loss: Callable[[float, float], float], box: tuple[float, float, float, float]) -> None:
    xs, ys = np.linspace(box[0], box[1], GRID), np.linspace(box[2], box[3], GRID)
    values = np.array([float(loss(a, b)) for b, a in product(ys, xs)]).reshape(GRID, GRID)

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


def _at(point: Weights) -> str:
    return f"({units.number(point[0])}, {units.number(point[1])})"
