"""A table of outcomes as a picture: a row for each strategy, a column for each way, in each cell a mark and a colour.

The mark alone tells the outcome, so that colour is never its only carrier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import findings, heading

Cells = Mapping[tuple[str, str], str]  # (row, column) -> outcome
ROW_IN, LETTER_IN = 0.265, 0.077


@dataclass(frozen=True)
class Look:
    """The look of an outcome: its mark and its colour."""

    mark: str
    colour: str
    strength: float = 0.25  # of the colour, so that dark or light text reads on it


LOOKS = {
    "works": Look("✔ works", tokens.GOOD.light),
    "fails": Look("✘ fails", tokens.BAD.light),
    "wrong": Look("≠ wrong", tokens.NOTE.light, strength=0.45),
    "loses updates": Look("! loses", tokens.NOTE.light, strength=0.45),
}


@base.plain_style
def outcomes(rows: Sequence[str], columns: Sequence[str], cells: Cells, asks: str = "", small: str = "") -> Picture:
    """Draw a table of outcomes by (row, column): "works", "fails", "wrong", "loses updates", or a word of its own.

    A missing outcome is "–". `asks` is the question above the picture; ValueError unless it ends in "?".
    """
    label_in = 0.2 + LETTER_IN * max(map(len, rows), default=0)
    column_in = max(1.06, 0.1 + 0.0785 * max(map(len, columns), default=0))
    width = max(label_in + column_in * len(columns), base.WIDTH_IN - 0.2)
    table_in = 0.3 + ROW_IN * (len(rows) + 1)

    picture = Picture(width + 0.2, table_in)
    picture.set_layout_engine("none")
    statement = finding(rows, columns, cells)
    heading.head(picture, asks, statement, small)
    ax = picture.add_axes((0.1 / (width + 0.2), 0, width / (width + 0.2), table_in / picture.get_figheight()))
    ax.axis("off")
    ax.set_xlim(0, width)
    ax.set_ylim(table_in, 0)

    for k, column in enumerate(columns):
        x = label_in + column_in * (k + 0.5)
        ax.text(x, 0.12, column, fontsize=tokens.SMALL_PT, color=base.INK, ha="center", va="center", weight="bold")

    for r, row in enumerate(rows):
        y = 0.28 + ROW_IN * r
        ax.plot([0, width], [y, y], color=base.RULE, linewidth=tokens.HAIR_PT)
        ax.text(0, y + ROW_IN / 2, row, fontsize=tokens.LABEL_PT, color=base.INK, va="center")
        for k, column in enumerate(columns):
            _cell(ax, label_in + column_in * k, y, column_in, cells.get((row, column)))

    contents = "; ".join(_words(row, columns, cells) for row in rows)
    heading.tell(picture, asks, statement, small, contents)
    return picture


def finding(rows: Sequence[str], columns: Sequence[str], cells: Cells) -> str:
    """Count the outcomes that work among those that ran; name the best columns or, of two columns, count the rows alike."""
    ran_in, works_in = [], []  # columns, one for each outcome
    for (_, column), outcome in cells.items():
        if outcome in LOOKS:
            ran_in.append(column)
        if outcome == "works":
            works_in.append(column)
    if not ran_in:
        return "Nothing was run"

    clause = f"{len(works_in)} of {len(ran_in)} combinations work"
    if len(columns) == 2:
        alike = []
        for row in rows:
            one, other = cells.get((row, columns[0])), cells.get((row, columns[1]))
            if None not in (one, other):
                alike.append(one == other)
        return findings.line(clause, f"{sum(alike)} of {len(alike)} alike in both columns")

    by_column = {column: works_in.count(column) for column in columns if column in ran_in}
    best = findings.leaders(by_column)
    if 0 < len(best) < len(by_column):
        clause += f"; most of them with {findings.both(best)}, {by_column[best[0]]}{findings.verb(best, '', ' each')}"
    return clause


def _cell(ax: Axes, x: float, y: float, width: float, outcome: str | None) -> None:
    text, ink = "–", base.QUIET_INK
    if outcome:
        text, ink = outcome, base.INK

    look = LOOKS.get(text)
    if look:
        text = look.mark
        box = Rectangle((x + 0.03, y + 0.02), width - 0.06, ROW_IN - 0.04, facecolor=look.colour, linewidth=0)
        box.set_alpha(look.strength)
        ax.add_patch(box)

    ax.text(x + width / 2, y + ROW_IN / 2, text, fontsize=tokens.SMALL_PT, color=ink, ha="center", va="center")


def _words(row: str, columns: Sequence[str], cells: Cells) -> str:
    """Return a row of outcomes as text: "OneDevice: works in all 5", or column by column where outcomes differ."""
    known = {column: cells[row, column] for column in columns if (row, column) in cells}

    results = set(known.values())
    if len(results) > 1:
        return f"{row}: {base.listed(known)}"

    text = "".join(results)
    if len(known) > 1:
        text += " in both" if len(known) == 2 else f" in all {len(known)}"
    return f"{row}: {text}"
