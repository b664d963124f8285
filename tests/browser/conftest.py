"""The browser, one server, and lab 06 run once: what the browser tests share.

The browser and the server are those of the whole folder, and end with it.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab06 import ADDED, write
from tests.support.lab_page import LabTab, Tab, chromium
from tests.support.lab_server import LabServer

RUN_S = 500  # a bound against a hang


@dataclass
class Ran:
    """Lab 06 after it was run from top to bottom in a browser, in a tab that is still open."""

    tab: LabTab
    server: LabServer
    path: Path
    seen_cards: dict[str, int]


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="package")
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


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    with LabServer(tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.fixture(scope="module")
def ran(context: Any, server: LabServer) -> Iterator[Ran]:
    """Lab 06's solution, small, with a cell that reports; then a prediction is typed and a knob turned."""
    path = server.work / "lab06.ipynb"
    write(path, ADDED)
    tab = LabTab(context)
    tab.open(server.notebook_url(path.name))
    tab.watch_live_views()
    tab.run_all(RUN_S)
    tab.predict("350")
    tab.turn_knob("ranks", "3")
    tab.save()
    yield Ran(tab, server, path, tab.seen_cards())
    tab.page.close()


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
        assert (tab.elsewhere, tab.errors) == ([], [])


@pytest.fixture(scope="module")
def exported(ran: Ran, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run notebook as nbconvert's HTML, and what nbconvert said."""
    out = tmp_path_factory.mktemp("html") / "lab06.html"
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output", str(out), str(ran.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return out, done.stderr
