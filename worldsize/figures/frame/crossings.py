"""Comparisons of curves in words: the ranges of x in which each is lowest.

Curves are compared only at an x that they share, so a crossing is told by the points on its two sides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from worldsize import units
from worldsize.figures.frame.findings import XY, Text, ahead, be, both, points, tie

MOST_RANGES = 4  # in a sentence
MOST_TIMES = 10_000  # of one curve over another: a larger ratio tells a reader nothing
LESS = ("lower", "lowest")


@dataclass(frozen=True)
class Range:
    """Neighbouring places of x at which the same curves are lowest."""

    names: tuple[str, ...]
    first: float
    last: float


def crossover(
    name: str, curve: Iterable[XY], other_name: str, other_curve: Iterable[XY], x: Text = units.number,
    words: tuple[str, str] = LESS, y: Text = units.number,
) -> str:  # fmt: skip
    """Say which of two curves is lower where: everywhere, by ranges, or nowhere clearly.

    `words` name the lower and the lowest curve, such as ("faster", "fastest") for times.
    """
    mine, its = points(curve), points(other_curve)
    shared = [place for place in mine if place in its]
    lower = []
    for place in shared:
        if not tie(mine[place], its[place]):
            lower.append((place, (name if mine[place] < its[place] else other_name,)))
    if not shared:
        return ""
    if not lower:
        return f"{name} and {other_name} tie everywhere"

    ranges = _ranges(lower)
    if len(ranges) > MOST_RANGES:
        return f"{name} and {other_name} cross {len(ranges) - 1} times"
    if len(ranges) > 1:
        return _by_range(ranges, words[0], x)

    (low,) = ranges[0].names
    high, above, below = (other_name, its, mine) if low == name else (name, mine, its)
    last, where = shared[-1], "everywhere"
    tail = shared[shared.index(ranges[0].first) :]
    if len(lower) == len(tail) < len(shared):
        where = f"from {x(ranges[0].first)} on"  # all ties are at the beginning
    elif len(lower) < len(shared):
        where = "where they do not tie"
    if tie(above[last], below[last]):
        return f"{low} {be(low)} {words[0]} at first, at {x(last)} they tie"
    if below[last] <= 0:
        return f"{low} {be(low)} {words[0]} than {high} {where}"
    if above[last] > MOST_TIMES * below[last]:
        return f"{low} {be(low)} {words[0]} {where}, at {x(last)} {y(below[last])} against {y(above[last])}"
    times = units.times(above[last] / below[last])
    return f"{low} {be(low)} {words[0]} {where}, {times} times at {x(last)}"


def lowest(
    curves: Mapping[str, Iterable[XY]], repeats: Mapping[str, Mapping[float, Sequence[float]]], x: Text = units.number,
    words: tuple[str, str] = LESS,
) -> str:  # fmt: skip
    """Say which of several crossing curves are lowest where. `repeats[name][x]` are the repetitions behind a point.

    `words` as in `crossover`.
    """
    known = {name: points(curve) for name, curve in curves.items()}
    shared = sorted(set.intersection(*map(set, known.values())))
    if not shared:
        return ""

    here = []
    for place in shared:
        measured = {}
        for name, curve in known.items():
            measured[name] = repeats.get(name, {}).get(place) or [curve[place]]
        here.append((place, tuple(ahead(measured, largest=False))))

    ranges = _ranges(here)
    if 1 < len(ranges) <= MOST_RANGES:
        return _by_range(ranges, words[1], x, len(known))
    first, last = ranges[0].names, ranges[-1].names
    is_lowest = f"{both(first, len(known))} {be(*first)} {words[1]}"
    if len(ranges) == 1:
        return f"{is_lowest} everywhere"
    if first == last:
        return f"at {x(shared[0])} and at {x(shared[-1])} {is_lowest}"
    return f"at {x(shared[0])} {is_lowest}, at {x(shared[-1])} {both(last, len(known))}"


def _ranges(lower: Sequence[tuple[float, tuple[str, ...]]]) -> list[Range]:
    ranges = []
    for names, places in groupby(lower, key=itemgetter(1)):
        held = list(places)
        ranges.append(Range(names, first=held[0][0], last=held[-1][0]))
    return ranges


def _by_range(ranges: Sequence[Range], word: str, x: Text, whole: int = 2) -> str:
    """List the ranges between crossings: "A is lower up to 2, B from 3 to 5, A from 8"."""
    first, *between, last = ranges
    clauses = [f"{both(first.names, whole)} {be(*first.names)} {word} up to {x(first.last)}"]
    for stretch in between:
        where = f"at {x(stretch.first)}" if stretch.first == stretch.last else f"from {x(stretch.first)} to {x(stretch.last)}"
        clauses.append(f"{both(stretch.names, whole)} {where}")
    return ", ".join([*clauses, f"{both(last.names, whole)} from {x(last.first)}"])
