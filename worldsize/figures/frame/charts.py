"""The layer under all charts: who has which colour, flat areas, lines with their names at the end, and references.

A chart passes its finding in (`heading`). It has no legend where its lines can carry their names.
"""

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.tokens import Tone

NAME_COLUMNS = 20  # of a line's name beside its end
MOST_LINES = 12
EARLY = 0.7  # of the axis: a line that ends before has its name at its end, since a stroke from there would look like data
LETTER_IN, LINE_IN = 0.078, 0.17  # of a name's text
FLAT = {"edgecolor": "none", "linewidth": 0}  # an area

_ACTORS = tuple((re.compile(pattern, re.IGNORECASE), tone) for pattern, tone in tokens.ACTORS)
_WORDS = {tokens.SYNCHRONOUS.light: tokens.SYNCHRONOUS_NAME.light, tokens.STEPS[0].light: tokens.INK.light}
_NUMBER = re.compile(r"\d[\d,.]*")


def tones(names: Sequence[str]) -> dict[str, str]:
    """Return the colour of each name: an actor's own (`tokens.ACTORS`), one hue in steps for numbers in order, or the next.

    An actor's colour goes to the first of several names that mean the actor.
    """
    names = list(dict.fromkeys(names))
    if _in_order(names):
        places = [round(k * (len(tokens.STEPS) - 1) / (len(names) - 1)) for k in range(len(names))]
        return {name: tokens.STEPS[place].light for name, place in zip(names, places, strict=True)}

    known: dict[str, Tone] = {}
    for name in names:
        for pattern, tone in _ACTORS:
            if pattern.search(name):
                if tone not in known.values():
                    known[name] = tone
                break
    free = [tone for tone in tokens.OTHERS if tone not in known.values()]
    others = [name for name in names if name not in known]
    for number, name in enumerate(others):
        known[name] = free[number % len(free)]
    return {name: known[name].light for name in names}


def _in_order(names: Sequence[str]) -> bool:
    """Tell whether names are one word with three or more rising or falling numbers: "1 worker", "2 workers", "4 workers"."""
    if not 3 <= len(names) <= len(tokens.STEPS):
        return False
    found = [_NUMBER.findall(name) for name in names]
    words = {re.sub(r"s\b", "", _NUMBER.sub("#", name)) for name in names}
    if len(words) > 1 or any(len(numbers) != 1 for numbers in found):
        return False
    values = [float(numbers[0].replace(",", "").rstrip(".")) for numbers in found]
    return len(set(values)) == len(values) and values in (sorted(values), sorted(values, reverse=True))


@dataclass(frozen=True)
class End:
    """The last point of a chart's line, with the line's name and colour."""

    x: float
    y: float
    name: str
    tone: str


def end(xs: Sequence[float], ys: Sequence[Any], name: str, tone: str) -> End | None:
    """Return the end of a chart's line of finite values; None where it has none."""
    for x, y in zip(reversed(xs), reversed(ys), strict=True):
        if y is not None and math.isfinite(y):
            return End(x, y, name, tone)
    return None


def name_ends(picture: Picture, ax: Axes, ends: Sequence[End | None], alone: bool = False) -> bool:
    """Write the name of each line of a chart at the right, on a thin stroke to its end, so that names do not overlap.

    Return False, with nothing written, where a line has no end, or names lack room; for a single line too, whose name is
    the picture's subject, unless it may be named `alone`.
    """
    named = [line for line in ends if line is not None]
    wrapped = {line: textwrap.wrap(line.name, NAME_COLUMNS) or [""] for line in named}
    if len(named) < len(ends) or len(named) < 2 - alone or sum(map(len, wrapped.values())) > MOST_LINES:
        return False

    longest = max(len(part) for parts in wrapped.values() for part in parts)
    engine = picture.get_layout_engine()
    left, bottom, width, height = engine.get()["rect"]
    engine.set(rect=(left, bottom, width - longest * LETTER_IN / picture.get_figwidth() - 0.02, height))
    picture.canvas.draw()  # constrained layout moves the axes; only now are pixels known
    axes = ax.get_window_extent()

    look = {"fontsize": tokens.LABEL_PT, "annotation_clip": False}
    places: dict[End, float] = {}  # the middle of each name at the right, in pixels above the axis, from top to bottom
    high = {line: len(wrapped[line]) * LINE_IN * picture.dpi for line in named}
    early: list[tuple[float, float, float]] = []  # left, right and lower edge of each name in the chart
    top = axes.height
    for line in sorted(named, key=lambda line: -ax.transData.transform((line.x, line.y))[1]):
        x, wanted = ax.transData.transform((line.x, line.y)) - (axes.x0, axes.y0)
        if x < EARLY * axes.width:
            wide = max(map(len, wrapped[line])) * LETTER_IN * picture.dpi
            free = min([wanted, *(low for left, right, low in early if left < x + wide and x < right)])
            early.append((x, x + wide, free - high[line]))
            ax.annotate(
                "\n".join(wrapped[line]), (line.x, line.y), (9, (free - wanted) * 72 / picture.dpi - 9),
                textcoords="offset points", color=_of_words(line.tone), va="top", **look,
            )  # fmt: skip
            continue
        places[line] = min(wanted, top - high[line] / 2)
        top = places[line] - high[line] / 2

    bottom = 0.0
    for line in reversed(places):  # names of lines that end at the bottom stand on each other, not under the axis
        place = max(places[line], bottom + high[line] / 2)
        bottom = place + high[line] / 2
        stroke = {"arrowstyle": "-", "color": line.tone, "linewidth": tokens.HAIR_PT, "shrinkA": 1}
        ax.annotate(
            "\n".join(wrapped[line]), (line.x, line.y), (1.02, place / axes.height), "data", "axes fraction",
            color=_of_words(line.tone), va="center", arrowprops=stroke, **look,
        ).set_in_layout(False)  # fmt: skip
    return True


def _of_words(tone: str) -> str:
    """Return the colour of a curve's name: its own, or a stronger one where that is too pale for words on one of the grounds."""
    return _WORDS.get(tone, tone)


def legend_beside(ax: Axes) -> None:
    """Show a chart's legend right of the axes, where nothing lies under it."""
    ax.legend(
        fontsize=tokens.LABEL_PT, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.5,
        labelcolor=base.INK,
    )  # fmt: skip
