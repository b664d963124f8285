"""A whole collective as one strip: a small panel for each step, with a row for each rank and a column for each chunk.

Each rank marks its numbers as 10**rank (`chunk_contents`), so a cell tells whose numbers are in it. A cell is darker for
more ranks, and a whole sum has a dot.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.chunk_contents import counts, whole_sums
from worldsize.figures.frame import heading
from worldsize.figures.frame.inputs import waits_for
from worldsize.figures.step_through.steps import Held, held_first, steps_of

MOST_A_ROW = 8
CELL_IN = 0.16
KEY = "a row: a rank; a column: a chunk; the darker, the more ranks' numbers are in it; dot: the whole sum"


@base.plain_style
def collective_strip(run: Any) -> Picture:
    """Draw every step of a run whose ranks returned the notes of a `Watched` fabric, as for `steps(…, contents=…)`."""
    if waits_for(run):
        return base.not_yet(waits_for(run))

    notes = run.results
    steps = steps_of(run.trace, notes)
    held = [held_first(notes)]  # [step][rank]: the sums of a rank's chunks
    for step in steps:
        held.append(step.held)
    if not all(held):
        return base.notice("the ranks noted nothing: wrap the fabric in Watched(fabric, x) and return its notes")

    n = len(held[0])
    rows = -(-len(held) // MOST_A_ROW)  # rounded up
    across = min(len(held), MOST_A_ROW)
    picture = Picture(base.WIDTH_IN, 0.15 + rows * (0.42 + CELL_IN * n))
    panels = picture.subplots(rows, across, squeeze=False).ravel()

    for number, ax in enumerate(panels):
        ax.set_axis_off()
        if number < len(held):
            _panel(ax, held[number], n)
            ax.set_title(_named(number), fontsize=tokens.SMALL_PT, color=base.QUIET_INK, pad=3)

    whole = list(map(whole_sums, held))
    passed, cells = units.count(len(steps), "step"), n * len(held[0][0])
    finding = f"After {passed} {whole[-1]} of {cells} cells hold a whole sum"
    if whole[-1] == cells:
        finding = f"After {passed} every rank holds the whole sum of every chunk"
    heading.head(picture, "", finding, KEY)
    totals = ", ".join(f"{count} {_named(number)}" for number, count in enumerate(whole))
    picture.alt = base.sentences(finding, f"Whole sums: {totals}", "Darker cells hold the numbers of more ranks")
    return picture


def _named(number: int) -> str:
    return f"after step {number}" if number else "at the start"


def _panel(ax: Axes, held: Sequence[Held], n: int) -> None:
    chunks = len(held[0])
    for rank, row in enumerate(held):
        for chunk, value in enumerate(row):
            tally = counts(value, n) or []
            share = sum(map(bool, tally)) / n
            look = {"facecolor": base.amount(share), "edgecolor": base.QUIET_INK, "linewidth": tokens.HAIR_PT}
            ax.add_patch(Rectangle((chunk, rank), 1, 1, **look))
            if tally == [1] * n:
                ax.plot(chunk + 0.5, rank + 0.5, "o", markersize=2.4, color=tokens.PAPER.light)
    ax.set_xlim(-0.05, chunks + 0.05)
    ax.set_ylim(n + 0.05, -0.05)
    ax.set_aspect("equal")
