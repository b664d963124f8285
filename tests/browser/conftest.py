"""The browser, one server, and lab 06 run once: what the browser tests share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from lab_page import LabTab, Tab, chromium
from lab_server import LabServer
from nbformat.v4 import new_code_cell

from worldsize import build

ROOT = Path(__file__).resolve().parents[2]
SMALL = "ranks = 4\nworlds = [2, 4]\nlarge_bytes = 400_000\nsmall_bytes = 1_000\nbare_bytes = 1_000_000"
RUN_S = 150
LIVE = """\
def train(seconds=2.5):
    end = time.monotonic() + seconds
    step = 0
    while time.monotonic() < end:
        step += 1
        print("step", step)
        report(step=step, loss=1 / step)
        time.sleep(0.02)
run = launch(train, 4)"""
LONG = "def sleep_long():\n    print('asleep')\n    time.sleep(1000)\nlaunch(sleep_long, 2, timeout_s=1000)"
ADDED = {"browser-live": LIVE, "browser-after": "print('the kernel answers', 6 * 7)"}


@dataclass
class Ran:
    """Lab 06 after it was run from top to bottom in a browser, in a tab that is still open."""

    tab: LabTab
    server: LabServer
    path: Path
    seen_cards: dict[str, int]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def context(browser: Any) -> Iterator[Any]:
    made = browser.new_context(viewport={"width": 1300, "height": 1000})
    yield made
    made.close()


@pytest.fixture
def plain_tab(context: Any) -> Iterator[Tab]:
    """A tab for pages that are no JupyterLab."""
    tab = Tab(context)
    yield tab
    tab.page.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    with LabServer(tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.fixture(scope="session")
def ran(context: Any, server: LabServer) -> Iterator[Ran]:
    """Lab 06's solution, small, with a cell that reports and one that follows."""
    path = server.work / "lab06.ipynb"
    write(path, ADDED)
    tab = LabTab(context)
    tab.open(server.notebook_url(path.name))
    tab.watch_live_views()
    tab.run_all(RUN_S)
    tab.save()
    yield Ran(tab, server, path, tab.seen_cards())
    tab.page.close()


def write(path: Path, added: dict[str, str], labs_cells: int | None = None) -> None:
    """Lab 06's solution with small parameters, or its first code cells, and code cells after its own."""
    notebook = nbformat.reads(build.notebooks(ROOT / "solutions" / "06_ring_all_reduce.py")[0], as_version=4)
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", ()):
            cell.source = SMALL
    if labs_cells is not None:
        notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"][:labs_cells]
    notebook.cells += [new_code_cell(source, id=id) for id, source in added.items()]
    nbformat.write(notebook, path)


@pytest.fixture
def another_tab(context: Any) -> Iterator[Callable[[str], LabTab]]:
    """Opens a notebook by its URL in a tab of its own."""
    tabs = []

    def open_tab(url: str) -> LabTab:
        tabs.append(LabTab(context))
        tabs[-1].open(url)
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        tab.page.close()


@pytest.fixture(scope="session")
def exported(ran: Ran, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run notebook as nbconvert's HTML, and what nbconvert said."""
    out = tmp_path_factory.mktemp("html") / "lab06.html"
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output", str(out), str(ran.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return out, done.stderr


def outputs(path: Path, cell: str) -> list[dict]:
    """The outputs of one cell of a notebook's file."""
    return next(c["outputs"] for c in json.loads(path.read_text())["cells"] if c["id"] == cell)
