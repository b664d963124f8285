"""What Canvas and Moodle make of a sheet that is imported: the rules of their own importers on what they exported before.

Canvas's are those of its `lib/gradebook_importer.rb`, Moodle's those of `mod/assign/feedback/offline`. Left out: marks in
letters, override scores and grading periods; scales, groups and a grade that changed since the export.
"""

import csv
import io
import re
from pathlib import Path

_TOTALS = re.compile("(Current|Final) (Score|Points|Grade)|Override (Score|Grade|Status)")


def _rows(text: str) -> list[list[str]]:
    """A CSV with the separator that gives the first lines more fields."""
    text = text.removeprefix("\ufeff")
    return max((list(csv.reader(io.StringIO(text, newline=""), delimiter=d)) for d in ",;"), key=lambda rows: len(rows[0]))


def _number(cell: str) -> str:
    """Canvas reads a decimal comma as a point and compares two decimals."""
    cell = cell.strip().replace(",", ".")
    return f"{float(cell):.2f}" if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", cell) else cell


def _canvas(text: str) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """{student's number: {assignment's number: cell}} and {assignment's number: points}."""
    heads, *rows = _rows(text)
    assert (heads[0] == "Student" and heads[1] == "ID") or heads[:3] == ["LastName", "FirstName", "ID"], heads
    columns = {}
    for k, head in enumerate(heads[heads.index("Section") + 1 :], heads.index("Section") + 1):
        found = re.search(r"\(([0-9]+)\)$", head)
        if found and not _TOTALS.search(head):
            columns[found[1]] = k
    scores, points = {}, {}
    for row in rows:
        assert len(row) == len(heads), row
        if "Points Possible" in row[0]:
            points = {number: _number(row[k]) for number, k in columns.items()}
        elif row[heads.index("ID")]:
            scores[row[heads.index("ID")]] = {number: _number(row[k]) for number, k in columns.items()}
    return scores, points


def canvas_changes(theirs: Path, ours: Path) -> dict[tuple[str, str], str]:
    """{(student's number, assignment's number): its new mark, "" for none}: what importing `ours` changes in Canvas."""
    before, points = _canvas(theirs.read_text(encoding="utf-8"))
    after, worth = _canvas(ours.read_text(encoding="utf-8"))
    assert {number: points[number] for number in worth} == worth
    changes = {}
    for student, cells in after.items():
        assert student in before, f"Canvas makes a new student of {student}"
        for assignment, cell in cells.items():
            if before[student][assignment] == "N/A" == cell:  # not assigned to this student
                continue
            if cell != before[student][assignment]:
                changes[student, assignment] = cell
    return changes


def moodle_changes(theirs: Path, ours: Path) -> tuple[dict[str, str], dict[str, str]]:
    """{participant: grade} and {participant: comment} that importing `ours` changes in Moodle."""
    before, after = ({row["Identifier"]: row for row in _dicts(path)} for path in (theirs, ours))
    grades, comments = {}, {}
    for participant, row in after.items():
        had = before.get(participant)
        if had is None:
            continue
        assert {"Identifier", "Grade", "Last modified (grade)"} <= row.keys()
        graded_since = had["Last modified (grade)"] != "-" and row["Last modified (grade)"] != had["Last modified (grade)"]
        if graded_since:
            continue
        grade = row["Grade"]
        if grade and _number(grade) != _number(had["Grade"]) and had["Grade can be changed"] == "Yes":
            if 0 <= float(grade) <= float(had["Maximum grade"]):
                grades[participant] = grade
        if row.get("Feedback comments", "") != had["Feedback comments"]:
            comments[participant] = row["Feedback comments"]
    return grades, comments


def _dicts(path: Path) -> list[dict[str, str]]:
    heads, *rows = _rows(path.read_text(encoding="utf-8"))
    assert all(len(row) == len(heads) for row in rows)
    return [dict(zip(heads, row, strict=True)) for row in rows]
