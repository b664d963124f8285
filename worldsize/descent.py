"""How a loss falls: the same points against steps and against seconds, side by side.

Two ways of training can win one panel each, which is why both are drawn. Left out: smoothing, since jitter is part of
what is to be seen, and what is computed between two points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from worldsize import quantity
from worldsize.picture import INK, RULE, WIDTH_IN, Picture, colour, headline, marker, notice, plain_style

DASHES = ("-", (0, (6, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1)))
MARKERS_A_LINE = 8
ROOM_ABOVE = 30  # what rises over this multiple of the highest start leaves the picture

Point = tuple[int, float, float]  # step, seconds, loss


@dataclass(frozen=True)
class Descent:
    """One way of training: a point for each step that was looked at; None for an exercise not yet written."""

    name: str
    points: Sequence[Point] | None


@plain_style
def descents(rows: Sequence[Descent], title: str, y: str) -> Picture:
    """`y` names the loss, which is drawn on a logarithmic axis; the steps end where the shortest row ends."""
    known = [row.points for row in rows if row.points]
    if not known:
        return notice("not yet: " + ", ".join(row.name for row in rows) if rows else "nothing was measured")
    picture = Picture(WIDTH_IN, 3.5)
    left, right = picture.subplots(1, 2, sharey=True)
    for index, row in enumerate(rows):
        if row.points:
            _line(left, index, row, 0)
            _line(right, index, row, 1)
    _panel(left, "steps (updates of the weights)", min(points[-1][0] for points in known))
    _panel(right, "seconds", max(points[-1][1] for points in known))
    left.set_ylabel(y, fontsize=9, color=INK)
    _loss_axis(left, known)
    right.legend(fontsize=9, frameon=False, loc="upper right", handlelength=3.5)
    headline(left, title)
    left.title.set_wrap(False)
    picture.alt = ". ".join([title, *(_words(row) for row in rows)]) + "."
    return picture


def _line(ax: Axes, index: int, row: Descent, place: int) -> None:
    xs, ys = [point[place] for point in row.points], [_drawable(point[2]) for point in row.points]
    every = (len(xs) // (3 * MARKERS_A_LINE) * index % max(1, len(xs)), max(1, len(xs) // MARKERS_A_LINE))
    ax.plot(
        xs, ys, color=colour(index), linestyle=DASHES[index % len(DASHES)], linewidth=1.2, marker=marker(index),
        markevery=every, markersize=6, markeredgecolor=INK, markeredgewidth=0.5, label=row.name,
    )  # fmt: skip


def _drawable(loss: float) -> float:
    return loss if math.isfinite(loss) and loss > 0 else math.nan


def _panel(ax: Axes, x: str, last: float) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.set_xlim(0, last * 1.02)
    ax.set_xlabel(x, fontsize=9, color=INK)
    ax.tick_params(colors=INK, labelsize=9, length=0)
    ax.grid(axis="y", color=RULE, linewidth=0.6)


def _loss_axis(ax: Axes, known: Sequence[Sequence[Point]]) -> None:
    shown = [p[2] for points in known for p in points if not math.isnan(_drawable(p[2]))] or [1.0]
    ax.set_yscale("log")
    ax.set_ylim(min(shown) / 1.5, min(max(shown), ROOM_ABOVE * max(points[0][2] for points in known)) * 1.5)
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(shown) < 100 * min(shown) else (1,)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(lambda value, _: quantity.number(value))


def _words(row: Descent) -> str:
    if not row.points:
        return f"{row.name}: not yet"
    step, seconds, loss = row.points[-1]
    lowest = min((p[2] for p in row.points if math.isfinite(p[2])), default=math.nan)
    return (
        f"{row.name}: from {quantity.number(row.points[0][2])} to {quantity.number(loss)} after {quantity.count(step, 'step')}"
        f" and {quantity.seconds(seconds)}, lowest {quantity.number(lowest)}"
    )
