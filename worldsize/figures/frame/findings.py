"""What the numbers of a picture say, in words: who wins and by how much, what ties, where curves cross, what is odd.

Every function goes from plain numbers to a clause, empty where the numbers say nothing; `line` makes one finding of several.
None and numbers that are not finite count as not measured. Two numbers tie within a twentieth, or within the spread of
their repetitions: less than that a second run may turn round. Left out: where the words stand (`heading`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from statistics import median
from types import MappingProxyType

from worldsize import units

TIE = 0.05
FAR = 1.5  # so many times what others say is no longer scatter
AGREE = 1.3  # so far apart points still say one thing
BUSY = "was this machine busy?"
MOST_NAMED = 4

XY = tuple[float, float | None]
Values = Mapping[str, float | None]
Text = Callable[[float], str]


def line(*clauses: str) -> str:
    """A finding of a picture: its clauses in a row, the first with a capital; a name of code keeps its letters."""
    said = "; ".join(filter(None, clauses))
    first = said.split(" ", 1)[0].rstrip(":")
    if first.isalpha() and first.islower():
        return said[0].upper() + said[1:]
    return said


def known(values: Values) -> dict[str, float]:
    """The values of a finding that were measured: without None, NaN and infinity."""
    return {name: value for name, value in values.items() if value is not None and math.isfinite(value)}


def points(curve: Iterable[XY]) -> dict[float, float]:
    """A curve's points for a finding, in the order of x: {x: y}, without None, NaN and infinity."""
    return dict(sorted((x, y) for x, y in curve if y is not None and math.isfinite(y)))


def tie(one: float, other: float, spread: float = 0.0) -> bool:
    """Whether two numbers of a finding are too near to each other for a winner; `spread` is in their unit."""
    return abs(one - other) <= max(TIE * max(abs(one), abs(other)), spread)


def both(names: Sequence[str], whole: int = 0) -> str:
    """Names in a finding as text: "A", "A and B", "A, B and C", "all 8 of them"; "8 of 9" where they are some of a `whole`."""
    if len(names) > MOST_NAMED and len(names) < whole:
        return f"{len(names)} of {whole}"
    if len(names) > MOST_NAMED:
        return f"all {len(names)} of them"
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def verb(names: Sequence[str], one: str, several: str) -> str:
    """The verb of a finding after its names: `one` after a single name."""
    if len(names) == 1:
        return one
    return several


def plural(name: str) -> bool:
    """Whether a name is one of several things, which decides a finding's verb: "2 towers", "weights", "they"; not "loss"."""
    first = name.split(" ", 1)[0].rstrip(",")
    if first.isdigit():
        return int(first) > 1
    return first == "they" or (first.endswith("s") and not first.endswith(("ss", "us", "is", "'s")))


def be(*names: str) -> str:
    """Return "is" or "are", as it stands after the names of a finding."""
    return "are" if len(names) > 1 or plural(names[0]) else "is"


def pronoun(name: str) -> str:
    """Return "it" or "they", for a name that a finding has told before."""
    return "they" if plural(name) else "it"


def leaders(values: Values, largest: bool = True, spreads: Mapping[str, float] = MappingProxyType({})) -> list[str]:
    """Who has the largest of a finding's values, or the smallest: one name, or all that tie with it.

    `spreads` are those of the values, where they have been repeated; two tie within the wider one of their own.
    In their order, who comes behind one that does not tie does not either.
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
    """Whether a finding's repetitions of two measurements have ranges that do not overlap; no where one has none."""
    if not one or not other:
        return False
    return max(one) < min(other) or max(other) < min(one)


def level(one: Sequence[float], other: Sequence[float], paired: bool = False) -> bool:
    """Whether repetitions of two measurements leave a finding no winner: their ranges overlap, or the middles tie.

    `paired`: repetition k of both had one seed, say. Then one of them wins that is lower in each, where there are three or more.
    """
    if paired and len(one) == len(other) >= 3:
        lower = [a < b for a, b in zip(one, other, strict=True)]
        return any(lower) and not all(lower)
    return not apart(one, other) or tie(median(one), median(other))


def ahead(repeats: Mapping[str, Sequence[float]], largest: bool = True, paired: bool = False) -> list[str]:
    """As `leaders`, for repetitions of measurements: who has the largest middle or the smallest, and all `level` with it."""
    if not repeats:
        return []
    pick = max if largest else min
    best = pick(repeats, key=lambda name: median(repeats[name]))
    return [name for name in repeats if name == best or level(repeats[name], repeats[best], paired)]


def extremes(count: int) -> tuple[str, str]:
    """What the least and the greatest of so many are called in a finding: of two, "lower" and "higher"."""
    return ("lower", "higher") if count == 2 else ("lowest", "highest")


def between(values: Mapping[str, str]) -> str:
    """Who is neither least nor greatest, for a finding, each with its value as text; empty where there are many."""
    if not 0 < len(values) < MOST_NAMED:
        return ""
    return "between them " + both([f"{name} at {value}" for name, value in values.items()])


def ranked(values: Values, verbs: tuple[str, str], text: Text = units.number, word: str = "most") -> str:
    """Who has most, for a finding: "A holds most, 3 MB, 2 times what B holds", or that all tie; `verbs`: (holds, hold).

    Those that tie with other numbers have a range.
    """
    found = known(values)
    if not found:
        return ""

    first, *others = leaders(found)
    if len(found) == 1:
        return f"{first} {verbs[0]} {text(found[first])}"
    least, most = (text(pick(found[name] for name in (first, *others))) for pick in (min, max))
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
    """A race's finding: "ring is 3.1 times as fast as star", or who ties; `spreads_s` are those of the repetitions `repeats_s`.

    Nobody ties within a spread whose repetitions are all slower than each of the best one's.
    """
    found = known(seconds)
    if not found:
        return ""
    if len(found) == 1:
        return "".join(f"{name} takes {units.seconds(took_s)}" for name, took_s in found.items())

    best = min(found, key=found.get)
    first, *others = [
        name for name in leaders(found, largest=False, spreads=spreads_s)
        if name == best or tie(found[name], found[best]) or not apart(repeats_s.get(name, ()), repeats_s.get(best, ()))
    ]
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
    """How much faster the faster one is: in per cent where it is little, as "1.1 times" says less of it than "8 %"."""
    if fast_s <= 0:
        return f"many times as fast as {than}"
    if slow_s / fast_s < AGREE:
        return f"{round(100 * (slow_s / fast_s - 1))} % faster than {than}"
    return f"{units.times(slow_s / fast_s)} times as fast as {than}"


def course(name: str, curve: Iterable[XY], x: Text = units.number, y: Text = units.number) -> str:
    """How one curve runs, for a finding: from its first point to its last, and the turn between them if there is one."""
    found = points(curve)
    if not found:
        return ""

    first, last = min(found), max(found)
    if len(found) == 1:
        return f"{name}: {y(found[first])} at {x(first)}"

    top, foot = max(found, key=found.get), min(found, key=found.get)
    rises, falls, stays = ("rise", "fall", "stay") if plural(name) else ("rises", "falls", "stays")
    turn, ways = top, (rises, falls)
    if not _between(found[top], found[first], found[last]):
        turn, ways = foot, (falls, rises)
        if not _between(-found[foot], -found[first], -found[last]):
            way = stays if tie(found[first], found[last]) else falls if found[last] < found[first] else rises
            return f"{name} {way} {_ends(found[first], found[last], x(first), x(last), y)}"

    begin = f"{name} {ways[0]} from {y(found[first])} at {x(first)} to {y(found[turn])} at {x(turn)}"
    return f"{begin}, then {ways[1]} to {y(found[last])} at {x(last)}"


def _between(turn: float, first: float, last: float) -> bool:
    """Whether a turn is clearly above both ends."""
    return turn > max(first, last) and not tie(turn, max(first, last))


def _ends(first: float, last: float, at_first: str, at_last: str, text: Text) -> str:
    if first == last:
        return f"at {text(last)} from {at_first} to {at_last}"
    if tie(first, last):
        return f"at about {text(last)} from {at_first} to {at_last}"
    return f"from {text(first)} at {at_first} to {text(last)} at {at_last}"


def straggler(worked_s: Values) -> str:
    """Who works clearly longer than all others, for a finding; at least three that work at all, as of two either may be odd."""
    busy = {name: took_s for name, took_s in known(worked_s).items() if took_s > 0}
    if len(busy) < 3:
        return ""

    slowest = max(busy, key=busy.get)
    others = [took_s for name, took_s in busy.items() if name != slowest]
    if busy[slowest] < FAR * max(others):
        return ""
    return f"{slowest} computes {units.times(busy[slowest] / median(others))} times as long as the others"


def wide(repeats: Mapping[str, Sequence[float]]) -> str:
    """Whether repetitions of one measurement are so far apart that their middle says little, for a finding."""
    ratios = {}
    for name, values in repeats.items():
        finite = sorted(value for value in values if math.isfinite(value) and value > 0)
        if len(finite) > 2:
            ratios[name] = finite[-1] / finite[0]

    far = known({name: ratio for name, ratio in ratios.items() if ratio >= 2})
    if not far:
        return ""
    worst = max(far, key=far.get)
    return f"repetitions of {worst} are up to {units.times(far[worst])} times apart: {BUSY}"


def spread(repeats: Sequence[float]) -> float:
    """How wide the middle half of repetitions is, in their unit: less is no win in a finding."""
    ordered = sorted(filter(math.isfinite, repeats))
    if len(ordered) < 3:
        return 0.0
    return ordered[-1 - len(ordered) // 4] - ordered[len(ordered) // 4]
