"""Files that change while they are marked are marked again, and rows of files that are gone count nowhere."""

import json
import shutil
from pathlib import Path

import pytest

from tests.grade.cheats import LAB, RIGHT, ROOT, TITLE, with_cell
from tests.support.quick_marking import quick_marking
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import submission, worker_supervisor
from worldsize.grade.marking.grade_folder import grade
from worldsize.grade.marking.grading_record import read_graded
from worldsize.grade.marking.mark_submission import MarkingTask
from worldsize.grade.marking.rows import GradeRow
from worldsize.grade.reports import canvas_csv

LIMITS = Limits(case_s=5, wall_s=60, memory_bytes=1_500_000_000)
GOOD = TITLE + RIGHT


def hand_in(folder: Path, **sources: str) -> Path:
    for student, source in sources.items():
        (folder / student).mkdir(parents=True)
        (folder / student / f"{LAB}.ipynb").write_text(json.dumps(with_cell(source)))
    return folder


def test_a_file_that_changes_while_it_is_marked_is_marked_again(tmp_path, monkeypatch):
    folder = hand_in(tmp_path / "submitted", anna=TITLE)
    path = folder / "anna" / f"{LAB}.ipynb"
    before = path.read_bytes()
    quick = quick_marking(monkeypatch, meanwhile=lambda task: path.write_text(json.dumps(with_cell(GOOD))))
    grade(folder, tmp_path / "out", jobs=1, root=ROOT, mode="own")
    path.write_bytes(before)
    quick.meanwhile = lambda task: None
    again = grade(folder, tmp_path / "out", jobs=1, root=ROOT, mode="own")
    assert (again.graded, again.rows[0].digest, len(quick.marked)) == (1, submission.digest(before), 2)


@pytest.mark.soak
@pytest.mark.usefixtures("_sandboxed")
def test_a_file_that_changes_while_a_worker_marks_it_is_marked_again(tmp_path, monkeypatch):
    folder = hand_in(tmp_path / "submitted", anna=TITLE)
    path = folder / "anna" / f"{LAB}.ipynb"
    before = path.read_bytes()
    mark = worker_supervisor.Worker.mark

    def handed_in_again(self: worker_supervisor.Worker, task: MarkingTask) -> GradeRow:
        path.write_text(json.dumps(with_cell(GOOD)))
        made = mark(self, task)
        path.write_bytes(before)
        return made

    monkeypatch.setattr(worker_supervisor.Worker, "mark", handed_in_again)
    (first,) = grade(folder, tmp_path / "out", jobs=1, limits=LIMITS, root=ROOT).rows
    monkeypatch.setattr(worker_supervisor.Worker, "mark", mark)
    (again,) = grade(folder, tmp_path / "out", jobs=1, limits=LIMITS, root=ROOT).rows
    assert (first.points, again.points, again.digest) == (4, 0, submission.digest(before))


def test_rows_of_files_that_are_gone_count_nowhere_and_are_named(tmp_path, monkeypatch):
    quick_marking(monkeypatch)
    folder = hand_in(tmp_path / "submitted", anna_1=TITLE, ben_2=TITLE, carl_3=TITLE)
    grade(folder, tmp_path / "out", root=ROOT, mode="own")
    shutil.rmtree(folder / "anna_1")
    (folder / "ben_2").rename(folder / "benny_2")
    done = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    assert [row.student for row in done.rows] == ["benny_2", "carl_3"]
    assert [row.student for row in done.folder.gone] == ["anna_1", "ben_2"]
    kept = read_graded(tmp_path / "out")
    assert (kept.rows, kept.gone) == (done.rows, done.folder.gone)
    assert "anna" not in canvas_csv.export(kept.rows).text


def test_one_whose_file_has_another_lab_now_has_one_row(tmp_path, monkeypatch):
    quick_marking(monkeypatch)
    folder = tmp_path / "submitted"
    (folder / "anna").mkdir(parents=True)
    path = folder / "anna" / "work.ipynb"
    path.write_text(json.dumps({"cells": []}))
    first = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    path.write_text(json.dumps(with_cell(TITLE)))
    again = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    assert ([row.lab for row in first.rows], [row.lab for row in again.rows], again.folder.gone) == ([""], [LAB], ())
    assert [row.lab for row in read_graded(tmp_path / "out").rows] == [LAB]
