"""Findings: what the numbers of a picture say, as the line above it, such as "Ring is 3.1 times as fast as star".

A finding is made in three steps, which are the parts of this file:

1. Numbers. A figure gives plain data: {name: number}, {name: repetitions}, or a curve's points. `known` and `points` drop
   what was not measured: None, NaN and infinity.
2. Judgements, still without words. `tie`, `leaders` and `level` say who is ahead and what is too near to tell. Two numbers
   tie within a twentieth, or within the spread of their repetitions: a second run may reverse a smaller difference.
3. Clauses. `fastest`, `ranked`, `course` and others return a judgement in words, empty where the numbers say nothing. A
   figure joins its clauses with `line`.

To add a finding, write a function of the third kind: it takes plain numbers, asks the judgements, and has a sentence for
every outcome, such as nothing measured, one number alone, a tie of all or of some, and a winner. Add a row for each outcome
to `tests/figures/test_findings.py`. `crossings`, `curve_answers`, `curve_ends` and `predictions` have such functions for
curves.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import gt, lt
from statistics import median
from types import MappingProxyType

from worldsize import units

TIE = 0.05  # of the larger number
FAR = 1.5  # times the others: no longer scatter
AGREE = 1.3  # ratio up to which points still say one thing
BUSY = "was this machine busy?"
MOST_NAMED = 4  # names in a clause
MOST_WORDS = 12  # of a title

XY = tuple[float, float | None]
Values = Mapping[str, float | None]
Text = Callable[[float], str]


def known(values: Values) -> dict[str, float]:
    """Return the values for a finding that were measured: without None, NaN and infinity."""
    return {name: value for name, value in values.items() if value is not None and math.isfinite(value)}


def points(curve: Iterable[XY]) -> dict[float, float]:
    """Return a finding's curve as {x: y} in the order of x, without None, NaN and infinity."""
    return dict(sorted((x, y) for x, y in curve if y is not None and math.isfinite(y)))


def spread(repeats: Sequence[float]) -> float:
    """Return, for findings, the width of the middle half of repetitions, in their unit; 0 below three."""
    ordered = sorted(filter(math.isfinite, repeats))
    if len(ordered) < 3:
        return 0.0
    return ordered[-1 - len(ordered) // 4] - ordered[len(ordered) // 4]


def tie(value: float, other: float, spread: float = 0.0) -> bool:
    """Tell for a finding whether two numbers are too near to each other for a winner; `spread` is in their unit."""
    return abs(value - other) <= max(TIE * max(abs(value), abs(other)), spread)


def apart(repeats: Sequence[float], others: Sequence[float]) -> bool:
    """Tell for a finding whether the ranges of two measurements' repetitions do not overlap; False where either has none."""
    if not repeats or not others:
        return False
    return max(repeats) < min(others) or max(others) < min(repeats)


def level(repeats: Sequence[float], others: Sequence[float], paired: bool = False) -> bool:
    """Tell for a finding whether repetitions of two measurements leave no winner: their ranges overlap, or their medians tie.

    `paired`: repetition k of both had one seed, say. From three repetitions on, a measurement then wins if it is lower in
    each.
    """
    if paired and len(repeats) == len(others) >= 3:
        lower, higher = sum(map(lt, repeats, others)), sum(map(gt, repeats, others))
        return len(repeats) not in (lower, higher)
    return not apart(repeats, others) or tie(median(repeats), median(others))


def leaders(values: Values, largest: bool = True, spreads: Mapping[str, float] = MappingProxyType({})) -> list[str]:
    """Return the name of the largest value, or of the smallest, and all names that tie with it, in the order of `values`.

    `spreads` are the spreads of repeated values; two values tie within the wider of their spreads. From the best value on,
    names count up to the first that does not tie.
    """
    numbers = known(values)
    if not numbers:
        return []

    best, *others = sorted(numbers, key=numbers.__getitem__, reverse=largest)
    tied = {best}
    for name in others:
        wider = max(spreads.get(best, 0.0), spreads.get(name, 0.0))
        if not tie(numbers[name], numbers[best], wider):
            break
        tied.add(name)
    return [name for name in numbers if name in tied]


def ahead(repeats: Mapping[str, Sequence[float]], largest: bool = True, paired: bool = False) -> list[str]:
    """Return the name with the largest median, or with the smallest, and all names `level` with it."""
    if not repeats:
        return []
    pick = max if largest else min
    best = pick(repeats, key=lambda name: median(repeats[name]))
    return [name for name in repeats if level(repeats[name], repeats[best], paired)]


def both(names: Sequence[str], whole: int = 0) -> str:
    """Join names in a finding: "A", "A and B", "A, B and C", "all 8 of them"; "8 of 9" where they are some of a `whole`."""
    if MOST_NAMED < len(names) < whole:
        return f"{len(names)} of {whole}"
    if len(names) > MOST_NAMED:
        return f"all {len(names)} of them"
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def verb(names: Sequence[str], singular: str, several: str) -> str:
    """Return a finding's verb, `singular` after a single name, else `several`."""
    if len(names) == 1:
        return singular
    return several


def plural(name: str) -> bool:
    """Tell whether a name in a finding is plural, as "2 towers", "weights" and "they" are, and "loss" is not."""
    first = name.split(" ", 1)[0].rstrip(",")
    if first.isdigit():
        return int(first) > 1
    if first.endswith(("ss", "us", "is", "'s")):
        return False
    return first == "they" or first.endswith("s")


def be(*names: str) -> str:
    """Return a finding's "is" or "are", to agree with the names before it."""
    return "are" if len(names) > 1 or plural(names[0]) else "is"


def pronoun(name: str) -> str:
    """Return "it" or "they", for a name that stands earlier in the finding."""
    return "they" if plural(name) else "it"


def extremes(count: int) -> tuple[str, str]:
    """Return words for the least and the greatest of `count` values: "lower" and "higher" of two, else superlatives."""
    return ("lower", "higher") if count == 2 else ("lowest", "highest")


def ranked(values: Values, verbs: tuple[str, str], text: Text = units.number, word: str = "most") -> str:
    """Say in a finding who has most: "A holds most, 3 MB, 2 times what B holds", or that all tie; `verbs`: (holds, hold).

    Names that tie with different numbers get a range.
    """
    numbers = known(values)
    if not numbers:
        return ""

    tied = leaders(numbers)
    amounts = [numbers[name] for name in tied]
    least, most = text(min(amounts)), text(max(amounts))
    first, last = tied[0], min(numbers, key=numbers.get)
    holds, hold = verbs

    if len(numbers) == 1:
        return f"{first} {holds} {most}"
    if len(tied) == len(numbers):
        amount = f"each {holds} {most}" if least == most else f"{least} to {most}"
        return f"{both(tied)} tie: {amount}"
    if len(tied) > 1:
        amount = f"{most} each" if least == most else f"{least} to {most}"
        return f"{both(tied, len(numbers))} tie and {hold} {word}, {amount}"
    if numbers[last] > 0:
        return f"{first} {holds} {word}, {most}, {units.times(numbers[first] / numbers[last])} times what {last} {holds}"
    return f"{first} {holds} {word}, {most}; {last} {holds} {text(numbers[last])}"


def foremost(
    times_s: Mapping[str, float], spreads_s: Mapping[str, float], repeats_s: Mapping[str, Sequence[float]]
) -> list[str]:
    """Return, for a finding, who is first in a race, and who ties: within a spread, and not slower in every repetition."""
    if not times_s:
        return []

    best, tied = min(times_s, key=times_s.__getitem__), []
    for name in leaders(times_s, largest=False, spreads=spreads_s):
        slower = apart(repeats_s.get(name, ()), repeats_s.get(best, ()))  # in every repetition, however wide the spread
        if not slower or tie(times_s[name], times_s[best]):
            tied.append(name)
    return tied


def fastest(
    seconds: Values, spreads_s: Mapping[str, float] = MappingProxyType({}),
    repeats_s: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> str:  # fmt: skip
    """Say who wins a race: "ring is 3.1 times as fast as star", or who ties; `spreads_s` are the spreads of `repeats_s`.

    Names whose middle runs differ by more than a tie overlap. A spread does not count where all repetitions are slower than
    each of the best one's.
    """
    times_s = known(seconds)
    if not times_s:
        return ""

    best, slowest = min(times_s, key=times_s.get), max(times_s, key=times_s.get)
    tied = foremost(times_s, spreads_s, repeats_s)
    if len(times_s) == 1:
        return f"{best} {'take' if plural(best) else 'takes'} {units.seconds(times_s[best])}"
    word = "tie" if all(tie(times_s[name], times_s[best]) for name in tied) else "overlap"
    if len(tied) == len(times_s):
        middles = f", middle runs {units.seconds(times_s[best])} to {units.seconds(times_s[slowest])}" * (word == "overlap")
        return f"{both(tied)} {word}{middles}"

    than = slowest if len(times_s) == 2 or len(tied) > 1 else f"the slowest, {slowest}"
    if times_s[best] <= 0:
        lead = f"many times as fast as {than}"
    elif times_s[slowest] / times_s[best] < AGREE:  # "1.1 times" says less than "8 %"
        lead = f"{round(100 * (times_s[slowest] / times_s[best] - 1))} % faster than {than}"
    else:
        lead = f"{units.times(times_s[slowest] / times_s[best])} times as fast as {than}"

    if len(tied) > 1:
        return f"{both(tied)} {word}, up to {lead}"
    first = tied[0]
    if len(times_s) > 2:
        return f"{first} {be(first)} fastest, {lead}"
    return f"{first} {be(first)} {lead}"


def course(name: str, curve: Iterable[XY], x: Text = units.number, y: Text = units.number) -> str:
    """Describe in a finding how a curve runs: from its first point to its last, and the turn between them if there is one."""
    y_at = points(curve)
    if not y_at:
        return ""

    first, last = min(y_at), max(y_at)
    top, foot = max(y_at, key=y_at.get), min(y_at, key=y_at.get)
    begin, end = y_at[first], y_at[last]
    rises, falls, stays = ("rise", "fall", "stay") if plural(name) else ("rises", "falls", "stays")

    if len(y_at) == 1:
        return f"{name}: {y(begin)} at {x(first)}"

    turn = ""  # at a place clearly above both ends, or else at one clearly below both
    if not tie(y_at[top], max(begin, end)):
        turn = f"{'peak' if plural(name) else 'peaks'} at {x(top)}, {y(y_at[top])}"
    elif not tie(y_at[foot], min(begin, end)):
        turn = f"{be(name)} lowest at {x(foot)}, {y(y_at[foot])}"
    if turn:
        return f"{name} {turn}; from {y(begin)} at {x(first)} to {y(end)} at {x(last)}"

    if begin == end:
        return f"{name} {stays} at {y(end)} from {x(first)} to {x(last)}"
    if tie(begin, end):
        return f"{name} {stays} at about {y(end)} from {x(first)} to {x(last)}"
    way = falls if end < begin else rises
    return f"{name} {way} from {y(begin)} to {y(end)} at {x(last)}"


def between(values: Mapping[str, str]) -> str:
    """Name in a finding the values that are neither least nor greatest, each with its text; empty from `MOST_NAMED` on."""
    if not 0 < len(values) < MOST_NAMED:
        return ""
    return "between them " + both([f"{name} at {value}" for name, value in values.items()])


def straggler(worked_s: Values) -> str:
    """Name the one that works `FAR` times as long as all others; empty below three that work, as of two either may be odd."""
    busy = {name: took_s for name, took_s in known(worked_s).items() if took_s > 0}
    if len(busy) < 3:
        return ""

    *others_s, longest_s = sorted(busy.values())
    if longest_s < FAR * max(others_s):
        return ""
    slowest = max(busy, key=busy.get)
    return f"{slowest} computes {units.times(longest_s / median(others_s))} times as long as the others"


def wide(repeats: Mapping[str, Sequence[float]]) -> str:
    """Warn in a finding where repetitions of a measurement are at least a factor of 2 apart, so that their middle says little."""
    ratios = {}
    for name, values in repeats.items():
        finite = sorted(value for value in values if 0 < value < math.inf)
        if len(finite) > 2 and finite[-1] >= 2 * finite[0]:
            ratios[name] = finite[-1] / finite[0]

    far = known(ratios)
    if not far:
        return ""
    worst = max(far, key=far.get)
    return f"repetitions of {worst} are up to {units.times(far[worst])} times apart: {BUSY}"


def line(*clauses: str) -> str:
    """Join clauses to a finding and capitalize its first word, unless that is a name of code."""
    sentence = "; ".join(filter(None, clauses))
    first = sentence.split(" ", 1)[0].rstrip(",:;")
    if first.isalpha() and first.islower():
        return sentence[0].upper() + sentence[1:]
    return sentence


def title(finding: str) -> str:
    """Return as many of a finding's first clauses as a title of `MOST_WORDS` holds, at least the first one."""
    kept, *others = finding.split("; ")
    for clause in others:
        if len(f"{kept} {clause}".split()) > MOST_WORDS:
            break
        kept = f"{kept}; {clause}"
    return kept
