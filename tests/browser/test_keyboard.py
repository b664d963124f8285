"""Lab 00 from its first cell to its last by the keyboard alone, as a person without a mouse goes through it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab_page import LabTab
from tests.support.lab_server import LabServer

pytestmark = [pytest.mark.browser, pytest.mark.soak, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
CELL_MS = 120_000
PANEL = "window.jupyterapp.shell.currentWidget"
IDLE = f"{PANEL}.sessionContext.session.kernel.status === 'idle'"
# where keys go: the number of the selected cell, and what has the focus
AT = f"""() => {{
  const active = document.activeElement;
  const where = active.matches("input") ? "field" : active.closest(".cm-editor") ? "editor" : "notebook";
  return [{PANEL}.content.activeCellIndex, where];
}}"""


@pytest.fixture
def tab(context: Any, server: LabServer) -> Iterator[LabTab]:
    path = server.work / "00_start_here.ipynb"
    shutil.copy(ROOT / "solutions" / path.name, path)
    opened = LabTab(context)
    opened.open(server.notebook_url(path.name))
    yield opened
    opened.page.close()
    assert (opened.elsewhere, opened.errors) == ([], [])


def run_selected(tab: LabTab, cell: int) -> None:
    """Run the selected cell by Shift+Enter, answer the question that it asks, if any, and arrive at the next cell."""
    page = tab.page
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(f"""() => {{
      const widget = {PANEL}.content.widgets[{cell}];
      if (widget.model.type !== "code") return true;
      return {IDLE} && widget.model.executionCount;
    }}""", timeout=CELL_MS)  # fmt: skip
    if "lab.predict(" in page.evaluate(f"() => {PANEL}.content.widgets[{cell}].model.sharedModel.getSource()"):
        page.wait_for_function("() => document.activeElement.matches('.worldsize-prediction input')")
        page.keyboard.type("7")
        page.keyboard.press("Enter")
    page.wait_for_function(f"""() => {{
      const [at, where] = ({AT})();
      return at === {cell + 1} && where === "notebook";
    }}""")  # fmt: skip


def test_lab_00_is_gone_through_by_the_keyboard_alone(tab: LabTab) -> None:
    count = tab.page.evaluate(f"() => {PANEL}.content.widgets.length")
    assert tab.page.evaluate(AT) == [0, "notebook"]
    for cell in range(count - 1):
        run_selected(tab, cell)
    tab.page.keyboard.press("Control+Enter")
    tab.ended(CELL_MS / 1000)
    asked = tab.page.locator(".worldsize-prediction")
    assert asked.count() >= 5
    assert tab.page.locator(".worldsize-prediction", has_text="saved: 7").count() == asked.count()
