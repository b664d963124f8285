"""Logarithmic axes, which say so in their names and have at least two ticks, at round numbers."""

import math
from collections.abc import Callable
from itertools import product

from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from worldsize.figures import base, tokens

LEAST_APART = 0.1  # of the axis' length: closer, the numbers of two ticks would overlap


def log_axis(axis: Axis, name: str, text: Callable[[float], str] | None = None) -> None:
    """Make an axis logarithmic and say so in its name, with at least two ticks in what it shows."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = sorted(axis.get_view_interval())
    places = log_ticks(low, high)
    axis.set_major_locator(FixedLocator(places) if len(places) > 1 else MaxNLocator(4))
    axis.set_minor_locator(NullLocator())
    axis.set_label_text(f"{name}, log scale" if name else "log scale", fontsize=tokens.LABEL_PT, color=base.INK)
    if text:
        axis.set_major_formatter(lambda value, _: text(value))


def log_ticks(low: float, high: float) -> list[float]:
    """Return round ticks for a logarithmic axis from `low` to `high`: powers of ten, or finer where those are few."""
    if not 0 < low < high < math.inf:
        return []

    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5), range(1, 10)):  # finer, until there are three ticks
        places = [digit * 10.0**power for power, digit in product(powers, digits)]
        ticks = [place for place in places if low <= place <= high]
        if len(ticks) >= 3:
            break

    kept: list[float] = []
    least = LEAST_APART * math.log10(high / low)
    for place in ticks:
        if not kept or math.log10(place / kept[-1]) >= least:
            kept.append(place)
    return kept
