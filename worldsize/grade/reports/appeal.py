"""Appeals: mark a row's file again with the same seed, and show both results.

An appeal writes nothing; its outcome goes into `overrides.csv`.
"""

from pathlib import Path

from worldsize.grade import course
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import submission
from worldsize.grade.marking.grading_record import GradedFolder
from worldsize.grade.marking.mark_submission import MarkingOrder, MarkingTask
from worldsize.grade.marking.release_digests import release_digests
from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.marking.submission import Ungradable
from worldsize.grade.marking.worker_supervisor import WorkerSupervisor
from worldsize.grade.reports.feedback_page import appeal_number
from worldsize.grade.reports.table import one_line
from worldsize.units import number


def row_of(asked: str, graded: GradedFolder) -> GradeRow:
    """Return the row whose page has this appeal number. Raises ValueError if there is none."""
    wanted = "".join(asked.lower().split()).replace("-", "")
    for row in (*graded.rows, *graded.gone):
        if appeal_number(row).replace("-", "") == wanted:
            return row

    example = appeal_number(graded.rows[0]) if graded.rows else "0123-4567-89ab-cdef"
    raise ValueError(
        f"appeal: expected a number from a feedback page of this grading, such as {example}, got {asked!r}. A new "
        "submission or another seed gives another number: ask for the page."
    )


def replayed(row: GradeRow, submissions: Path, root: Path) -> GradeRow:
    """Mark an appealed row's file again here, and return the new row. Raises ValueError if the file is not the marked one."""
    path = submissions / row.path
    try:
        digest = submission.read_notebook(path).digest
    except Ungradable as error:
        raise ValueError(f"{path}: expected the file that was marked, but {error}. Name the folder that was graded.") from None
    if digest != row.digest:
        raise ValueError(
            f"{path}: expected the file that was marked ({row.digest[:12]}…), got another one ({digest[:12]}…): it was handed in "
            "again later. Restore the old file, or grade again."
        )

    mode = bubblewrap.UNSAFE if row.unsafe else bubblewrap.best_mode()  # as in the first marking
    supervisor = WorkerSupervisor(MarkingOrder(str(root), mode, row.seed, Limits()))
    try:
        return supervisor.mark(MarkingTask(row.student, row.lab, str(path), row.path, row.handed_in))
    finally:
        supervisor.close()


def compared(row: GradeRow, again: GradeRow, root: Path) -> str:
    """Return an appeal's two results as text, exercise by exercise, with possible reasons for a difference."""
    head = f"{row.student}, {row.lab}, {row.path}: seed {row.seed}"
    points = f"the mark: {_points(row)}; now: {_points(again)}"
    now = {e.id: e for e in again.exercises}
    lines = []
    for e in row.exercises:
        other = now.get(e.id)
        same = other is not None and (other.state, other.points, other.mismatch) == (e.state, e.points, e.mismatch)
        told = f"{e.state}, {number(e.points)} of {number(e.possible)}{'; the same now' if same else ''}"
        lines.append(f"  {e.title} {e.id}: {told}")
        if e.mismatch:
            lines.append(f"    {e.mismatch.splitlines()[0]}")

        if other is None:
            lines.append("    now not there")
        elif not same:
            said = f": {other.mismatch.splitlines()[0]}" if other.mismatch else ""
            lines.append(f"    now {other.state}, {number(other.points)}{said}")

    release = release_digests(course.load(root)).get(row.lab, "")
    if release != row.release:
        lines.append(f"  the release has changed since: {row.release or 'unknown'} then, {release} now")
    if row.host != again.host and row.host:
        lines.append(f"  marked on {row.host}, attempt {row.attempt}, in {row.seconds:.1f} s")
    return "\n".join(map(one_line, [head, points, *lines]))


def _points(row: GradeRow) -> str:
    return f"{row.state}, {number(row.points)} of {number(row.possible)}"
