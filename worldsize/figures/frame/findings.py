"""Findings: the numbers of a picture in words, such as who wins and by how much, what ties, and how a curve runs.

Each function takes plain numbers and returns a clause, empty where the numbers say nothing; `line` joins clauses. None and
non-finite numbers count as not measured. Two numbers tie within a twentieth, or within the spread of their repetitions: a
second run may reverse a smaller difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from statistics import median
from types import MappingProxyType

from worldsize import units

TIE = 0.05  # of the larger number
FAR = 1.5  # times the others: no longer scatter
AGREE = 1.3  # ratio up to which points still say one thing
BUSY = "was this machine busy?"
MOST_NAMED = 4  # names in a clause

XY = tuple[float, float | None]
Values = Mapping[str, float | None]
Text = Callable[[float], str]


def line(*clauses: str) -> str:
    """Join clauses to a finding and capitalize its first word, unless that is a name of code."""
    said = "; ".join(filter(None, clauses))
    first = said.split(" ", 1)[0].rstrip(":")
    if first.isalpha() and first.islower():
        return said[0].upper() + said[1:]
    return said


def known(values: Values) -> dict[str, float]:
    """Return the values that were measured: without None, NaN and infinity."""
    return {name: value for name, value in values.items() if value is not None and math.isfinite(value)}


def points(curve: Iterable[XY]) -> dict[float, float]:
    """Return a curve as {x: y} in the order of x, without None, NaN and infinity."""
    return dict(sorted((x, y) for x, y in curve if y is not None and math.isfinite(y)))


def tie(one: float, other: float, spread: float = 0.0) -> bool:
    """Tell whether two numbers are too near to each other for a winner; `spread` is in their unit."""
    return abs(one - other) <= max(TIE * max(abs(one), abs(other)), spread)


def both(names: Sequence[str], whole: int = 0) -> str:
    """Join names: "A", "A and B", "A, B and C", "all 8 of them"; "8 of 9" where they are some of a `whole`."""
    if len(names) > MOST_NAMED and len(names) < whole:
        return f"{len(names)} of {whole}"
    if len(names) > MOST_NAMED:
        return f"all {len(names)} of them"
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def verb(names: Sequence[str], one: str, several: str) -> str:
    """Return `one` after a single name, else `several`."""
    if len(names) == 1:
        return one
    return several


def plural(name: str) -> bool:
    """Tell whether a name is plural, as "2 towers", "weights" and "they" are, and "loss" is not."""
    first = name.split(" ", 1)[0].rstrip(",")
    if first.isdigit():
        return int(first) > 1
    return first == "they" or (first.endswith("s") and not first.endswith(("ss", "us", "is", "'s")))


def be(*names: str) -> str:
    """Return "is" or "are", to agree with the names before it."""
    return "are" if len(names) > 1 or plural(names[0]) else "is"


def pronoun(name: str) -> str:
    """Return "it" or "they", for a name that stands earlier in the finding."""
    return "they" if plural(name) else "it"


def leaders(values: Values, largest: bool = True, spreads: Mapping[str, float] = MappingProxyType({})) -> list[str]:
    """Return the name of the largest value, or of the smallest, and all names that tie with it, in the order of `values`.

    `spreads` are the spreads of repeated values; two values tie within the wider of their spreads. From the best value on,
    names count up to the first that does not tie.
    """
    found = known(values)
    if not found:
        return []

    best, *others = sorted(found, key=found.__getitem__, reverse=largest)
    own = spreads.get(best, 0.0)
    near = takewhile(lambda name: tie(found[name], found[best], max(own, spreads.get(name, 0.0))), others)
    ahead = {best, *near}
    return [name for name in found if name in ahead]


def apart(one: Sequence[float], other: Sequence[float]) -> bool:
    """Tell whether the ranges of two measurements' repetitions do not overlap; False where either has none."""
    if not one or not other:
        return False
    return max(one) < min(other) or max(other) < min(one)


def level(one: Sequence[float], other: Sequence[float], paired: bool = False) -> bool:
    """Tell whether repetitions of two measurements leave no winner: their ranges overlap, or their medians tie.

    `paired`: repetition k of both had one seed, say. From three repetitions on, a measurement then wins if it is lower in
    each.
    """
    if paired and len(one) == len(other) >= 3:
        pairs = list(zip(one, other, strict=True))
        return not all(a < b for a, b in pairs) and not all(a > b for a, b in pairs)
    return not apart(one, other) or tie(median(one), median(other))


def ahead(repeats: Mapping[str, Sequence[float]], largest: bool = True, paired: bool = False) -> list[str]:
    """Return the name with the largest median, or with the smallest, and all names `level` with it."""
    if not repeats:
        return []
    pick = max if largest else min
    best = pick(repeats, key=lambda name: median(repeats[name]))
    return [name for name in repeats if name == best or level(repeats[name], repeats[best], paired)]


def extremes(count: int) -> tuple[str, str]:
    """Return words for the least and the greatest of `count` values: "lower" and "higher" of two, else superlatives."""
    return ("lower", "higher") if count == 2 else ("lowest", "highest")


def between(values: Mapping[str, str]) -> str:
    """Name the values that are neither least nor greatest, each with its text; empty from `MOST_NAMED` on."""
    if not 0 < len(values) < MOST_NAMED:
        return ""
    return "between them " + both([f"{name} at {value}" for name, value in values.items()])


def ranked(values: Values, verbs: tuple[str, str], text: Text = units.number, word: str = "most") -> str:
    """Say who has most: "A holds most, 3 MB, 2 times what B holds", or that all tie; `verbs`: (holds, hold).

    Names that tie with different numbers get a range.
    """
    found = known(values)
    if not found:
        return ""

    first, *others = leaders(found)
    if len(found) == 1:
        return f"{first} {verbs[0]} {text(found[first])}"
    tied = [found[name] for name in (first, *others)]
    least, most = text(min(tied)), text(max(tied))
    if len(others) == len(found) - 1:
        return f"{both([first, *others])} tie: {f'each {verbs[0]} {most}' if least == most else f'{least} to {most}'}"
    if others:
        names = both([first, *others])
        if len(others) >= MOST_NAMED:
            names = f"{len(others) + 1} of {len(found)}"
        return f"{names} tie and {verbs[1]} {word}, {f'{most} each' if least == most else f'{least} to {most}'}"

    last = min(found, key=found.get)
    said = f"{first} {verbs[0]} {word}, {text(found[first])}"
    if found[last] > 0:
        return f"{said}, {units.times(found[first] / found[last])} times what {last} {verbs[0]}"
    return f"{said}; {last} {verbs[0]} {text(found[last])}"


def fastest(
    seconds: Values, spreads_s: Mapping[str, float] = MappingProxyType({}),
    repeats_s: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> str:  # fmt: skip
    """Say who wins a race: "ring is 3.1 times as fast as star", or who ties; `spreads_s` are the spreads of `repeats_s`.

    A spread makes no tie where all repetitions are slower than each of the best one's.
    """
    found = known(seconds)
    if not found:
        return ""
    if len(found) == 1:
        return "".join(f"{name} takes {units.seconds(took_s)}" for name, took_s in found.items())

    best = min(found, key=found.get)
    tied = []
    for name in leaders(found, largest=False, spreads=spreads_s):
        # a name that was slower in every repetition does not tie, however wide the spread
        slower = name != best and apart(repeats_s.get(name, ()), repeats_s.get(best, ()))
        if not slower or tie(found[name], found[best]):
            tied.append(name)
    first, *others = tied
    if len(others) == len(found) - 1:
        return f"{both([first, *others])} tie"

    slowest = max(found, key=found.get)
    than = slowest
    if len(found) > 2:
        than = f"the slowest, {slowest}"
    ahead_of = _faster(found[slowest], min(found.values()), than)
    if others:
        return f"{both([first, *others])} tie, up to {ahead_of}"
    if len(found) > 2:
        return f"{first} {be(first)} fastest, {ahead_of}"
    return f"{first} {be(first)} {ahead_of}"


def _faster(slow_s: float, fast_s: float, than: str) -> str:
    """Say how much faster the faster one is, in per cent below a factor of `AGREE`: "1.1 times" says less than "8 %"."""
    if fast_s <= 0:
        return f"many times as fast as {than}"
    if slow_s / fast_s < AGREE:
        return f"{round(100 * (slow_s / fast_s - 1))} % faster than {than}"
    return f"{units.times(slow_s / fast_s)} times as fast as {than}"


def course(name: str, curve: Iterable[XY], x: Text = units.number, y: Text = units.number) -> str:
    """Describe how a curve runs: from its first point to its last, and the turn between them if there is one."""
    found = points(curve)
    if not found:
        return ""

    first, last = min(found), max(found)
    if len(found) == 1:
        return f"{name}: {y(found[first])} at {x(first)}"

    top, foot = max(found, key=found.get), min(found, key=found.get)
    rises, falls, stays = ("rise", "fall", "stay") if plural(name) else ("rises", "falls", "stays")
    turn, ways = top, (rises, falls)  # the negated values below look for a turn at the foot
    if not _between(found[top], found[first], found[last]):
        turn, ways = foot, (falls, rises)
        if not _between(-found[foot], -found[first], -found[last]):
            way = stays if tie(found[first], found[last]) else falls if found[last] < found[first] else rises
            return f"{name} {way} {_ends(found[first], found[last], x(first), x(last), y)}"

    begin = f"{name} {ways[0]} from {y(found[first])} at {x(first)} to {y(found[turn])} at {x(turn)}"
    return f"{begin}, then {ways[1]} to {y(found[last])} at {x(last)}"


def _between(turn: float, first: float, last: float) -> bool:
    """Tell whether a turn is clearly above both ends."""
    return turn > max(first, last) and not tie(turn, max(first, last))


def _ends(first: float, last: float, at_first: str, at_last: str, text: Text) -> str:
    if first == last:
        return f"at {text(last)} from {at_first} to {at_last}"
    if tie(first, last):
        return f"at about {text(last)} from {at_first} to {at_last}"
    return f"from {text(first)} at {at_first} to {text(last)} at {at_last}"


def straggler(worked_s: Values) -> str:
    """Name the one that works `FAR` times as long as all others; empty below three that work, as of two either may be odd."""
    busy = {name: took_s for name, took_s in known(worked_s).items() if took_s > 0}
    if len(busy) < 3:
        return ""

    slowest = max(busy, key=busy.get)
    others = [took_s for name, took_s in busy.items() if name != slowest]
    if busy[slowest] < FAR * max(others):
        return ""
    return f"{slowest} computes {units.times(busy[slowest] / median(others))} times as long as the others"


def wide(repeats: Mapping[str, Sequence[float]]) -> str:
    """Warn where repetitions of a measurement are at least a factor of 2 apart, so that their middle says little."""
    ratios = {}
    for name, values in repeats.items():
        finite = sorted(value for value in values if math.isfinite(value) and value > 0)
        if len(finite) > 2 and finite[-1] >= 2 * finite[0]:
            ratios[name] = finite[-1] / finite[0]

    far = known(ratios)
    if not far:
        return ""
    worst = max(far, key=far.get)
    return f"repetitions of {worst} are up to {units.times(far[worst])} times apart: {BUSY}"


def spread(repeats: Sequence[float]) -> float:
    """Return the width of the middle half of repetitions, in their unit; 0 below three."""
    ordered = sorted(filter(math.isfinite, repeats))
    if len(ordered) < 3:
        return 0.0
    return ordered[-1 - len(ordered) // 4] - ordered[len(ordered) // 4]
