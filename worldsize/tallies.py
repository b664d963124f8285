"""Counts that ought to be equal, side by side: a group a run, a bar a counter, and a line at what was asked for.

A bar that falls short is hatched, and says by how much. Left out: times (`bars`) and bytes (`stacks`).
"""

from __future__ import annotations

from collections.abc import Mapping

from worldsize.picture import INK, QUIET_INK, RULE, WIDTH_IN, Picture, colour, headline, notice, plain_style
from worldsize.quantity import number

BACK = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}


@plain_style
def tallies(runs: Mapping[str, Mapping[str, float]], expected: float, title: str, small: str = "") -> Picture:
    """`runs[name][counter]` is how far it counted; `expected` is where each should be."""
    if not runs:
        return notice("nothing was counted")
    names = list(dict.fromkeys(counter for counts in runs.values() for counter in counts))
    lines = sum(len(counts) + 0.9 for counts in runs.values())
    picture = Picture(WIDTH_IN, 1.5 + 0.27 * lines)
    ax = picture.plot_area()
    ticks, y = [], 0.0
    for run, counts in runs.items():
        ax.text(0, y, run, fontsize=9.5, color=INK, weight="bold", va="center")
        for counter, value in counts.items():
            y += 1
            index, off = names.index(counter), value - expected
            short = abs(off) > 0.005 * expected
            ax.barh(y, value, 0.72, color=colour(index), edgecolor=INK, linewidth=0.5, hatch="///" if short else "")
            gap = f"  {number(abs(off))} {'too few' if off < 0 else 'too many'}" if short else ""
            told = f"{number(value)}{gap}"
            ax.annotate(told, (value, y), (7, 0), textcoords="offset points", fontsize=9, color=INK, va="center", bbox=BACK)
            ticks.append((y, counter))
        y += 1.0
    ax.axvline(expected, color=INK, linewidth=1, linestyle=(0, (4, 2)))
    ax.set_yticks([t for t, _ in ticks], [name for _, name in ticks])
    ax.set_ylim(y - 0.3, -0.7)
    ax.set_xlim(0, 1.3 * max(expected, *(v for counts in runs.values() for v in counts.values())))
    ax.grid(axis="x", color=RULE, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.tick_params(axis="x", colors=QUIET_INK)
    headline(ax, title, small or f"dashed line: {number(expected)}, as asked for")
    said = [f"{run}: " + ", ".join(f"{name} {number(value)}" for name, value in counts.items()) for run, counts in runs.items()]
    picture.alt = ". ".join([title, *said]) + "."
    return picture
