"""The script of a lab's page in a browser: questions, covers, long code, optional parts, knobs. On a page of a few cells."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.lab_page import chromium
from worldsize.authoring.site.questions import Question
from worldsize.figures.base import notice
from worldsize.lab import knob_positions
from worldsize.lab.summary import SummaryRow

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

SOAK = pytest.mark.soak
ADDRESS = "http://course.test/06_ring.html"  # answered by the test itself
STATIC = Path(__file__).resolve().parents[2] / "docs" / "site" / "_static"
PAIRS = [(3, 0.51), (0.5, 0.51), (0.3, 0.51), (0.51, 0.51), (1234, 98), (0, 3), (-2, -3), (-1, 1), (2e6, 3e7), (1000, 2.5)]


def cell(code: str, output: str = "", tag: str = "") -> str:
    shown = f'<div class="cell_output container"><div class="output">{output}</div></div>' if output else ""
    return f'<div class="cell container {tag}"><div class="cell_input container"><pre>{code}</pre></div>{shown}</div>'


def page_of(*parts: str) -> str:
    style, script = (
        (STATIC / f"worldsize.{kind}").read_text(encoding="utf-8").replace("</", "<\\/") for kind in ("css", "js")
    )
    body = f'<main><article class="bd-article"><section><h1>Lab 06</h1>{"".join(parts)}</section></article></main>'
    return f"<!doctype html><meta charset=utf-8><style>{style}</style>{body}<script>{script}</script>"


def asked(measured: str = "0.51 s") -> str:
    question = Question("How long?", 0, measured, (1,))
    return question.html(0) + cell("lab.measure(…)", "what the run showed", "tag_answers-0")


def knobs_of_two() -> str:
    def draw(ranks: int = 2) -> Any:
        return notice(f"{ranks} ranks")

    kept = knob_positions.bundle(draw(), draw, {"ranks": [2, 4]}, {"ranks": 2}, str, "in simulated time")
    return cell("knobs(…)", kept["text/html"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page of some parts; nothing else may be asked for, and no error may come."""
    contexts, said = [], []

    def opened(*parts: str, **settings: Any) -> Page:
        context = browser.new_context(**settings)
        contexts.append(context)
        context.route("**/*", lambda route: route.fulfill(body=page_of(*parts), content_type="text/html"))
        page = context.new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if not request.url.startswith(ADDRESS) else None)
        page.goto(ADDRESS)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert said == []


def guess(page: Page, text: str) -> str:
    """What the page says of a guess."""
    page.get_by_role("textbox").fill(text)
    page.get_by_role("button", name="Guess").click()
    return page.locator(".ws-field [role=status]").inner_text()


def is_covered(page: Page) -> bool:
    return not page.get_by_text("what the run showed", exact=True).is_visible()


def test_what_answers_a_question_is_covered_until_the_reader_guesses(open_page):
    page = open_page(asked())
    covered = is_covered(page)
    assert guess(page, "3") == "you said 3 s · it was 0.51 s · 5.9 times too high"
    assert (covered, is_covered(page)) == (True, False)


@SOAK
@pytest.mark.parametrize("unit", ["s", "%"])
def test_a_page_says_how_far_off_a_guess_is_in_the_words_of_the_notebook(open_page, unit):
    said, told = [], []
    for predicted, measured in PAIRS:
        row = SummaryRow("took", "How long?", unit, predicted, measured, unit)
        told.append(row.answer)
        said.append(guess(open_page(asked(row.measured_text)), str(predicted)))
    assert said == told


@SOAK
@pytest.mark.parametrize("text", ["0,51", "0.51 s", "51/100", "5.1e-1"])
def test_a_guess_may_be_written_in_several_ways(open_page, text):
    assert guess(open_page(asked()), text).endswith("exactly")


@SOAK
@pytest.mark.parametrize("text", ["", "soon", "1/2/3"])
def test_what_is_no_number_opens_nothing(open_page, text):
    page = open_page(asked())
    assert guess(page, text) == "Type a number, such as 0.25, 1/3 or 2e3." and is_covered(page)


@SOAK
def test_show_me_opens_without_a_guess(open_page):
    page = open_page(asked())
    page.locator(".ws-cover").get_by_role("button", name="Show me").click()
    assert not is_covered(page)
    assert page.locator(".ws-field [role=status]").inner_text() == "it was 0.51 s"


def test_one_line_covers_a_question_and_what_follows_says_where_it_opens(open_page):
    later = cell("last_run().show()", "what follows", "tag_answers-0")
    page = open_page(asked(), "<p>prose</p>", later)
    assert page.locator(".ws-cover button").count() == 1
    assert page.locator(".ws-later").inner_text() == "Shown with your guess above."
    page.locator(".ws-later a").click()
    assert page.evaluate("document.querySelector(location.hash).textContent") == "How long?"
    guess(page, "3")
    assert page.get_by_text("what follows").is_visible() and page.locator(".ws-cover").count() == 0


@SOAK
def test_an_answer_is_said_by_its_field_and_not_again_by_what_was_printed(open_page):
    printed = '<div class="output stream"><pre><span></span>[rank 0] hello\nHow long?\n  it was 0.51 s\nand more\n</pre></div>'
    alone = printed.replace("[rank 0] hello\n", "").replace("and more\n", "")
    question = Question("How long?", 0, "0.51 s", (1,)).html(0)
    page = open_page(question + cell("a", printed, "tag_answers-0") + cell("b", alone, "tag_answers-0"))
    guess(page, "3")
    assert page.locator(".output.stream").all_inner_texts() == ["[rank 0] hello\nand more\n"]


@SOAK
def test_a_guess_outlives_a_reload_and_can_be_taken_back(open_page):
    page = open_page(asked())
    said = guess(page, "3")
    page.reload()
    assert page.locator(".ws-field [role=status]").inner_text() == said
    page.get_by_role("button", name="Ask me again").click()
    page.reload()
    assert is_covered(page)


@SOAK
def test_where_the_lab_sums_up_the_page_says_what_was_guessed(open_page):
    page = open_page(asked(), cell("lab.summary()", '<div class="ws-guesses"></div>'))
    before = page.locator(".ws-guesses").inner_text()
    guess(page, "0.51")
    assert before == "You have opened the answers to 0 of 1 questions of this page."
    assert page.locator(".ws-guesses li").all_inner_texts() == ["How long? you said 0.51 s · it was 0.51 s · exactly"]


@SOAK
def test_without_a_script_all_is_open(open_page):
    long = cell("\n".join(f"line {number}" for number in range(30)))
    part = "<section><h2>More (optional)</h2><p>inside</p></section>"
    page = open_page(asked(), long, part, java_script_enabled=False)
    assert not is_covered(page) and page.get_by_text("How long?").is_visible()
    assert page.get_by_text("inside").is_visible() and page.get_by_text("line 29").is_visible()
    assert page.locator("button, input").count() == 0


@SOAK
def test_long_code_is_folded_until_the_reader_wants_it(open_page):
    page = open_page(cell("\n".join(f"line {number}" for number in range(30))))
    code = page.locator(".cell_input pre")
    folded = not code.is_visible()
    page.get_by_role("button", name="The code, 30 lines").click()
    assert folded and code.evaluate("code => code.clientHeight === code.scrollHeight")
    page.get_by_role("button", name="Fold the code").click()
    assert not code.is_visible()


@SOAK
def test_an_optional_part_is_folded_and_a_link_into_it_opens_it(open_page):
    part = '<section id="more"><h2>More (optional)</h2><p id="deep">inside</p></section><a href="#deep">there</a>'
    page = open_page(part)
    folded = not page.get_by_text("inside").is_visible()
    page.get_by_role("link", name="there").click()
    page.get_by_role("button", name="Fold this part").wait_for()
    assert folded and page.get_by_text("inside").is_visible()


@SOAK
def test_the_arrow_keys_move_a_knob_to_the_picture_drawn_for_it(open_page):
    page = open_page(knobs_of_two())
    page.get_by_role("slider", name="ranks").press("ArrowRight")
    page.get_by_role("img", name="4 ranks").wait_for()
    assert page.locator(".ws-panel output").inner_text() == "4"
    assert page.locator(".ws-panel [role=status]").inner_text().startswith("Computed in simulated time")
