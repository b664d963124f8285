"""The result of an export for an LMS, and the steps that the exports for Canvas and Moodle share.

Both know a student by the number in the submitted file's name (`submissions_folder`); a student without a number, or who
shares one, is left out and reported.
"""

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from worldsize.grade.marking.by_hand import NOTHING_GIVEN, Given
from worldsize.grade.marking.rows import NO_MARK, GradeRow
from worldsize.grade.marking.submissions_folder import numbered
from worldsize.grade.reports import safe_csv
from worldsize.grade.reports.needs_a_person import doubled


@dataclass(frozen=True)
class MarkSheet:
    """A mark sheet, a CSV's text. `unknown` are students without a number in their name, or whose number the LMS does not list.

    `doubled` has a message for each number that several students share, all left out of the text. `absent` are the LMS's
    students without a file, and `looked_at` messages on what the LMS will not accept as it is.
    """

    text: str
    unknown: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    looked_at: tuple[str, ...] = ()


def labs_of(rows: Iterable[GradeRow], given: Given = NOTHING_GIVEN) -> list[str]:
    """Return the sheet's labs, which have a mark, sorted."""
    return sorted({row.lab for row in rows if row.lab} | {lab for _, lab in given})


def mark_of(row: GradeRow, given: Given) -> str:
    """Return a row's mark for a sheet, which points `given` by hand replace; "" for none."""
    by_hand = given.get((row.student, row.lab))
    if by_hand:
        return f"{by_hand.points:g}"
    return "" if row.state in NO_MARK else f"{row.points:g}"


def mark_sheet(rows: list[GradeRow], heads: list[list[str]], line: Callable[[str, str, str], list[str]]) -> MarkSheet:
    """Return the sheet with a `line(student, name, number)` for each student, empty if the LMS does not have the student."""
    lines = list(heads)
    shared = doubled(rows)

    unknown = []
    for student in sorted({row.student for row in rows} - shared.keys()):
        known = numbered(student)
        made = line(student, *known) if known else []
        if made:
            lines.append(made)
        else:
            unknown.append(student)
    return MarkSheet(safe_csv.text(lines), tuple(unknown), tuple(dict.fromkeys(shared.values())))


def csv_lines(path: Path, what: str, semicolons: Callable[[str], object]) -> list[list[str]]:
    """Return the lines of an LMS's CSV in UTF-8, at least an empty one; `semicolons(text)` is true if they separate its fields.

    Raises ValueError if the file is missing or unreadable.
    """
    if not path.is_file():
        raise ValueError(f"{path}: expected {what}, got no such file.")
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=";" if semicolons(text) else ",")) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: expected {what}, got a file that cannot be read: {error}.") from None
