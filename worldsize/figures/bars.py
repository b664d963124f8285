"""Bars: a race of measured times, a lab's predictions beside its measurements, and counters that should be equal.

Measured bars are filled, predicted ones are dashed outlines, and both carry their numbers. A thin line goes from the
shortest repetition to the longest.
"""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import NothingDrawn, Picture
from worldsize.figures.frame import charts, findings, heading
from worldsize.figures.frame.curve_ends import less_time
from worldsize.units import number

ROOM_FOR_TEXT = 1.4  # of the longest bar
BRACKET = 1.2  # of the longest bar or repetition, so that the bracket stands right of both
BACK = {"boxstyle": "square,pad=0.1", "facecolor": base.PAPER, "edgecolor": "none"}
QUESTION_COLUMNS = 85
PREDICTED = "predicted"
NEVER = "never"  # for a time that is not finite
NOT_PREDICTED = "no prediction of yours to compare with"


@dataclass(frozen=True)
class Timing:
    """A bar of a race. `measured_s` is None for an exercise not yet written, `predicted_s` where nobody predicted.

    Bars of one world size form a group; `group` names another reason, such as a size. `repeats_s` are the repetitions of
    which `measured_s` is the middle: times within their spread tie.
    """

    name: str
    measured_s: float | None
    predicted_s: float | None = None
    world_size: int | None = None
    group: str = ""
    repeats_s: Sequence[float] = ()

    @property
    def at(self) -> str:
        """Return the label of a bar's group: `group`, or else the world size in words; empty without either."""
        if self.group or self.world_size is None:
            return self.group
        return units.count(self.world_size, "rank")


@base.plain_style
def race(
    rows: Iterable[Timing], asks: str = "", *, simulated: bool = False, beside: tuple[str, str] | None = None,
    outlines: str = PREDICTED,
) -> Picture:  # fmt: skip
    """Draw a bar for each measured time with its prediction beside it, grouped by world size.

    A name keeps its colour in all groups. The finding names the last group's winner or, with `beside`, the time
    between two names. `simulated`: the clock was virtual, so scatter is not reported. `outlines` names the outlined bars if
    they predict only a part, such as "messages alone". `asks` is the question above the picture; ValueError unless it ends
    in "?".
    """
    rows = tuple(rows)
    if not rows:
        return base.notice("nothing has raced yet")

    groups: dict[str, list[Timing]] = {}
    for row in rows:
        groups.setdefault(row.at, []).append(row)
    tones = charts.tones([row.name for row in rows])

    picture = Picture(base.WIDTH_IN, 0.8 + 0.36 * len(rows) + 0.3 * len(groups))
    ax = picture.plot_area()

    y, ticks = 0.0, []
    for at, members in groups.items():
        if at:
            ax.text(0, y + 0.1, at, fontsize=tokens.HEAD_PT, weight="bold", color=base.INK, va="center")
            y += 0.85
        for row in members:
            _timing(ax, y, row, tones[row.name], outlines)
            ticks.append((y, row.name))
            y += 1
    filled = "simulated" if simulated else "measured"
    _finish_race(ax, rows, ticks, (filled, outlines))
    if len(rows) == 2 and len(groups) == 1:  # a bracket needs two bars, next to each other
        _bracket(ax, rows, [place for place, _ in ticks])

    *earlier, last = _winners(groups) or ["not measured yet"]
    clauses = [last, _foretold(rows, filled, outlines)]
    by_name, repeats_s = {}, {}
    for row in rows:
        by_name[row.name], repeats_s[_name(row)] = row, row.repeats_s
    if beside:
        earlier, clauses = [], [less_time(*beside, by_name)]
    if not simulated:
        clauses.append(findings.wide(repeats_s))
    if asks:
        clauses, earlier = [*earlier, *clauses], []

    finding = findings.line(*clauses)
    repeated = any(len(row.repeats_s) > 1 for row in rows)
    heading.head(picture, asks, finding, "bar: the middle run; thin line: from the shortest to the longest" if repeated else "")
    heading.tell(picture, asks, finding, *earlier, *(_words(row, outlines) for row in rows))
    return picture


def _timing(ax: Axes, y: float, row: Timing, tone: str, outlines: str) -> None:
    top = y
    if row.predicted_s is not None:
        top -= 0.14

    if row.measured_s is None:
        ax.text(0, top, " not yet", fontsize=tokens.LABEL_PT, color=base.INK, va="center")
    elif not math.isfinite(row.measured_s):
        ax.text(0, top, f" {NEVER}", fontsize=tokens.LABEL_PT, color=base.INK, va="center")
    else:
        ax.barh(top, row.measured_s, 0.4, facecolor=tone, **charts.FLAT)
        longest_s = row.measured_s
        finite = list(filter(math.isfinite, row.repeats_s))
        if len(finite) > 1:  # a line from the shortest repetition to the longest
            ends = {"xerr": [[0], [max(finite) - min(finite)]], "capsize": 3}
            ax.errorbar([min(finite)], [top], color=base.INK, linewidth=tokens.THIN_PT, **ends)
            longest_s = max(row.measured_s, *finite)
        ax.text(longest_s, top, f" {units.seconds(row.measured_s)}", fontsize=tokens.LABEL_PT, color=base.INK, va="center")

    if row.predicted_s is not None:
        end_s = row.predicted_s if math.isfinite(row.predicted_s) else 0.0
        _outline(ax, y + 0.25, end_s, 0.2)
        predicted = f" {outlines} {_seconds(row.predicted_s)}"
        ax.text(end_s, y + 0.27, predicted, fontsize=tokens.SMALL_PT, color=base.QUIET_INK, va="center")


def _bracket(ax: Axes, rows: Sequence[Timing], places: Sequence[float]) -> None:
    """Mark how many times as long as the other the longer of two bars is; skip bars that tie or have predictions."""
    times, repeats = [], []
    for row in rows:
        if row.predicted_s is not None:
            return
        if not row.measured_s or not math.isfinite(row.measured_s):
            return
        times.append(row.measured_s)
        repeats.append(row.repeats_s)
    if not findings.apart(*repeats) and findings.tie(times[0], times[1], max(map(findings.spread, repeats))):
        return

    x = BRACKET * max(chain(times, filter(math.isfinite, chain(*repeats))))
    look = {"arrowstyle": "|-|,widthA=0.25,widthB=0.25", "linewidth": tokens.THIN_PT, "color": base.QUIET_INK}
    ax.annotate("", (x, places[1]), (x, places[0]), arrowprops={**look, "shrinkA": 0, "shrinkB": 0})
    label = f" {units.times(max(times) / min(times))} times"
    ax.text(x, sum(places) / 2, label, fontsize=tokens.LABEL_PT, va="center")


def _outline(ax: Axes, y: float, width: float, height: float) -> None:
    ax.barh(y, width, height, facecolor=base.PAPER, edgecolor=base.INK, linewidth=tokens.THIN_PT, linestyle=(0, (3, 2)))


def _finish_race(ax: Axes, rows: Sequence[Timing], ticks: Sequence[tuple[float, str]], names: tuple[str, str]) -> None:
    """Set a race's limits, ticks and legend; `names`: what filled and outlined bars are."""
    every_s = chain(*map(attrgetter("measured_s", "predicted_s"), rows), *map(attrgetter("repeats_s"), rows))
    largest_s = max(filter(math.isfinite, filter(None, every_s)), default=1)
    scale, unit = units.time_unit(largest_s)

    ax.set_xlim(0, largest_s * ROOM_FOR_TEXT)
    ax.set_yticks(*zip(*ticks, strict=True))
    ax.set_ylim(ticks[-1][0] + 0.6, -0.6)
    ax.xaxis.set_major_formatter(lambda value, _: units.number(round(value * scale, 9)))
    ax.set_xlabel(f"time ({unit}), shorter is better", fontsize=tokens.LABEL_PT, color=base.INK)

    if any(row.predicted_s is not None for row in rows):
        filled = Patch(facecolor=base.QUIET_INK, label=names[0], **charts.FLAT)
        outlined = Patch(facecolor=base.PAPER, edgecolor=base.INK, linestyle=(0, (3, 2)), label=names[1])
        ax.legend(handles=[filled, outlined], loc="upper right", fontsize=tokens.LABEL_PT, frameon=False)


def _winners(groups: Mapping[str, Sequence[Timing]]) -> list[str]:
    """Return who won a race in each group of bars and by how much; groups with the same result share a sentence."""
    by_words: dict[str, list[str]] = {}
    for at, rows in groups.items():
        seconds, spreads_s, repeats_s = {}, {}, {}
        for row in rows:
            seconds[row.name], repeats_s[row.name] = row.measured_s, row.repeats_s
            spreads_s[row.name] = findings.spread(row.repeats_s)
        sentence = findings.fastest(seconds, spreads_s, repeats_s)
        if sentence:
            by_words.setdefault(sentence, []).append(at)

    winners = []
    for sentence, places in by_words.items():
        winners.append(sentence if places == [""] else f"{findings.both(places)}: {sentence}")
    return winners


def _foretold(rows: Sequence[Timing], filled: str, outlines: str) -> str:
    """Say how far a race's filled bars are from outlined ones: all within 5 %, or from the least ratio to the greatest."""
    ratios, far = [], False
    for row in rows:
        pair = (row.measured_s, row.predicted_s)
        if all(pair) and all(map(math.isfinite, pair)):
            ratios.append(row.measured_s / row.predicted_s)
            far |= not findings.tie(*pair)
    if len(ratios) < 2:
        return ""
    foretold = "what was predicted" if outlines == PREDICTED else f"the {outlines}"
    if not far:
        return f"all within 5 % of {foretold}"

    ratios.sort()
    least, most = units.times(ratios[0]), units.times(ratios[-1])
    if least == most:
        return f"all about {most} times {foretold}"
    return f"{filled}: {least} to {most} times {foretold}"


def _name(row: Timing) -> str:
    return f"{row.name} at {row.at}" if row.at else row.name


def _seconds(value_s: float) -> str:
    if math.isfinite(value_s):
        return units.seconds(value_s)
    return NEVER


def _words(row: Timing, outlines: str) -> str:
    text = "not yet"
    if row.measured_s is not None:
        text = _seconds(row.measured_s)
    if row.predicted_s is not None:
        text += f", {outlines} {_seconds(row.predicted_s)}"
    return f"{_name(row)}: {text}"


def predicted(lab: Any, ids: Iterable[str] | None = None) -> Picture | NothingDrawn:
    """Draw a lab's questions as bars, each prediction beside its measurement; without predictions, return text alone.

    `ids` selects questions. Raises ValueError for an id that was not asked.
    """
    rows = {row.id: row for row in lab.rows()}
    if ids is None:
        ids = rows

    asked = []
    for id in ids:
        if id not in rows:
            known = ", ".join(map(repr, rows)) or "none so far"
            raise ValueError(
                f"figures.predicted: the lab has no prediction or measurement {id!r}; expected one of: "
                f"{known}. Run the cell that asks the question first."
            )
        asked.append(rows[id])

    if not asked:
        return NothingDrawn("no predictions yet")
    if all(row.predicted is None for row in asked):
        sentences = [f"{NOT_PREDICTED}."]
        for row in asked:
            if row.measured is not None:
                sentences.append(f"{row.question} Measured: {row.measured_text}.")
        return NothingDrawn(" ".join(sentences))
    return _predictions(asked)


@base.plain_style
def _predictions(rows: Sequence[Any]) -> Picture:
    """Draw a pair of bars for each row (`summary.SummaryRow`); every pair has its own scale, since units differ."""
    wrapped = [textwrap.wrap(row.question, QUESTION_COLUMNS) for row in rows]
    picture = Picture(base.WIDTH_IN, 0.1 + 0.62 * len(rows) + 0.19 * sum(map(len, wrapped)))
    ax = picture.plot_area()

    y = 0.0
    for row, lines in zip(rows, wrapped, strict=True):
        ax.text(0, y, "\n".join(lines), fontsize=tokens.HEAD_PT, color=base.INK, va="top", linespacing=1.15)
        y += 0.19 * len(lines)
        _pair(ax, y, row)
        y += 0.62

    ax.set_xlim(0, 1.8)
    ax.set_ylim(y, -0.05)
    ax.set_axis_off()
    finding = _nearest(rows)
    heading.head(picture, "How near were your predictions?", finding, "each pair of bars has its own scale")
    sentences = [f"{finding}."]
    for row in rows:
        outcome = "; ".join(filter(None, [f"measured: {row.measured_text}", row.comparison]))
        sentences.append(f"{row.question} Predicted: {row.predicted_text}; {outcome}.")
    picture.alt = " ".join(sentences)
    return picture


def _nearest(rows: Sequence[Any]) -> str:
    """Count the predicted bars within a fifth of the measurement."""
    near, made = 0, 0
    for row in rows:
        if None in (row.predicted, row.measured) or row.unit != row.measured_unit:
            continue
        made += 1
        near += abs(row.predicted - row.measured) <= 0.2 * abs(row.measured)

    if not made:
        return "Nothing to compare yet"
    return f"{near} of {made} within 20 % of what was measured"


def _pair(ax: Axes, y: float, row: Any) -> None:
    known = [abs(n) for n in (row.predicted, row.measured) if n is not None]
    largest = max(known, default=0) or 1
    if len(known) == 2 and row.unit != row.measured_unit:
        largest = math.inf  # different units do not compare: both widths become 0, so no bar is drawn

    width, words = 0.0, row.measured_text
    if row.measured is not None:
        width, words = abs(row.measured) / largest, f"measured {words}"
    if width:
        ax.barh(y + 0.13, width, 0.16, facecolor=tokens.AMOUNT.light, **charts.FLAT)
    ax.text(width + 0.01, y + 0.13, words, fontsize=tokens.LABEL_PT, color=base.INK, va="center")

    width, words = 0.0, row.predicted_text
    if row.predicted is not None:
        width, words = abs(row.predicted) / largest, f"predicted {words}"
    if width:
        _outline(ax, y + 0.33, width, 0.16)
    ax.text(width + 0.01, y + 0.33, words, fontsize=tokens.LABEL_PT, color=base.INK, va="center")

    if row.comparison:
        ax.text(1.8, y + 0.23, row.comparison, fontsize=tokens.LABEL_PT, color=base.INK, va="center", ha="right", style="italic")


@base.plain_style
def tallies(runs: Mapping[str, Mapping[str, float]], expected: float, asks: str = "", small: str = "") -> Picture:
    """Draw counters of several runs as bars, with a line at `expected`, which each should have reached.

    `runs[name][counter]` is a count. `asks` is the question above the picture; ValueError unless it ends in "?".
    """
    if not runs:
        return base.notice("nothing was counted")

    lines = sum(map(len, runs.values())) + 0.9 * len(runs)
    picture = Picture(base.WIDTH_IN, 0.7 + 0.27 * lines)
    ax = picture.plot_area()

    ticks, y, largest = {}, 0.0, expected
    for run, counts in runs.items():
        ax.text(0, y, run, fontsize=tokens.HEAD_PT, color=base.INK, weight="bold", va="center")
        for counter, value in counts.items():
            y += 1
            label, off = number(value), _off_words(value, expected)
            if off:
                label = f"{label}: {off}"
            ax.barh(y, value, 0.72, facecolor=tokens.BAD.light if off else tokens.AMOUNT.light, **charts.FLAT)
            look = {"fontsize": tokens.LABEL_PT, "color": base.INK, "va": "center", "bbox": BACK}
            ax.annotate(label, (value, y), (7, 0), textcoords="offset points", **look)
            ticks[y] = counter
            largest = max(largest, value)
        y += 1.0

    ax.axvline(expected, color=base.INK, linewidth=tokens.LINE_PT, linestyle=(0, (4, 2)))
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.set_ylim(y - 0.3, -0.7)
    ax.set_xlim(0, 1.3 * largest)
    base.grid(ax, "x")
    ax.tick_params(axis="x", colors=base.QUIET_INK)

    finding = _short(runs, expected)
    heading.head(picture, asks, finding, small or f"dashed line: {number(expected)}, as asked for")
    heading.tell(picture, asks, finding, *base.of_each(partial(base.listed, text=number), runs))
    return picture


def _short(runs: Mapping[str, Mapping[str, float]], expected: float) -> str:
    """Say how many counters are off, and by how much the worst."""
    off, words = {}, {}
    count = 0
    for run, counters in runs.items():
        count += len(counters)
        for counter, value in counters.items():
            said = _off_words(value, expected)
            if said:
                name = f"{counter} of {run}"
                off[name], words[name] = abs(value - expected), said

    if not off:
        return f"All {count} counters reach {number(expected)}"
    worst = findings.leaders(off)
    most = f"{findings.both(worst)} {findings.be(*worst)} off most, {words[worst[0]]}"
    return findings.line(most, f"{len(off)} of {count} counters are off")


def _off_words(value: float, expected: float) -> str:
    """Return how far a counter's bar is off, "3 too few"; empty within half a per cent."""
    off = value - expected
    if abs(off) > 0.005 * expected:
        return f"{number(abs(off))} {'too few' if off < 0 else 'too many'}"
    return ""
