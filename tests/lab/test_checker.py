"""What a check says of the cell that it looked at, in a real kernel with the cells as a student may leave them."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.grade.honest.ipython import FORMS
from worldsize.checks import CHECKS
from worldsize.lab.checker import Checker
from worldsize.lab.lab import Lab

LAB = nbformat.read(Path(__file__).parents[2] / "labs" / "00_start_here.ipynb", as_version=4)
SETUP = next(cell.source for cell in LAB.cells if cell.source.startswith("# Set-up"))
OPEN = 'lab, check = open_lab("00")'
CHECK = "check.pass_right(pass_right)"
TITLE = "# Exercise 0.1: pass a tensor to the right"
RIGHT = """import itertools
def pass_right(fabric, x):
    if fabric.world_size == 1:
        return x.clone()
    out = torch.empty_like(x)
    handle = fabric.isend(x, next(itertools.islice(itertools.count(fabric.rank), 1, 2)) % fabric.world_size)
    fabric.recv(out, (fabric.rank - 1) % fabric.world_size)
    handle.wait()
    return out"""
RAISES = "def pass_right(fabric, x):\n    return x[99]"
PLACE = "Exercise 0.1 (cell In[{}]), line {}, in pass_right"


# the next student's notebook in the same kernel: no names, no cells, and In[1] comes next
FORGET = "get_ipython().reset(new_session=True)"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """One kernel for all: to start it, with PyTorch and the helper that starts ranks, takes longer than a check."""
    folder = tmp_path_factory.mktemp("kernel")
    made = NotebookClient(_notebook(), timeout=100, allow_errors=True, resources={"metadata": {"path": str(folder)}})
    with made.setup_kernel():
        yield made


@pytest.fixture
def said(client):
    def said_by(*cells):
        """What the last of `cells`, the check, says in a notebook that ran the lab's set-up and all of them."""
        client.nb = _notebook(FORGET)
        client.execute_cell(client.nb.cells[0], 0, store_history=False)
        client.nb = _notebook(SETUP, OPEN, *cells, CHECK)
        client.reset_execution_trackers()
        for index, cell in enumerate(client.nb.cells):
            client.execute_cell(cell, index)
        outputs = client.nb.cells[-1].outputs
        texts = [out.get("text", "") or out.get("data", {}).get("text/plain", "") for out in outputs]
        slow_machine = ("the helper that starts ranks is ready", "took ")
        return "\n".join(text for text in texts if text and not text.startswith(slow_machine))

    return said_by


def _notebook(*sources):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])


def test_completion_offers_the_exercises(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLDSIZE_STATE_DIR", str(tmp_path))
    assert dir(Checker(Lab("00"))) == sorted(CHECKS)


def test_a_place_is_told_by_exercise_and_line(said):
    assert PLACE.format(3, 3) in said(f"{TITLE}\n{RAISES}")


def test_a_place_survives_blank_lines_at_the_end_of_the_cell(said):
    assert PLACE.format(3, 3) in said(f"{TITLE}\n{RAISES}\n\n   \n")


def test_a_place_survives_a_title_that_was_lost_and_the_title_is_asked_back(said):
    told = said(RAISES)
    assert f"the cell of `pass_right` has lost its first line. Put it back: `{TITLE}`" in told
    assert PLACE.format(3, 2) in told


def test_a_cell_that_lost_its_title_is_checked_as_a_grade_would(said):
    assert "✔ pass_right: 4 of 4 points" in said(RIGHT)


def test_the_right_answer_with_an_import_of_its_own_raises_no_alarm(said):
    assert said(f"{TITLE}\n{RIGHT}").strip().splitlines()[0] == "✔ pass_right: 4 of 4 points"


@pytest.mark.parametrize(("one", "other"), [("x * 2", "x * 3"), ("fabric.isend(x, 0)", "fabric.send(x, 0)")])
def test_a_function_that_differs_by_one_name_or_number_is_told_to_be_another(said, one, other):
    cell = "def pass_right(fabric, x):\n    return {}"
    told = said(f"{TITLE}\n{cell.format(one)}", cell.format(other))
    assert "`pass_right` was defined again elsewhere; the one in the exercise's own cell was checked" in told


def test_the_same_function_run_again_elsewhere_is_no_other(said):
    assert said(f"{TITLE}\n{RIGHT}", f"{RIGHT}   \n\n").strip().splitlines()[0] == "✔ pass_right: 4 of 4 points"


def test_after_a_syntax_error_the_check_says_that_it_looks_at_the_last_version_that_ran(said):
    told = said(f"{TITLE}\n{RIGHT}", f"{TITLE}\ndef pass_right(fabric, x):\n    return x +")
    assert "the cell of Exercise 0.1 has a syntax error (line 3: invalid syntax). The last version that ran was checked" in told
    assert "✔ pass_right: 4 of 4 points" in told


HELPED = f"{TITLE}\ndef pass_right(fabric, x):\n    return exchange(fabric, x)"
HELPER = RIGHT.replace("pass_right", "exchange")


def test_helpers_in_cells_of_one_s_own_count_as_they_would_in_a_grade(said):
    assert said(HELPER, HELPED).strip().splitlines()[0] == "✔ pass_right: 4 of 4 points"
    assert "✔ pass_right: 4 of 4 points" in said(f"%%time\n{HELPER}\nprint(1)", HELPED)


def test_the_last_version_of_a_helper_counts(said):
    assert said(HELPER.replace("return out", "return x"), HELPED, HELPER).strip().splitlines()[0] == "✔ pass_right: 4 of 4 points"


def test_a_place_in_a_helper_is_told(said):
    told = said("print(1)\n\n\ndef exchange(fabric, x):\n    return x[99]", HELPED)
    assert "cell In[3], line 5, in exchange" in told


def test_a_name_that_does_not_go_along_is_named_with_what_to_do(said):
    told = said("for scale in range(2):\n    pass", f"{TITLE}\nFIRST = scale\n{RIGHT}")
    assert "`scale` is made by a loop in another cell: the grader does not run it. Define it in the exercise's cell." in told


def test_a_name_that_does_not_go_along_is_named_where_the_check_passes_too(said):
    cell = f"{TITLE}\n{RIGHT}".replace("return out", "return out if len(out) else out * scale")
    told = said("scale = sum(x for x in open('/dev/null'))\nscale = print()", cell)
    assert "`scale` is made by a call in another cell" in told
    assert "✔ pass_right: 4 of 4 points" in told


USUAL = ["async_constant", "timed_cell"]
EVERY_FORM = [pytest.param(name, marks=[] if name in USUAL else pytest.mark.soak) for name in FORMS]


@pytest.mark.parametrize("name", EVERY_FORM)
def test_a_form_of_ipython_s_that_a_grade_accepts_passes_in_a_kernel(said, name):
    told = said(FORMS[name])
    assert "✔ pass_right: 4 of 4 points" in told and "defined again elsewhere" not in told
