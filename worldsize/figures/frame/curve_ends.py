"""The ends of curves in words: which is lowest and highest there, which tie, and from which place on a curve stays level.

Repetitions decide: two ends tie where their ranges overlap. `crossings` compares curves on the way.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any

from worldsize import units
from worldsize.figures.frame import findings
from worldsize.figures.frame.findings import Text


def standing(place: str, runs: Mapping[str, Sequence[float]], paired: bool = False, text: Text = units.number) -> str:
    """Compare curves' measurements at one place; `runs[name]` are repetitions, `paired` as in `findings.level`."""
    middles, reaches = {}, {}
    for name, values in runs.items():
        middles[name], reaches[name] = median(values), reach(values, text)

    low, high = findings.ahead(runs, False, paired), findings.ahead(runs, True, paired)
    if len(runs) == 1:
        return findings.line(f"{place} {low[0]} is at {reaches[low[0]]}")
    if all(findings.level(one, other, paired) for one, other in combinations(runs.values(), 2)):
        return findings.line(f"{place} {findings.both(low)} tie within their spread, at about {text(middles[low[0]])}")
    if set(low) & set(high):  # neighbours tie, and the ends do not
        first, last = min(middles, key=middles.get), max(middles, key=middles.get)
        there = f"from {text(middles[first])} ({first}) to {text(middles[last])} ({last})"
        return findings.line(f"{place} neighbours tie within their spread, {there}")

    lower, higher = findings.extremes(len(runs))
    lowest = f"{place} {findings.both(low, len(runs))} {findings.verb(low, 'is', 'are')} {lower}, at {reaches[low[0]]}"
    between = {name: reaches[name] for name in runs if name not in (*low, *high)}
    return findings.line(lowest, findings.between(between), f"{findings.both(high, len(runs))} {higher}, at {reaches[high[0]]}")


def reach(values: Sequence[float], text: Text = units.number) -> str:
    """Return the median of a curve's repetitions at its end with their range: "0.61 (0.6 to 0.63)".

    Where least and most read the same, the median stands alone.
    """
    if text(min(values)) == text(max(values)):
        return text(median(values))
    return f"{text(median(values))} ({text(min(values))} to {text(max(values))})"


def farthest_off(rows: Mapping[str, Sequence[float]], x: str, text: Text = units.number) -> str:
    """Say how far each row of errors is from zero at worst, and at which x, counted from 1."""
    clauses = []
    for name, errors in rows.items():
        worst = max(range(len(errors)), key=lambda k: abs(errors[k]))
        if errors[worst]:
            clauses.append(f"{name} is up to {text(abs(errors[worst]))} off, at {x} {worst + 1}")
        else:
            clauses.append(f"{name} is never off")
    return findings.line(*clauses)


def less_time(name: str, other: str, timings: Mapping[str, Any]) -> str:
    """Say how much less time `name` takes than `other`, measured and predicted; `timings[name]` as in a race."""
    mine, its = timings[name], timings[other]
    if None in (mine.measured_s, its.measured_s):
        return ""

    less_s = its.measured_s - mine.measured_s
    clause = f"{name} takes {_less(less_s)} than {other}"
    if abs(less_s) <= max(findings.spread(mine.repeats_s), findings.spread(its.repeats_s)):
        clause = f"{name} and {other} take about as long"
    if None in (mine.predicted_s, its.predicted_s):
        return clause
    return f"{clause}; predicted: {_less(its.predicted_s - mine.predicted_s)}"


def _less(seconds: float) -> str:
    return f"{units.seconds(abs(seconds))} {'less' if seconds >= 0 else 'more'}"


def settled(name: str, repeats: Mapping[float, Sequence[float]], x: Text = units.number, y: Text = units.number) -> str:
    """Say up to which place before its end a curve rises or falls: all later places tie with that one.

    `repeats` are the repetitions at each place. Without such a place before the last, the curve has not settled.
    """
    places = sorted(repeats)
    if not places:
        return ""

    first, last = places[0], places[-1]
    for number, end in enumerate(places, 1):
        if all(findings.level(repeats[end], repeats[later]) for later in places[number:]):
            break  # the last place at the latest
    if end == first:
        return f"{name} stays at about {y(median(repeats[first]))} from {x(first)} on"
    way = "rises" if median(repeats[end]) > median(repeats[first]) else "falls"
    course = f"{name} {way} from {y(median(repeats[first]))} at {x(first)} to {y(median(repeats[end]))} at {x(end)}"
    if end == last:
        return f"{course}, the last one"
    return f"{course}; from there on its ranges overlap"
