"""Marks of one lab as Moodle's grading worksheet, or filled into the worksheet that Moodle exported.

Moodle accepts a worksheet with the columns Identifier, Grade and "Last modified (grade)", and skips a grade that changed
since, exceeds its maximum, or is marked as unchangeable (its `mod/assign/feedback/offline`).
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from worldsize.grade.marking.by_hand import NOTHING_GIVEN, Given
from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.marking.submissions_folder import lms_number, same_number
from worldsize.grade.reports import safe_csv
from worldsize.grade.reports.mark_sheet import MarkSheet, csv_lines, labs_of, mark_of, mark_sheet
from worldsize.grade.reports.needs_a_person import doubled
from worldsize.units import number

IDENTIFIER, NAME, GRADE, MAXIMUM = "Identifier", "Full name", "Grade", "Maximum grade"
MODIFIED, COMMENTS, CHANGEABLE = "Last modified (grade)", "Feedback comments", "Grade can be changed"
HEADS = [IDENTIFIER, NAME, GRADE, MAXIMUM, MODIFIED, COMMENTS]
NEVER = "-"  # Moodle's sign for a grade that was never given
_NEEDED = (IDENTIFIER, GRADE, MODIFIED)
_BREAK = "<br>"
_TRAILING = re.compile(r"(\s|<br\s*/?>)+$")
_BR, _REST = r"<br\s*/?>\s*", r"[^<\n]*"
# an earlier comment of ours: its head, its points, and its lines down to the last exercise, or to the reason for no mark
_EARLIER = re.compile(
    rf"World Size, {_REST}(?:{_BR}no mark\.{_REST}(?:{_BR}{_REST})?|{_BR}[\d.]+ of [\d.]+ points\.{_REST}"
    rf"(?:(?:{_BR}{_REST})*{_BR}{_REST}: [\d.]+ of [\d.]+\.{_REST})?)?"
)


@dataclass(frozen=True)
class Mark:
    """A student's grade for Moodle, "" for none, and its comment."""

    grade: str
    comment: str


@dataclass(frozen=True)
class Worksheet:
    """Moodle's worksheet: its lines, heads first; `at` has the column of each known head."""

    path: Path
    lines: list[list[str]]
    at: Mapping[str, int]

    def students(self) -> dict[str, list[str]]:
        """Return each student's line by Moodle's number."""
        return {known: line for line in self.lines if (known := self.participant(line))}

    def participant(self, line: list[str]) -> str:
        """Return Moodle's number of a line's student, "" if the line has none."""
        known = re.search(r"([0-9]+)\s*$", line[self.at[IDENTIFIER]], re.ASCII)
        return same_number(known[1]) if known else ""

    @property
    def names(self) -> dict[str, str]:
        """Return each student's name by Moodle's number."""
        return {known: self.name(line) for known, line in self.students().items()}

    def field(self, line: list[str], head: str) -> str:
        """Return a field of a line in Moodle's worksheet, "" if the worksheet has no such column."""
        return line[self.at[head]].strip() if head in self.at else ""

    def name(self, line: list[str]) -> str:
        """Return a student's name in Moodle's worksheet, or the identifier if Moodle hides names."""
        return self.field(line, NAME) or self.field(line, IDENTIFIER)


def read(path: Path) -> Worksheet:
    """Read Moodle's grading worksheet. Raises ValueError if it is none with English heads."""
    lines = csv_lines(path, "the grading worksheet of Moodle's assignment", lambda text: text.partition("\n")[0].count(";") > 3)
    heads = [head.strip().lower() for head in lines[0]]
    at = {head: heads.index(head.lower()) for head in (*HEADS, CHANGEABLE) if head.lower() in heads}
    missing = [head for head in _NEEDED if head not in at]
    if missing:
        got = ", ".join(lines[0][:5]) or "nothing"
        raise ValueError(
            f"{path}, line 1: expected the heads of Moodle's grading worksheet, including {', '.join(missing)}, got {got!r}. Set "
            "Moodle to English, and download the worksheet from the assignment's submissions (Download grading worksheet)."
        )

    width = len(heads)
    return Worksheet(path, [(line + [""] * width)[:width] for line in lines if any(line)], at)


def export(rows: Iterable[GradeRow], lab: str, given: Given = NOTHING_GIVEN, theirs: Worksheet | None = None) -> MarkSheet:
    """Return one lab's grading worksheet for Moodle. Points `given` by hand replace a row's.

    `theirs` supplies Moodle's own columns and lines, and its grade stays where there is no mark. Raises ValueError for a
    lab without submissions, and for a worksheet with none of the students.
    """
    everything = list(rows)
    of_lab = [row for row in everything if row.lab == lab]
    if not of_lab:
        known = ", ".join(labs_of(everything)) or "none"
        raise ValueError(f"export: expected a lab that was graded ({known}), got {lab!r}.")

    # students with points by hand but no file have a row without a lab
    by_student = {row.student: row for row in everything if (row.student, lab) in given and not row.lab}
    by_student |= {row.student: row for row in of_lab}
    possible = max(row.possible for row in of_lab)

    def mark(student: str) -> Mark:
        row = by_student[student]
        points, reason = mark_of(row, given), ""
        if by_hand := given.get((student, lab)):
            points, reason = f"{by_hand.points:g}", by_hand.reason

        worth = f"{points} of {possible:g} points" if points else "no mark"
        lines = [f"World Size, {lab}", f"{worth}. {reason}".strip()]
        if row.reason:
            lines.append(row.reason)
        for e in row.exercises:
            why = "Not written yet." if e.state == "not yet" else e.mismatch
            sentences = " ".join([why, *e.advice])
            lines.append(f"{e.title}: {e.points:g} of {e.possible:g}. {sentences}".strip())
        return Mark(points, html.escape("\n".join(lines), quote=False).replace("\n", _BREAK))

    def line(student: str, name: str, id: str) -> list[str]:
        made = mark(student)
        return [f"Participant {id}", name, made.grade, f"{possible:g}", NEVER, made.comment]

    meant = [*by_student.values(), *of_lab]
    if theirs is None:
        return mark_sheet(meant, [HEADS], line)
    no_lab = {lms_number(row.student) for row in everything if not row.lab}  # online text, a PDF, an empty folder
    return _filled_in(theirs, meant, mark, possible, no_lab)


def _filled_in(
    theirs: Worksheet, rows: list[GradeRow], mark: Callable[[str], Mark], possible: float, no_lab: set[str]
) -> MarkSheet:  # fmt: skip
    """Return Moodle's worksheet with the marks of `rows`. Students in `no_lab`, by number, handed in something without a lab."""
    shared = doubled(rows)
    there = theirs.students()
    handed_in: set[str] = set()
    marks, unknown = {}, []
    for student in sorted({row.student for row in rows}):
        known = lms_number(student)
        handed_in.add(known)
        if known in there and student not in shared:
            marks[known] = mark(student)
        elif student not in shared:
            unknown.append(student)

    handed_in.discard("")
    if handed_in and not there.keys() & handed_in:
        raise ValueError(
            f"{theirs.path}: expected the worksheet of the graded assignment, got one without any of its student numbers, such "
            f"as Participant {min(handed_in)}. Moodle renumbers students in each assignment."
        )

    return MarkSheet(
        filled(theirs, marks),
        unknown=tuple(unknown),
        doubled=tuple(dict.fromkeys(shared.values())),
        absent=tuple(name for known, name in theirs.names.items() if known not in handed_in | no_lab),
        looked_at=tuple(_looked_at(theirs, marks, possible)),
    )


def filled(theirs: Worksheet, marks: Mapping[str, Mark]) -> str:
    """Return the worksheet's text with `marks`, by Moodle's number. Without a new grade, Moodle's own stays."""
    comments = theirs.at.get(COMMENTS)
    lines = [list(line) for line in theirs.lines]
    for line in lines:
        mark = marks.get(theirs.participant(line))
        if mark is None:
            continue
        if mark.grade:
            line[theirs.at[GRADE]] = mark.grade
        if comments is not None:
            line[comments] = with_ours(line[comments], mark.comment)

    return safe_csv.text(lines, as_they_are=() if comments is None else (comments,))


def with_ours(theirs: str, ours: str) -> str:
    """Return Moodle's comment with ours in the place of an earlier one, else at its end.

    A person's text above and below stays. Lines of an earlier mismatch below its last exercise look like a person's, and
    stay too.
    """
    above, below = theirs, ""
    if earlier := re.search(rf"{re.escape(ours)}(?![^<\n])", theirs) or _EARLIER.search(theirs):
        above, below = theirs[: earlier.start()], theirs[earlier.end() :]
    above = _TRAILING.sub("", above)
    return f"{above}{_BREAK}{ours}{below}" if above else f"{ours}{below}"


def _looked_at(theirs: Worksheet, marks: Mapping[str, Mark], possible: float) -> Iterator[str]:
    """Yield messages on what Moodle will not accept: another maximum, and grades that cannot be changed."""
    there = theirs.students()
    maximum = {theirs.field(line, MAXIMUM).replace(",", ".") for line in there.values()}
    for told in sorted(maximum):
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?", told) and float(told) != possible:
            says = f"Moodle has {number(float(told))} points for it, the course {number(possible)}: marks are not scaled"
            yield f"{theirs.path}: {says}"

    if MAXIMUM not in theirs.at:
        yield f"{theirs.path}: it has no {MAXIMUM}. If Moodle marks by a scale, it accepts no points"
    for known, line in there.items():
        if known not in marks or not marks[known].grade:
            continue
        if theirs.field(line, CHANGEABLE) == "No":
            yield f"{theirs.name(line)}: Moodle says that the grade cannot be changed, and skips it"
