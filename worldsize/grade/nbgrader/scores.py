"""Scores for nbgrader's gradebook, which change nothing that a person set.

The grader sets a check cell's `auto_score`, its exercise's `auto_comment`, and whether a person should look; of a person's
values it replaces only extra credit that stands for `overrides.csv` (`hand_points`). A grade that already agrees with its
row is not touched, so a second run changes nothing and asks for no second look.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from worldsize.cells import text
from worldsize.checks.verdict import Complaint
from worldsize.grade.course import CourseLab
from worldsize.grade.marking import submission
from worldsize.grade.marking.by_hand import FILE, NOTHING_GIVEN, Given
from worldsize.grade.marking.rows import ExerciseRow, GradeRow
from worldsize.grade.marking.submission import Ungradable
from worldsize.grade.nbgrader import database, hand_points
from worldsize.grade.nbgrader.hand_points import ExtraCredit
from worldsize.units import number

NO_TIMES: Mapping[str, str] = MappingProxyType({})
_NOT_IN_A_NAME = frozenset('<>"\\/')  # formgrader puts a student's id unescaped into its pages, and into paths


@dataclass(frozen=True)
class Written:
    """The result of writing scores: counts, the backup, and messages for a person.

    `placed` pairs each row that is in the gradebook with its assignment's name.
    """

    changed: int
    kept: int
    backup: Path | None
    placed: tuple[tuple[GradeRow, str], ...] = ()
    left_out: tuple[str, ...] = ()
    to_look_at: tuple[str, ...] = ()
    not_given: tuple[str, ...] = ()


def write(
    rows: Iterable[GradeRow], path: Path, labs: Mapping[str, CourseLab], root: Path, times: Mapping[str, str] = NO_TIMES,
    given: Given = NOTHING_GIVEN,
) -> Written:  # fmt: skip
    """Write the scores of `rows` into nbgrader's gradebook at `path`.

    `times` maps a row's path to the moment of submission. Points `given` by hand become the lab's, unless formgrader has
    points by hand too: then those stay, and `Written.not_given` says so.

    Raises ValueError, and writes nothing, for a locked gradebook, another kind of file, or other maximum points.
    """
    kept, left_out = [], []
    for row in rows:
        why = _not_for_a_gradebook(row, labs)
        if why is None:
            kept.append(row)
        else:
            left_out.append(f"{row.student}, {row.lab or row.path}: {why}")

    backup = database.backup(path) if path.exists() else None
    touched = False
    try:
        with database.writing(path) as book:
            writer = _GradebookWriter(book, root, given)
            placed = tuple((row, writer.enter(row, labs[row.lab], times.get(row.path))) for row in kept)
        touched = writer.touched
    finally:
        if backup and not touched:  # an unchanged gradebook needs no backup
            backup.unlink()

    return Written(
        changed=writer.changed,
        kept=writer.kept,
        backup=backup if touched else None,
        placed=placed,
        left_out=tuple(left_out),
        to_look_at=tuple(writer.to_look_at),
        not_given=tuple(writer.not_given),
    )


def _not_for_a_gradebook(row: GradeRow, labs: Mapping[str, CourseLab]) -> Complaint:
    if row.state == "lost":
        return f"no score, the grader lost it: {row.reason}. Run `worldsize grade` again"
    if row.lab not in labs:
        return row.reason or "the course has no such lab"

    name = row.student
    if name in ("", ".", "..") or not name.isprintable() or not _NOT_IN_A_NAME.isdisjoint(name):
        return "formgrader would take this name for HTML or a path: rename the file or folder, and grade again"
    return None


class _GradebookWriter:
    """A writer of rows' scores, one by one, into an open gradebook; counts its changes."""

    def __init__(self, book: Any, root: Path, given: Given) -> None:
        self._book, self._root, self._given = book, root, given
        self._whole: set[tuple[str, str]] = set()
        self.changed = self.kept = 0
        self.touched = False
        self.to_look_at: list[str] = []
        self.not_given: list[str] = []

    def enter(self, row: GradeRow, lab: CourseLab, handed_in: str | None) -> str:
        """Enter a row's scores into the gradebook, and return the name of its assignment."""
        assignment = self._assignment(row, lab.stem)
        if (assignment, lab.stem) not in self._whole:
            self._complete(assignment, lab)
            self._whole.add((assignment, lab.stem))

        grades, comments = self._submitted(row, lab, assignment, handed_in)
        by_id = {e.id: e for e in row.exercises}
        credit = self._credit(row, lab, grades, comments)
        decided = (row.student, row.lab) in self._given and not hand_points.has_any(grades.values())
        asked = []
        for e in lab.exercises:
            more = credit if e is lab.exercises[-1] else None
            if self._set(grades, comments, e.id, row, by_id.get(e.id), more, decided):
                asked.append(e.id)
        if asked:
            self.to_look_at.append(f"{row.student}, {lab.stem}: {', '.join(asked)} ({row.reason or row.state})")
        return assignment

    def _assignment(self, row: GradeRow, stem: str) -> str:
        """Return the gradebook's assignment for the notebook `stem`.

        Prefer the assignment named like the row's folder, then the only assignment with the notebook; if there is none,
        return `stem`. Raises ValueError if several have the notebook.
        """
        holders = [a.name for a in self._book.assignments if any(n.name == stem for n in a.notebooks)]
        folder = Path(row.path).parent.name
        if folder in holders:
            return folder
        if not holders:
            return stem

        if len(holders) > 1:
            raise ValueError(
                f"books: expected one assignment with the notebook {stem}, got {', '.join(sorted(holders))}; nothing was "
                f"written. Grade a folder with the layout <student>/<assignment>/{stem}.ipynb."
            )
        return holders[0]

    # ---- the release's cells ---------------------------------------------------------------------

    def _complete(self, assignment: str, lab: CourseLab) -> None:
        """Add assignment, notebook and cells as `nbgrader generate_assignment` does; existing ones stay."""
        from nbgrader.api import MissingEntry

        book = self._book
        try:
            book.find_assignment(assignment)
        except MissingEntry:
            book.add_assignment(assignment)

        release = json.loads((self._root / "labs" / f"{lab.stem}.ipynb").read_text(encoding="utf-8"))
        try:
            notebook = book.find_notebook(lab.stem, assignment)
        except MissingEntry:
            kernel = json.dumps(release["metadata"].get("kernelspec", {}))
            notebook = book.add_notebook(lab.stem, assignment, kernelspec=kernel)
            self.touched = True

        where = lab.stem, assignment
        for cell in release["cells"]:
            about, kind = cell["metadata"].get("nbgrader", {}), cell["cell_type"]
            name = about.get("grade_id")
            if not name:
                continue

            if about["grade"]:
                points = {c.name: c.max_score for c in notebook.grade_cells}
                if name not in points:
                    book.add_grade_cell(name, *where, max_score=float(about["points"]), cell_type=kind)
                elif points[name] != about["points"]:
                    raise ValueError(
                        f"books: expected {about['points']:g} points for {name} of {assignment}, as the release says; the "
                        f"gradebook has {points[name]:g}. Nothing was written. Let `nbgrader generate_assignment` update the "
                        "gradebook."
                    )

            if about["solution"] and name not in {c.name for c in notebook.solution_cells}:
                book.add_solution_cell(name, *where)
            if name not in {c.name for c in notebook.source_cells}:
                source = {"source": text(cell), "locked": about["locked"], "checksum": about.get("checksum")}
                book.add_source_cell(name, *where, cell_type=kind, **source)
                self.touched = True

    # ---- a student's row -------------------------------------------------------------------------

    def _submitted(self, row: GradeRow, lab: CourseLab, assignment: str, handed_in: str | None) -> tuple[dict, dict]:
        """Return {cell: Grade} and {cell: Comment} of the student's notebook; create missing ones."""
        from nbgrader import api
        from nbgrader.utils import parse_utc

        book = self._book
        try:
            book.find_student(row.student)
        except api.MissingEntry:
            book.add_student(row.student)

        try:
            submission = book.find_submission(assignment, row.student)
        except api.MissingEntry:
            with book.db.no_autoflush:  # else SQLAlchemy warns about nbgrader's own code
                submission = book.add_submission(assignment, row.student)
            self.touched = True
        if handed_in and submission.timestamp != parse_utc(handed_in):
            submission.timestamp = parse_utc(handed_in)
            self.touched = True

        notebook = book.find_notebook(lab.stem, assignment)
        mine = next((n for n in submission.notebooks if n.notebook_id == notebook.id), None)
        if mine is None:
            mine = api.SubmittedNotebook(notebook=notebook, assignment=submission)
        grades = {c.name: self._of(mine.grades, api.Grade, c, mine) for c in notebook.grade_cells}
        comments = {c.name: self._of(mine.comments, api.Comment, c, mine) for c in notebook.solution_cells}
        return grades, comments

    def _of(self, have: list, kind: type, cell: Any, mine: Any) -> Any:
        entry = next((one for one in have if one.cell_id == cell.id), None)
        if entry is None:  # the release gained a cell after this submission was entered
            entry = kind(cell_id=cell.id, notebook=mine)
            self._book.db.add(entry)
            self.touched = True
        return entry

    def _credit(self, row: GradeRow, lab: CourseLab, grades: dict, comments: dict) -> ExtraCredit | None:
        """Return the last exercise's extra credit for the points of `overrides.csv`, or None.

        An earlier credit is taken back first. None if formgrader has points by hand.
        """
        last = lab.exercises[-1].id
        hand_points.take_back(grades[f"check_{last}"], comments[last])
        given = self._given.get((row.student, row.lab))
        if given is None:
            return None

        if hand_points.has_any(grades.values()):
            told = (
                f"{FILE} says {number(given.points)} points, but formgrader has points given by hand, which stay in the gradebook"
            )
            self.not_given.append(f"{row.student}, {row.lab}: {told}. Clear the points there, then write the books again")
            return None
        return hand_points.extra_credit(given, row)

    def _set(
        self, grades: dict, comments: dict, name: str, row: GradeRow, exercise: ExerciseRow | None,
        credit: ExtraCredit | None, decided: bool,
    ) -> bool:  # fmt: skip
        """Enter one exercise's score; return True if a person is now asked to look at it.

        `decided`: `overrides.csv` settles the lab's points.
        """
        grade, comment = grades[f"check_{name}"], comments[name]
        by_hand = hand_points.has_any([grade])
        remark = comment_of(row, exercise)
        if credit:
            remark += credit.comment
            grade.extra_credit = credit.points
            if credit.alone:  # nbgrader ignores extra credit without a score
                grade.manual_score = 0.0

        if decided and grade.needs_manual_grade:
            grade.needs_manual_grade = False
            self.touched = True

        # no exercise, as in an ungradable row: no score, not even 0
        new = exercise.points if exercise else None, remark
        if new == (grade.auto_score, comment.auto_comment):
            self.kept += 1
            return False

        grade.auto_score, comment.auto_comment = new
        grade.needs_manual_grade = not decided and (by_hand or to_look_at(row, exercise))
        self.changed += 1
        self.touched = True
        return grade.needs_manual_grade


def to_look_at(row: GradeRow, exercise: ExerciseRow | None) -> bool:
    """Return True if a person should look at this exercise before its score goes out.

    True without a sandbox or an exercise. A row that is not "graded" keeps the points that its code earned, but a limit, a
    lost cell or a changed set-up may have cost the others.
    """
    if exercise is None or row.unsafe:
        return True
    return row.state != "graded" and exercise.points < exercise.possible


def comment_of(row: GradeRow, exercise: ExerciseRow | None) -> str:
    """Return the comment beside an exercise's score, in the grader's words alone: nbgrader's feedback shows it as HTML.

    The file's digest tells one submitted version from the next.
    """
    result = "no points were found"
    if exercise is not None:
        result = f"{exercise.state}, {exercise.points:g} of {exercise.possible:g} points"
    without = "; graded without a sandbox" if row.unsafe else ""
    return f"Autograded: {result} ({row.state}{without}; file {row.digest[:12] or 'unread'})"


def handed_in(rows: Iterable[GradeRow], submissions: Path) -> dict[str, str]:
    """Return {row's path: moment of submission}, from each readable timestamp.txt that nbgrader put beside a notebook."""
    from nbgrader.utils import parse_utc

    moments = {}
    for row in rows:
        path = (submissions / row.path).parent / "timestamp.txt"
        try:
            moment = submission.read(path)[:100].decode().strip()
            parse_utc(moment)
        except (Ungradable, ValueError, OverflowError, AttributeError):
            continue
        moments[row.path] = moment
    return moments
