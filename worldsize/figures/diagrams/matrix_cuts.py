"""Two layers cut over ranks: the first by its outputs, the second by its inputs, and one all-reduce at the end.

A rectangle's sides grow with the square roots of the matrix's rows and columns, so that small ones are seen; a rank's part
has its colour. M. Shoeybi et al., "Megatron-LM", arXiv:1909.08053, 2019, figure 3. The backward pass, which is
not drawn, needs one more all-reduce.
"""

import math

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import heading

MOST_RANKS = 8
GAP = 0.55  # between two matrices
TALLEST, WIDEST = 1.6, 1.7  # inches of the largest matrix


@base.plain_style
def matrix_cuts(batch: int, inputs: int, hidden: int, outputs: int, n: int) -> Picture:
    """Draw y = relu(x upᵀ) downᵀ over `n` ranks: upᵀ cut by columns, downᵀ by rows. x is (batch, inputs), y (batch, outputs).

    Raises ValueError where n is not from 1 to 8, or does not divide `hidden`.
    """
    if not 1 <= n <= MOST_RANKS or hidden % n:
        raise ValueError(
            f"matrix_cuts: expected 1 to {MOST_RANKS} ranks, dividing hidden = {hidden} evenly, got n = {n}"
        )

    sides = (batch, inputs, hidden, outputs)
    unit = min(TALLEST, WIDEST) / math.sqrt(max(sides))
    picture = Picture(base.WIDTH_IN, 2.2)
    ax = picture.plot_area()

    x = 0.0
    x = _matrix(ax, x, "x", batch, inputs, unit, 1, "whole")
    x = _sign(ax, x, "·")
    x = _matrix(ax, x, "upᵀ", inputs, hidden, unit, n, "columns")
    x = _sign(ax, x, "→")
    x = _matrix(ax, x, "relu(x upᵀ)", batch, hidden, unit, n, "columns")
    x = _sign(ax, x, "·")
    x = _matrix(ax, x, "downᵀ", hidden, outputs, unit, n, "rows")
    x = _sign(ax, x, "→")
    x = _matrix(ax, x, "y" if n == 1 else f"y: {n} summands", batch, outputs, unit, n, "sum")

    ax.set_xlim(-0.05, x + 0.05)
    ax.set_ylim(-TALLEST / 2 - 0.5, TALLEST / 2 + 0.35)
    ax.set_aspect("equal")
    ax.set_axis_off()

    finding = "One rank holds both matrices, and nothing is sent"
    if n > 1:
        finding = "Forwards the ranks meet once, in an all-reduce of y"
    held, whole = hidden // n * (inputs + outputs), hidden * (inputs + outputs)
    small = f"{units.count(n, 'rank')}; each holds {held:,} of {whole:,} weights"
    heading.head(picture, "", finding, small)
    picture.alt = base.sentences(
        finding, small, f"upᵀ ({inputs} × {hidden}) is cut by columns", f"downᵀ ({hidden} × {outputs}) is cut by rows"
    )
    return picture


def _matrix(ax: Axes, x: float, name: str, rows: int, columns: int, unit: float, n: int, cut: str) -> float:
    """Draw a cut matrix that begins at `x`, its middle on the line; return where it ends."""
    height, width = unit * math.sqrt(rows), unit * math.sqrt(columns)
    for rank in range(n):
        look = {"edgecolor": base.INK, "linewidth": tokens.THIN_PT}
        if cut != "whole":
            look |= {"facecolor": base.colour(rank), "hatch": base.hatch(rank)}
        else:
            look |= {"facecolor": tokens.SHADE.light}

        left, bottom, wide, high = x, -height / 2, width, height
        if cut == "columns":
            left, wide = x + rank * width / n, width / n
        elif cut == "rows":
            bottom, high = height / 2 - (rank + 1) * height / n, height / n
        elif cut == "sum":  # every rank has a summand of the whole shape: one behind the other
            left, bottom = x + 0.07 * rank, bottom - 0.07 * rank
        ax.add_patch(Rectangle((left, bottom), wide, high, zorder=2 + n - rank, **look))

    if cut == "sum":
        width += 0.07 * (n - 1)
    middle = x + width / 2
    ax.text(middle, TALLEST / 2 + 0.12, name, ha="center", va="bottom", fontsize=tokens.HEAD_PT)
    ax.text(
        middle, -TALLEST / 2 - 0.2, f"{rows:,} × {columns:,}", ha="center", va="top", fontsize=tokens.SMALL_PT,
        color=base.QUIET_INK,
    )  # fmt: skip
    return x + width


def _sign(ax: Axes, x: float, sign: str) -> float:
    ax.text(x + GAP / 2, 0, sign, ha="center", va="center", fontsize=tokens.TITLE_PT)
    return x + GAP
