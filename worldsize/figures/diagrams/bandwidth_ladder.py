"""Bandwidths from a cache to a cable, on one logarithmic axis: measured here, and published for hardware that is not here.

Measured is a filled mark, published an empty one, and both are written out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.lines import Line2D

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second of one way to move data; `source` is the publisher, empty for a measurement made here."""

    name: str
    bytes_per_s: float
    source: str = ""


@base.plain_style
def bandwidth_ladder(rows: Sequence[Bandwidth]) -> Picture:
    """Draw the bandwidths, the widest at the top. Raises ValueError, with its name, for a row not above 0 or not finite."""
    for row in rows:
        if not 0 < row.bytes_per_s < math.inf:
            raise ValueError(f"bandwidth_ladder: {row.name}: expected bytes a second above 0, got {row.bytes_per_s}")
    if not rows:
        return base.notice("nothing was measured")

    order = sorted(rows, key=lambda row: -row.bytes_per_s)
    picture = Picture(base.WIDTH_IN, 1.25 + 0.25 * len(order))
    ax = picture.plot_area()
    slowest, fastest = order[-1].bytes_per_s, order[0].bytes_per_s
    for place, row in enumerate(order):
        ax.plot([slowest / 2, row.bytes_per_s], [place, place], color=base.RULE, linewidth=tokens.LINE_PT, zorder=1)
        look = {"markerfacecolor": tokens.PAPER.light}
        if not row.source:
            look = {"markerfacecolor": tokens.AMOUNT.light}
        ax.plot(row.bytes_per_s, place, "o", markersize=7, color=base.INK, zorder=2, **look)
        ax.annotate(
            _speed(row.bytes_per_s), (row.bytes_per_s, place), (9, 0), textcoords="offset points",
            fontsize=tokens.LABEL_PT, va="center",
        )  # fmt: skip

    ax.set_xscale("log")
    ax.set_xlim(slowest / 2, fastest * 12)  # room at the right for the widest row's number
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.set_yticks(range(len(order)), [row.name for row in order])
    ax.set_xlabel("bytes a second, logarithmic", fontsize=tokens.LABEL_PT)

    entries = []
    published = {bool(row.source) for row in order}
    for kind, label, fill in ((False, "measured here", tokens.AMOUNT), (True, "published", tokens.PAPER)):
        if kind in published:  # only marks that are drawn need an explanation
            look = {"marker": "o", "linestyle": "none", "color": base.INK, "markerfacecolor": fill.light, "markersize": 7}
            entries.append(Line2D([], [], label=label, **look))
    ax.legend(handles=entries, loc="lower right", fontsize=tokens.SMALL_PT, frameon=False)

    first, last = order[0], order[-1]
    finding = f"{first.name}: {_speed(fastest)}"
    if fastest != slowest:
        finding = f"{first.name}: {units.times(fastest / slowest)} times the bandwidth of {last.name}"
    picture.suptitle(finding, x=0.013, ha="left", fontsize=tokens.TITLE_PT)
    told = [f"{row.name}: {_speed(row.bytes_per_s)}, {row.source or 'measured here'}" for row in order]
    picture.alt = base.sentences(finding, *told)
    return picture


def _speed(bytes_per_s: float) -> str:
    return f"{units.size(bytes_per_s)}/s"
