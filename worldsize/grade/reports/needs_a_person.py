"""The list of everything that needs a person before marks go out, which is also written as `needs-a-person.csv`."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from worldsize.files import PRIVATE, write_whole
from worldsize.grade.marking.by_hand import NOTHING_GIVEN, Given
from worldsize.grade.marking.grading_record import GradedFolder
from worldsize.grade.marking.rows import ExerciseRow, GradeRow
from worldsize.grade.marking.submissions_folder import lms_number
from worldsize.grade.marking.tamper import in_short
from worldsize.grade.reports import safe_csv
from worldsize.grade.reports.table import one_line
from worldsize.units import count

NeedKind = Literal[
    "lost", "not graded", "changed since", "two releases", "doubled", "copies", "ungradable", "no sandbox", "tampered",
    "crashed", "differs", "not played", "elsewhere", "objects changed", "gone", "left out", "nothing handed in", "by hand",
    "bad line",
]  # fmt: skip
# kinds with one number stay in the order of the rows
_ORDER: dict[NeedKind, int] = {
    "lost": 0, "not graded": 1, "changed since": 1, "two releases": 1, "doubled": 2, "copies": 3, "ungradable": 4,
    "no sandbox": 4, "tampered": 4, "crashed": 4, "differs": 5, "not played": 5, "elsewhere": 6, "objects changed": 7, "gone": 8,
}  # fmt: skip
FILE = "needs-a-person.csv"
MOST_SHOWN, _MOST_SAID = 20, 300
_NO_LAB = "no lab"


@dataclass(frozen=True)
class Need:
    """A need, a reason for a person to look: the student, the file, and why."""

    kind: NeedKind
    why: str
    student: str = ""
    lab: str = ""
    path: str = ""

    @property
    def head(self) -> str:
        return f"{self.student}, {self.lab or self.path or _NO_LAB}"

    @property
    def words(self) -> str:
        return f"{self.head}: {self.why}" if self.student else self.why


def needs(graded: GradedFolder, given: Given = NOTHING_GIVEN) -> list[Need]:
    """Return everything that needs a person, first what prevents a mark.

    Points `given` by hand settle a row, unless the row is doubled, gone or not up to date.
    """
    all_needs = list(_not_up_to_date(graded))
    all_needs += [Need("doubled", words) for words in dict.fromkeys(doubled(graded.rows).values())]
    decided = {student for student, _ in given}
    for need in unsure(graded.rows):
        if (need.student, need.lab) in given:
            continue
        if need.lab or need.student not in decided:
            all_needs.append(need)
    for row in graded.rows:
        if (row.student, row.lab) not in given:
            all_needs += _to_look_at(row)

    for row in graded.gone:
        why = f"{row.path} was missing in the last grading"
        all_needs.append(Need("gone", why, row.student, row.lab or _NO_LAB, row.path))
    return sorted(all_needs, key=lambda need: _ORDER[need.kind])


def with_more(needs: list[Need], kind: NeedKind, words: Iterable[str]) -> list[Need]:
    """Return the list for a person with a command's messages "student, lab: why", except for rows that are listed already."""
    heads = {need.head for need in needs}
    return needs + [Need(kind, one) for one in dict.fromkeys(words) if one.partition(": ")[0] not in heads]


def write(needs: Iterable[Need], grades: Path) -> Path:
    """Write the list for a person beside the rows, and return its path."""
    heads = ["student", "lab", "what", "why", "file"]
    path = grades / FILE
    write_whole(path, safe_csv.text([heads, *([n.student, n.lab, n.kind, n.why, n.path] for n in needs)]), PRIVATE)
    return path


def unsure(rows: Iterable[GradeRow]) -> Iterator[Need]:
    """Yield rows whose points, or lack of points, a person should look at."""
    for row in rows:
        if row.state == "lost":
            yield _of(row, "lost", f"no mark, the grader lost it: {row.reason}. Run `worldsize grade` again")
        elif row.unsafe:
            yield _of(row, "no sandbox", "graded without a sandbox")
        elif row.state == "ungradable":
            yield _of(row, "ungradable", row.reason or row.state)
        elif row.state in ("crashed", "timeout") and not row.exercises:
            # the submission ended its grader, or an older grader reported its own loss so
            yield _of(row, "crashed", row.reason or row.state)
        elif row.tamper:
            yield _of(row, "tampered", row.reason or in_short(row.tamper))


def _of(row: GradeRow, kind: NeedKind, why: str) -> Need:
    return Need(kind, why, row.student, row.lab, row.path)


def _to_look_at(row: GradeRow) -> Iterator[Need]:
    """Yield what a person should look at in a row: copies, differing verdicts, answers elsewhere, replaced objects."""
    if row.copies:
        yield _of(row, "copies", row.handed_in)

    reasons: dict[NeedKind, list[str]] = {"differs": [], "not played": [], "elsewhere": []}
    changed = []
    for e in row.exercises:
        outcome = e.simulated.outcome if e.simulated else "same"
        if outcome == "differs":
            reasons["differs"].append(two_verdicts(e))
        elif outcome in ("timeout", "crashed"):
            reasons["not played"].append(two_verdicts(e))
        if e.changed:
            changed.append(f"{e.title} ({', '.join(e.changed)})")
        if e.state == "pass":
            continue

        for answer in e.elsewhere:
            detail = f": {answer.found}" if answer.kind in ("another name", "no Python") else ""
            reasons["elsewhere"].append(f"{e.title}: {answer.kind}, {answer.place}{detail}")
        for name in e.left:
            if name.maker == "no Python":
                reasons["elsewhere"].append(f"{e.title}: {name.maker}, code cell {name.cell} (`{name.line}`)")

    for kind, words in reasons.items():
        if words:
            yield _of(row, kind, "; ".join(words))
    if changed:
        yield _of(row, "objects changed", f"replaced objects of the course's package: {'; '.join(changed)[:_MOST_SAID]}")


def two_verdicts(exercise: ExerciseRow) -> str:
    """Return a sentence for a person on the verdicts of real ranks and of simulated time."""
    about = exercise.simulated
    if about.outcome != "differs":
        return f"{exercise.title}: no verdict in simulated time ({_first_line(about.said)})"

    verdicts = []
    for points, message in ((about.real_points, about.real_said), (about.points, about.said)):
        first = _first_line(message)
        verdicts.append(f"{points:g} ({first})" if first else f"{points:g}")
    return f"{exercise.title} ({exercise.possible:g}): on real ranks {verdicts[0]}; in simulated time {verdicts[1]}"


def _first_line(message: str) -> str:
    return one_line(message.partition("\n")[0])[:_MOST_SAID]


def _not_up_to_date(graded: GradedFolder) -> Iterator[Need]:
    """Yield the needs that a partial or unfinished grading left: missing, stale and outdated rows, and mixed releases."""
    for path in graded.missing:
        yield Need("not graded", f"{path} has no row yet: run `worldsize grade` again", path=path)
    for row in graded.stale:
        yield _of(row, "changed since", "its file changed after it was marked: grade it again")

    outdated = Counter(row.lab for row in graded.outdated)
    for lab, number in sorted(outdated.items()):
        why = "from another release, seed or sandbox than the last grading: grade all again"
        yield Need("changed since", f"{lab or _NO_LAB}: {count(number, 'row')} {why}", lab=lab)

    releases: dict[str, Counter[str]] = {}
    for row in graded.rows:
        releases.setdefault(row.lab, Counter())[row.release] += 1
    for lab, counts in sorted(releases.items()):
        if len(counts) > 1:
            told = " and ".join(f"{number} of release {name or 'unknown'}" for name, number in sorted(counts.items()))
            yield Need("two releases", f"{lab or _NO_LAB}: rows were marked by different releases ({told}): grade again", lab=lab)


def doubled(rows: Iterable[GradeRow]) -> dict[str, str]:
    """Return {student: message} on students who need a person: they share a number, or have two rows of one lab."""
    by_number: dict[str, Counter[tuple[str, str]]] = {}
    for row in {id(row): row for row in rows}.values():  # each once
        known = lms_number(row.student)
        if known:
            by_number.setdefault(known, Counter())[row.student, row.lab] += 1

    messages = {}
    for number, counts in sorted(by_number.items()):
        students = {student for student, _ in counts}
        twice = sorted({lab for (_, lab), times in counts.items() if lab and times > 1})
        if len(students) > 1 or twice:
            of = f" (twice {', '.join(twice)})" if twice else ""
            words = f"number {number} is the number of {' and of '.join(map(repr, sorted(students)))}{of}"
            what = "find out whose it is, rename or remove the other student's files, and grade again"
            messages |= dict.fromkeys(students, f"{words}: {what}")
    return messages
