"""The contents of chunks: a row for each rank, a column for each chunk, and in each cell the ranks whose values are in its sum.

Rank r marks its numbers as 10**r, so the r-th digit of a sum, from the right, counts how often rank r went in.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import heading
from worldsize.figures.step_through.steps import Held

Counts = list[int]  # how often each rank's number is in a sum


@base.plain_style
def contributions(run: Any) -> Picture:
    """Draw whose numbers are in each chunk of each rank: `run[rank]` is a tensor of sums of 10**rank, a number a chunk."""
    if run.state == "not yet":
        return base.not_yet(run.not_yet or "this exercise")

    n = len(run.results)
    cells = []  # [rank][chunk]
    for row in run.results:
        cells.append([counts(float(value), n) for value in row])
    picture = Picture(max(6.0, min(9.5, 1.4 + 0.28 * n * len(cells[0]))), 1.1 + 0.42 * n)
    ax = picture.plot_area()

    for rank, row in enumerate(cells):
        for chunk, tally in enumerate(row):
            _cell(ax, rank, chunk, tally, n)
    _axes(ax, n, len(cells[0]))

    finding = _finding(cells, n)
    heading.head(picture, "", finding, "in each cell: the ranks whose numbers were added up there")
    clauses = []
    for rank, row in enumerate(cells):
        clauses.append(f"rank {rank}: " + ", ".join(_text(tally, n) for tally in row))
    picture.alt = f"{finding}. By chunk, {'; '.join(clauses)}."
    return picture


def counts(value: float, n: int) -> Counts | None:
    """Return how often each rank's mark is in a chunk's sum, rank 0's first; None where the value is no sum of marks."""
    if not 0 <= value < 10**n or value != int(value):
        return None
    return [int(value) // 10**rank % 10 for rank in range(n)]


def _text(tally: Counts | None, n: int) -> str:
    if tally is None:
        return "?"
    if not any(tally):
        return "nothing"
    if tally == [1] * n:  # a whole sum holds every rank's number once
        return "all"

    ranks: list[str] = []
    for rank, often in enumerate(tally):
        ranks += [str(rank)] * often
    return "+".join(ranks)


def _cell(ax: Axes, rank: int, chunk: int, tally: Counts | None, n: int) -> None:
    share = sum(map(bool, tally or ())) / n
    weight = "bold" if tally == [1] * n else "normal"

    look = {"facecolor": base.amount(share), "edgecolor": base.PAPER, "linewidth": tokens.STRONG_PT}
    ax.add_patch(Rectangle((chunk, rank), 1, 1, **look))
    ax.text(
        chunk + 0.5, rank + 0.5, _text(tally, n), ha="center", va="center", fontsize=tokens.HEAD_PT, color=base.INK,
        weight=weight,
    )  # fmt: skip


def _axes(ax: Axes, n: int, chunks: int) -> None:
    ax.set_xlim(0, chunks)
    ax.set_ylim(n, 0)
    ax.set_xticks(np.arange(chunks) + 0.5, base.numbered("chunk", chunks))
    ax.set_yticks(np.arange(n) + 0.5, base.numbered("rank", n))
    ax.tick_params(axis="y", pad=16)
    ax.spines["bottom"].set_visible(False)

    for rank in range(n):
        base.rank_mark(ax, rank, rank + 0.5, x=-0.02)
    ax.tick_params(axis="x", colors=base.QUIET_INK)


def _finding(cells: Sequence[Sequence[Counts | None]], n: int) -> str:
    whole = [row.count([1] * n) for row in cells]
    chunks = len(cells[0])

    if not any(whole):
        return "No rank holds the whole sum of any chunk yet"
    if len(set(whole)) > 1:
        return f"{units.count(sum(whole), 'whole sum')} in {n * chunks} cells"
    if whole[0] == chunks:
        return "Every rank holds the whole sum of every chunk"
    if whole[0] == 1:
        return "Every rank holds the whole sum of one chunk"
    return f"Every rank holds the whole sum of {units.count(whole[0], 'chunk')}"


def whole_sums(held: Sequence[Held]) -> int:
    """Count the chunks whose contents hold the whole sum, every rank's number once."""
    n = len(held)
    return sum(counts(value, n) == [1] * n for value in chain(*held))
