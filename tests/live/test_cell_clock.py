"""A line under a cell that works and says nothing, on a clock that the test sets."""

import nbformat
import pytest
from nbclient import NotebookClient

from worldsize.live.cell_clock import CellClock


class Shown:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.texts: list[str] = []
        self.clock = CellClock(self.show, lambda: self.now_s)

    def show(self, text):
        self.texts.append(text)
        return self.texts.append

    def after(self, seconds):
        self.now_s += seconds
        self.clock.look()
        return self.texts[-1] if self.texts else None


@pytest.fixture
def cell():
    shown = Shown()
    shown.clock.restart()
    return shown


def test_a_quick_cell_has_no_line(cell):
    assert cell.after(0.7) is None
    cell.clock.ends()
    assert cell.texts == []


def test_a_silent_cell_says_within_a_second_that_it_works(cell):
    assert cell.after(0.9) == "at work for 1 s"


def test_the_line_tells_what_is_being_done_and_which_run_it_is(cell):
    cell.clock.says("run 3 of the check, 5 ranks")
    assert cell.after(2) == "at work for 2 s: run 3 of the check, 5 ranks"
    cell.clock.runs("4 ranks")
    assert cell.after(1) == "at work for 3 s: run 1, 4 ranks"


def test_a_cell_that_puts_out_something_has_no_line_until_it_is_silent_for_long(cell):
    cell.now_s += 0.5
    cell.clock.heard()
    assert cell.after(3.5) is None
    assert cell.after(0.6) == "at work for 5 s"


@pytest.mark.parametrize(("seconds", "line"), [(1.5, ""), (3.9, ""), (4.0, "took 5 s"), (11.2, "took 12 s")])
def test_at_its_end_the_line_says_how_long_a_long_cell_took_and_goes_after_a_short_one(cell, seconds, line):
    cell.after(1)
    cell.now_s += seconds
    cell.clock.ends()
    assert cell.texts[-1] == line


def test_the_next_cell_begins_anew(cell):
    cell.clock.says("something")
    cell.after(1)
    cell.clock.ends()
    cell.clock.restart()
    assert cell.after(0.5) == ""
    assert cell.after(0.5) == "at work for 1 s"


# the second one is longer than a cell may be silent
CELLS = [
    "import threading\nfrom worldsize.notebook import *\nfrom worldsize.launch import unobserved",
    "def waits(event=None):\n    import time\n    time.sleep(1.5)\nwith unobserved():\n    launch(waits, 3)",
    "launch(waits, 2);",
    "print('at once')",
]


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    folder = str(tmp_path_factory.mktemp("clock"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORLDSIZE_HEADLESS", "0")
        NotebookClient(notebook, timeout=60, resources={"metadata": {"path": folder}}).execute()
    return notebook.cells


def plain(cell) -> str:
    return "".join(output.get("data", {}).get("text/plain", output.get("text", "")) for output in cell.outputs)


def test_in_a_kernel_the_line_of_a_cell_that_ended_says_no_more_that_it_works(cells):
    assert cells[1].outputs and plain(cells[1])[:5] in ("", "took ")


def test_a_run_with_a_view_of_its_own_has_no_line_besides(cells):
    assert "at work" not in plain(cells[2])
    assert "took" not in plain(cells[2])


def test_a_cell_that_says_something_at_once_has_no_line(cells):
    assert plain(cells[3]) == "at once\n"
