"""The front, in a real kernel: what a student sees of launches, checks and points."""

import json
import re

import nbformat
import pytest
from nbclient import NotebookClient

RIGHT = '''# Exercise 0.1: pass a tensor to the right
def pass_right(fabric, x):
    if fabric.world_size == 1:
        return x.clone()
    out = torch.empty_like(x)
    handle = fabric.isend(x, (fabric.rank + 1) % fabric.world_size)
    fabric.recv(out, (fabric.rank - 1) % fabric.world_size)
    handle.wait()
    return out
'''
# the lab's own
SETUP = """# Set-up
import os

from worldsize.notebook import *

import torch
import torch.distributed as dist"""
CELLS = {
    "setup": SETUP,
    "open": 'lab, check = open_lab("00")',
    "stub": '# Exercise 0.1: pass it on\ndef pass_right(fabric, x):\n    raise NotYet("Exercise 0.1: pass it")',
    "check stub": "check.pass_right(pass_right)",
    "launch stub": "run = launch(lambda fabric: pass_right(fabric, torch.ones(1)), 2)\nfigures.messages(run)",
    "outside": "for shift in range(2):\n    pass",
    "uses outside": RIGHT.replace("rank + 1", "rank + shift"),
    "check outside": "check.pass_right(pass_right)",
    "right": RIGHT,
    "check right": "check.pass_right(pass_right)",
    "scratch": "def pass_right(fabric, x):\n    return x",
    "check scratch": "check.pass_right(pass_right)",
    "wrong": RIGHT.replace("return out", "return x"),
    "check wrong": "check.pass_right(pass_right)",
    # on a busy machine the live view would open, and fold the lines
    "chatty": "import worldsize.live.view\nworldsize.live.view.OPEN_AFTER_S = 1000\n"
    "run = launch(lambda: [print(i) for i in range(50)], 2)",
    "fails": "# Exercise 0.7: it fails\ndef fails():\n    zero = 0\n    return 1 / zero\n\nlaunch(fails, 2)",
    "unknown": "check.no_such",
    "points": "print(lab)",
    "changed setup": f"{SETUP}\nimport numpy as np",
    "check with changed setup": "check.pass_right(pass_right)",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """{name of a cell: its outputs} of one kernel that ran them all."""
    folder = tmp_path_factory.mktemp("front")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in CELLS.values()])
    client = NotebookClient(notebook, timeout=60, allow_errors=True, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return dict(zip(CELLS, [cell.outputs for cell in notebook.cells], strict=True)), folder


def text(outputs):
    """What a cell says, but for the line of a cell that was slow on a busy machine."""
    parts = []
    for out in outputs:
        if re.fullmatch(r"took [\d.]+ s", out.get("data", {}).get("text/plain", "")):
            continue
        parts.append(out.get("text", "") or out.get("data", {}).get("text/plain", ""))
        parts += out.get("traceback", [])
    return "\n".join(parts)


def test_importing_the_front_says_nothing(outputs):
    assert text(outputs[0]["setup"]) == ""
    assert text(outputs[0]["open"]) == ""


def test_a_stub_is_not_yet_and_costs_nothing(outputs):
    assert "not yet (4 points). Exercise 0.1: pass it" in text(outputs[0]["check stub"])


def test_a_picture_of_a_stub_says_not_yet(outputs):
    shown = [o["data"]["text/html"] for o in outputs[0]["launch stub"] if "text/html" in o.get("data", {})]
    picture = next(html for html in shown if "<img" in html)  # of a launch that took long there is a table, too
    assert "not yet: Exercise 0.1: pass it" in picture


def test_a_name_from_a_cell_that_is_not_handed_in_is_pointed_out(outputs):
    said = text(outputs[0]["check outside"])
    assert "`shift` is made by a loop in another cell: the grader does not run it" in said
    assert "NameError: name 'shift' is not defined" in said


def test_the_right_answer_gets_every_point_in_one_line_and_its_small_print(outputs):
    line, small_print = text(outputs[0]["check right"]).strip().splitlines()
    assert line == "✔ pass_right: 4 of 4 points"
    assert "in simulated time" in small_print


def test_the_cell_of_the_exercise_is_checked_and_not_a_later_scratch(outputs):
    said = text(outputs[0]["check scratch"])
    assert "was defined again elsewhere" in said and "4 of 4" in said


def test_a_wrong_answer_is_told_by_rank_and_element_with_the_messages_beside(outputs):
    said = text(outputs[0]["check wrong"])
    assert "rank 0, element 0: expected" in said and "return the received tensor" in said
    # on a slow machine a cell's clock comes first
    html = "".join(o["data"]["text/html"] for o in outputs[0]["check wrong"] if "text/html" in o.get("data", {}))
    assert "<details>" in html and "<img" in html


def test_the_latest_check_counts(outputs):
    assert "points: 1 of 4" in text(outputs[0]["points"])
    kept = json.loads((outputs[1] / ".worldsize" / "lab_00.json").read_text())
    assert kept["points"]["pass_right"]["earned"] == 1


def test_a_launch_prints_one_set_up_line_and_at_most_a_screen_of_output(outputs):
    lines = "".join(o.get("text", "") for o in outputs[0]["chatty"]).splitlines()
    assert lines[0] == "2 ranks · gloo on CPU · 1 thread each · fork server"
    assert len(lines) == 32 and lines[-1].startswith("… 70 more lines")


def test_an_error_is_shown_by_exercise_and_line_without_the_launcher_s_frames(outputs):
    said = text(outputs[0]["fails"])
    assert "failed first: ZeroDivisionError: division by zero" in said
    assert "Exercise 0.7 (cell In[16]), line 4, in fails" in said and "return 1 / zero" in said
    assert "launch.py" not in said and len(said.splitlines()) <= 40


def test_an_unknown_check_lists_those_there_are(outputs):
    assert "expected one of" in text(outputs[0]["unknown"]) and "pass_right" in text(outputs[0]["unknown"])


def test_a_changed_set_up_cell_is_pointed_out_at_the_check(outputs):
    said = text(outputs[0]["check with changed setup"])
    assert "the set-up cell that begins `import os` differs from the lab's" in said
    assert [name for name, cells in outputs[0].items() if "differs from the lab's" in text(cells)] == ["check with changed setup"]
