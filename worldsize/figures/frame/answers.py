"""Answers that several labs share, for `heading.answered`: which of some rows grow, and whether runs end in one place.

Each has words for every outcome, and is None while an exercise is not yet written.
"""

from collections.abc import Mapping, Sequence

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
