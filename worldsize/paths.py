"""The way that two weights take through the plane, with the loss as contours: a model of two numbers as it learns.

A path is a line with a marker at every step that there is room for, broader where another lies on it; goals are
stars. Left out: models with more than two weights, which would need a projection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from worldsize import quantity
from worldsize.histories import BROAD, THIN, hidden
from worldsize.picture import INK, QUIET_INK, RULE, Picture, colour, headline, marker, not_yet, plain_style

Point = tuple[float, float]
GRID = 60
LEVELS = 9
MARKERS_A_PATH = 12
MARGIN = 0.12


@plain_style
def paths(
    rows: Mapping[str, Sequence[Point] | None], goals: Mapping[str, Point], loss: Callable[[float, float], float],
    title: str, x: str, y: str,
) -> Picture:  # fmt: skip
    """`rows[name]` are the points of a path, None for one not yet written; `goals` are marked. `x`, `y` name the axes."""
    known = {name: [tuple(map(float, p)) for p in path] for name, path in rows.items() if path is not None}
    if not known:
        return not_yet(f"{', '.join(rows)}")
    picture = Picture(8.5, 4.6)
    ax = picture.plot_area()
    box = _box([p for path in known.values() for p in path] + [tuple(p) for p in goals.values()])
    _contours(ax, loss, box)
    for index, name in enumerate(rows):
        if name in known:
            _path(ax, index, name, known[name], BROAD if hidden(name, known) else THIN)
        else:
            ax.plot([], [], linestyle="none", label=f"{name}: not yet")
    for name, (a, b) in goals.items():
        ax.plot(a, b, marker="*", markersize=17, color="white", markeredgecolor=INK, linestyle="none", zorder=9, label=name)
    ax.set_xlim(box[0], box[1])
    ax.set_ylim(box[2], box[3])
    ax.set_xlabel(x, fontsize=9, color=INK)
    ax.set_ylabel(y, fontsize=9, color=QUIET_INK)
    ax.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.5)
    headline(ax, title, "grey: lines of equal loss over all examples")
    ends = [f"{name}: ends at {_at(path[-1])}" for name, path in known.items()]
    picture.alt = ". ".join([title, *ends, *(f"{name}: {_at(point)}" for name, point in goals.items())]) + "."
    return picture


def _box(points: Sequence[Point]) -> tuple[float, float, float, float]:
    """Left, right, bottom, top, with a margin."""
    (left, bottom), (right, top) = np.min(points, axis=0), np.max(points, axis=0)
    wide, high = MARGIN * (right - left or 1), MARGIN * (top - bottom or 1)
    return left - wide, right + wide, bottom - high, top + high


def _contours(ax: Axes, loss: Callable[[float, float], float], box: tuple[float, float, float, float]) -> None:
    xs, ys = np.linspace(box[0], box[1], GRID), np.linspace(box[2], box[3], GRID)
    values = np.array([[float(loss(a, b)) for a in xs] for b in ys])
    low, high = values.min(), values.max()
    levels = low + (high - low) * np.linspace(0.02, 0.9, LEVELS) ** 2  # closer where it is flat
    ax.contour(xs, ys, values, levels=levels, colors=[RULE], linewidths=1.0, zorder=1)


def _path(ax: Axes, index: int, name: str, path: Sequence[Point], width: float) -> None:
    a, b = zip(*path, strict=True)
    stride = max(1, -(-len(path) // MARKERS_A_PATH))
    ax.plot(
        a, b, color=colour(index), linewidth=width, marker=marker(index), markersize=6, label=name,
        markevery=(index * stride // 2 % stride, stride), markeredgecolor=INK, markeredgewidth=0.5, zorder=3,
    )  # fmt: skip
    ax.plot(*path[-1], color=colour(index), marker=marker(index), markersize=10, markeredgecolor=INK, zorder=4)


def _at(point: Point) -> str:
    return f"({quantity.number(point[0])}, {quantity.number(point[1])})"
