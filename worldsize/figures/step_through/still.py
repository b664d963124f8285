"""A step-through as one still picture: a few of its steps side by side, for where scripts do not run.

Cells have no hatch here: they are so small that their rows alone tell ranks apart.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.chunk_contents import counts
from worldsize.figures.step_through.layout import WIDTH, Layout, Position
from worldsize.figures.step_through.steps import Held, RankRest, Step, StepMessage
from worldsize.figures.step_through.text import label, rest_in_short, rest_in_words

MOST_PANELS = {1: 3, 2: 4}  # by columns
TITLE_IN, HEAD_IN = 0.4, 0.28
LABEL_PT, MARK_PT = 7.5, 7
BACK = {"boxstyle": "square,pad=0.05", "facecolor": base.PAPER, "edgecolor": "none"}


@base.plain_style
def still(steps: Sequence[Step], stage: Layout, title: str) -> Picture:
    """Draw some steps of a step-through, among them the first and the last, in place of the player."""
    columns = 2 if stage.width < WIDTH else 1
    chosen = sorted({round(k) for k in np.linspace(0, len(steps) - 1, MOST_PANELS[columns])})
    across = min(columns, len(chosen))
    rows = math.ceil(len(chosen) / across)
    panel_in = base.WIDTH_IN / columns * stage.height / stage.width + HEAD_IN
    high_in = TITLE_IN + rows * panel_in
    picture = Picture(base.WIDTH_IN, high_in)
    picture.set_layout_engine("none")  # every panel's place is known, and a layout engine takes seconds
    picture.text(base.EDGE_IN / base.WIDTH_IN, 1 - 0.1 / high_in, title, va="top", fontsize=tokens.TITLE_PT, color=base.INK)

    for place, number in enumerate(chosen):
        row, column = divmod(place, across)
        bottom = 1 - (TITLE_IN + (row + 1) * panel_in) / high_in
        ax = picture.add_axes((column / columns + 0.01, bottom, 1 / columns - 0.02, (panel_in - HEAD_IN) / high_in))
        ax.set(xlim=(0, stage.width), ylim=(stage.height, 0), aspect="equal")
        ax.axis("off")

        at = units.seconds(steps[number].end_s)
        ax.set_title(f"step {number + 1} of {len(steps)}, done at {at}", loc="left", fontsize=tokens.SMALL_PT, pad=3)
        _panel(ax, steps[number], stage)

    return picture


def _panel(ax: Axes, step: Step, stage: Layout) -> None:
    active: set[int] = set()
    for m in step.messages:
        active |= {m.src, m.dst}
        _arrow(ax, stage, m, label(m, step.tagged))

    for rank, centre in enumerate(stage.centres):
        _node(ax, rank, centre, stage, rank in active, step.rest.get(rank))
    if step.held:
        _cells(ax, step.held, stage)


def _node(ax: Axes, rank: int, centre: Position, stage: Layout, active: bool, rest: RankRest | None) -> None:
    (x, y), (w, h) = centre, stage.box
    edge = {"linewidth": tokens.THIN_PT, "linestyle": (0, (4, 2))}
    if active:
        edge = {"linewidth": tokens.LINE_PT, "linestyle": "-"}
    ax.add_patch(
        FancyBboxPatch(
            (x - w / 2, y - h / 2), w, h, boxstyle="round,pad=0,rounding_size=6", facecolor=base.PAPER,
            edgecolor=base.INK, zorder=3, **edge,
        )
    )  # fmt: skip
    _mark(ax, rank, x - w / 2 + 11, y - h / 2 + 13)

    wide = w > 60
    name = f"rank {rank}" if wide else str(rank)
    ax.text(x - w / 2 + 22, y - h / 2 + 14, name, fontsize=tokens.TINY_PT, color=base.INK, va="center", zorder=4)
    if rest is not None:
        words = rest_in_words(rest) if wide else rest_in_short(rest)
        ax.text(x, y + h / 2 + 4, words, fontsize=7, color=base.INK, ha="center", va="top", zorder=5)


def _mark(ax: Axes, rank: int, x: float, y: float) -> None:
    look = {"markersize": MARK_PT, "markeredgecolor": base.INK, "markeredgewidth": tokens.HAIR_PT, "zorder": 5}
    ax.plot(x, y, marker=base.marker(rank), color=base.colour(rank), **look)


def _cells(ax: Axes, held: Sequence[Held], stage: Layout) -> None:
    """Draw in a still a column for each chunk; in it, a row for each rank whose number is in the chunk."""
    (cw, ch), n = stage.cell, len(held)
    boxes: dict[int, list[list[Position]]] = defaultdict(list)  # by the rank whose number is in the cell, -1 for none
    for (x, y), row in zip(stage.centres, held, strict=True):
        for chunk, value in enumerate(row):
            left, top = x + (chunk - len(row) / 2) * cw, y - stage.box[1] / 2 + 26
            tally = counts(value, n)
            for rank, often in enumerate(tally or [0] * n):
                low, high = top + rank * ch, top + (rank + 1) * ch
                corners = [(left, low), (left + cw, low), (left + cw, high), (left, high)]
                boxes[rank if often else -1].append(corners)

            if tally is None or max(tally) > 1:
                wrong = "?" if tally is None else f"{max(tally)}×"
                ax.text(left + cw / 2, top + n * ch / 2, wrong, fontsize=6, ha="center", va="center", zorder=5)

    for rank, corners in boxes.items():
        fill = base.PAPER if rank < 0 else base.colour(rank)
        ax.add_collection(PolyCollection(corners, facecolor=fill, edgecolor=base.INK, linewidth=tokens.HAIR_PT, zorder=4))


def _arrow(ax: Axes, stage: Layout, message: StepMessage, words: str) -> None:
    """Draw a message's curve in a still, with its sender's marker and its label on it."""
    begin, via, end = stage.arrow(message.src, message.dst)
    curve = Path([begin, via, end], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
    look = {"mutation_scale": 9, "color": base.INK, "linewidth": tokens.LINE_PT}
    ax.add_patch(FancyArrowPatch(path=curve, arrowstyle="-|>", zorder=2, **look))

    x, y = ((a + 2 * b + c) / 4 for a, b, c in zip(begin, via, end, strict=True))
    _mark(ax, message.src, x, y)
    ax.text(x, y - 8, words, fontsize=LABEL_PT, color=base.INK, ha="center", va="bottom", zorder=6, bbox=BACK)
