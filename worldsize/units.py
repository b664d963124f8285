"""Numbers as text for people: seconds, bytes, plain numbers with a unit; and any text, made printable.

Sizes are decimal (1 MB is 10**6 bytes), as links are. `links.py` parses units.
"""

import math
from typing import Any


def worth(points: float) -> str:
    """Return the worth of an exercise's property as text: 0.5 -> "0.5", and "shown, no points" for 0."""
    return f"{points:g}" if points else "shown, no points"


def number(value: float, unit: str = "") -> str:
    """Return a number as text with three significant digits.

    Whole numbers stay whole: 1234.5 -> '1,234', 0.01234 -> '0.0123'.
    """
    magnitude = abs(value)
    if not math.isfinite(value):
        text = str(value)
    elif 100 <= magnitude < 1e6:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3g}"

    if magnitude < 1e7 and value == int(value):
        text = f"{int(value):,}"

    if unit == "%":
        return f"{text} %"
    if text == "1":
        unit = _singular(unit)
    return f"{text} {unit}".rstrip()


def _singular(unit: str) -> str:
    """Return a unit as it stands after the number 1: "messages" -> "message", "entries a rank" -> "entry a rank"."""
    word, space, more = unit.partition(" ")
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss") and word != "times":
        word = f"{word[:-3]}y" if word.endswith("ies") else word[:-1]
    return f"{word}{space}{more}"


def times(ratio: float) -> str:
    """Return a ratio as text to two digits: 8.056 -> '8.1', 0.1714 -> '0.17', 123.4 -> '123'."""
    if abs(ratio) < 100:
        ratio = float(f"{ratio:.2g}")
    return number(ratio)


def seconds(value_s: float) -> str:
    """Return a duration as text in the most readable unit: 0.0123 -> '12.3 ms'."""
    scale, unit = time_unit(value_s)
    return number(value_s * scale, unit)


def count(number_of: int, noun: str) -> str:
    """Return a count as text with its noun: '1 rank', '4,800 messages'."""
    plural = "" if number_of == 1 else "s"
    return f"{number_of:,} {noun}{plural}"


def size(size_bytes: float) -> str:
    """Return a size as text in the most readable unit: 4_000_000 -> '4 MB'."""
    scale, unit = byte_unit(size_bytes)
    return number(size_bytes * scale, unit)


def time_unit(largest_s: float) -> tuple[float, str]:
    """Return factor and name of the unit for values up to `largest_s`; 's', 'ms' or 'µs'."""
    if abs(largest_s) >= 1 or largest_s == 0:
        return 1.0, "s"
    if abs(largest_s) >= 1e-3:
        return 1e3, "ms"
    return 1e6, "µs"


def byte_unit(largest_bytes: float) -> tuple[float, str]:
    """Return factor and name of the unit for sizes up to `largest_bytes`; 'B', 'kB', 'MB', 'GB' or 'TB'."""
    for factor, unit in ((1e-12, "TB"), (1e-9, "GB"), (1e-6, "MB"), (1e-3, "kB")):
        if abs(largest_bytes) * factor >= 1:
            return factor, unit
    return 1.0, "B"


def text_of(value: Any, most: int = 4000) -> str:
    """Return `value` as text that can be printed and written as UTF-8, cut to `most` characters; "" if it is no text."""
    if not isinstance(value, str):
        return ""
    return str(value)[:most].encode("utf-8", "replace").decode()
