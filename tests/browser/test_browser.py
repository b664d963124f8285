"""Lab 06 in JupyterLab, as a student works: run it all, step, interrupt, save, restart, reopen; and from the disk.

The file from the disk is nbconvert's HTML, read with no network.
"""

import shutil
from pathlib import Path

import pytest

from tests.support.lab06 import ADDED, LONG, outputs, write
from tests.support.lab_page import LabTab, Tab
from tests.support.lab_server import LabServer
from tests.support.step_through import StepThrough, cells_that_show_nothing, live_hosts, missing_pictures
from worldsize.course.opening import FIRST_LAYOUT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SOAK = pytest.mark.soak
RUN_S = 500
OUTPUT = ".jp-OutputArea-output"
ERRORS = ", ".join(f"{OUTPUT}[data-mime-type='application/vnd.jupyter.{kind}']" for kind in ("error", "stderr"))
COMPLAINTS = ("Error displaying widget", "Javascript Error", "Traceback")


def wrong(tab: LabTab) -> list[str]:
    """What a page says where something failed."""
    seen = tab.page.locator(".jp-Notebook").inner_text()
    return tab.page.locator(ERRORS).all_inner_texts() + [words for words in COMPLAINTS if words in seen]


def test_a_run_from_top_to_bottom_shows_no_error(ran):
    assert wrong(ran.tab) == []


def test_every_output_shows_something(ran):
    assert cells_that_show_nothing(ran.tab.page) == []


def test_every_figure_shows(ran):
    assert missing_pictures(ran.tab.page, OUTPUT) == []


def test_the_live_view_moved_on_every_rank(ran):
    assert {rank: count >= 2 for rank, count in ran.seen_cards.items() if int(rank) < 4} == {
        str(r): True for r in range(4)
    }


def test_a_picture_and_a_table_take_the_live_views_place(ran):
    cell = ran.tab.cell("browser-live")
    assert cell.query_selector(".ws-live") is None
    assert cell.query_selector("img[alt]") and len(cell.query_selector_all("tbody tr")) == 4


def test_a_prediction_is_shown_once(ran):
    assert len(ran.tab.page.get_by_text("saved: 350 MB").filter(visible=True).all()) == 1


def test_a_knob_draws_its_figure_anew(ran):
    alts = [image.get_attribute("alt") for image in ran.tab.page.locator(f"{OUTPUT} img").all()]
    assert [alt for alt in alts if "3 ranks" in alt] != []
    panels = ran.tab.page.locator(".jp-CodeCell", has=ran.tab.page.get_by_label("ranks", exact=True))
    ran.tab.screenshot("knobs", panels)


def test_the_step_throughs_come_alive(ran):
    assert live_hosts(ran.tab.page) == [True, True]


def test_the_ring_is_stepped_through_by_keyboard(ran):
    ring = StepThrough(ran.tab.page, 1)
    ring.focus()
    assert ring.press("Home").startswith("Before step 1 of 6")
    assert ring.press("ArrowRight").startswith("Step 1 of 6")
    assert ring.press("ArrowRight").startswith("Step 2 of 6")
    assert ring.press("ArrowLeft").startswith("Step 1 of 6")
    assert ring.press("End").endswith("16 of 16 cells hold the whole sum.")


def test_each_step_of_the_ring_draws_its_messages_and_fills_cells(ran):
    ring = StepThrough(ran.tab.page, 1)
    ring.focus()
    ring.press("Home")
    filled = [ring.filled_cells()]
    for _ in range(6):
        ring.press("ArrowRight")
        assert ring.arrows() == 4
        filled.append(ring.filled_cells())
    assert filled[0] == 16 and filled[-1] == 64 and sorted(filled) == filled


def test_arrow_keys_in_a_step_through_leave_the_notebook_where_it_is(ran):
    tab, ring = ran.tab, StepThrough(ran.tab.page, 1)
    ring.focus()
    active = "() => window.jupyterapp.shell.currentWidget.content.activeCellIndex"
    before = tab.page.evaluate(active)
    for key in ("ArrowDown", "ArrowUp", "ArrowRight", "End"):
        ring.press(key)
    assert tab.page.evaluate(active) == before


def test_play_goes_to_the_end_by_itself(ran):
    star = StepThrough(ran.tab.page, 0)
    star.focus()
    star.press("End")
    star.press("ArrowLeft")
    star.host.get_by_role("button", name="Play").click()
    assert star.number() == star.last()
    star.host.get_by_role("button", name="Play").wait_for()


def test_of_a_live_view_the_saved_notebook_holds_the_picture_the_table_and_the_buttons_of_its_run(ran):
    kinds = [sorted(output["data"]) for output in outputs(ran.path, "browser-live") if "data" in output]
    buttons = ["application/vnd.jupyter.widget-view+json", "text/html", "text/plain"]
    assert kinds == [["text/html", "text/plain"], buttons, ["text/html", "text/plain"]]  # the last: what stays of a widget


@pytest.mark.parametrize("theme", ["JupyterLab Dark", pytest.param("JupyterLab Light", marks=SOAK)])
def test_the_step_throughs_can_be_read_in_both_themes(ran, theme):
    ran.tab.theme(theme)
    for index, name in enumerate(("star", "ring")):
        shown = StepThrough(ran.tab.page, index)
        shown.focus()
        shown.press("Home")
        shown.press("ArrowRight")
        ran.tab.screenshot(f"{name} {theme}", shown.host)
        assert shown.least_contrast() >= 4.5
    ran.tab.theme("JupyterLab Light")


@SOAK
def test_the_stop_button_ends_a_long_launch_and_the_kernel_answers(ran, another_tab):
    path = ran.server.work / "stop.ipynb"
    write(path, {"browser-long": LONG, "browser-after": "print('the kernel answers', 6 * 7)"}, labs_cells=3)
    tab = another_tab(ran.server.notebook_url(path.name))
    for cell in tab.code_cells()[:3]:
        tab.run_cell(cell)
    tab.run_cell("browser-long")
    tab.page.wait_for_selector(".ws-live .ws-card[data-rank='1'][data-lines='1']")
    tab.screenshot("live view")
    tab.page.get_by_role("button", name="Interrupt the kernel").click()
    tab.wait_for_output("browser-long", "Interrupted")
    tab.run_cell("browser-after")
    tab.wait_for_output("browser-after", "the kernel answers 42")
    assert tab.errors == [] and tab.page.locator(".ws-live").count() == 0


@SOAK
def test_after_a_restart_and_a_reopening_every_figure_shows_and_steps(ran, another_tab):
    ran.tab.restart_kernel()
    tab = another_tab(ran.server.notebook_url(ran.path.name))
    tab.widgets_settled()
    assert (wrong(tab), cells_that_show_nothing(tab.page), missing_pictures(tab.page, OUTPUT)) == ([], [], [])
    assert len(tab.page.get_by_text("you said 350 MB").filter(visible=True).all()) == 1
    assert len(tab.page.get_by_text("ranks = 3").filter(visible=True).all()) == 1
    ring = StepThrough(tab.page, 1)
    ring.focus()
    ring.press("Home")
    assert ring.press("ArrowRight").startswith("Step 1 of 6")
    tab.screenshot("reopened")


@SOAK
def test_untrusted_every_figure_shows_and_no_script_runs(ran, another_tab):
    path = ran.server.work / "untrusted.ipynb"
    path.write_text(ran.path.read_text().replace("Where the bytes go", "Where bytes go"))
    tab = another_tab(ran.server.notebook_url(path.name))
    tab.widgets_settled()
    assert not tab.is_trusted()
    assert (wrong(tab), cells_that_show_nothing(tab.page), missing_pictures(tab.page, OUTPUT)) == ([], [], [])
    assert not any(live_hosts(tab.page))
    tab.page.locator(f"{OUTPUT} img").nth(2).scroll_into_view_if_needed()
    tab.screenshot("untrusted")


@SOAK
def test_in_notebook_7_the_live_view_moves_and_its_picture_stays(ran, context):
    path = ran.server.work / "seven.ipynb"
    write(path, {id: ADDED[id] for id in ("browser-live", "browser-after")}, labs_cells=3)
    tab = LabTab(context)
    tab.open(ran.server.notebook_7_url(path.name))
    tab.watch_live_views()
    tab.run_all(RUN_S)
    moved = tab.seen_cards()
    assert wrong(tab) == [] and missing_pictures(tab.page, OUTPUT) == []
    assert len(moved) == 4 and min(moved.values()) >= 2
    assert tab.cell("browser-live").query_selector(".ws-live") is None
    tab.screenshot("notebook 7")
    tab.page.close()
    assert tab.elsewhere == []  # page errors it has some of its own: it asks for settings and commands of Lab's


@SOAK
def test_a_course_that_is_opened_for_the_first_time_shows_the_labs_contents_beside_it(browser, tmp_path):
    with LabServer(tmp_path) as server:
        write(server.work / "ring.ipynb", {}, labs_cells=3)
        layouts = Path(server.environment()["JUPYTERLAB_WORKSPACES_DIR"])
        layouts.mkdir()
        shutil.copy(FIRST_LAYOUT, layouts)
        tab = LabTab(browser.new_context(viewport={"width": 1280, "height": 720}))
        tab.open(server.notebook_url("ring.ipynb").removesuffix("&reset"))
        tab.page.locator(".jp-TableOfContents").wait_for()
        assert not tab.page.locator(".jp-FileBrowser").is_visible()
        tab.page.context.close()


def test_no_request_left_this_machine(ran):
    assert ran.tab.elsewhere == []


def test_no_page_had_an_error(ran):
    assert ran.tab.errors == []


# from the disk


@pytest.fixture
def page_on_disk(plain_tab: Tab, exported) -> Tab:
    plain_tab.page.route("http*://**", lambda route: route.abort())
    plain_tab.page.goto(f"file://{exported[0]}")
    return plain_tab


def test_nbconvert_finds_alternative_text_everywhere(exported):
    assert "Alternative text is missing" not in exported[1]


def test_every_figure_shows_offline(page_on_disk):
    assert missing_pictures(page_on_disk.page, ".jp-OutputArea-output") == []


def test_no_output_is_empty_offline(page_on_disk):
    assert cells_that_show_nothing(page_on_disk.page) == []


def test_the_step_throughs_work_offline(page_on_disk):
    assert live_hosts(page_on_disk.page) == [True, True]
    ring = StepThrough(page_on_disk.page, 1)
    ring.focus()
    assert ring.press("End").startswith("Step 6 of 6")
    page_on_disk.screenshot("offline")


def test_without_scripts_the_pictures_show(browser, exported):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"file://{exported[0]}")
    assert all(box is not None and box["height"] > 100 for box in (
        page.locator(".ws-steps img").nth(index).bounding_box() for index in range(2)
    ))  # fmt: skip
    context.close()
