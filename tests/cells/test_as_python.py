"""A notebook's cell as Python: what the check in the notebook and the grader read is the same, and runs as in the notebook."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from tests.grade.honest import START, notebook
from tests.grade.honest.ipython import FORMS
from worldsize.cells import PythonCell, compile_cell, python_cell, run_cell
from worldsize.cells import read as read_cells
from worldsize.cells.as_python import MAX_CELL_CHARACTERS
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.grade import course
from worldsize.grade.inside import sandboxed_rank
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import submission
from worldsize.grade.marking.mark_submission import SubmissionMarking
from worldsize.lab import handed_in
from worldsize.titles import title_of

pytestmark = pytest.mark.quick

LAB = course.load(Path(__file__).resolve().parents[2])[START]
(EXERCISE,) = LAB.exercises
TITLE = title_of(EXERCISE.stub)
SETUP = "# Set-up\nimport torch"


READ = {
    "f?": PythonCell("pass\n", ("f?",)),
    "?f": PythonCell("pass\n", ("f?",)),
    "f??\nx = 1": PythonCell("pass\nx = 1\n", ("f??",)),
    "files = !ls": PythonCell("files = []\n", ("!ls",)),
    "!echo a \\\n b\nx = 1": PythonCell("pass\nx = 1\n", ("!echo a   b",)),
    "t = %timeit f()": PythonCell("t = None\n", ("%timeit f()",)),
    "%time K = 1": PythonCell("K = 1\n"),
    "t = %time f(1)": PythonCell("t = (f(1))\n"),
    "%%time\nK = 1\n!ls": PythonCell("\nK = 1\npass\n", ("!ls",)),
    "%%time\n%%capture\nK = 1": PythonCell("\n\nK = 1\n"),
    "%%ranks 4\nK = 1": PythonCell("", ("%%ranks 4",)),
    "%%bash\nls": PythonCell("", ("%%bash",)),
    "x = (5\n% 3)\n%pwd\ny = '''\n%pwd\n'''": PythonCell("x = (5\n% 3)\npass\ny = '''\n%pwd\n'''\n", ("%pwd",)),
    "if x:\n    ö = !ls\n    # a": PythonCell("if x:\n    ö = []\n    # a\n", ("!ls",)),
    "x = await f()": PythonCell("x = await f()"),
    "x = 1\r\ny = 2": PythonCell("x = 1\ny = 2"),
}


@pytest.mark.parametrize("source", READ)
def test_a_cell_is_read_as_python_with_what_was_taken_out(source):
    assert python_cell(source) == READ[source]
    assert python_cell(READ[source].text).text.rstrip() == READ[source].text.rstrip()


@pytest.mark.parametrize("source", ["x = 1 +", "def f(:\n!ls", "'''", "\0!ls", "\udcff = !ls", "a = %%x"])
def test_what_nobody_can_read_is_left_to_python(source):
    with pytest.raises((SyntaxError, ValueError)):
        compile_cell(python_cell(source).text, "<cell>")


ENDLESS = {"a long name": "a" * 90_000 + " ?", "magics without end": "x = 1 + 1\n!ls\n" * 6_000}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_cell_that_ipython_would_read_for_minutes_is_left_as_it_is(name):
    assert len(ENDLESS[name]) < MAX_CELL_CHARACTERS
    assert python_cell(ENDLESS[name]).text.rstrip() == ENDLESS[name].rstrip()


@pytest.mark.parametrize("magic", ["%%time\n", "%time "])
def test_magics_around_magics_are_read_as_deep_as_anybody_writes_them(magic):
    assert python_cell(magic * 3 + "K = 1").text.strip() == "K = 1"
    assert python_cell(magic * 1_000 + "K = 1").text.strip() in ("", "pass")


def test_a_cell_that_waits_runs_where_a_loop_is_at_work_and_where_none_is():
    import asyncio

    code = compile_cell("import asyncio\nK = await asyncio.sleep(0, 3)", "<cell>")

    async def in_a_notebook() -> dict:
        found: dict = {}
        run_cell(code, found)
        return found

    alone: dict = {}
    run_cell(code, alone)
    assert alone["K"] == asyncio.run(in_a_notebook())["K"] == 3


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    """A notebook's shell without a notebook: what it makes of a cell is what a kernel makes of it."""
    config = Config()
    config.HistoryManager.enabled = False
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "__main__", ModuleType("__main__"))
        made = InteractiveShell(config=config, ipython_dir=str(tmp_path_factory.mktemp("ipython")))
        yield made


@pytest.fixture
def notebooks_own(shell, monkeypatch, capsys):
    """The function that the notebook's check looks at, and what it says, once the cell ran in a new notebook."""

    def of(source: str) -> SimpleNamespace:
        shell.reset(new_session=True)
        for cell in (SETUP, source):
            shell.run_cell(cell, store_history=True).raise_error()
        capsys.readouterr()
        monkeypatch.setattr(handed_in, "notebook_shell", lambda: shell)
        fn = handed_in.as_handed_in(shell.user_ns["pass_right"], "pass_right", {"pass_right": TITLE})
        return SimpleNamespace(fn=fn, said=capsys.readouterr().out)

    return of


@pytest.fixture
def graders_own(monkeypatch):
    """The function that a rank in the grader's sandbox finds, once the cells of a notebook ran there."""

    def of(source: str) -> SimpleNamespace:
        cells = list(read_cells(json.dumps(notebook(source)).encode()))
        marking = SubmissionMarking(LAB, submission.repair(cells, LAB), SimpleNamespace(limits=Limits()), seed=0)
        monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        own = [cell for cell in marking._cells((), EXERCISE) if not cell[0].startswith("Set-up")]
        module, errors = sandboxed_rank.run_cells([["Set-up", SETUP], *own])
        return SimpleNamespace(fn=vars(module).get("pass_right"), errors=errors)

    return of


@pytest.mark.parametrize("name", FORMS)
def test_notebook_and_grader_agree_on_a_form_of_ipython_s_and_no_point_is_lost(notebooks_own, graders_own, name):
    mine, theirs = notebooks_own(FORMS[name]), graders_own(FORMS[name])
    assert theirs.errors == {}
    assert all("only a notebook can run" in line for line in mine.said.splitlines() if line.startswith("note:"))
    for fn in (mine.fn, theirs.fn):
        passed = SimulatedArena(seed=1).ranks(fn, torch.arange(3).unbind())
        assert [int(one) for one in passed.returned] == [2, 0, 1], passed


def test_there_are_forty_forms():
    assert len(FORMS) >= 40


def test_what_was_taken_out_is_said_in_the_notebook(notebooks_own):
    assert notebooks_own(FORMS["shell"]).said == (
        "note: only a notebook can run `!true`: the exercise's cell is graded without it.\n"
    )
