"""What happened step after step in several runs: a line a run, and lines that lie on each other seen as such.

A line that a later one lies on is drawn broader, so that both are seen. On a logarithmic scale a value
of zero is drawn at the bottom edge, which the axis names. Left out: ranks that report as they go (`reported`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from worldsize import quantity
from worldsize.picture import INK, QUIET_INK, RULE, Picture, colour, headline, marker, not_yet, plain_style

MARKERS_A_LINE = 12
BROAD, THIN = 6.0, 1.5
ALIKE = 1e-3  # of the largest value: nobody sees such a difference
FLOOR = 1e-17  # under what float64 resolves at 1


@plain_style
def histories(rows: Mapping[str, Sequence[float] | None], title: str, y: str, x: str = "step", log: bool = False) -> Picture:
    """`rows[name]` are the values after step 1, 2, …; None for an exercise not yet written. `y` names the axis."""
    known = {name: list(values) for name, values in rows.items() if values is not None}
    if not known:
        return not_yet(f"{', '.join(rows)}")
    picture = Picture(8.5, 4.0)
    ax = picture.plot_area()
    for index, (name, values) in enumerate(rows.items()):
        if values is None:
            ax.plot([], [], linestyle="none", label=f"{name}: not yet")
        else:
            _line(ax, index, len(rows), name, [max(v, FLOOR) for v in values] if log else values, hidden(name, known))
    if log:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(numticks=9))
        ax.yaxis.set_minor_locator(NullLocator())
        if any(v < FLOOR for values in known.values() for v in values):
            ax.set_ylim(bottom=FLOOR / 3)
            ax.annotate("0", (0, FLOOR), (-4, 0), ("axes fraction", "data"), "offset points", ha="right", va="center",
                        fontsize=9, color=INK)  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(x, fontsize=9, color=INK)
    ax.set_ylabel(y, fontsize=9, color=QUIET_INK)
    ax.grid(axis="y", color=RULE, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3)
    headline(ax, title)
    picture.alt = ". ".join([title, *(_words(name, values, y, x) for name, values in rows.items())]) + "."
    return picture


def hidden(name: str, rows: Mapping[str, Sequence]) -> bool:
    """Whether a later row of `rows`, numbers or points, lies on this one."""
    own, later = np.array(rows[name], float), list(rows)[list(rows).index(name) + 1 :]
    others = [np.array(rows[other], float) for other in later]
    return any(o.shape == own.shape and np.abs(o - own).max() <= ALIKE * np.abs(own).max() for o in others)


def _line(ax: Axes, index: int, count: int, name: str, values: Sequence[float], under: bool) -> None:
    steps = range(1, len(values) + 1)
    stride = max(1, math.ceil(len(values) / MARKERS_A_LINE))
    ax.plot(
        steps, values, color=colour(index), linewidth=BROAD if under else THIN, label=name, marker=marker(index), markersize=6.5,
        markevery=(index * stride // count, stride), markeredgecolor=INK, markeredgewidth=0.5, zorder=2 + index,
    )  # fmt: skip


def _words(name: str, values: Sequence[float] | None, y: str, x: str) -> str:
    if values is None:
        return f"{name}: not yet"
    first, last = quantity.number(values[0]), quantity.number(values[-1])
    return f"{name}: {y} {first} at the first {x}, {last} at {x} {len(values)}"
