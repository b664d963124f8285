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
        return f"{first} is fastest, {ahead_of}"
    return f"{first} is {ahead_of}"


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
    turn, ways = top, ("rises", "falls")
    if not _between(found[top], found[first], found[last]):
        turn, ways = foot, ("falls", "rises")
        if not _between(-found[foot], -found[first], -found[last]):
            return f"{name} {_way(found[first], found[last], x(first), x(last), y)}"

    begin = f"{name} {ways[0]} from {y(found[first])} at {x(first)} to {y(found[turn])} at {x(turn)}"
    return f"{begin}, then {ways[1]} to {y(found[last])} at {x(last)}"


def _between(turn: float, first: float, last: float) -> bool:
    """Whether a turn is clearly above both ends."""
    return turn > max(first, last) and not tie(turn, max(first, last))


def _way(first: float, last: float, at_first: str, at_last: str, text: Text) -> str:
    if first == last:
        return f"stays at {text(last)} from {at_first} to {at_last}"
    if tie(first, last):
        return f"stays at about {text(last)} from {at_first} to {at_last}"

    way = "rises"
    if last < first:
        way = "falls"
    return f"{way} from {text(first)} at {at_first} to {text(last)} at {at_last}"


def off_prediction(
    name: str, measured: Iterable[XY], predicted: Iterable[XY], x: Text = units.number, what: str = "prediction"
) -> str:
    """How far a curve is from what was predicted at the same x, at its worst, for a finding. Outliers do not count."""
    measured, predicted = list(measured), list(predicted)
    worst, ratio = _worst(measured, predicted)
    if worst is None:
        return ""
    if abs(ratio - 1) <= TIE:
        return f"{name} is within 5 % of the {what}"
    kept = _kept_up_to(_ratios(points(measured), points(predicted)))
    if kept is None:
        return f"{name} is {_off(ratio, f'the {what}', x(worst))}"
    return f"{name} is within 5 % of the {what} up to {x(kept)}, then {_off(ratio, 'it', x(worst))}"


def _off(ratio: float, what: str, where: str) -> str:
    off = ratio - 1
    if abs(off) >= 0.6:
        return f"{units.times(ratio)} times {what} at {where}"
    way = "above"
    if off < 0:
        way = "below"
    return f"up to {round(100 * abs(off))} % {way} {what}, at {where}"


def _kept_up_to(ratios: Mapping[float, float]) -> float | None:
    """The last of the first points that keep to their prediction, where there are several and no later one does."""
    near = [place for place in sorted(ratios) if abs(ratios[place] - 1) <= TIE]
    if 1 < len(near) < len(ratios) and near == sorted(ratios)[: len(near)]:
        return near[-1]
    return None


def off_predictions(
    curves: Mapping[str, tuple[Iterable[XY], Iterable[XY]]], x: Text = units.number, what: str = "prediction"
) -> str:
    """How far several curves, each (measured, predicted), are from what was predicted, for a finding; near ones together.

    `what` the measured ones are held against: a prediction, or a simulation.
    """
    near, far = [], []
    for name, (measured, predicted) in curves.items():
        worst, ratio = _worst(measured, predicted)
        if worst is not None and abs(ratio - 1) <= TIE:
            near.append(name)
        elif worst is not None:
            far.append(off_prediction(name, measured, predicted, x, what))

    if len(near) > 1 and not far:
        far.append(f"{'both' if len(near) == 2 else 'all'} are within 5 % of the {what}")
    elif near:
        far.append(f"{both(near, len(curves))} {verb(near, 'is', 'are')} within 5 % of the {what}")
    return "; ".join(far)


def _worst(measured: Iterable[XY], predicted: Iterable[XY]) -> tuple[float | None, float]:
    """Where a curve is farthest from its prediction, and how many times that it is; (None, 1) where nothing compares."""
    measured, predicted = list(measured), list(predicted)
    strange = outliers(measured, predicted)
    ratios = {x: ratio for x, ratio in _ratios(points(measured), points(predicted)).items() if x not in strange}
    if not ratios:
        return None, 1.0

    worst = max(ratios, key=lambda place: abs(math.log(ratios[place])))
    return worst, ratios[worst]


def _ratios(measured: Mapping[float, float], predicted: Mapping[float, float]) -> dict[float, float]:
    """How many times its prediction a point is, where both are above zero."""
    ratios = {}
    for place, y in measured.items():
        foretold = predicted.get(place, 0.0)
        if y > 0 and foretold > 0:
            ratios[place] = y / foretold
    return ratios


def outliers(measured: Iterable[XY], predicted: Iterable[XY] = ()) -> dict[float, float]:
    """Points of a curve that the others do not let one expect, for a finding: {x: how many times what they say}.

    With predictions a point is held against how far off the other points are, where those agree; without them against
    the line between its neighbours, where the rest of the curve only rises or only falls and two points stand on each
    side: nearer to an end it may be a turn.
    """
    found = points(measured)
    if len(found) < 4:
        return {}

    ratios = _ratios(found, points(predicted))
    if len(ratios) >= 4:
        return _far(_against_others(ratios))

    odd: dict[float, float] = {}
    places = list(found)
    for k in range(2, len(places) - 2):
        rest = [found[p] for p in places if p != places[k]]
        before, after = found[places[k - 1]], found[places[k + 1]]
        middle = (before + after) / 2
        outside = not min(before, after) <= found[places[k]] <= max(before, after)
        if middle > 0 and outside and rest in (sorted(rest), sorted(rest, reverse=True)):
            odd[places[k]] = found[places[k]] / middle
    return _far(odd)


def _against_others(ratios: Mapping[float, float]) -> dict[float, float]:
    """How many times the others' distance from their prediction a point's own is, where the others agree on theirs."""
    found = {}
    for place, ratio in ratios.items():
        others = [other for where, other in ratios.items() if where != place]
        if max(others) <= AGREE * min(others):
            found[place] = ratio / median(others)
    return found


def _far(times: Mapping[float, float]) -> dict[float, float]:
    return {place: ratio for place, ratio in times.items() if ratio >= FAR or ratio <= 1 / FAR}


def odd(name: str, measured: Iterable[XY], predicted: Iterable[XY] = (), x: Text = units.number) -> str:
    """The farthest outlier of a curve in words, for a finding: it asks whether something else ran meanwhile."""
    found = outliers(measured, predicted)
    if not found:
        return ""

    worst = max(found, key=lambda place: abs(math.log(max(found[place], 1e-9))))
    who = "neighbours"
    if predicted:
        who = "other points"
    return f"at {x(worst)} {name} is {units.times(found[worst])} times what its {who} say: {BUSY}"


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
