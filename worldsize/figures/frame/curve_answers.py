"""Answers that a curve gives to a question of its own: where it keeps a limit, where it is least, and where most of it lies.

Each function takes points and returns a clause for a finding, empty where nothing was measured.
"""

from collections.abc import Iterable
from itertools import combinations_with_replacement

from worldsize import units
from worldsize.figures.frame.findings import XY, Text, be, both, points, pronoun, tie, verb

MOST = 0.9  # of a curve's sum


def within(
    name: str, curve: Iterable[XY], limit: str, limits: Iterable[XY], x: Text = units.number, y: Text = units.number
) -> str:
    """Say from which x on a curve is at most its limit, with its value there and at the x before."""
    mine, most = points(curve), points(limits)
    shared = [place for place in mine if place in most]
    over = [place for place in shared if mine[place] > most[place]]
    if not shared:
        return ""
    if not over:
        return f"{name} {be(name)} within {limit} everywhere"

    last_over = over[-1]
    if last_over == shared[-1]:
        return f"{name} {be(name)} over {limit} at {x(last_over)}: {y(mine[last_over])}"
    first = shared[shared.index(last_over) + 1]
    it = pronoun(name)
    before = f"at {x(last_over)} {it} {be(it)} {y(mine[last_over])}"
    return f"from {x(first)} on {name} {be(name)} within {limit}: {y(mine[first])}; {before}"


def least(name: str, curve: Iterable[XY], x: Text = units.number, y: Text = units.number) -> str:
    """Say where a curve is lowest, naming all places that tie with the lowest."""
    found = points(curve)
    if not found:
        return ""

    lowest = min(found.values())
    places = [place for place in found if tie(found[place], lowest)]
    if len(places) == len(found):
        return f"{name} {be(name)} about {y(lowest)} at each of them"
    ties = verb(places, "", ", a tie")
    return f"{name} {be(name)} least, {y(lowest)}, at {both(list(map(x, places)))}{ties}"


def bulk(name: str, curve: Iterable[XY], x: Text = units.number) -> str:
    """Name the shortest range of x that holds nine tenths of a curve's sum."""
    found = points(curve)
    whole = sum(found.values())
    if whole <= 0:
        return ""

    ranges = []
    for first, last in combinations_with_replacement(found, 2):
        share = sum(y for place, y in found.items() if first <= place <= last) / whole
        if share >= MOST:
            ranges.append((list(found).index(last) - list(found).index(first), -share, first, last))
    _, share, first, last = min(ranges)  # the narrowest; of several, the fullest
    where = x(first)
    if first != last:
        where = f"{where} to {x(last)}"
    return f"{round(-100 * share)} % of the {name} lie in {where}"
