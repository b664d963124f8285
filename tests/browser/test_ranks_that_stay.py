"""Ranks that stay in a browser: output that streams, tabs, a progress bar, pictures, the debugger's box, and a reload.

A cell that should be seen at work goes on until the test makes a file.
"""

import re
from collections.abc import Iterator

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Locator

from tests.support.lab_page import LabTab
from tests.support.lab_server import LabServer

pytestmark = [pytest.mark.browser, pytest.mark.soak, pytest.mark.timeout(400)]

SETUP = "from worldsize.notebook import *"
OPENED = "%%ranks 4\nkept = [rank]\nimport sys, time\nfrom pathlib import Path\nrank * 11"
LONG = "%%ranks\nprint('line\\n' * 3)\nrank * 11"
STREAMS = """\
%%ranks {ranks}
from pathlib import Path
import time
step = 0
while not Path("go {ranks}").exists():
    print(f"rank {{rank}} at step {{step}}")
    step += 1
    time.sleep(0.1)
print(f"rank {{rank}} is done, and this is a long line: {{'0123456789 ' * 30}}")"""
BAR = """\
%%ranks
done = 0
while not Path("go on").exists():
    sys.stderr.write(f"\\r{done:3d}%|{'#' * done}")
    done += 1
    time.sleep(0.1)
sys.stderr.write("\\r100%|##########\\n");"""
DRAWN = """\
%%ranks
import matplotlib.pyplot as plt
plt.figure(figsize=(4, 2))
plt.plot([0, rank + 1])
plt.title(f"drawn by rank {rank}");"""
STOPS = "%%ranks\ntotal = 10 * rank\nif rank == 2:\n    breakpoint()\ntotal += 1\ntotal"
FAILS = """\
%%ranks
def step(batch):
    secret = batch * 7
    raise KeyError('loss')
if rank == 1:
    step(3)
dist.barrier();"""
TABLE = """\
%%ranks
net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))"""
CELLS = {
    "setup": SETUP, "opened": OPENED, "long": LONG, "streams-4": STREAMS.format(ranks=4), "bar": BAR, "drawn": DRAWN,
    "stops": STOPS, "fails": FAILS, "debug": "%debug", "net": TABLE, "differ": 'world.differ("net")',
    "kept": "%%ranks\nkept[0] * 100", "streams-16": STREAMS.format(ranks=16),
}  # fmt: skip
LONG_S = 60


class RanksTab(LabTab):
    """A tab with the cells of this file."""

    def output(self, id: str) -> Locator:
        place = list(CELLS).index(id)
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(place).locator(".jp-Cell-outputArea")

    def prompt(self, id: str) -> str:
        place = list(CELLS).index(id)
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(place).locator(".jp-InputPrompt").inner_text()

    def run(self, id: str, says: str) -> None:
        """Run a cell, and wait until it has ended and says this."""
        self.run_cell(id)
        self.wait_for_output(id, says, LONG_S)
        self.idle()

    def idle(self) -> None:
        """Wait until no cell is at work."""
        self.page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'"
        )

    def types(self, id: str, command: str) -> None:
        """Answer the next prompt of a cell that asks. A box that was answered may stay a moment beside the next one."""
        box = self.output(id).locator("input.jp-Stdin-input:not([data-answered])")
        box.fill(command)
        box.evaluate("(box) => box.addEventListener('keydown', () => { box.dataset.answered = 'yes' })")
        box.press("Enter")

    def tabs(self, id: str) -> Locator:
        return self.output(id).locator("label")

    def rows(self, id: str) -> list[str]:
        return [text.strip() for text in self.output(id).locator(".output").all_inner_texts()]

    def panel(self, id: str) -> str:
        return self.output(id).locator(".panel:visible").inner_text().strip()

    def value(self, id: str) -> str:
        """Return the last line of the chosen tab."""
        return self.panel(id).split("\n")[-1]


@pytest.fixture(scope="module")
def tab(context, server) -> Iterator[RanksTab]:
    path = server.work / "ranks.ipynb"
    cells = [new_code_cell(source, id=id) for id, source in CELLS.items()]
    kernel = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    opened = RanksTab(context)
    opened.page.set_default_timeout(30_000)
    opened.open(server.notebook_url(path.name))
    opened.run_cell("setup")
    opened.run("opened", "4 ranks")
    yield opened
    opened.page.close()
    assert (opened.elsewhere, opened.errors) == ([], [])


def both_themes(tab: RanksTab, name: str, id: str) -> None:
    for theme in ("Dark", "Light"):
        tab.theme(f"JupyterLab {theme}")
        tab.page.locator("#jupyterlab-splash").wait_for(state="detached")
        tab.screenshot(f"ranks {name} {theme}", tab.output(id))


def test_the_value_of_the_last_expression_stands_in_a_row_a_rank(tab):
    assert tab.output("opened").locator(".ranks").all_inner_texts() == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert tab.rows("opened") == ["0", "11", "22", "33"]
    both_themes(tab, "rows", "opened")


def test_longer_outputs_stand_in_a_tab_a_rank(tab):
    tab.run("long", "4 ranks")
    assert tab.tabs("long").all_inner_texts() == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert tab.value("long") == "0"


def streams(tab: RanksTab, server: LabServer, ranks: int) -> None:
    """Run a cell on so many ranks: their lines are there before it ends, and a tab a rank after."""
    id = f"streams-{ranks}"
    tab.run_cell(id)
    for rank in (0, ranks - 1):
        tab.wait_for_output(id, f"rank {rank} at step 3", LONG_S)
    assert tab.prompt(id) == "[*]:"
    both_themes(tab, f"{ranks} live", id)
    (server.work / f"go {ranks}").touch()
    tab.wait_for_output(id, "is done", LONG_S)
    tab.idle()
    assert tab.tabs(id).count() == ranks
    both_themes(tab, f"{ranks} ended", id)


def test_output_streams_from_four_ranks_while_the_cell_runs(tab, server):
    streams(tab, server, 4)


def test_tabs_are_chosen_by_mouse_and_by_keyboard(tab):
    tab.tabs("long").nth(2).click()
    assert tab.value("long") == "22"
    both_themes(tab, "tab by mouse", "long")
    seen = []
    for key in ("ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowDown", "ArrowUp"):
        tab.page.keyboard.press(key)
        seen.append(tab.value("long"))
    assert seen == ["33", "22", "11", "22", "11"]
    both_themes(tab, "tab by keyboard", "long")


def test_a_progress_bar_is_seen_to_move(tab, server):
    tab.run_cell("bar")
    tab.wait_for_output("bar", "|##", LONG_S)
    tab.wait_for_output("bar", "|" + "#" * 12)
    assert tab.prompt("bar") == "[*]:" and tab.output_text("bar").count("%|") == 4
    (server.work / "go on").touch()
    tab.wait_for_output("bar", "100%|##########")
    assert tab.output("bar").locator("pre").all_inner_texts() == ["100%|##########\n"]


def test_each_rank_shows_its_picture(tab):
    tab.run("drawn", "4 ranks ·")
    for rank in range(4):
        tab.tabs("drawn").nth(rank).click()
        picture = tab.output("drawn").locator("img:visible")
        assert picture.count() == 1 and picture.evaluate("(image) => image.naturalWidth") > 100
    both_themes(tab, "picture", "drawn")


def test_a_breakpoint_is_stepped_and_gone_on_from_in_jupyters_box(tab):
    tab.run_cell("stops")
    tab.wait_for_output("stops", "[rank 2] (Pdb)", LONG_S)
    assert re.search(r"> cell In\[\d+\]\(5\)<module>", tab.output_text("stops"))
    tab.types("stops", "p total * 1000")
    tab.wait_for_output("stops", "20000")
    tab.screenshot("ranks at a breakpoint", tab.output("stops"))
    tab.types("stops", "n")
    tab.types("stops", "c")
    tab.wait_for_output("stops", "4 ranks ·", LONG_S)
    assert tab.rows("stops") == ["1", "11", "21", "31"]


def test_after_a_failure_the_rank_that_failed_is_looked_at(tab):
    tab.run("fails", "rank 1 of 4 failed first: KeyError")
    both_themes(tab, "failure", "fails")
    tab.run_cell("debug")
    tab.wait_for_output("debug", "[rank 1] (Pdb)", LONG_S)
    tab.types("debug", "p secret * 1000 + batch")
    tab.wait_for_output("debug", "21003")
    tab.types("debug", "q")
    tab.idle()
    tab.screenshot("ranks debug", tab.output("debug"))


def test_a_table_of_differences_can_be_read(tab):
    tab.run("net", "4 ranks ·")
    tab.run("differ", "the first is 0.weight")
    heads = tab.output("differ").locator("thead th").all_inner_texts()
    assert heads == ["tensor", "shape", "dtype", "device", "rank 0", "rank 1", "rank 2", "rank 3"]
    both_themes(tab, "differ", "differ")


def test_after_a_reload_the_outputs_are_there_and_the_ranks_can_be_used(tab):
    tab.save()
    tab.open(tab.page.url)
    assert tab.is_trusted() and tab.tabs("drawn").count() == 4
    tab.tabs("drawn").nth(3).click()
    assert tab.output("drawn").locator("img:visible").count() == 1
    assert tab.output("bar").locator("pre").all_inner_texts() == ["100%|##########\n"]
    tab.run("kept", "4 ranks ·")
    assert tab.rows("kept")[3] == "300" and re.search(r"\[\d+\]:", tab.prompt("kept"))


def test_output_streams_from_sixteen_ranks_while_the_cell_runs(tab, server):
    streams(tab, server, 16)
    last = tab.tabs("streams-16").last
    last.click()
    assert "rank 15 is done" in tab.panel("streams-16")
