"""The heat map of links: how many bytes each rank sent to each other one.

Rows send, columns receive; every cell holds its number too, so that colour is never the only carrier. Left
out: when.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from worldsize import units
from worldsize.figures import base
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings
from worldsize.figures.inputs import trace_of
from worldsize.figures.message_pattern import message_pattern

MOST_NUMBERED_RANKS = 16


def links(of: Any) -> Picture:
    """Heat map of the bytes on each link: a row a sender, a column a receiver, the sums at the edges."""
    trace, instead = trace_of(of)
    return instead or _heatmap(trace, message_pattern(trace))


@base.plain_style
def _heatmap(trace: Any, finding: str) -> Picture:
    """`trace` has at least one transfer; `finding` says in words what the messages do."""
    table = _table(trace)
    n = trace.world_size
    scale, unit = units.byte_unit(max(table.sum(0).max(), table.sum(1).max()))

    picture = Picture(base.WIDTH_IN if n <= 12 else 8.5, min(8.5, 1.9 + 0.36 * (n + 1)))
    ax = picture.plot_area()
    _cells(ax, table, scale)
    _axes(ax, n)

    busiest = _busiest_link(table)
    base.headline(ax, finding[0].upper() + finding[1:], f"{unit} from each rank to each other one; {busiest}")
    picture.alt = f"Bytes on each link of {units.count(n, 'rank')}: {finding}; {busiest}. {_sent(table.sum(1))}."
    return picture


def _sent(totals: np.ndarray) -> str:
    """What each rank sent, ranks of equal sums together."""
    ranks: dict[str, list[str]] = {}
    for rank, total in enumerate(totals):
        ranks.setdefault(units.size(total), []).append(str(rank))

    if len(ranks) == 1 and len(totals) > 1:
        return f"Each rank sends {units.size(totals[0])}"
    if len(ranks) > 4:
        return f"Ranks send from {units.size(totals.min())} to {units.size(totals.max())}"
    return "Sent: " + "; ".join(f"{size} by rank {', '.join(who)}" for size, who in ranks.items())


def _table(trace: Any) -> np.ndarray:
    table = np.zeros((trace.world_size, trace.world_size))
    for t in trace.transfers:
        table[t.src, t.dst] += t.size_bytes
    return table


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
    n, largest = len(table), table.max() or 1
    ax.imshow(table, cmap=base.HEAT, vmin=0, vmax=largest, aspect="auto")
    for rank in range(n):
        if not table[rank, rank]:
            ends = [rank - 0.5, rank + 0.5]
            ax.plot(ends, ends, color=base.RULE, linewidth=1)
    if n > MOST_NUMBERED_RANKS:
        return

    look = {"ha": "center", "va": "center", "fontsize": 9 if n <= 10 else 8}
    for (src, dst), value in np.ndenumerate(table):
        if value:
            ax.text(dst, src, f"{value * scale:.3g}", color=_ink_on(base.HEAT(value / largest)), **look)

    for rank in range(n):
        ax.text(n, rank, f"{table[rank].sum() * scale:.3g}", color=base.INK, **look)
        ax.text(rank, n, f"{table[:, rank].sum() * scale:.3g}", color=base.INK, **look)


def _axes(ax: Axes, n: int) -> None:
    if n <= MOST_NUMBERED_RANKS:
        ranks, edge = range(n + 1), n + 0.5  # with the sums beside the last one
        ax.set_xticks(ranks, [*map(str, range(n)), "sent"])
        ax.set_yticks(ranks, [*map(str, range(n)), "received"])
    else:
        ranks, edge = range(0, n, max(1, n // 8)), n - 0.5
        ax.set_xticks(ranks, list(map(str, ranks)))
        ax.set_yticks(ranks, list(map(str, ranks)))
    ax.set_xlim(-0.5, edge)
    ax.set_ylim(edge, -0.5)

    ax.set_xlabel("to rank", fontsize=9, color=base.INK)
    ax.set_ylabel("from rank", fontsize=9, color=base.INK)
    ax.spines["bottom"].set_visible(False)
    ax.axhline(n - 0.5, color=base.QUIET_INK, linewidth=0.8)
    ax.axvline(n - 0.5, color=base.QUIET_INK, linewidth=0.8)


def _ink_on(background: tuple[float, ...]) -> str:
    """Black or white, whichever has the greater contrast; the greater is never under 4.5:1 (WCAG 2)."""
    red, green, blue = map(_linear, background[:3])
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    on_black, on_white = (luminance + 0.05) / 0.05, 1.05 / (luminance + 0.05)
    if on_black > on_white:
        return "black"
    return "white"


def _linear(channel: float) -> float:
    if channel <= 0.04045:
        return channel / 12.92
    return ((channel + 0.055) / 1.055) ** 2.4
