"""What a row says of a file that is not quite a lab's notebook, and of an answer with something left in it."""

import json
from pathlib import Path

import pytest

from tests.grade.cheats import LAB, RIGHT, ROOT, TITLE, cell, with_cell
from tests.support.gradebook import RING
from tests.support.graded_arena import mark_here
from worldsize.grade.marking.grading_record import GradedFolder
from worldsize.grade.marking.rows import NO_MARK, GradeRow
from worldsize.grade.marking.submission import UNNAMED
from worldsize.grade.outside.boxes import Sandbox
from worldsize.grade.reports import needs_a_person


def row_of(sandbox: Sandbox, folder: Path, notebook: dict, lab: str = LAB) -> GradeRow:
    (folder / f"{lab}.ipynb").write_text(json.dumps(notebook))
    return mark_here(sandbox, folder / f"{lab}.ipynb", lab)


@pytest.mark.parametrize("left", ["breakpoint()", "import pdb; pdb.set_trace()"])
def test_a_breakpoint_left_in_an_answer_is_named_with_its_line(sandbox, tmp_path, left):
    answer = RIGHT.replace("    received =", f"    {left}\n    received =")
    line = answer.splitlines().index(f"    {left}") + 2  # below the title
    [exercise] = row_of(sandbox, tmp_path, with_cell(TITLE + answer)).exercises
    assert f"a breakpoint was left in line {line}: remove it" in exercise.mismatch
    assert "BdbQuit" not in exercise.mismatch


def test_another_lab_s_notebook_under_this_name_is_called_so_and_has_no_mark(sandbox, tmp_path):
    made = row_of(sandbox, tmp_path, with_cell(TITLE + RIGHT), RING)
    assert made.state in NO_MARK
    assert (made.lab, made.reason) == (RING, "this is lab 00's notebook, handed in under the name of lab 06")
    (need,) = needs_a_person.needs(GradedFolder((made,)))
    assert need.kind == "ungradable" and "this is lab 00's notebook" in need.why


def test_an_exercise_of_this_lab_among_another_s_cells_is_graded(sandbox, tmp_path):
    notebook = json.loads((ROOT / "labs" / f"{RING}.ipynb").read_text())
    notebook["cells"].append(cell(with_cell(TITLE + RIGHT), "pass_right"))
    assert row_of(sandbox, tmp_path, notebook).points == 4.0


@pytest.mark.parametrize("cells", [[], [{"cell_type": "code", "source": [], "metadata": {}}]], ids=["no cells", "an empty cell"])
def test_an_empty_notebook_has_no_mark(sandbox, tmp_path, cells):
    made = row_of(sandbox, tmp_path, {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    assert (made.state, made.reason) == ("ungradable", "the notebook is empty")


def as_colab_saves_it(notebook: dict) -> dict:
    for k, one in enumerate(notebook["cells"]):
        one["metadata"] = {"id": f"q3Xz{k}"}
        one.pop("id", None)
    return notebook


def test_a_notebook_that_colab_saved_is_graded_with_one_note_and_needs_nobody(sandbox, tmp_path):
    made = row_of(sandbox, tmp_path, as_colab_saves_it(with_cell(TITLE + RIGHT)))
    assert (made.state, made.points, made.tamper, made.handed_in) == ("graded", 4.0, (), UNNAMED)
    assert needs_a_person.needs(GradedFolder((made,))) == []


@pytest.mark.parametrize(
    ("lost", "kind"), [("check_pass_right", "check missing"), ("pass_right", "exercise without its name")]
)  # fmt: skip
def test_what_colab_does_not_change_is_still_reported(sandbox, tmp_path, lost, kind):
    notebook = with_cell(TITLE + RIGHT)
    cell(notebook, lost)["source"] = "pass" if lost.startswith("check") else RIGHT
    made = row_of(sandbox, tmp_path, as_colab_saves_it(notebook))
    assert (made.state, [one.kind for one in made.tamper]) == ("tampered", [kind])
