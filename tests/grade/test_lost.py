"""What the grader itself loses is tried again, is never a mark, and cannot be chosen by a submission; its memory has a limit."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.grade.cheats import LAB, RIGHT, ROOT, TITLE, with_cell
from tests.support.processes import LONG_S, below
from worldsize.checks.verdict import Verdict
from worldsize.grade import course
from worldsize.grade.host.boxes import SandboxLost
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import desk, marking, rows, submission, worker
from worldsize.grade.marking.batch import grade
from worldsize.grade.marking.grading_record import read_graded
from worldsize.grade.marking.marking import MarkingOrder, MarkingTask
from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.reports import attention, csv_export

pytestmark = pytest.mark.timeout(300)

LABS = course.load(ROOT)
LIMITS = Limits(case_s=5, wall_s=60, memory_bytes=1_500_000_000)
GOOD = TITLE + RIGHT


@pytest.fixture
def _sandboxed() -> None:
    try:
        best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))


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
    """Stands for `_Worker.mark`: the first `times` calls kill the worker as soon as it has its task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int, students: str = "") -> None:
        self._mark = desk.Worker.mark
        self._left = times
        self._students = students
        self.workers: list[int] = []
        monkeypatch.setattr(desk.Worker, "mark", lambda worker, task: self(worker, task))

    def __call__(self, worker: desk.Worker, task: MarkingTask) -> GradeRow:
        self.workers.append(worker._process.pid)
        if self._left and task.student in self._students:
            self._left -= 1
            os.kill(worker._process.pid, signal.SIGKILL)
        return self._mark(worker, task)


# ---- attempts ----------------------------------------------------------------------------------


@needs_sandbox
@pytest.mark.parametrize("times", [1, 2])
def test_a_submission_whose_worker_is_killed_is_marked_by_a_fresh_one(tmp_path, monkeypatch, times):
    killed = Interrupted(monkeypatch, times, "anna")
    row = graded(tmp_path, hand_in(tmp_path / "submitted", anna=GOOD))["anna"]
    assert (row.state, row.points, row.attempt) == ("graded", 4, times + 1)
    assert len(set(killed.workers)) == times + 1


@needs_sandbox
def test_what_is_lost_three_times_is_no_mark_and_costs_the_others_nothing(tmp_path, monkeypatch):
    Interrupted(monkeypatch, 3, "ben_2")
    rows = graded(tmp_path, hand_in(tmp_path / "submitted", anna_1=GOOD, ben_2=GOOD, carl_3=GOOD))
    assert {student: (row.state, row.points, row.attempt) for student, row in rows.items()} == {
        "anna_1": ("graded", 4, 1), "ben_2": ("lost", 0, 3), "carl_3": ("graded", 4, 1),
    }  # fmt: skip
    assert (rows["ben_2"].possible, rows["ben_2"].digest != "") == (4, True)
    sheet = csv_export.canvas(read_graded(tmp_path / "out").rows)
    assert '"ben","2","","","",""' in sheet.text
    found = attention.needs(read_graded(tmp_path / "out"))
    assert [(need.kind, need.student) for need in found] == [("lost", "ben_2")]


@needs_sandbox
def test_what_was_lost_is_graded_in_the_next_run(tmp_path, monkeypatch):
    folder = hand_in(tmp_path / "submitted", anna=GOOD, ben=GOOD)
    Interrupted(monkeypatch, 3, "anna")
    assert graded(tmp_path, folder)["anna"].state == "lost"
    again = grade(folder, tmp_path / "out", root=ROOT, limits=LIMITS)
    assert (again.graded, [row.state for row in again.rows], again.rows[0].attempt) == (1, ["graded"] * 2, 1)


def test_a_worker_that_does_not_end_is_the_graders_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(desk, "_START_S", 0.0)
    monkeypatch.setattr(desk, "_GRACE_S", 0.0)
    folder = hand_in(tmp_path / "submitted", anna=GOOD)
    done = grade(folder, tmp_path / "out", root=ROOT, limits=Limits(wall_s=0.05), mode="own")
    assert [(row.state, row.attempt) for row in done.rows] == [("lost", 3)]
    assert "had no row after" in done.rows[0].reason


# ---- who is to blame ---------------------------------------------------------------------------

TASK = MarkingTask("eve_1", LAB, "nowhere.ipynb", "eve.ipynb", sound=True)
FINE = SimpleNamespace(mode="own", renew=lambda: None)


def answer(monkeypatch: pytest.MonkeyPatch, error: Exception, fresh: bool = True) -> GradeRow:
    """The row that a worker answers with where marking ends in `error`; not `fresh`: after another submission."""

    def failing(task: MarkingTask, *_: object) -> GradeRow:
        if task.student == "eve_1":
            raise error
        return task.row("graded", "", 7, unsafe=False)

    monkeypatch.setattr(marking, "mark", failing)
    tasks = [TASK] if fresh else [MarkingTask("anna", LAB, "x.ipynb", "anna.ipynb", sound=True), TASK]
    lines = io.StringIO("".join(json.dumps(vars(task)) + "\n" for task in tasks))
    answers = io.StringIO()
    worker.serve(lines, answers, LABS, FINE, 7, is_full=lambda: False)
    return worker_row(answers.getvalue().splitlines()[-1])


def worker_row(line: str) -> GradeRow:
    return rows.from_dict(json.loads(line)["row"])


@pytest.mark.quick
@pytest.mark.parametrize("error", [SandboxLost("gone"), marking.BrokenRelease("set-up"), OSError("no space"), KeyError("x")])
def test_the_graders_own_failure_is_lost(monkeypatch, error):
    row = answer(monkeypatch, error)
    assert (row.state, row.points, str(error) in row.reason) == ("lost", 0, True)


@pytest.mark.quick
def test_memory_that_one_submission_takes_of_a_fresh_worker_is_its_own_fault(monkeypatch):
    row = answer(monkeypatch, MemoryError())
    assert (row.state, "does not fit" in row.reason) == ("crashed", True)


@pytest.mark.quick
def test_memory_that_may_be_an_earlier_submissions_is_tried_in_a_fresh_worker(monkeypatch):
    assert answer(monkeypatch, MemoryError(), fresh=False).state == "lost"


@pytest.mark.quick
@pytest.mark.parametrize("error", [SandboxLost("gone"), NoSandbox("none"), OSError("no space")])
def test_a_check_that_the_grader_cannot_run_is_not_a_students_failure(monkeypatch, error):
    def failing(*_: object) -> Verdict:
        raise error

    monkeypatch.setattr(marking, "run_check", failing)
    with pytest.raises(type(error)):
        marking._verdict(LABS[LAB].exercises[0], None, [])


@pytest.mark.quick
def test_what_does_not_fit_into_the_worker_costs_its_exercise_as_a_crash(monkeypatch):
    def failing(*_: object) -> Verdict:
        raise MemoryError

    monkeypatch.setattr(marking, "run_check", failing)
    arena = SimpleNamespace(incidents=[])
    verdict = marking._verdict(LABS[LAB].exercises[0], arena, [])
    assert (verdict.points, arena.incidents, "does not fit" in verdict.mismatch) == (0, ["crashed"], True)


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


@needs_sandbox
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_a_cell_that_claims_to_be_another_and_exits_is_not_the_releases_fault(tmp_path, count):
    forged = TITLE + CLAIMS.replace("COUNT", str(count)) + RIGHT
    rows = graded(tmp_path, hand_in(tmp_path / "submitted", anna=GOOD, eve_1=forged))
    assert (rows["eve_1"].state, rows["eve_1"].points, rows["eve_1"].attempt) == ("crashed", 0, 1)
    assert "Exercise 0.1 itself, before any call" in rows["eve_1"].exercises[0].mismatch
    assert '"eve","1","","","","0"' in csv_export.canvas(rows.values()).text


@needs_sandbox
def test_one_that_uses_up_its_time_before_any_call_is_out_of_time_and_not_lost(tmp_path):
    folder = hand_in(tmp_path / "submitted", eve=TITLE + "while True:\n    pass\n")
    (row,) = grade(folder, tmp_path / "out", jobs=1, root=ROOT, limits=Limits(case_s=30, wall_s=3)).rows
    assert (row.state, row.attempt) == ("timeout", 1)


# ---- the release -------------------------------------------------------------------------------


def course_copy(folder: Path, setup: str = "") -> Path:
    """The course with lab 00 alone, whose first set-up cell has a line more."""
    for name in ("labs", "solutions"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        notebook = json.loads((ROOT / name / f"{LAB}.ipynb").read_text())
        first = next(c for c in notebook["cells"] if "".join(c["source"]).startswith("# Set-up"))
        first["source"] = "".join(first["source"]) + setup
        (folder / name / f"{LAB}.ipynb").write_text(json.dumps(notebook))
    return folder


@needs_sandbox
@pytest.mark.parametrize("setup", ["\nimport os\nos._exit(1)", "\nraise ValueError('not there')"])
def test_a_release_whose_set_up_does_not_run_costs_nobody_a_point(tmp_path, setup):
    folder = hand_in(tmp_path / "submitted", anna_1=GOOD)
    row = graded(tmp_path, folder, root=course_copy(tmp_path / "course", setup))["anna_1"]
    assert (row.state, row.attempt, "of lab 00" in row.reason) == ("lost", 3, True)
    mended = graded(tmp_path, folder, root=course_copy(tmp_path / "course"))["anna_1"]
    assert (mended.state, mended.points) == ("graded", 4)


@needs_sandbox
def test_the_set_up_of_a_lab_is_tried_once_with_nobodys_code(tmp_path, monkeypatch):
    told = []
    mark = desk.Worker.mark
    monkeypatch.setattr(desk.Worker, "mark", lambda self, task: told.append(task.sound) or mark(self, task))
    graded(tmp_path, hand_in(tmp_path / "submitted", anna=GOOD, ben=GOOD, carl=GOOD))
    assert told == [False, True, True]


# ---- memory ------------------------------------------------------------------------------------

HUGE = {
    "returns_much": TITLE + "def pass_right(fabric, x):\n    return [torch.ones(4_000_000) for _ in range(200)]\n",
    "says_one_array_many_times": TITLE + """
def pass_right(fabric, x):
    line = fabric._wire._channel
    much = ["l", *[["a", "<f8", [2_500_000], 0]] * 2000]
    line.tell({"op": "done", "returned": much, "input": None}, bytes(20_000_000))
    return x
""",
    "returns_as_much_as_a_frame_holds": TITLE + "def pass_right(fabric, x):\n    return torch.ones(7_900_000)\n",
    "returns_very_many_lists": TITLE + """
def pass_right(fabric, x):
    fabric._wire._channel.tell({"op": "done", "returned": ["l", *[["l"]] * 500_000], "input": None})
    return x
""",
    "sends_much_that_nobody_takes": TITLE + """
def pass_right(fabric, x):
    for _ in range(300):
        fabric.isend(torch.ones(4_000_000), to=(fabric.rank + 1) % max(2, fabric.world_size))
    return x
""",
    "tells_of_cells_without_end": TITLE + """
import sys
frame = sys._getframe()
while frame is not None:
    line = frame.f_locals.get("channel")
    if line is not None and hasattr(line, "tell"):
        while True:
            line.tell({"op": "cell", "number": 1, "more": "x" * 7_000_000}, bytes(60_000_000))
    frame = frame.f_back
""",
}  # fmt: skip


@needs_sandbox
def test_no_submission_makes_a_worker_large(tmp_path):
    """And an honest one that is marked after them earns its points."""
    largest: dict[str, int] = {}

    def look(done: int, total: int, row: GradeRow) -> None:
        for process in below("worldsize.grade.marking.worker"):
            words = (Path("/proc") / str(process.pid) / "status").read_text().split()
            largest[row.student] = 1024 * int(words[words.index("VmHWM:") + 1])

    folder = hand_in(tmp_path / "submitted", **HUGE, zoe=GOOD)
    rows = {row.student: row for row in grade(folder, tmp_path / "out", 1, root=ROOT, limits=LIMITS, progress=look).rows}
    assert largest.keys() == rows.keys() and max(largest.values()) < 512_000_000, largest
    assert {student: row.points for student, row in rows.items()} == {**dict.fromkeys(HUGE, 0), "zoe": 4}
    assert "lost" not in {row.state for row in rows.values()}, rows


@pytest.mark.quick
def test_a_worker_has_no_more_memory_than_its_limit(tmp_path):
    program = "from worldsize.grade.marking.worker import limit_memory\nlimit_memory(50_000_000)\nx = bytearray(60_000_000)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.strip().endswith("MemoryError")


@pytest.mark.quick
def test_a_worker_that_says_that_it_is_full_marks_no_more(monkeypatch):
    marked = []

    def mark(self: desk.Worker, task: MarkingTask) -> GradeRow:
        marked.append(id(self))
        self.is_full = len(marked) == 2
        return task.row("graded", "", 7, unsafe=False)

    monkeypatch.setattr(desk.Worker, "mark", mark)
    place = desk.Desk(MarkingOrder(course=str(ROOT), mode="own", seed=7, limits=LIMITS))
    try:
        kept = [place.mark(TASK) and place._worker for _ in range(4)]
    finally:
        place.close()
    assert kept[0] is not None and kept[1] is None and kept[2] is kept[3] is not kept[0]


@needs_sandbox
def test_a_rank_may_hold_more_than_its_worker(tmp_path):
    kept = f"kept = fabric.rank == 0 and torch.ones({worker.ROOM_BYTES // 3})"  # of four bytes each
    many = TITLE + RIGHT.replace("def pass_right(fabric, x):", f"def pass_right(fabric, x):\n    {kept}")
    assert graded(tmp_path, hand_in(tmp_path / "submitted", anna=many))["anna"].points == 4


# ---- files that change, and that go ------------------------------------------------------------


@needs_sandbox
def test_a_file_that_changes_while_it_is_marked_is_marked_again(tmp_path, monkeypatch):
    folder = hand_in(tmp_path / "submitted", anna=TITLE)
    path = folder / "anna" / f"{LAB}.ipynb"
    before = path.read_bytes()
    mark = desk.Worker.mark

    def handed_in_again(self: desk.Worker, task: MarkingTask) -> GradeRow:
        path.write_text(json.dumps(with_cell(GOOD)))
        made = mark(self, task)
        path.write_bytes(before)
        return made

    monkeypatch.setattr(desk.Worker, "mark", handed_in_again)
    first = graded(tmp_path, folder)["anna"]
    monkeypatch.setattr(desk.Worker, "mark", mark)
    again = graded(tmp_path, folder)["anna"]
    assert (first.points, again.points, again.digest) == (4, 0, submission.digest(before))


@needs_sandbox
def test_rows_of_files_that_are_gone_count_nowhere_and_are_named(tmp_path):
    folder = hand_in(tmp_path / "submitted", anna_1=TITLE, ben_2=TITLE, carl_3=TITLE)
    graded(tmp_path, folder)
    shutil.rmtree(folder / "anna_1")
    (folder / "ben_2").rename(folder / "benny_2")
    done = grade(folder, tmp_path / "out", root=ROOT, limits=LIMITS)
    assert [row.student for row in done.rows] == ["benny_2", "carl_3"]
    assert [row.student for row in done.gone] == ["anna_1", "ben_2"]
    kept = read_graded(tmp_path / "out")
    assert (kept.rows, kept.gone) == (done.rows, done.gone)
    assert "anna" not in csv_export.canvas(kept.rows).text


def test_one_whose_file_has_another_lab_now_has_one_row(tmp_path):
    folder = tmp_path / "submitted"
    (folder / "anna").mkdir(parents=True)
    path = folder / "anna" / "work.ipynb"
    path.write_text("{}")
    first = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    path.write_text(json.dumps(with_cell(TITLE)))
    again = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    assert ([row.lab for row in first.rows], [row.lab for row in again.rows], again.gone) == ([""], [LAB], ())
    assert [row.lab for row in read_graded(tmp_path / "out").rows] == [LAB]


@needs_sandbox
def test_no_process_is_left_of_what_was_lost(tmp_path, monkeypatch):
    mark, begun = desk.Worker.mark, []

    def marked_then_lost(self: desk.Worker, task: MarkingTask) -> GradeRow:
        worker = psutil.Process(self._process.pid)
        mark(self, task)
        begun.append([worker, *worker.children(recursive=True)])  # its sandbox among them
        worker.kill()
        return mark(self, task)

    monkeypatch.setattr(desk.Worker, "mark", marked_then_lost)
    row = graded(tmp_path, hand_in(tmp_path / "submitted", anna=GOOD))["anna"]
    assert (row.state, row.attempt) == ("lost", 3)
    assert len(begun) == 3 and all(len(tree) > 1 for tree in begun)
    _, left = psutil.wait_procs([process for tree in begun for process in tree], LONG_S)
    assert not left
