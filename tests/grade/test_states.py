"""What a row says of a file that is not quite a lab's notebook, and of an answer with something left in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.grade.cheats import LAB, RIGHT, TITLE, with_cell
from tests.support.graded_arena import mark_here
from worldsize.grade.host.boxes import Sandbox
from worldsize.grade.marking.rows import GradeRow


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
