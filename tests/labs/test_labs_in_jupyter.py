"""Every lab in JupyterLab and in Notebook 7, light and dark, wide and narrow: executed before, or run there and reloaded."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab_page import LabTab, Tab, chromium
from tests.support.lab_server import LabServer
from tests.support.notebook_runs import RUN_TIMEOUT_S, SOURCES, Execute, built, each_run
from tests.support.step_through import missing_pictures

pytestmark = [pytest.mark.browser, pytest.mark.soak, pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)]

every_lab = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
WIDTHS_PX = [1440, 1100, 700]
NOTEBOOK = ".jp-Notebook"
# Outputs that are wider than their cell, and cannot be scrolled.
WIDE = """() => [...document.querySelectorAll(".jp-OutputArea-output .worldsize-picture svg, .jp-OutputArea-output img")]
  .filter((picture) => picture.getBoundingClientRect().width > picture.closest(".jp-OutputArea-output").clientWidth + 2)
  .map((picture) => picture.getAttribute("aria-label") || picture.alt)"""
# The first words of each picture, in the colour in which they are seen, and the ground of the page.
INKS = """() => [...document.querySelectorAll(".worldsize-picture svg")]
  .map((svg) => svg.querySelector("text")).filter(Boolean).map((text) => getComputedStyle(text).fill)"""
PICTURES = """() => document.querySelectorAll(".jp-OutputArea-output .worldsize-picture").length"""
ERRORS = ".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']"
SHUT_DOWN = "() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()"
IS_THEME = "(light) => document.body.dataset.jpThemeLight === light"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[LabServer]:
    """With the folders of the course, so that a lab finds its cover."""
    with LabServer(tmp_path_factory.mktemp("lab")) as started:
        (started.work / "solutions").mkdir()
        shutil.copytree(root / "labs" / "covers", started.work / "labs" / "covers")
        yield started


@pytest.fixture
def tab(browser: Any) -> Iterator[LabTab]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    yield LabTab(context)
    context.close()


def opened(tab: Tab, url: str) -> None:
    tab.page.goto(url)
    tab.page.wait_for_selector(f"{NOTEBOOK} .jp-Cell")
    tab.page.wait_for_function(f"() => ({PICTURES})() > 0")


@each_run("solution")
def test_an_executed_lab_shows_every_picture(source: Path, kind: str, execute: Execute, server: LabServer, tab: Tab) -> None:
    name = f"solutions/{source.stem}.ipynb"
    shutil.copy(execute(source, kind).out, server.work / name)

    opened(tab, server.notebook_url(name))  # not trusted: somebody else ran it
    assert missing_pictures(tab.page, NOTEBOOK) == []

    subprocess.run([sys.executable, "-m", "jupyter", "trust", name], cwd=server.work, env=server.environment(), check=True)
    for url in (server.notebook_url(name), server.notebook_7_url(name)):
        opened(tab, url)
        looks_right(tab)
    assert tab.elsewhere == []


@every_lab
def test_a_lab_that_is_run_shows_every_picture_and_again_after_a_reload(source: Path, server: LabServer, tab: LabTab) -> None:
    name = f"solutions/run_{source.stem}.ipynb"
    (server.work / name).write_text(built(source)[0])
    tab.open(server.notebook_url(name))
    tab.run_all(RUN_TIMEOUT_S)
    assert tab.page.locator(ERRORS).all_inner_texts() == []
    looks_right(tab)

    tab.save()
    tab.open(server.notebook_url(name))
    tab.widgets_settled()
    looks_right(tab)
    tab.page.evaluate(SHUT_DOWN)


def looks_right(tab: Tab) -> None:
    """Every picture is there at every width and in both themes, no wider than its cell, its words in the theme's ink."""
    inks = {}
    for theme, called in THEMES.items():
        tab.page.evaluate(f"() => window.jupyterapp.commands.execute('apputils:change-theme', {{theme: '{called}'}})")
        tab.page.wait_for_function(IS_THEME, arg=str(theme == "light").lower())
        inks[theme] = set(tab.page.evaluate(INKS))
        for width in WIDTHS_PX:
            tab.page.set_viewport_size({"width": width, "height": 1000})
            assert tab.page.evaluate(WIDE) == []
            assert missing_pictures(tab.page, NOTEBOOK) == []
    assert inks["light"] and inks["dark"] and not inks["light"] & inks["dark"]
