"""A race under several conditions, such as bandwidths: a panel for each condition, with the same bars in each.

All panels share one scale of time, so that a condition which makes every bar shorter shows too. A dashed line across a bar
is its prediction. `bars.race` has room for long names.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter

from matplotlib.axes import Axes

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.bars import Timing
from worldsize.figures.base import Picture
from worldsize.figures.frame import charts, findings, heading

ROOM_FOR_TEXT = 1.55  # of the longest bar or prediction
BAR_HEIGHT = 0.62
MARK_HEIGHT = 0.92  # of a prediction's line, which juts out of its bar
NOTE = "bold: first, or too near to it to tell; all panels share one scale"


@base.plain_style
def races(rows: Iterable[Timing], asks: str = "") -> Picture:
    """Draw a panel for each `group` of timings, a bar for each name; `measured_s` is None where a name has not finished.

    The finding says who is first in which panel. `asks` is the question above
    the picture; ValueError unless it ends in "?".
    """
    rows = tuple(rows)
    names = list(dict.fromkeys(map(attrgetter("name"), rows)))
    panels: dict[str, dict[str, Timing]] = {}
    for row in rows:
        panels.setdefault(row.group, {})[row.name] = row
    if not any(row.measured_s for row in rows):
        return base.not_yet(*names)

    picture = Picture(8.5, 0.8 + 0.3 * len(names))
    every_s = chain(*map(attrgetter("measured_s", "predicted_s"), rows), *map(attrgetter("repeats_s"), rows))
    largest_s = max(filter(None, every_s))
    scale, unit = units.time_unit(largest_s)
    axes = picture.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (at, members) in zip(axes, panels.items(), strict=True):
        _panel(ax, at, names, members, scale)
        ax.set_xlim(0, largest_s * scale * ROOM_FOR_TEXT)
        ax.set_xlabel(f"time ({unit})", fontsize=tokens.LABEL_PT, color=base.INK)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.4, -0.6)

    statement = finding(panels)
    notes = [NOTE]
    if any(len(row.repeats_s) > 1 for row in rows):
        notes.append("bar: the middle run; thin line: from the shortest to the longest")
    if any(row.predicted_s for row in rows):
        notes.append("dashed: predicted")
    heading.head(picture, asks, statement, "; ".join(notes))
    sentences = [f"{at}: {_words(names, members)}" for at, members in panels.items()]
    heading.tell(picture, asks, statement, *sentences)
    return picture


def finding(panels: Mapping[str, Mapping[str, Timing]]) -> str:
    """Say who is first in which panel, neighbouring panels with the same winner together, and whether predictions agree."""
    winners = {at: tuple(_first(members)) for at, members in panels.items()}
    clauses = []
    for names, places in groupby(filter(winners.get, winners), winners.get):
        verb = findings.verb(names, "is first", "tie for first")
        clauses.append(f"{findings.both(names)} {verb} at {findings.both(list(places))}")

    return findings.line(*clauses, _foretold(panels, winners))


def _first(members: Mapping[str, Timing]) -> list[str]:
    seconds, spreads_s, repeats_s = {}, {}, {}
    for name, row in members.items():
        seconds[name], repeats_s[name] = row.measured_s, row.repeats_s
        spreads_s[name] = findings.spread(row.repeats_s)
    return findings.foremost(findings.known(seconds), spreads_s, repeats_s)


def _foretold(panels: Mapping[str, Mapping[str, Timing]], winners: Mapping[str, Sequence[str]]) -> str:
    """Name the race's panels in which the predictions have another winner among the measured names."""
    compared, others = 0, []
    for at, members in panels.items():
        by_prediction = {name: row.predicted_s for name, row in members.items() if row.measured_s is not None}
        names = findings.leaders(by_prediction, largest=False)
        if not names:
            continue
        compared += 1
        if set(names).isdisjoint(winners[at]):
            others.append(f"{findings.both(names)} at {at}")

    if others:
        return f"the prediction has {', '.join(others)}"
    return "as predicted" if compared else ""


def _panel(ax: Axes, at: str, names: Sequence[str], members: Mapping[str, Timing], scale: float) -> None:
    base.unframe(ax, "top", "right")
    ax.spines["left"].set_color(base.RULE)
    ax.spines["bottom"].set_color(base.QUIET_INK)
    ax.tick_params(colors=base.INK, labelsize=9, length=0)
    ax.set_title(at, loc="left", fontsize=tokens.HEAD_PT, weight="bold", color=base.INK)

    first, tones = _first(members), charts.tones(names)
    for y, name in enumerate(names):
        row = members.get(name, Timing(name, None))
        if row.measured_s is None:
            ax.text(0, y, " not yet", fontsize=tokens.LABEL_PT, color=base.INK, va="center")
            continue

        ax.barh(y, row.measured_s * scale, BAR_HEIGHT, facecolor=tones[name], **charts.FLAT)
        end_s = max(row.measured_s, *row.repeats_s, row.predicted_s or 0.0)
        if len(row.repeats_s) > 1:
            ends = [min(row.repeats_s) * scale, max(row.repeats_s) * scale]
            ax.plot(ends, [y, y], color=base.INK, linewidth=tokens.THIN_PT, marker="|")
        if row.predicted_s is not None:
            ends = [y - MARK_HEIGHT / 2, y + MARK_HEIGHT / 2]
            ax.plot([row.predicted_s * scale] * 2, ends, color=base.INK, linewidth=tokens.LINE_PT, linestyle=(0, (2, 1)))
        weight = "bold" if name in first else "normal"
        told = f" {units.seconds(row.measured_s)}"
        ax.text(end_s * scale, y, told, fontsize=tokens.LABEL_PT, weight=weight, color=base.INK, va="center")


def _words(names: Sequence[str], members: Mapping[str, Timing]) -> str:
    clauses = []
    for name in names:
        row = members.get(name, Timing(name, None))
        text = "not yet"
        if row.measured_s is not None:
            text = units.seconds(row.measured_s)
            if row.predicted_s is not None:
                text += f", predicted {units.seconds(row.predicted_s)}"
        clauses.append(f"{name} {text}")
    return "; ".join(clauses)
