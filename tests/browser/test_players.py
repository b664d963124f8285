"""The replay and the step-through in a browser: played, scrubbed, by keyboard, narrow and wide, light and dark.

On pages of their own, in JupyterLab after a reload, and with motion reduced.
"""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.support.contrast import least_contrast
from tests.support.lab_page import Tab
from tests.support.replay import ReplayView
from tests.support.step_through import StepThrough
from worldsize import figures
from worldsize.trace import Span, Trace, Transfer

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

SOAK = pytest.mark.soak
SERVER = Trace(4, tuple(Transfer(0, r, 4000, 0.0, 0.04 * r) for r in range(1, 4)))
RING = Trace(
    4,
    tuple(Transfer(r, (r + 1) % 4, 1000, 0.01 * k, 0.01 * (k + 1)) for k in range(6) for r in range(4)),
    (Span(0, "compute", 0.0, 0.02, "forward 0"), Span(1, "compute", 0.02, 0.04, "backward 0")),
)
RACE = {"star": SERVER, "ring": RING}
STAR = Trace(8, tuple(Transfer(0, r, 1000, 0.0, 0.1 * r) for r in range(1, 8)))
WIDTHS = (1440, 1100, 700, 350)
GROUNDS = {"true": "#ffffff", "false": "#111111"}
# the size of every text of a picture on the screen, in pixels
TEXT_SIZES = """(host) => [...host.shadowRoot.querySelectorAll("svg text, .track span, p, h3")]
  .filter((text) => text.textContent && text.getBoundingClientRect().width)
  .map((text) => parseFloat(getComputedStyle(text).fontSize) * (text.getScreenCTM?.().a ?? 1))"""
ACTIVE_CELL = "() => window.jupyterapp.shell.currentWidget.content.activeCellIndex"
SHUT_DOWN = "() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()"
SIDEWAYS = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"

KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}  # else Lab asks for one
CELL = """\
from worldsize import figures
from worldsize.trace import Trace, Transfer
figures.replay({
    "star": Trace(3, (Transfer(0, 1, 4000, 0.0, 0.1), Transfer(0, 2, 4000, 0.0, 0.2))),
    "chain": Trace(3, (Transfer(0, 1, 4000, 0.0, 0.1), Transfer(1, 2, 4000, 0.1, 0.15))),
})"""


def page_of(shown, light="true"):
    """A page of its own, in a theme that says what Lab's pages say."""
    style = f"body {{ margin: 20px; background: {GROUNDS[light]}; --jp-layout-color0: {GROUNDS[light]}; }}"
    body = f'<body data-jp-theme-light="{light}">{shown._repr_html_()}</body>'
    return f"<!doctype html><meta charset=utf-8><style>{style}</style>{body}"


@pytest.fixture
def race(plain_tab: Tab):
    plain_tab.page.set_viewport_size({"width": 1100, "height": 900})
    plain_tab.page.set_content(page_of(figures.replay(RACE)))
    yield ReplayView(plain_tab.page)
    assert (plain_tab.errors, plain_tab.elsewhere) == ([], [])


# the replay


def test_a_race_waits_at_its_first_frame_with_something_in_every_run_and_says_what_is_true_of_it(race):
    assert (race.frame(), race.arrived_bytes(), race.packets()) == (race.last() // 6, [0, 8000], 7)
    assert race.said().startswith("At 20 ms: star: 0 B of 12 kB arrived, 0 of 3 messages; ring: 8 kB of 24 kB arrived")


def test_a_race_plays_to_its_end_and_has_counted_every_byte(race):
    race.play_to_the_end()
    assert race.arrived_bytes() == [SERVER.total_bytes(), RING.total_bytes()]
    assert race.title() == "Ring ends first, after 60 ms; star takes 2 times as long"


@SOAK
def test_while_a_race_plays_the_caption_says_the_moment_that_the_clock_shows(race):
    race.speed.select_option(index=0)
    race.host.get_by_role("button", name="Play").click()
    moved = "(host) => host.shadowRoot.querySelector('input').value > 400"
    race.host.page.wait_for_function(moved, arg=race.host.element_handle())
    caption, clock, live = race.host.evaluate(
        "({ shadowRoot: view }) => [view.querySelector('.said'), view.querySelector('.clock')].map((one) => one.textContent)"
        ".concat(view.querySelector('.said').getAttribute('aria-live'))"
    )
    assert caption.startswith(f"At {clock.partition(' of ')[0]}: star: ") and live == "off"


def test_the_question_of_a_race_is_answered_when_the_first_run_is_over_and_in_full_at_the_end(race):
    titles = []
    for share in (0.49, 0.51, 0.99, 1):  # the ring is over at half of the clock
        race.slider.fill(str(round(share * race.last())))
        titles.append(race.title())
    known = "Ring ends first, after 60 ms"
    assert titles == ["Which ends first: star or ring?", known, known, f"{known}; star takes 2 times as long"]


def test_what_a_race_says_at_a_moment_is_for_screen_readers_alone(race):
    box = race.host.locator(".said").bounding_box()
    assert box["width"] <= 1 and box["height"] <= 1 and "star" in race.said()


@SOAK
def test_a_race_is_scrubbed_by_its_slider(race):
    race.slider.fill(str(round(0.4 * race.last())))
    assert race.arrived_bytes() == [4000, 16_000] and race.packets() == 6


def test_a_race_is_moved_by_keyboard(race):
    race.focus()
    opened = race.frame()
    race.press("ArrowRight")
    assert race.frame() == opened + race.last() // 50
    assert race.press("End").startswith("At 120 ms: star: 12 kB of 12 kB arrived, 3 of 3 messages, done at 120 ms")
    assert race.press("Home").startswith("At 0 ms: star: 0 B of 12 kB arrived")
    race.press("ArrowRight")
    assert race.frame() == race.last() / 50
    race.press("ArrowLeft")
    assert race.frame() == 0


@SOAK
def test_the_space_bar_plays_and_pauses_a_race(race):
    race.focus()
    race.press("Space")
    race.host.get_by_role("button", name="Pause").wait_for()
    race.press("Space")
    race.host.get_by_role("button", name="Play").wait_for()


@SOAK
def test_restart_plays_from_the_beginning(race):
    race.focus()
    race.press("End")
    race.host.get_by_role("button", name="Restart").click()
    race.host.get_by_role("button", name="Pause").wait_for()
    assert race.frame() < race.last()


@SOAK
def test_with_motion_reduced_a_race_goes_in_steps(browser):
    context = browser.new_context(reduced_motion="reduce")  # of its own: a clock that is held is held for all of its pages
    page = context.new_page()
    page.set_content(page_of(figures.replay(RACE)))
    race = ReplayView(page)
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    race.host.get_by_role("button", name="Play").click()
    page.clock.run_for(899)
    assert race.frame() == 0
    page.clock.run_for(901)
    assert race.frame() == 2 * race.last() / 16
    assert race.said().startswith("At 15 ms: star: 0 B of 12 kB arrived")  # what is written follows the film as it plays
    context.close()


@pytest.mark.parametrize("light", ["true", pytest.param("false", marks=SOAK)])
def test_a_race_can_be_read_in_both_themes(plain_tab, light):
    plain_tab.page.set_content(page_of(figures.replay(RACE), light))
    shown = ReplayView(plain_tab.page)
    shown.focus()
    shown.press("End")
    plain_tab.screenshot(f"race {light}", shown.host)
    assert least_contrast(shown.host) >= 4.5


@SOAK
def test_a_race_has_no_small_text_and_fits_the_page(plain_tab):
    found = {}
    for width in WIDTHS:
        plain_tab.page.set_viewport_size({"width": width, "height": 900})
        plain_tab.page.set_content(page_of(figures.replay(RACE)))
        smallest = min(ReplayView(plain_tab.page).host.evaluate(TEXT_SIZES))
        found[width] = (smallest >= 11, plain_tab.page.evaluate(SIDEWAYS) <= 0)
    assert found == dict.fromkeys(WIDTHS, (True, True))


@SOAK
def test_in_lab_a_race_is_played_once_reopened_by_a_kernel_that_knows_nothing_of_it(server, another_tab):
    path = server.work / "race.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(CELL, id="race")], metadata=KERNEL), path)
    first = another_tab(server.notebook_url(path.name))
    first.run_all(60)
    first.save()
    first.page.evaluate(SHUT_DOWN)

    tab = another_tab(server.notebook_url(path.name))
    shown = ReplayView(tab.page)
    shown.slider.wait_for()
    shown.focus()
    active = tab.page.evaluate(ACTIVE_CELL)
    assert shown.press("End").startswith("At 200 ms: star: 8 kB of 8 kB arrived")
    shown.press("ArrowUp")
    assert tab.page.evaluate(ACTIVE_CELL) == active
    shown.play_to_the_end()
    assert shown.arrived_bytes() == [8000, 8000]
    tab.screenshot("race in lab", shown.host)


# the step-through

OTHERS = [("star", STAR), ("pipeline", RING), ("tree", STAR)]


@pytest.mark.parametrize(("layout", "of"), [("ring", RING), *(pytest.param(*one, marks=SOAK) for one in OTHERS)])
def test_a_step_through_has_no_small_text_and_fits_the_page(plain_tab, layout, of):
    found = {}
    for width in WIDTHS:
        plain_tab.page.set_viewport_size({"width": width, "height": 900})
        plain_tab.page.set_content(page_of(figures.steps(of, layout)))
        shown = StepThrough(plain_tab.page, 0)
        shown.focus()
        shown.press("Home")
        shown.press("ArrowRight")
        found[width] = (min(shown.host.evaluate(TEXT_SIZES)) >= 11, plain_tab.page.evaluate(SIDEWAYS) <= 0)
    assert found == dict.fromkeys(WIDTHS, (True, True))


@SOAK
def test_before_the_first_step_the_tracks_of_all_messages_are_drawn(plain_tab):
    plain_tab.page.set_content(page_of(figures.steps(STAR, "star")))
    shown = StepThrough(plain_tab.page, 0)
    shown.focus()
    shown.press("Home")
    assert (shown.arrows(), shown.host.locator("path.link").count()) == (0, 7)


def test_a_step_through_with_no_chunks_to_show_opens_at_its_first_step_and_plays_from_there(plain_tab):
    plain_tab.page.set_content(page_of(figures.steps(STAR, "star")))
    shown = StepThrough(plain_tab.page, 0)
    opened = (shown.number(), shown.arrows(), shown.said())
    shown.host.get_by_role("button", name="Play").click()
    assert opened[:2] == (shown.number(), 1) and opened[2].startswith("Step 1 of 7, done at 100 ms: rank 0 sends 1 kB")


@SOAK
def test_the_focus_is_a_thin_ring_on_the_control_alone(plain_tab):
    plain_tab.page.set_content(page_of(figures.steps(STAR, "star")))
    shown = StepThrough(plain_tab.page, 0)
    plain_tab.page.keyboard.press("Tab")
    rings = shown.host.evaluate(
        """(host) => [host, ...host.shadowRoot.querySelectorAll("*")]
          .filter((one) => getComputedStyle(one).outlineStyle !== "none")
          .map((one) => [one.className, getComputedStyle(one).outlineWidth])"""
    )
    assert rings == [["play", "2px"]]


@SOAK
def test_a_step_through_that_gets_narrower_keeps_its_step(plain_tab):
    plain_tab.page.set_viewport_size({"width": 1100, "height": 900})
    plain_tab.page.set_content(page_of(figures.steps(STAR, "star")))
    shown = StepThrough(plain_tab.page, 0)
    shown.focus()
    shown.press("Home")
    said = shown.press("ArrowRight")
    plain_tab.page.set_viewport_size({"width": 520, "height": 900})
    shown.host.locator("svg[viewBox^='0 0 460 ']").wait_for()
    assert (shown.said(), shown.arrows()) == (said, 1)
