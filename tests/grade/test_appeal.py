"""An appeal marks the same file again with the same seed, and shows it beside the mark."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tests.grade.cheats import LAB, ROOT, TITLE, with_cell
from worldsize import cli
from worldsize.grade.marking.grade_folder import grade
from worldsize.grade.marking.rows import write
from worldsize.grade.reports.feedback_page import appeal_number

pytestmark = pytest.mark.timeout(300)
DRAWS = TITLE + "def pass_right(fabric, x):\n    raise ValueError(f'{x.tolist()} {torch.rand(1).item()}')\n"


@pytest.fixture(scope="module")
def graded(sandbox, tmp_path_factory):
    folder = tmp_path_factory.mktemp("appeal")
    path = folder / "submitted" / "anna" / f"{LAB}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(with_cell(DRAWS)))
    (row,) = grade(folder / "submitted", folder / "out", jobs=1, root=ROOT).rows
    return folder, row


def appeal(folder, number: str) -> object:
    words = ["appeal", number, str(folder / "out"), "--submissions", str(folder / "submitted"), "--course", str(ROOT)]
    return CliRunner().invoke(cli.app, words)


def test_the_row_is_replayed_with_what_the_check_drew_and_nothing_is_written(graded):
    folder, row = graded
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    answer = appeal(folder, appeal_number(row))
    assert answer.exit_code == 0, answer.output
    assert "anna, 00_start_here" in answer.output and f"seed {row.seed}" in answer.output
    assert "the mark: graded, 0 of 4; now: graded, 0 of 4" in answer.output and "the same now" in answer.output
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.soak
def test_a_mark_that_comes_out_otherwise_shows_both_and_what_changed(graded):
    folder, row = graded
    exercise = replace(row.exercises[0], points=3.0, state="fail", mismatch="another")
    write(replace(row, points=3.0, exercises=(exercise,), release="old", host="n9"), folder / "out" / "rows")
    said = appeal(folder, appeal_number(row)).output
    assert "the mark: graded, 3 of 4; now: graded, 0 of 4" in said and "    now fail, 0: " in said
    assert "the release has changed since: old then" in said and "marked on n9" in said


def test_a_file_that_was_handed_in_again_is_not_replayed(graded, tmp_path):
    folder, row = graded
    path = folder / "submitted" / "anna" / f"{LAB}.ipynb"
    path.write_text(json.dumps(with_cell(TITLE)))
    answer = appeal(folder, appeal_number(row))
    assert answer.exit_code == 1 and "handed in again later" in " ".join(answer.output.split())
