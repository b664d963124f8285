"""Answers that several labs share, for `heading.answered`: which rows grow, whether runs stay the same, who is first.

Each has words for every outcome, and is None while an exercise is not yet written.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from worldsize import units
from worldsize.figures.frame import findings
from worldsize.figures.frame.findings import Text

GROWS = 1.3  # times its first number: less may be scatter
FALLS = 1 / GROWS


def growing(rows: Mapping[str, Sequence[float | None]], last: Text | None = None) -> str | None:
    """Say which rows grow from their first number to their last: "only A, 20 times; B stays".

    `last` formats a row's last number, which then stands in place of the growth. Numbers are greater than zero.
    """
    if not all(rows.values()) or any(None in row for row in rows.values()):
        return None

    ratios = {name: row[-1] / row[0] for name, row in rows.items()}
    ends = {}
    for name, row in rows.items():
        if last is not None:
            ends[name] = f"to {last(row[-1])}"
        elif FALLS < ratios[name] < GROWS:
            ends[name] = "stay" if findings.plural(name) else "stays"
        else:
            ends[name] = f"{units.times(ratios[name])} times"

    told = {name: f"{name} {end}" for name, end in ends.items()}
    grown = [name for name in rows if ratios[name] >= GROWS]
    if not grown:
        return f"{'neither' if len(rows) == 2 else 'none'}: {', '.join(told.values())}"
    if len(grown) == len(rows):
        return f"{'both' if len(rows) == 2 else 'all'}: {', '.join(told.values())}"
    first = ", ".join(f"{name}, {ends[name]}" for name in grown)
    others = ", ".join(told[name] for name in rows if name not in grown)
    return f"only {first}; {others}"


def same(apart: Sequence[float] | None, rounding: float) -> str | None:
    """Say whether two runs stay the same: "yes, up to rounding (4e-16)" or "no, up to 0.1 apart".

    `apart` are their differences, step after step; those below `rounding` are rounding.
    """
    if not apart:
        return None
    if not any(apart):
        return "yes, to the last bit"
    worst = units.number(float(f"{max(apart):.2g}"))
    if max(apart) < rounding:
        return f"yes, up to rounding ({worst})"
    return f"no, up to {worst} apart"


def first(bars: Iterable[Any], most: int = 2) -> str | None:
    """Say which of the bars of one group is first, or which tie: "ring", "ring and gloo tie"; beyond `most`, "4 of 6 tie".

    `bars` are the `Timing` of a race; None where none is measured.
    """
    seconds, spreads_s, repeats_s = {}, {}, {}
    for bar in bars:
        if bar.measured_s is not None:
            seconds[bar.name], repeats_s[bar.name] = bar.measured_s, bar.repeats_s
            spreads_s[bar.name] = findings.spread(bar.repeats_s)

    names = findings.foremost(findings.known(seconds), spreads_s, repeats_s)
    if not names:
        return None
    if len(names) > most:
        return f"{len(names)} of {len(seconds)} tie"
    return f"{findings.both(names)}{' tie' * (len(names) > 1)}"


def _tie(bar: Any, other: Any) -> bool:
    overlap = bool(bar.repeats_s and other.repeats_s) and not findings.apart(bar.repeats_s, other.repeats_s)
    return overlap or findings.tie(bar.measured_s, other.measured_s)


def quicker(bars: Iterable[Any]) -> str | None:
    """Say which of two is faster in the first group of bars and in the last: "2 ranks: a tie; 8 ranks: tree, 1.7 times".

    `bars` are the `Timing` of a race, two in a group. Bars whose repetitions overlap tie.
    """
    groups: dict[str, list[Any]] = {}
    for bar in bars:
        if bar.measured_s is None:
            return None
        groups.setdefault(bar.at, []).append(bar)

    places = list(dict.fromkeys([*groups][:1] + [*groups][-1:]))
    faster, leads = {}, {}
    for place in places:
        first, second = sorted(groups[place], key=lambda bar: bar.measured_s)
        if not _tie(first, second):
            faster[place] = first.name
            leads[place] = f"{units.times(second.measured_s / first.measured_s)} times"

    winners = set(faster.values())
    if not winners:
        return f"a tie at {' and '.join(places)}"
    if len(faster) < len(places):
        (place,) = faster
        won = {place: f"{faster[place]}, {leads[place]}"}
        return "; ".join(f"{at}: {won.get(at, 'a tie')}" for at in places)
    if len(winners) == 1:
        return f"{winners.pop()}: {', '.join(f'{lead} ({place})' for place, lead in leads.items())}"
    return "; ".join(f"{place}: {name}" for place, name in faster.items())
