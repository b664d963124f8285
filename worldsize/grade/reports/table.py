"""The table at the end of a batch: every row, statistics and a histogram for each lab, as text."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from worldsize.grade.marking.batch import Batch
from worldsize.grade.marking.rows import STATES, GradeRow
from worldsize.grade.marking.tamper import SETUP_KINDS
from worldsize.units import count, number

BAR_COLUMNS = 40
BINS = 6
_WAYS = {"own": "ranks behind walls of their own", "fresh": "a fresh sandbox for every rank", "unsafe": "NO SANDBOX"}
MOST_REMARK = 160


def table(rows: Sequence[GradeRow]) -> str:
    """The table that a grading prints: students down, with lab, state, points and a remark in one line."""
    heads = ("student", "lab", "state", "points", "")
    lines = [heads, *((_shown(r.student), r.lab, r.state, _points(r), _remark(r)) for r in rows)]

    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    widths[-1] = 0
    return "\n".join(_padded(line, widths) for line in lines)


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
    return "  ".join(cells).rstrip()


def _points(row: GradeRow) -> str:
    return f"{number(row.points)} of {number(row.possible)}"


def _remark(row: GradeRow) -> str:
    remarks = [row.reason]
    remarks += [f"{e.id}: {e.state}" for e in row.exercises if e.state != "pass"]
    if row.tamper:
        remarks.append(f"changed: {_changed(row)}")
    if row.unsafe:
        remarks.append("UNSAFE: no sandbox")
    remarks.append(row.handed_in)
    return _shown("; ".join(filter(None, remarks)))[:MOST_REMARK]


def _changed(row: GradeRow) -> str:
    """Set-up cells are named apart: graded with the release's, they are why a check may differ from the student's."""
    setups = sum(one.kind in SETUP_KINDS for one in row.tamper)
    counts = {"set-up cell": setups, "thing": len(row.tamper) - setups}
    return " and ".join(count(found, thing) for thing, found in counts.items() if found)


def _shown(text: str) -> str:
    """One line that a terminal shows as it is."""
    return "".join(c if c.isprintable() else "?" for c in text)


def closing_line(batch: Batch, out: Path) -> str:
    """The last line below the table of a batch: how many submissions were graded, and how to replay a row.

    It says too how many were kept from before, in which sandboxes, and where the rows are.
    """
    kept = len(batch.rows) - batch.graded
    return (
        f"{count(batch.graded, 'submission')} graded, {kept} kept from before ({_WAYS[batch.mode]}); rows: {out / 'rows'}. "
        f"To replay a row: --seed {batch.seed}"
    )


def summary(rows: Sequence[GradeRow]) -> str:
    """Below the table of a batch, for each lab: how many of each state, mean, median, spread, and a histogram."""
    by_lab: dict[str, list[GradeRow]] = {}
    for row in sorted(rows, key=lambda row: row.lab):
        by_lab.setdefault(row.lab, []).append(row)
    return "\n\n".join(_of_lab(lab, of_lab) for lab, of_lab in by_lab.items())


def _of_lab(lab: str, rows: list[GradeRow]) -> str:
    states = Counter(row.state for row in rows)
    told = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    head = f"{lab or 'no lab'}: {count(len(rows), 'submission')} ({told})"

    possible = max(row.possible for row in rows)
    counted = [row.points for row in rows if row.state != "ungradable"]
    if not counted or not possible:
        return head

    spread = statistics.pstdev(counted)
    figures = (
        f"  mean {number(statistics.fmean(counted))}, median {number(statistics.median(counted))}, standard deviation "
        f"{number(spread)}, lowest {number(min(counted))}, highest {number(max(counted))} of {number(possible)} points"
    )
    return "\n".join([head, figures, *_histogram(counted, possible)])


def _histogram(points: list[float], possible: float) -> list[str]:
    """A row for each sixth of the points; the full score has its own."""
    bins = Counter(BINS if p >= possible else int(BINS * p / possible) for p in points)
    most = max(bins.values())

    names = [f"{number(possible * k / BINS)} to {number(possible * (k + 1) / BINS)}" for k in range(BINS)]
    names.append(f"all {number(possible)}")

    width = max(map(len, names))

    lines = []
    for k, name in enumerate(names):
        bar = "█" * round(BAR_COLUMNS * bins[k] / most)
        lines.append(f"  {name.rjust(width)}  {bar} {bins[k] or ''}".rstrip())
    return lines
