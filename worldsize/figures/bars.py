"""Bars: a race of measured times, a lab's questions, each with its prediction beside it, and counters that should be equal.

Measured is filled, predicted is a dashed outline, and both are written out as numbers. Left out: error bars.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from worldsize import units
from worldsize.figures import base
from worldsize.figures.base import Picture
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
        if self.group or self.world_size is None:
            return self.group
        return units.count(self.world_size, "rank")


@base.plain_style
def race(rows: Iterable[Timing], title: str = "") -> Picture:
    """A bar for each measured time with its prediction beside it, in groups of one world size.

    A name keeps its colour and hatch through all groups.
    """
    rows = tuple(rows)
    if not rows:
        return base.notice("nothing has raced yet")

    groups: dict[str, list[Timing]] = {}
    for row in rows:
        groups.setdefault(row.at, []).append(row)
    names = list(dict.fromkeys(row.name for row in rows))

    picture = Picture(base.WIDTH_IN, 1.2 + 0.36 * len(rows) + 0.3 * len(groups))
    ax = picture.plot_area()

    y, ticks = 0.0, []
    for at, members in groups.items():
        y = _group_title(ax, y, at)
        for row in members:
            _timing(ax, y, row, names.index(row.name))
            ticks.append((y, row.name))
            y += 1
    _finish_race(ax, rows, ticks)

    words = [_fastest(at, members) for at, members in groups.items()]
    words = [said for said in words if said]
    finding = title or _capitalised(words)
    picture.suptitle(textwrap.fill(finding, TITLE_COLUMNS), x=0.013, ha="left", fontsize=11, color=base.INK)
    titled = [title] if title else []
    picture.alt = base.sentences(*titled, *words, *map(_words, rows))
    return picture


def _capitalised(words: Sequence[str]) -> str:
    """Without a title, the last group's winner stands over the race."""
    if not words:
        return "Not measured yet"
    return words[-1][0].upper() + words[-1][1:]


def _group_title(ax: Axes, y: float, at: str) -> float:
    if not at:
        return y

    ax.text(0, y + 0.1, at, fontsize=10, weight="bold", color=base.INK, va="center")
    return y + 0.85


def _timing(ax: Axes, y: float, row: Timing, index: int) -> None:
    top = y if row.predicted_s is None else y - 0.12

    if row.measured_s is None:
        ax.text(0, top, " not yet", fontsize=9, color=base.INK, va="center")
    else:
        look = {"color": base.colour(index), "edgecolor": base.INK, "linewidth": 0.6, "hatch": base.hatch(index)}
        ax.barh(top, row.measured_s, 0.42, **look)
        ax.text(row.measured_s, top, f" {units.seconds(row.measured_s)}", fontsize=9, color=base.INK, va="center")

    if row.predicted_s is not None:
        _outline(ax, y + 0.22, row.predicted_s, 0.2)
        predicted = f" predicted {units.seconds(row.predicted_s)}"
        ax.text(row.predicted_s, y + 0.24, predicted, fontsize=8, color=base.QUIET_INK, va="center")


def _outline(ax: Axes, y: float, width: float, height: float) -> None:
    ax.barh(y, width, height, facecolor="white", edgecolor=base.INK, linewidth=0.9, linestyle=(0, (3, 2)))


def _finish_race(ax: Axes, rows: Sequence[Timing], ticks: Sequence[tuple[float, str]]) -> None:
    every_s = [*(row.measured_s for row in rows), *(row.predicted_s for row in rows)]
    largest_s = max((s for s in every_s if s is not None), default=0) or 1
    scale, unit = units.time_unit(largest_s)

    ax.set_xlim(0, largest_s * ROOM_FOR_TEXT)
    ax.set_yticks(*zip(*ticks, strict=True))
    ax.set_ylim(ticks[-1][0] + 0.6, -0.6)
    ax.xaxis.set_major_formatter(lambda value, _: units.number(round(value * scale, 9)))
    ax.set_xlabel(f"time ({unit}), shorter is better", fontsize=9, color=base.INK)

    if any(row.predicted_s is not None for row in rows):
        _legend(ax)


def _legend(ax: Axes) -> None:
    measured = Patch(facecolor="#9a9a9a", edgecolor=base.INK, label="measured")
    predicted = Patch(facecolor="white", edgecolor=base.INK, linestyle=(0, (3, 2)), label="predicted")
    ax.legend(handles=[measured, predicted], loc="upper right", fontsize=9, frameon=False)


def _fastest(at: str, rows: Sequence[Timing]) -> str:
    """Who won and by how much; empty where nothing was measured."""
    order = sorted((row for row in rows if row.measured_s is not None), key=lambda row: row.measured_s)
    where = f"at {at} " if at else ""
    if not order:
        return ""

    first, last = order[0], order[-1]
    if len(order) == 1:
        return f"{where}{first.name} takes {units.seconds(first.measured_s)}"

    times = units.times(last.measured_s / first.measured_s) if first.measured_s else "many"
    if times == "1":
        return f"{where}{first.name} and {last.name} take about as long"
    return f"{where}{first.name} is fastest, {last.name} takes {times} times as long"


def _words(row: Timing) -> str:
    at = f" at {row.at}" if row.at else ""
    measured = "not yet" if row.measured_s is None else units.seconds(row.measured_s)
    predicted = "" if row.predicted_s is None else f", predicted {units.seconds(row.predicted_s)}"
    return f"{row.name}{at}: {measured}{predicted}"


def predicted(lab: Any, ids: Iterable[str] | None = None) -> Picture:
    """Bars for a lab's questions: each prediction beside its measurement.

    `ids` chooses some questions. ValueError for an id that wasn't asked.
    """
    rows = {row.id: row for row in lab.rows()}
    asked = list(rows if ids is None else ids)

    for id in asked:
        if id not in rows:
            known = ", ".join(map(repr, rows)) or "none so far"
            raise ValueError(
                f"figures.predicted: the lab has no prediction and no measurement {id!r}; expected one of: "
                f"{known}. Run the cell that asks it first."
            )

    if not asked:
        return base.notice("no predictions yet")
    return _predictions([rows[id] for id in asked])


@base.plain_style
def _predictions(rows: Sequence[Any]) -> Picture:
    """A lab's rows (`summary.Row`), one pair of bars each; every pair has its own scale, since units differ."""
    wrapped = [textwrap.wrap(row.question, QUESTION_COLUMNS) for row in rows]
    picture = Picture(base.WIDTH_IN, 0.5 + sum(0.62 + 0.19 * len(lines) for lines in wrapped))
    ax = picture.plot_area()

    y = 0.0
    for row, lines in zip(rows, wrapped, strict=True):
        ax.text(0, y, "\n".join(lines), fontsize=10, color=base.INK, va="top", linespacing=1.15)
        y += 0.19 * len(lines)
        _pair(ax, y, row)
        y += 0.62

    ax.set_xlim(0, 1.8)
    ax.set_ylim(y, -0.05)
    ax.set_axis_off()
    base.headline(ax, "Predictions beside measurements", "each pair of bars has its own scale")
    picture.alt = "Predictions beside measurements. " + " ".join(map(_row_words, rows))
    return picture


def _pair(ax: Axes, y: float, row: Any) -> None:
    known = [abs(n) for n in (row.predicted, row.measured) if n is not None]
    largest = max(known, default=0) or 1
    if len(known) == 2 and row.unit != row.measured_unit:
        largest = math.inf  # they do not compare, so no bar is drawn

    width, words = 0.0, row.measured_text
    if row.measured is not None:
        width, words = abs(row.measured) / largest, f"measured {words}"
    if width:
        ax.barh(y + 0.13, width, 0.16, color=base.colour(0), edgecolor=base.INK, linewidth=0.6)
    ax.text(width + 0.01, y + 0.13, words, fontsize=9, color=base.INK, va="center")

    width, words = 0.0, row.predicted_text
    if row.predicted is not None:
        width, words = abs(row.predicted) / largest, f"predicted {words}"
    if width:
        _outline(ax, y + 0.33, width, 0.16)
    ax.text(width + 0.01, y + 0.33, words, fontsize=9, color=base.INK, va="center")

    if row.comparison:
        ax.text(1.8, y + 0.23, row.comparison, fontsize=9, color=base.INK, va="center", ha="right", style="italic")


def _row_words(row: Any) -> str:
    comparison = f"; {row.comparison}" if row.comparison else ""
    return f"{row.question} Predicted: {row.predicted_text}; measured: {row.measured_text}{comparison}."


@base.plain_style
def tallies(runs: Mapping[str, Mapping[str, float]], expected: float, title: str, small: str = "") -> Picture:
    """Counters of several runs as bars, held against the one number, `expected`, that each should have reached.

    `runs[name][counter]` is how far it counted.
    """
    if not runs:
        return base.notice("nothing was counted")

    names = list(dict.fromkeys(counter for counts in runs.values() for counter in counts))
    lines = sum(len(counts) + 0.9 for counts in runs.values())
    picture = Picture(base.WIDTH_IN, 1.5 + 0.27 * lines)
    ax = picture.plot_area()

    ticks, y = [], 0.0
    for run, counts in runs.items():
        ax.text(0, y, run, fontsize=9.5, color=base.INK, weight="bold", va="center")
        for counter, value in counts.items():
            y += 1
            _tally(ax, y, value, expected, names.index(counter))
            ticks.append((y, counter))
        y += 1.0

    ax.axvline(expected, color=base.INK, linewidth=1, linestyle=(0, (4, 2)))
    ax.set_yticks([y for y, _ in ticks], [counter for _, counter in ticks])
    ax.set_ylim(y - 0.3, -0.7)
    ax.set_xlim(0, 1.3 * max(expected, *(max(counts.values(), default=0) for counts in runs.values())))
    ax.grid(axis="x", color=base.RULE, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.tick_params(axis="x", colors=base.QUIET_INK)

    base.headline(ax, title, small or f"dashed line: {number(expected)}, as asked for")
    picture.alt = base.sentences(title, *(f"{run}: {_counted(counts)}" for run, counts in runs.items()))
    return picture


def _tally(ax: Axes, y: float, value: float, expected: float, index: int) -> None:
    off = value - expected
    told, hatch = number(value), ""
    if abs(off) > 0.005 * expected:
        told += f"  {number(abs(off))} {'too few' if off < 0 else 'too many'}"
        hatch = "///"

    ax.barh(y, value, 0.72, color=base.colour(index), edgecolor=base.INK, linewidth=0.5, hatch=hatch)
    ax.annotate(
        told, (value, y), (7, 0), textcoords="offset points", fontsize=9, color=base.INK, va="center", bbox=BACK
    )


def _counted(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{counter} {number(value)}" for counter, value in counts.items())
