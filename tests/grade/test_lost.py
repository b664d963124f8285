"""What the grader itself loses is tried again, is never a mark, and cannot be chosen by a submission."""

import io
import json
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.grade.cheats import LAB, RIGHT, ROOT, TITLE, with_cell
from tests.support.graded_arena import mark_here
from tests.support.processes import LONG_S
from worldsize.checks.verdict import Verdict
from worldsize.grade import course
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import mark_submission, rows, worker_process, worker_supervisor
from worldsize.grade.marking.grade_folder import FolderGrading, grade
from worldsize.grade.marking.grading_record import GradedFolder, read_graded
from worldsize.grade.marking.mark_submission import BrokenRelease, MarkingTask, SetupRaised
from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.outside.boxes import SandboxLost
from worldsize.grade.reports import canvas_csv, needs_a_person

pytestmark = pytest.mark.timeout(300)

LABS = course.load(ROOT)
LIMITS = Limits(case_s=5, wall_s=60, memory_bytes=1_500_000_000)
GOOD = TITLE + RIGHT


needs_sandbox = pytest.mark.usefixtures("_sandboxed")


def hand_in(folder: Path, **sources: str) -> Path:
    for student, source in sources.items():
        (folder / student).mkdir(parents=True)
        (folder / student / f"{LAB}.ipynb").write_text(json.dumps(with_cell(source)))
    return folder


def graded(tmp_path: Path, folder: Path, **more) -> dict[str, GradeRow]:
    done = grade(folder, tmp_path / "out", jobs=1, limits=LIMITS, **{"root": ROOT, **more})
    return {row.student: row for row in done.rows}


class Interrupted:
    """Stands for `Worker.mark`: a student's first calls, so many `times`, kill the worker as soon as it has its task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **times: int) -> None:
        self._mark = worker_supervisor.Worker.mark
        self._left = times
        self.workers: list[int] = []
        monkeypatch.setattr(worker_supervisor.Worker, "mark", lambda worker, task: self(worker, task))

    def __call__(self, worker: worker_supervisor.Worker, task: MarkingTask) -> GradeRow:
        self.workers.append(worker._process.pid)
        if self._left.get(task.student):
            self._left[task.student] -= 1
            os.kill(worker._process.pid, signal.SIGKILL)
        return self._mark(worker, task)


@needs_sandbox
@pytest.mark.soak  # the usual run has carl
@pytest.mark.parametrize("times", [1, 2])
def test_a_submission_whose_worker_is_killed_is_marked_by_a_fresh_one(tmp_path, monkeypatch, times):
    killed = Interrupted(monkeypatch, anna=times)
    row = graded(tmp_path, hand_in(tmp_path / "submitted", anna=GOOD))["anna"]
    assert (row.state, row.points, row.attempt) == ("graded", 4, times + 1)
    assert len(set(killed.workers)) == times + 1


@dataclass(frozen=True)
class LostOnce:
    """A folder in which ben's submission was lost three times and carl's once, and the grading after that."""

    rows: dict[str, GradeRow]
    folder: GradedFolder
    again: FolderGrading


@pytest.fixture(scope="module")
def lost_once(tmp_path_factory: pytest.TempPathFactory) -> LostOnce:
    try:
        best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))
    place = tmp_path_factory.mktemp("lost")
    folder = hand_in(place / "submitted", ben_2=GOOD, carl_3=GOOD)
    with pytest.MonkeyPatch.context() as patched:
        Interrupted(patched, ben_2=3, carl_3=1)
        rows = graded(place, folder)
    return LostOnce(rows, read_graded(place / "out"), grade(folder, place / "out", 1, root=ROOT, limits=LIMITS))


def test_what_is_lost_three_times_is_no_mark_and_costs_the_others_nothing(lost_once):
    rows = lost_once.rows
    assert {student: (row.state, row.points, row.attempt) for student, row in rows.items()} == {
        "ben_2": ("lost", 0, 3), "carl_3": ("graded", 4, 2),
    }  # fmt: skip
    assert (rows["ben_2"].possible, rows["ben_2"].digest != "") == (4, True)
    sheet = canvas_csv.export(lost_once.folder.rows)
    assert '"ben","2","","","",""' in sheet.text
    assert [(need.kind, need.student) for need in needs_a_person.needs(lost_once.folder)] == [("lost", "ben_2")]


def test_what_was_lost_is_graded_in_the_next_run(lost_once):
    again = lost_once.again
    assert (again.graded, [row.state for row in again.rows], again.rows[0].attempt) == (1, ["graded"] * 2, 1)


def test_a_worker_that_does_not_end_is_the_graders_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_supervisor, "_START_S", 0.0)
    monkeypatch.setattr(worker_supervisor, "_GRACE_S", 0.0)
    folder = hand_in(tmp_path / "submitted", anna=GOOD)
    done = grade(folder, tmp_path / "out", root=ROOT, limits=Limits(wall_s=0.05), mode="own")
    assert [(row.state, row.attempt) for row in done.rows] == [("lost", 3)]
    assert "made no row in" in done.rows[0].reason


TASK = MarkingTask("eve_1", LAB, "nowhere.ipynb", "eve.ipynb", sound=True)
FINE = SimpleNamespace(mode="own", renew=lambda: None)


def answer(monkeypatch: pytest.MonkeyPatch, error: Exception, fresh: bool = True) -> GradeRow:
    """The row that a worker answers with where marking ends in `error`; not `fresh`: after another submission."""

    def failing(task: MarkingTask, *_: object) -> GradeRow:
        if task.student == "eve_1":
            raise error
        return task.row("graded", "", 7, unsafe=False)

    monkeypatch.setattr(mark_submission, "mark", failing)
    tasks = [TASK] if fresh else [MarkingTask("anna", LAB, "x.ipynb", "anna.ipynb", sound=True), TASK]
    lines = io.StringIO("".join(json.dumps(vars(task)) + "\n" for task in tasks))
    answers = io.StringIO()
    worker_process.serve(lines, answers, LABS, FINE, 7, is_full=lambda: False)
    return worker_row(answers.getvalue().splitlines()[-1])


def worker_row(line: str) -> GradeRow:
    return rows.from_dict(json.loads(line)["row"])


@pytest.mark.quick
def test_a_release_that_can_never_be_graded_is_not_lost_and_says_what_to_do(monkeypatch):
    row = answer(monkeypatch, SetupRaised("Set-up 1 of lab 00 raised ImportError: … Give the students' release"))
    assert (row.state, row.points) == ("ungradable", 0)
    (need,) = needs_a_person.unsure([row])
    assert need.kind == "ungradable" and "Give the students' release" in need.why and "again" not in need.why


@pytest.mark.quick
@pytest.mark.parametrize("error", [SandboxLost("gone"), BrokenRelease("set-up"), OSError("no space"), KeyError("x")])
def test_the_graders_own_failure_is_lost(monkeypatch, error):
    row = answer(monkeypatch, error)
    assert (row.state, row.points, str(error) in row.reason) == ("lost", 0, True)


@pytest.mark.quick
def test_memory_that_one_submission_takes_of_a_fresh_worker_is_its_own_fault(monkeypatch):
    row = answer(monkeypatch, MemoryError())
    assert (row.state, "it sent more than fits" in row.reason) == ("crashed", True)


@pytest.mark.quick
def test_memory_that_may_be_an_earlier_submissions_is_tried_in_a_fresh_worker(monkeypatch):
    assert answer(monkeypatch, MemoryError(), fresh=False).state == "lost"


@pytest.mark.quick
@pytest.mark.parametrize("error", [SandboxLost("gone"), NoSandbox("none"), OSError("no space")])
def test_a_check_that_the_grader_cannot_run_is_not_a_students_failure(monkeypatch, error):
    def failing(*_: object) -> Verdict:
        raise error

    monkeypatch.setattr(mark_submission, "run_check", failing)
    with pytest.raises(type(error)):
        mark_submission._verdict(LABS[LAB].exercises[0], None, [])


@pytest.mark.quick
def test_what_does_not_fit_into_the_worker_costs_its_exercise_as_a_crash(monkeypatch):
    def failing(*_: object) -> Verdict:
        raise MemoryError

    monkeypatch.setattr(mark_submission, "run_check", failing)
    incidents: list[str] = []
    verdict = mark_submission._verdict(LABS[LAB].exercises[0], None, incidents)
    assert (verdict.points, incidents, "do not fit" in verdict.mismatch) == (0, ["crashed"], True)


CLAIMS = """
import os, sys
frame = sys._getframe()
while frame is not None:
    line = frame.f_locals.get("channel")
    if line is not None and hasattr(line, "tell"):
        for number in range(COUNT):
            line.tell({"op": "cell", "number": number})
        break
    frame = frame.f_back
os._exit(3)
"""


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_a_cell_that_claims_to_be_another_and_exits_is_not_the_releases_fault(tmp_path, sandbox, count):
    forged = TITLE + CLAIMS.replace("COUNT", str(count)) + RIGHT
    row = mark_here(sandbox, hand_in(tmp_path, eve_1=forged) / "eve_1" / f"{LAB}.ipynb", LAB, "eve_1")
    assert (row.state, row.points, row.attempt) == ("crashed", 0, 1)
    assert "Exercise 0.1 itself, before any call" in row.exercises[0].mismatch
    assert '"eve","1","","","","0"' in canvas_csv.export([row]).text


def test_one_that_uses_up_its_time_before_any_call_is_out_of_time_and_not_lost(tmp_path, sandbox, monkeypatch):
    monkeypatch.setattr(sandbox, "limits", Limits(case_s=30, wall_s=1))
    path = hand_in(tmp_path, eve=TITLE + "while True:\n    pass\n") / "eve" / f"{LAB}.ipynb"
    assert mark_here(sandbox, path, LAB).state == "timeout"


def course_copy(folder: Path, setup: str = "") -> Path:
    """The course with lab 00 alone, whose first set-up cell has a line more."""
    for name in ("labs", "solutions"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        notebook = json.loads((ROOT / name / f"{LAB}.ipynb").read_text())
        first = next(c for c in notebook["cells"] if "".join(c["source"]).startswith("# Set-up"))
        first["source"] = "".join(first["source"]) + setup
        (folder / name / f"{LAB}.ipynb").write_text(json.dumps(notebook))
    return folder


# how a set-up cell breaks off: its error, and the state and the attempts of a row that it prevents
BROKEN_SETUPS = {
    "exits": ("\nimport os\nos._exit(1)", BrokenRelease, "lost", 3),
    "has no room": ("\nraise OSError(28, 'No space left on device')", BrokenRelease, "lost", 3),
    "asks for what is not there": ("\nfrom worldsize.links import no_such_name", SetupRaised, "ungradable", 1),
}
broken_setup = pytest.mark.parametrize("setup, error, state, attempts", BROKEN_SETUPS.values(), ids=BROKEN_SETUPS)


@broken_setup
def test_a_release_whose_set_up_does_not_run_is_the_graders_failure(sandbox, tmp_path, setup, error, state, attempts):
    lab = course.load(course_copy(tmp_path, setup))[LAB]
    with pytest.raises(BrokenRelease, match="of lab 00") as raised:
        mark_submission.try_setup(lab, sandbox)
    assert type(raised.value) is error


@pytest.mark.soak
@needs_sandbox
@broken_setup
def test_a_release_whose_set_up_does_not_run_costs_nobody_a_point(tmp_path, setup, error, state, attempts):
    folder = hand_in(tmp_path / "submitted", anna_1=GOOD)
    row = graded(tmp_path, folder, root=course_copy(tmp_path / "course", setup))["anna_1"]
    assert (row.state, row.attempt, "of lab 00" in row.reason) == (state, attempts, True)
    mended = graded(tmp_path, folder, root=course_copy(tmp_path / "course"))["anna_1"]
    assert (mended.state, mended.points) == ("graded", 4)


def test_the_set_up_of_a_lab_is_tried_once_with_nobodys_code(tmp_path, monkeypatch):
    told = []

    def mark(self: worker_supervisor.Worker, task: MarkingTask) -> GradeRow:
        told.append(task.sound)
        exercise = rows.ExerciseRow("pass_right", "Exercise 0.1", "pass", 4.0, 4.0)
        return replace(task.row("graded", "", 7, unsafe=False), exercises=(exercise,))

    monkeypatch.setattr(worker_supervisor.Worker, "mark", mark)
    graded(tmp_path, hand_in(tmp_path / "submitted", anna=GOOD, ben=GOOD, carl=GOOD), mode="own")
    assert told == [False, True, True]


@pytest.mark.soak
@needs_sandbox
def test_no_process_is_left_of_what_was_lost(tmp_path, monkeypatch):
    mark, begun = worker_supervisor.Worker.mark, []

    def marked_then_lost(self: worker_supervisor.Worker, task: MarkingTask) -> GradeRow:
        worker = psutil.Process(self._process.pid)
        mark(self, task)
        begun.append([worker, *worker.children(recursive=True)])  # its sandbox among them
        worker.kill()
        return mark(self, task)

    monkeypatch.setattr(worker_supervisor.Worker, "mark", marked_then_lost)
    row = graded(tmp_path, hand_in(tmp_path / "submitted", anna=GOOD))["anna"]
    assert (row.state, row.attempt) == ("lost", 3)
    assert len(begun) == 3 and all(len(tree) > 1 for tree in begun)
    _, left = psutil.wait_procs([process for tree in begun for process in tree], LONG_S)
    assert not left
