"""A page that is reloaded while its kernel lives: knobs and predictions go on; and what stays when the kernel is gone."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.support.lab_page import LabTab

pytestmark = [pytest.mark.browser, pytest.mark.soak, pytest.mark.timeout(200)]

TURNED = """\
from worldsize.figures.base import notice
from worldsize.lab.knobs import knobs

def race(ranks=2):
    return notice(f"a race of {ranks} ranks")

knobs(race, ranks=[2, 3, 4])"""
ASKED = """\
from worldsize.lab.lab import Lab

lab = Lab("06")
lab.predict("ring", "How many `ms` does the ring take?", "ms")"""
MEASURED = 'lab.measure("ring", 5)'
RUN_S = 60


@pytest.fixture
def tab(context, server, request):
    path = server.work / f"{request.node.name}.ipynb"
    sources = {"turned": TURNED, "asked": ASKED, "measured": MEASURED}
    own = f'"{request.node.name}"'  # a question of its own: the lab keeps predictions
    cells = [new_code_cell(source.replace('"ring"', own), id=id) for id, source in sources.items()]
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}), path)
    opened = LabTab(context)
    opened.open(server.notebook_url(path.name))
    opened.run_all(RUN_S)
    opened.widgets_settled()
    yield opened
    opened.page.close()
    assert (opened.elsewhere, opened.errors) == ([], [])


def reload(tab: LabTab) -> None:
    """As by the browser's button; the server keeps the kernel, and restored widgets come from it."""
    tab.save()
    tab.open(tab.page.url)
    tab.widgets_settled()


def pictures(tab: LabTab) -> list[str]:
    """The alternative texts of the pictures that can be seen."""
    shown = tab.page.locator(".jp-OutputArea-output img[alt], .jp-OutputArea-output svg[aria-label]")
    seen = [one for one in shown.all() if one.is_visible()]
    return [one.get_attribute("alt") or one.get_attribute("aria-label") for one in seen]


def predict(tab: LabTab, text: str, said: str) -> None:
    box = tab.page.get_by_label("How many ms does the ring take?")
    box.fill(text)
    box.press("Enter")
    tab.page.get_by_text(said).filter(visible=True).wait_for()


def test_after_a_reload_a_knob_changes_picture_and_caption(tab):
    tab.turn_knob("ranks", "3")
    reload(tab)
    assert pictures(tab) == ["a race of 3 ranks"]
    tab.turn_knob("ranks", "4")
    assert pictures(tab) == ["a race of 4 ranks"]
    assert tab.page.get_by_text(re.compile("drawn with ranks = 4")).is_visible()


def test_after_a_reload_a_prediction_is_kept_and_can_be_changed(tab):
    predict(tab, "20", "saved: 20 ms")
    tab.screenshot("prediction card", tab.page.locator(".worldsize-prediction"))
    reload(tab)
    assert tab.page.get_by_text("saved: 20 ms").filter(visible=True).count() == 1
    predict(tab, "0.03 s", "saved: 30 ms")
    assert tab.page.get_by_text("saved: 20 ms").filter(visible=True).count() == 0


FOCUSED = """() => {
  const [cell, active] = [document.querySelector(".jp-Cell.jp-mod-active"), document.activeElement];
  const at = [...document.querySelectorAll(".jp-Cell")].indexOf(cell);
  return [at, active.matches("input") ? "field" : active.closest(".cm-editor") ? "editor" : "notebook"];
}"""


def focused(tab: LabTab, cell: int, where: str) -> None:
    """Wait until this cell is selected and the focus is there: in a "field", an "editor", or the "notebook" (command mode)."""
    tab.page.wait_for_function(f"({FOCUSED})().join() === '{cell},{where}'")


def test_by_the_keyboard_alone_one_predicts_and_goes_on(tab):
    tab.restart_kernel()
    tab.command("notebook:move-cursor-up")
    tab.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    tab.page.locator(".jp-Notebook").first.focus()
    tab.page.keyboard.press("Shift+Enter")
    tab.page.wait_for_function("() => document.activeElement.matches('.worldsize-prediction input')")
    tab.page.keyboard.type("many")
    tab.page.keyboard.press("Enter")
    tab.page.get_by_text("not saved").filter(visible=True).wait_for()
    assert tab.page.evaluate("document.activeElement.matches('.worldsize-prediction input')")
    for _ in "many":
        tab.page.keyboard.press("Backspace")
    tab.page.keyboard.type("20")
    tab.page.keyboard.press("Enter")
    focused(tab, 2, "notebook")
    tab.page.keyboard.press("Shift+Enter")
    tab.page.get_by_text("4 times too high").filter(visible=True).first.wait_for()


def test_a_measurement_is_covered_until_it_is_asked_for(tab):
    card = tab.page.locator(".worldsize-prediction")
    assert card.get_by_text("it was 5 ms").count() == 0
    tab.screenshot("covered prediction", card)
    card.get_by_role("button", name="Show me").click()
    card.get_by_text("it was 5 ms").wait_for()


def test_without_a_kernel_the_saved_notebook_shows_the_last_picture_and_prediction(tab):
    tab.turn_knob("ranks", "3")
    predict(tab, "20", "saved: 20 ms")
    tab.save()
    tab.restart_kernel()
    reload(tab)
    assert pictures(tab) == ["a race of 3 ranks"]
    assert tab.page.get_by_text("with ranks = 3; run this cell for the controls").is_visible()
    assert tab.page.get_by_text("it was 5 ms · 4 times too high; run this cell").filter(visible=True).count() == 1


def test_a_prediction_is_answered_in_its_field_with_how_far_off_it_was(tab):
    predict(tab, "20", "saved: 20 ms")
    answer = tab.page.locator(".worldsize-prediction").get_by_text("you said 20 ms · it was 5 ms · 4 times too high")
    answer.wait_for()
    tab.screenshot("answered prediction", tab.page.locator(".worldsize-prediction"))
    assert tab.page.locator(".worldsize-prediction svg[aria-label='4 times too high']").is_visible()


def test_after_a_restart_a_field_says_to_run_its_cell_again_and_takes_no_number(tab):
    predict(tab, "20", "saved: 20 ms")
    tab.restart_kernel()
    card = tab.page.locator(".worldsize-prediction.jupyter-widgets-disconnected")
    card.wait_for()
    tab.screenshot("prediction without a kernel", card)
    before = card.evaluate("one => getComputedStyle(one, '::before').content")
    assert "The kernel was restarted. Run this cell again" in before
    assert tab.page.get_by_text("How many ms does the ring take?").filter(visible=True).count() >= 1
    assert [one for one in card.locator("input").all() if one.is_visible()] == []
    assert tab.page.get_by_text("saved: 20 ms").filter(visible=True).count() == 0
    inside = card.locator(".jupyter-widgets-disconnected")
    marks = inside.evaluate_all("all => all.map(one => getComputedStyle(one, '::before').display)")
    assert set(marks) <= {"none"}
