"""The map of the course: a box a lab, arrows from what it stands on, and how far one is.

Columns are by the longest way there. Left out: what is in a lab, and the order in which they are numbered.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture

TITLE_COLUMNS = 22
WIDE, HIGH = 1.0, 0.72  # of a box, in a grid of columns and rows
COLUMN, ROW = 1.38, 1.0


@dataclass(frozen=True)
class MappedLab:
    """A lab on the map: `after` are the numbers of the labs that it stands on; `here` marks the one that is open."""

    number: str
    title: str
    possible: float
    earned: float
    after: tuple[str, ...] = ()
    here: bool = False

    @property
    def done(self) -> bool:
        return self.earned >= self.possible


@base.plain_style
def course_map(labs: Sequence[MappedLab]) -> Picture:
    """`labs` in any order. Raises ValueError where one stands on a lab that is not among them, or on itself."""
    places = _places(labs)
    across = 1 + max(column for column, _ in places.values())
    down = 1 + max(row for _, row in places.values())

    picture = Picture(base.WIDTH_IN, 0.7 + 0.66 * down)
    ax = picture.plot_area()
    for lab in labs:
        for before in lab.after:
            _arrow(ax, places[before], places[lab.number])
    for lab in labs:
        _box(ax, places[lab.number], lab)

    ax.set_xlim(-0.05, (across - 1) * COLUMN + WIDE + 0.05)
    ax.set_ylim((down - 1) * ROW + HIGH + 0.05, -0.05)
    ax.set_axis_off()

    finding = _finding(labs)
    base.headline(ax, finding)
    picture.alt = base.sentences(finding, *map(_words, labs))
    return picture


def _finding(labs: Sequence[MappedLab]) -> str:
    earned, possible = sum(lab.earned for lab in labs), sum(lab.possible for lab in labs)
    done = sum(lab.done for lab in labs)
    return f"{done} of {units.count(len(labs), 'lab')} done, {units.number(earned)} of {units.number(possible)} points"


def _words(lab: MappedLab) -> str:
    stands = f", after {', '.join(lab.after)}" if lab.after else ""
    return f"Lab {lab.number}{stands}: {lab.title}, {units.number(lab.earned)} of {units.number(lab.possible)} points"


def _places(labs: Sequence[MappedLab]) -> dict[str, tuple[int, int]]:
    """(column, row) of each lab."""
    after = {lab.number: lab.after for lab in labs}
    for number, needed in after.items():
        unknown = [other for other in needed if other not in after or other == number]
        if unknown:
            raise ValueError(f"course_map: lab {number} stands on {', '.join(unknown)}: expected some of {', '.join(after)}")

    columns: dict[str, int] = {}
    for _ in after:  # as many rounds as there are labs are enough for any chain
        for number, needed in after.items():
            columns[number] = 1 + max((columns.get(other, 0) for other in needed), default=-1)

    rows: dict[int, int] = {}
    places = {}
    for number in sorted(after):
        column = columns[number]
        places[number] = (column, rows.get(column, 0))
        rows[column] = rows.get(column, 0) + 1
    return places


def _box(ax: Axes, place: tuple[int, int], lab: MappedLab) -> None:
    x, y = place[0] * COLUMN, place[1] * ROW
    edge, width, sign = base.QUIET_INK, tokens.THIN_PT, ""
    if lab.done:
        edge, width, sign = tokens.GOOD.light, tokens.STRONG_PT, "✔ "
    if lab.here:
        edge, width, sign = tokens.AMOUNT.light, tokens.STRONG_PT, f"{sign}▶ "
    look = {"boxstyle": "round,pad=0,rounding_size=0.07", "edgecolor": edge, "linewidth": width, "zorder": 3}
    ax.add_patch(FancyBboxPatch((x, y), WIDE, HIGH, facecolor=tokens.SHADE.light, **look))

    points = f"{units.number(lab.earned)}/{units.number(lab.possible)}"
    ax.text(x + 0.05, y + 0.15, f"{sign}{lab.number}", fontsize=tokens.SMALL_PT, weight="bold", va="center", zorder=4)
    ax.text(
        x + WIDE - 0.05, y + 0.15, points, fontsize=tokens.TINY_PT, va="center", ha="right", color=base.QUIET_INK, zorder=4
    )
    short = lab.title.partition(":")[0] if len(lab.title) > 2 * TITLE_COLUMNS else lab.title
    lines = textwrap.wrap(short, TITLE_COLUMNS, break_long_words=False)[:2]
    ax.text(x + 0.05, y + 0.3, "\n".join(lines), fontsize=tokens.TINY_PT, va="top", linespacing=1.15, zorder=4)


def _arrow(ax: Axes, before: tuple[int, int], after: tuple[int, int]) -> None:
    start = (before[0] * COLUMN + WIDE, before[1] * ROW + HIGH / 2)
    end = (after[0] * COLUMN, after[1] * ROW + HIGH / 2)
    look = {"arrowstyle": "-|>", "mutation_scale": 7, "linewidth": tokens.THIN_PT, "color": base.QUIET_INK}
    ax.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, zorder=2, **look))
