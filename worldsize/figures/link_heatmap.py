"""The heat map of links: how many bytes each rank sent to each other rank.

Rows send, columns receive; sums stand at their ends. Up to `MOST_NUMBERED_RANKS`, cells and sums are numbers, so that colour is
not their only carrier; beyond, sums are bars.
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading
from worldsize.figures.frame.inputs import trace_of
from worldsize.figures.frame.message_pattern import message_pattern

MOST_NUMBERED_RANKS = 16
CELL_IN, LABELS_IN = 0.62, 0.9  # the most width of a cell, and about that of the labels at the left
GAP = 0.06  # round a cell, in cells
MARGIN = 0.9  # length of the longest bar, of the room beside the table


@base.plain_style
def links(of: Any) -> Picture:
    """Draw the bytes on each link: a row for each sender, a column for each receiver, the sums at the edges."""
    trace, instead = trace_of(of)
    if instead is not None:
        return instead

    n, finding = trace.world_size, message_pattern(trace)
    table = np.zeros((n, n))
    for t in trace.transfers:
        table[t.src, t.dst] += t.size_bytes
    scale, unit = units.byte_unit(max(table.sum(0).max(), table.sum(1).max()))

    picture = Picture(base.WIDTH_IN if n <= 12 else 8.5, min(7.9, 0.9 + 0.34 * (n + _margin(n))))
    ax = picture.plot_area()
    _cells(ax, table, scale)
    _axes(ax, n)

    busiest = _busiest_link(table)
    heading.head(picture, "", finding[0].upper() + finding[1:], f"{unit} from each rank to each other one; {busiest}")
    engine, needs_in = picture.get_layout_engine(), LABELS_IN + CELL_IN * (n + _margin(n))
    left, bottom, width, height = engine.get()["rect"]
    engine.set(rect=(left, bottom, min(width, needs_in / picture.get_figwidth()), height))
    picture.alt = f"Bytes on each link of {units.count(n, 'rank')}: {finding}; {busiest}. {_sent(table.sum(1))}."
    return picture


def _sent(totals: np.ndarray) -> str:
    """Say how much each rank sent over its links, ranks of equal sums together."""
    ranks: dict[str, list[str]] = {}
    for rank, total in enumerate(totals):
        ranks.setdefault(units.size(total), []).append(str(rank))

    if len(ranks) == 1 and len(totals) > 1:
        return f"Each rank sends {units.size(totals[0])}"
    if len(ranks) > 4:
        return f"Ranks send from {units.size(totals.min())} to {units.size(totals.max())}"
    said = [f"{size} by rank {', '.join(who)}" for size, who in ranks.items()]
    return f"Sent: {'; '.join(said)}"


def _busiest_link(table: np.ndarray) -> str:
    used = table[table > 0]
    if used.size == 1:
        return f"one link is used, {units.size(used.max())}"
    if used.size and used.min() == used.max():
        return f"{used.size} links are used, {units.size(used.max())} each"

    busiest = findings.leaders({f"{src} to {dst}": float(size) for (src, dst), size in np.ndenumerate(table)})
    if len(busiest) > 1:
        return f"the {len(busiest)} busiest links carry about {units.size(table.max())} each"
    return f"the busiest link is {busiest[0]} with {units.size(table.max())}"


def _cells(ax: Axes, table: np.ndarray, scale: float) -> None:
    """Draw the heat map's cells, each with room around it, and the sums at the right and below. Links to oneself stay blank."""
    n, largest = len(table), table.max() or 1
    for (src, dst), value in np.ndenumerate(table):
        if not value and (n > MOST_NUMBERED_RANKS or src == dst):
            continue
        edge = {"edgecolor": base.RULE, "linewidth": tokens.HAIR_PT}
        fill = base.amount(value / largest) if value else "none"
        ax.add_patch(Rectangle((dst - 0.5 + GAP, src - 0.5 + GAP), 1 - 2 * GAP, 1 - 2 * GAP, facecolor=fill, **edge))
    _sums(ax, table.sum(1), n, scale, across=True)
    _sums(ax, table.sum(0), n, scale, across=False)
    if n > MOST_NUMBERED_RANKS:
        return

    look = {"ha": "center", "va": "center", "fontsize": tokens.LABEL_PT if n <= 10 else tokens.SMALL_PT}
    for (src, dst), value in np.ndenumerate(table):
        if value:
            ax.text(dst, src, f"{value * scale:.3g}", **look)


def _sums(ax: Axes, sums: np.ndarray, n: int, scale: float, across: bool) -> None:
    """Draw what each rank sent (`across`, at the right) or received (below): numbers, or bars where numbers do not fit."""
    begin, room = n - 0.5 + 2 * GAP, MARGIN * _margin(n)
    if n > MOST_NUMBERED_RANKS:
        look = {"facecolor": tokens.SHADE.light, "edgecolor": base.QUIET_INK, "linewidth": tokens.HAIR_PT}
        for rank, length in enumerate(room * sums / (sums.max() or 1)):
            where = (begin, rank - 0.3), length, 0.6
            ax.add_patch(Rectangle(*(where if across else ((rank - 0.3, begin), 0.6, length)), **look))
        return

    look = {"fontsize": tokens.LABEL_PT if n <= 10 else tokens.SMALL_PT, "ha": "center", "va": "center", "color": base.QUIET_INK}
    middle = begin + room / 2
    for rank, total in enumerate(sums):
        ax.text(*((middle, rank) if across else (rank, middle)), f"{total * scale:.3g}", **look)
    ax.text(*((middle, -0.55) if across else (-0.62, middle)), "sends" if across else "receives", fontsize=tokens.LABEL_PT,
            ha="center" if across else "right", va="bottom" if across else "center", color=base.QUIET_INK)  # fmt: skip


def _margin(n: int) -> float:
    """Return the room for the heat map's sums beside `n` cells, in cells: numbers, or longer bars."""
    return 1.2 if n <= MOST_NUMBERED_RANKS else n / 5


def _axes(ax: Axes, n: int) -> None:
    step = 1 if n <= MOST_NUMBERED_RANKS else max(1, n // 8)
    ranks = range(0, n, step)
    edge = n - 0.5 + 2 * GAP + _margin(n)
    for rank in ranks:
        ax.text(rank, -0.55, str(rank), fontsize=tokens.LABEL_PT, ha="center", va="bottom")
    ax.set_xticks([])
    ax.set_yticks(ranks, list(map(str, ranks)))
    ax.set_xlim(-0.5, edge)
    ax.set_ylim(edge, -0.6 - 0.2 * max(2, n / 6))

    words = {"fontsize": tokens.LABEL_PT, "color": base.QUIET_INK}
    if n > MOST_NUMBERED_RANKS:
        ax.set_xlabel("to rank, and below what it receives", **words)
        ax.set_ylabel("from rank, and at the right what it sends", **words)
    else:
        ax.text(-0.62, -0.55, "to rank", ha="right", va="bottom", **words)
        ax.set_ylabel("from rank", **words)
    ax.spines["bottom"].set_visible(False)
