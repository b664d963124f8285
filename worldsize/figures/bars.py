"""Bars: a race of measured times, a lab's questions, each with its prediction beside it, and counters that should be equal.

Measured is filled, predicted is a dashed outline, and both are written out as numbers. Left out: error bars.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from worldsize import units
from worldsize.figures.base import INK, QUIET_INK, RULE, WIDTH_IN, Picture, colour, hatch, headline, notice, plain_style
from worldsize.units import number

ROOM_FOR_TEXT = 1.4
BACK = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
QUESTION_COLUMNS = 85
TITLE_COLUMNS = 80


@dataclass(frozen=True)
class Timing:
    """One bar of a race. `measured_s` is None for an exercise not yet written, `predicted_s` where nobody predicted.

    Bars of one world size stand together; `group` names another reason to, such as a size.
    """

    name: str
    measured_s: float | None
    predicted_s: float | None = None
    world_size: int | None = None
    group: str = ""

    @property
    def at(self) -> str:
        """What its group has in common, in words; empty where there is nothing."""
        return self.group or ("" if self.world_size is None else units.count(self.world_size, "rank"))


@plain_style
def race(rows: Iterable[Timing], title: str = "") -> Picture:
    """A bar for each measured time with its prediction beside it, in groups of one world size.

    A name keeps its colour and hatch through all groups.
    """
    rows = tuple(rows)
    if not rows:
        return notice("nothing has raced yet")
    groups = {at: [r for r in rows if r.at == at] for at in dict.fromkeys(r.at for r in rows)}
    names = list(dict.fromkeys(row.name for row in rows))
    picture = Picture(WIDTH_IN, 1.2 + 0.36 * len(rows) + 0.3 * len(groups))
    ax = picture.plot_area()
    y, ticks = 0.0, []
    for at, members in groups.items():
        y = _group_title(ax, y, at)
        for row in members:
            _timing(ax, y, row, names.index(row.name))
            ticks.append((y, row.name))
            y += 1
    _finish_race(ax, rows, ticks)
    words = [words for at, members in groups.items() if (words := _fastest(at, members))]
    finding = title or (words[-1][0].upper() + words[-1][1:] if words else "Not measured yet")
    picture.suptitle(textwrap.fill(finding, TITLE_COLUMNS), x=0.013, ha="left", fontsize=11, color=INK)
    picture.alt = ". ".join([*([title] if title else []), *words, *map(_words, rows)]) + "."
    return picture


def _group_title(ax: Axes, y: float, at: str) -> float:
    if not at:
        return y
    ax.text(0, y + 0.1, at, fontsize=10, weight="bold", color=INK, va="center")
    return y + 0.85


def _timing(ax: Axes, y: float, row: Timing, index: int) -> None:
    text = {"fontsize": 9, "va": "center"}
    top = y if row.predicted_s is None else y - 0.12
    if row.measured_s is None:
        ax.text(0, top, " not yet", color=INK, **text)
    else:
        look = {"color": colour(index), "edgecolor": INK, "linewidth": 0.6, "hatch": hatch(index)}
        ax.barh(top, row.measured_s, 0.42, **look)
        ax.text(row.measured_s, top, f" {units.seconds(row.measured_s)}", color=INK, **text)
    if row.predicted_s is not None:
        _outline(ax, y + 0.22, row.predicted_s, 0.2)
        predicted = f" predicted {units.seconds(row.predicted_s)}"
        ax.text(row.predicted_s, y + 0.24, predicted, color=QUIET_INK, **{**text, "fontsize": 8})


def _outline(ax: Axes, y: float, width: float, height: float) -> None:
    ax.barh(y, width, height, facecolor="white", edgecolor=INK, linewidth=0.9, linestyle=(0, (3, 2)))


def _finish_race(ax: Axes, rows: Sequence[Timing], ticks: Sequence[tuple[float, str]]) -> None:
    largest_s = max((s for row in rows for s in (row.measured_s, row.predicted_s) if s is not None), default=0) or 1
    scale, unit = units.time_unit(largest_s)
    ax.set_xlim(0, largest_s * ROOM_FOR_TEXT)
    ax.set_yticks(*zip(*ticks, strict=True))
    ax.set_ylim(ticks[-1][0] + 0.6, -0.6)
    ax.xaxis.set_major_formatter(lambda value, _: units.number(round(value * scale, 9)))
    ax.set_xlabel(f"time ({unit}), shorter is better", fontsize=9, color=INK)
    if any(row.predicted_s is not None for row in rows):
        _legend(ax)


def _legend(ax: Axes) -> None:
    measured = Patch(facecolor="#9a9a9a", edgecolor=INK, label="measured")
    predicted = Patch(facecolor="white", edgecolor=INK, linestyle=(0, (3, 2)), label="predicted")
    ax.legend(handles=[measured, predicted], loc="upper right", fontsize=9, frameon=False)


def _fastest(at: str, rows: Sequence[Timing]) -> str:
    """Who won and by how much; empty where nothing was measured."""
    order = sorted((row for row in rows if row.measured_s is not None), key=lambda row: row.measured_s)
    at = at and f"at {at} "
    if len(order) < 2:
        return "".join(f"{at}{row.name} takes {units.seconds(row.measured_s)}" for row in order)
    first, last = order[0], order[-1]
    times = units.times(last.measured_s / first.measured_s) if first.measured_s else "many"
    if times == "1":
        return f"{at}{first.name} and {last.name} take about as long"
    return f"{at}{first.name} is fastest, {last.name} takes {times} times as long"


def _words(row: Timing) -> str:
    at = row.at and f" at {row.at}"
    measured = "not yet" if row.measured_s is None else units.seconds(row.measured_s)
    predicted = "" if row.predicted_s is None else f", predicted {units.seconds(row.predicted_s)}"
    return f"{row.name}{at}: {measured}{predicted}"


def predicted(lab: Any, ids: Iterable[str] | None = None) -> Picture:
    """Bars for a lab's questions: each prediction beside its measurement.

    `ids` chooses some questions. ValueError for an id that wasn't asked.
    """
    rows = {row.id: row for row in lab.rows()}
    ids = list(rows if ids is None else ids)
    unknown = [id for id in ids if id not in rows]
    if unknown:
        known = ", ".join(map(repr, rows)) or "none so far"
        raise ValueError(
            f"figures.predicted: the lab has no prediction and no measurement {unknown[0]!r}; expected one of: "
            f"{known}. Run the cell that asks it first."
        )
    return _predictions([rows[id] for id in ids]) if ids else notice("no predictions yet")


@plain_style
def _predictions(rows: Sequence[Any]) -> Picture:
    """A lab's rows (`summary.Row`), one pair of bars each; every pair has its own scale, since units differ."""
    wrapped = [textwrap.wrap(row.question, QUESTION_COLUMNS) for row in rows]
    picture = Picture(WIDTH_IN, 0.5 + sum(0.62 + 0.19 * len(lines) for lines in wrapped))
    ax = picture.plot_area()
    y = 0.0
    for row, lines in zip(rows, wrapped, strict=True):
        ax.text(0, y, "\n".join(lines), fontsize=10, color=INK, va="top", linespacing=1.15)
        y += 0.19 * len(lines)
        _pair(ax, y, row)
        y += 0.62
    ax.set_xlim(0, 1.8)
    ax.set_ylim(y, -0.05)
    ax.set_axis_off()
    headline(ax, "Predictions beside measurements", "each pair of bars has its own scale")
    picture.alt = "Predictions beside measurements. " + " ".join(_row_words(row) for row in rows)
    return picture


def _pair(ax: Axes, y: float, row: Any) -> None:
    comparable = row.predicted is None or row.measured is None or row.unit == row.measured_unit
    numbers = [abs(n) for n in (row.predicted, row.measured) if n is not None] if comparable else []
    largest = max(numbers, default=0) or 1
    for offset, value, words in (
        (0.13, row.measured, row.measured_text if row.measured is None else f"measured {row.measured_text}"),
        (0.33, row.predicted, row.predicted_text if row.predicted is None else f"predicted {row.predicted_text}"),
    ):
        width = abs(value) / largest if value is not None and numbers else 0
        if width and value is row.measured:
            ax.barh(y + offset, width, 0.16, color=colour(0), edgecolor=INK, linewidth=0.6)
        elif width:
            _outline(ax, y + offset, width, 0.16)
        ax.text(width + 0.01, y + offset, words, fontsize=9, color=INK, va="center")
    if row.comparison:
        ax.text(1.8, y + 0.23, row.comparison, fontsize=9, color=INK, va="center", ha="right", style="italic")


def _row_words(row: Any) -> str:
    comparison = f"; {row.comparison}" if row.comparison else ""
    return f"{row.question} Predicted: {row.predicted_text}; measured: {row.measured_text}{comparison}."


@plain_style
def tallies(runs: Mapping[str, Mapping[str, float]], expected: float, title: str, small: str = "") -> Picture:
    """Counters of several runs as bars, held against the one number, `expected`, that each should have reached.

    `runs[name][counter]` is how far it counted.
    """
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
