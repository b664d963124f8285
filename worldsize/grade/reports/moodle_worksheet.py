"""Moodle's grading worksheet of one assignment, filled in: its own columns and lines, with other grades and comments.

Moodle takes a worksheet back where it has the columns Identifier, Grade and "Last modified (grade)", and passes over a grade
that changed since, one that is above its maximum, and one that it says cannot be changed (its `mod/assign/feedback/offline`).
A comment is HTML, and one that a person wrote stays above ours. Left out: what the marks and comments are (`csv_export`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from worldsize.grade.marking.submissions_folder import same_number
from worldsize.grade.reports import sheet
from worldsize.grade.reports.canvas_columns import csv_lines
from worldsize.units import number

IDENTIFIER, NAME, GRADE, MAXIMUM = "Identifier", "Full name", "Grade", "Maximum grade"
MODIFIED, COMMENTS, CHANGEABLE = "Last modified (grade)", "Feedback comments", "Grade can be changed"
HEADS = [IDENTIFIER, NAME, GRADE, MAXIMUM, MODIFIED, COMMENTS]
NEVER = "-"  # what Moodle writes for a grade that was never given
_NEEDED = (IDENTIFIER, GRADE, MODIFIED)
_OURS = "World Size, "
_BREAK = "<br>"
_TRAILING = re.compile(r"(\s|<br\s*/?>)+$")


@dataclass(frozen=True)
class Mark:
    """A student's grade, "" for none, and what is said of it."""

    grade: str
    comment: str


@dataclass(frozen=True)
class Worksheet:
    """A worksheet's lines with its heads first; `at` has the column of each head that is known."""

    path: Path
    lines: list[list[str]]
    at: Mapping[str, int]

    def students(self) -> dict[str, list[str]]:
        """Each student's line by Moodle's number for them."""
        found = {}
        for line in self.lines[1:]:
            known = re.search(r"([0-9]+)\s*$", line[self.at[IDENTIFIER]], re.ASCII)
            if known:
                found[same_number(known[1])] = line
        return found

    @property
    def names(self) -> dict[str, str]:
        """Each student's name by Moodle's number."""
        return {known: self.name(line) for known, line in self.students().items()}

    def field(self, line: list[str], head: str) -> str:
        """A field of a line, "" where the worksheet has no such column."""
        return line[self.at[head]].strip() if head in self.at else ""

    def name(self, line: list[str]) -> str:
        """A student's name, which Moodle leaves out where it hides names."""
        return self.field(line, NAME) or self.field(line, IDENTIFIER)


def read(path: Path) -> Worksheet:
    """Raises ValueError where it is no grading worksheet with English heads."""
    lines = csv_lines(path, "the grading worksheet of Moodle's assignment", lambda text: text.partition("\n")[0].count(";") > 3)
    heads = [head.strip().lower() for head in lines[0]] if lines else []
    at = {head: heads.index(head.lower()) for head in (*HEADS, CHANGEABLE) if head.lower() in heads}
    missing = [head for head in _NEEDED if head not in at]
    if missing:
        got = ", ".join(lines[0][:5]) if lines else "nothing"
        raise ValueError(
            f"{path}, line 1: expected the heads of Moodle's grading worksheet, among them {', '.join(missing)}, got {got!r}. "
            f"Choose English in Moodle, and download it from the assignment's submissions (Download grading worksheet)."
        )

    width = len(heads)
    return Worksheet(path, [(line + [""] * width)[:width] for line in lines if any(line)], at)


def filled(theirs: Worksheet, marks: Mapping[str, Mark]) -> str:
    """The worksheet's text with `marks` by Moodle's number; where there is no grade Moodle's own stays."""
    by_line = {id(line): marks[known] for known, line in theirs.students().items() if known in marks}
    lines = []
    for line in theirs.lines:
        mark, line = by_line.get(id(line)), list(line)
        if mark and mark.grade:
            line[theirs.at[GRADE]] = mark.grade
        if mark and COMMENTS in theirs.at:
            line[theirs.at[COMMENTS]] = below(line[theirs.at[COMMENTS]], mark.comment)
        lines.append(line)
    return sheet.text(lines, as_they_are={theirs.at[head] for head in (COMMENTS,) if head in theirs.at})


def comment(lab: str, lines: Iterable[str]) -> str:
    """What is said of a mark, as HTML: nothing of a submission's is markup."""
    text = "\n".join([f"{_OURS}{lab}", *filter(None, lines)])
    return html.escape(text, quote=False).replace("\n", _BREAK)


def below(theirs: str, ours: str) -> str:
    """The comment that Moodle has, without ours of an earlier time, and ours below it."""
    kept = _TRAILING.sub("", theirs.partition(_OURS)[0])
    return f"{kept}{_BREAK}{ours}" if kept else ours


def looked_at(theirs: Worksheet, marks: Mapping[str, Mark], possible: float) -> list[str]:
    """Words on what Moodle will not take as it is: another maximum, and grades that it says cannot be changed."""
    words = []
    maximum = {theirs.field(line, MAXIMUM).replace(",", ".") for line in theirs.students().values()} - {""}
    for told in sorted(maximum):
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?", told) and float(told) != possible:
            says = f"Moodle has {number(float(told))} points for it, the course {number(possible)}: marks are not scaled"
            words.append(f"{theirs.path}: {says}")
    if MAXIMUM not in theirs.at:
        words.append(f"{theirs.path}: it has no {MAXIMUM}. Where Moodle marks by a scale, it takes no points")
    for known, line in theirs.students().items():
        if known in marks and marks[known].grade and theirs.field(line, CHANGEABLE) == "No":
            words.append(f"{theirs.name(line)}: Moodle says that the grade cannot be changed, and passes over it")
    return words


def without_a_row(theirs: Worksheet, numbers: Collection[str]) -> list[str]:
    """The names of Moodle's students who are not among the `numbers` of rows: no file of theirs was in the folder."""
    return [name for known, name in theirs.names.items() if known not in numbers]
