"""The table at the end of a grading: rows, statistics and a histogram for each lab, as text.

Beyond `MOST_ROWS` rows, a line stands for all rows of one lab, state and points; a CSV beside the rows has every row.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from worldsize.files import PRIVATE, write_whole
from worldsize.grade.marking.grade_folder import FolderGrading
from worldsize.grade.marking.rows import NO_MARK, STATES, GradeRow
from worldsize.grade.marking.tamper import SETUP_KINDS
from worldsize.grade.reports import safe_csv
from worldsize.units import count, number

BAR_COLUMNS = 40
BINS = 6
_WAYS = {"own": "ranks isolated from each other", "fresh": "a fresh sandbox for every rank", "unsafe": "NO SANDBOX"}
MOST_REMARK = 160
MOST_CELL = 2000
_MOST_NAME = 30
_MOST_NAMES = 3
MOST_ROWS = 40
FILE = "table.csv"


def table(rows: Sequence[GradeRow]) -> str:
    """Return the table that a grading prints: a line per row with student, lab, state, points and a remark.

    Beyond `MOST_ROWS` rows, a line has the number of like rows and the first few students.
    """
    if len(rows) > MOST_ROWS:
        lines = _folded(rows)
    else:
        lines = [("student", "lab", "state", "points", "")]
        for row in rows:
            lines.append((one_line(row.student), row.lab, row.state, _points(row), _remark(row)))

    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _folded(rows: Sequence[GradeRow]) -> list[tuple[str, ...]]:
    """Return a table's line for each lab, state and number of points, the best first."""
    kinds: dict[tuple, list[GradeRow]] = {}
    for row in rows:
        kinds.setdefault((row.lab, STATES.index(row.state), -row.points, row.possible), []).append(row)

    lines = [("rows", "lab", "state", "points", "students")]
    for _, alike in sorted(kinds.items()):
        more = f" and {len(alike) - _MOST_NAMES} more" if len(alike) > _MOST_NAMES else ""
        names = ", ".join(one_line(row.student)[:_MOST_NAME] for row in alike[:_MOST_NAMES])
        lines.append((str(len(alike)), alike[0].lab, alike[0].state, _points(alike[0]), names + more))
    return lines


def write(rows: Sequence[GradeRow], grades: Path) -> Path:
    """Write every row's line as CSV beside the rows, and return its path."""
    heads = ["student", "lab", "state", "points", "possible", "late", "remark", "file", "machine", "attempt", "seconds"]
    lines = [heads]
    for row in rows:
        points = "" if row.state in NO_MARK else f"{row.points:g}"
        end = [row.late, _remark(row, MOST_CELL), row.path, row.host, str(row.attempt), f"{row.seconds:.1f}"]
        lines.append([row.student, row.lab, row.state, points, f"{row.possible:g}", *end])

    path = grades / FILE
    write_whole(path, safe_csv.text(lines), PRIVATE)
    return path


def _points(row: GradeRow) -> str:
    points = "–" if row.state in NO_MARK else number(row.points)
    return f"{points} of {number(row.possible)}"


def _remark(row: GradeRow, most: int = MOST_REMARK) -> str:
    remarks = [row.late, row.reason]
    for e in row.exercises:
        if e.state == "pass":
            continue

        why = ""  # an answer may have passed in the notebook
        if e.elsewhere:
            why = f" (see {e.elsewhere[0].place})"
        elif e.left:
            names = ", ".join(f"`{one.name}`" for one in e.left[:_MOST_NAMES])
            why = f" (uses {names} from a cell that does not count)"
        outcome = "all points, with something to mend" if e.earned_all else e.state
        remarks.append(f"{e.id}: {outcome}{why}")

    if row.tamper:
        # set-up cells, which the release's replaced, are counted apart
        setups = sum(one.kind in SETUP_KINDS for one in row.tamper)
        counts = {"set-up cell": setups, "thing": len(row.tamper) - setups}
        remarks.append(f"changed: {' and '.join(count(found, thing) for thing, found in counts.items() if found)}")
    if row.unsafe:
        remarks.append("UNSAFE: no sandbox")
    remarks.append(row.handed_in)
    return one_line("; ".join(filter(None, remarks)))[:most]


def one_line(text: str) -> str:
    """Return the text as one line of the table, with unprintable characters as "?"."""
    return "".join(c if c.isprintable() else "?" for c in text)


def closing_line(done: FolderGrading, out: Path) -> str:
    """Return the last line below the table: submissions graded and kept, the sandbox, the CSV, and the seed for a replay."""
    return (
        f"{count(done.graded, 'submission')} graded, {done.kept} kept from before ({_WAYS[done.mode]}); "
        f"all rows: {out / FILE}. To replay a row: --seed {done.seed}"
    )


def summary(rows: Sequence[GradeRow]) -> str:
    """Return under the table, for each lab: the count of each state, mean, median, standard deviation, and a histogram."""
    by_lab: dict[str, list[GradeRow]] = {}
    for row in rows:
        by_lab.setdefault(row.lab, []).append(row)

    parts = []
    for lab, of_lab in sorted(by_lab.items()):
        states = Counter(row.state for row in of_lab)
        told = [f"{states[state]} {state}" for state in STATES if states[state]]
        lines = [f"{lab or 'no lab'}: {count(len(of_lab), 'submission')} ({', '.join(told)})"]

        possible = max(row.possible for row in of_lab)
        counted = [row.points for row in of_lab if row.state not in NO_MARK]
        if counted and possible:
            spread = statistics.pstdev(counted)  # of the whole class, not of a sample
            lines.append(
                f"  mean {number(statistics.fmean(counted))}, median {number(statistics.median(counted))}, standard deviation "
                f"{number(spread)}, lowest {number(min(counted))}, highest {number(max(counted))} of {number(possible)} points"
            )
            lines += _histogram(counted, possible)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _histogram(points: list[float], possible: float) -> list[str]:
    """Return the table's line for each sixth of the points, and one for the full score."""
    bins = Counter(min(BINS, int(BINS * p / possible)) for p in points)  # number BINS is the full score
    most = max(bins.values())

    edges = [number(possible * k / BINS) for k in range(BINS + 1)]
    names = [*map(" to ".join, pairwise(edges)), f"all {number(possible)}"]
    width = max(map(len, names))

    lines = []
    for k, name in enumerate(names):
        line = f"  {name.rjust(width)}"
        if bins[k]:
            line += f"  {'█' * round(BAR_COLUMNS * bins[k] / most)} {bins[k]}"
        lines.append(line)
    return lines
