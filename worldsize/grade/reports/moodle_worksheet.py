"""Moodle's grading worksheet of one assignment: its own columns and lines, with grades and comments filled in.

Moodle accepts a worksheet with the columns Identifier, Grade and "Last modified (grade)", and skips a grade that changed
since, exceeds its maximum, or is marked as unchangeable (its `mod/assign/feedback/offline`).
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
NEVER = "-"  # Moodle's sign for a grade that was never given
_NEEDED = (IDENTIFIER, GRADE, MODIFIED)
_OURS = "World Size, "  # begins our part of a comment
_BREAK = "<br>"
_TRAILING = re.compile(r"(\s|<br\s*/?>)+$")


@dataclass(frozen=True)
class Mark:
    """A student's grade, "" for none, and its comment."""

    grade: str
    comment: str


@dataclass(frozen=True)
class Worksheet:
    """A worksheet's lines, heads first; `at` has the column of each known head."""

    path: Path
    lines: list[list[str]]
    at: Mapping[str, int]

    def students(self) -> dict[str, list[str]]:
        """Return each student's line by Moodle's number."""
        found = {}
        for line in self.lines[1:]:
            known = re.search(r"([0-9]+)\s*$", line[self.at[IDENTIFIER]], re.ASCII)
            if known:
                found[same_number(known[1])] = line
        return found

    @property
    def names(self) -> dict[str, str]:
        """Return each student's name by Moodle's number."""
        return {known: self.name(line) for known, line in self.students().items()}

    def field(self, line: list[str], head: str) -> str:
        """Return a field of a line, "" if the worksheet has no such column."""
        return line[self.at[head]].strip() if head in self.at else ""

    def name(self, line: list[str]) -> str:
        """Return a student's name, or the identifier if Moodle hides names."""
        return self.field(line, NAME) or self.field(line, IDENTIFIER)


def read(path: Path) -> Worksheet:
    """Read a grading worksheet. Raises ValueError if it is none with English heads."""
    lines = csv_lines(path, "the grading worksheet of Moodle's assignment", lambda text: text.partition("\n")[0].count(";") > 3)
    heads = [head.strip().lower() for head in lines[0]] if lines else []
    at = {head: heads.index(head.lower()) for head in (*HEADS, CHANGEABLE) if head.lower() in heads}
    missing = [head for head in _NEEDED if head not in at]
    if missing:
        got = ", ".join(lines[0][:5]) if lines else "nothing"
        raise ValueError(
            f"{path}, line 1: expected the heads of Moodle's grading worksheet, including {', '.join(missing)}, got {got!r}. Set "
            "Moodle to English, and download the worksheet from the assignment's submissions (Download grading worksheet)."
        )

    width = len(heads)
    return Worksheet(path, [(line + [""] * width)[:width] for line in lines if any(line)], at)


def filled(theirs: Worksheet, marks: Mapping[str, Mark]) -> str:
    """Return the worksheet's text with `marks`, by Moodle's number. Without a new grade, Moodle's own stays."""
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
    """Return a mark's comment as HTML, with everything escaped."""
    text = "\n".join([f"{_OURS}{lab}", *filter(None, lines)])
    return html.escape(text, quote=False).replace("\n", _BREAK)


def below(theirs: str, ours: str) -> str:
    """Return Moodle's comment, cut where an earlier one of ours begins, and ours below it."""
    kept = _TRAILING.sub("", theirs.partition(_OURS)[0])
    return f"{kept}{_BREAK}{ours}" if kept else ours


def looked_at(theirs: Worksheet, marks: Mapping[str, Mark], possible: float) -> list[str]:
    """Return messages on what Moodle will not accept: another maximum, and grades that cannot be changed."""
    words = []
    maximum = {theirs.field(line, MAXIMUM).replace(",", ".") for line in theirs.students().values()} - {""}
    for told in sorted(maximum):
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?", told) and float(told) != possible:
            says = f"Moodle has {number(float(told))} points for it, the course {number(possible)}: marks are not scaled"
            words.append(f"{theirs.path}: {says}")
    if MAXIMUM not in theirs.at:
        words.append(f"{theirs.path}: it has no {MAXIMUM}. If Moodle marks by a scale, it accepts no points")
    for known, line in theirs.students().items():
        if known in marks and marks[known].grade and theirs.field(line, CHANGEABLE) == "No":
            words.append(f"{theirs.name(line)}: Moodle says that the grade cannot be changed, and skips it")
    return words


def without_a_row(theirs: Worksheet, numbers: Collection[str]) -> list[str]:
    """Return the names of Moodle's students whose number is not in `numbers`: they submitted no file."""
    return [name for known, name in theirs.names.items() if known not in numbers]
