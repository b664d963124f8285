"""Every picture of an executed lab as a page shows it: light, dark, narrow, sanitised, and for who cannot see it.

The usual run looks at the first lab; the soak at all labs in full size.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from nbconvert import HTMLExporter

from tests.support.lab_page import chromium
from tests.support.notebook_runs import RUN_TIMEOUT_S, Execute, each_run

pytestmark = [pytest.mark.browser, pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)]

FIRST = ("00",)
# one lab after the other, each with its page open once for all tests
every_lab = each_run("quick", "solution", labs=FIRST, scope="module")
WIDTHS_PX = [1440, 1100, 700]
OUTPUT = ".jp-OutputArea-output"
# Pairs of words that cover each other by more than a fifth of the smaller one, in any picture of the page.
OVERLAPS = """() => {
  const found = [];
  for (const svg of document.querySelectorAll(".worldsize-picture svg")) {
    const boxes = [...svg.querySelectorAll("text")].map(text => ({text: text.textContent, box: text.getBoundingClientRect()}));
    for (const [place, one] of boxes.entries()) for (const other of boxes.slice(place + 1)) {
      const wide = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
      const high = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
      const least = Math.min(one.box.width * one.box.height, other.box.width * other.box.height);
      if (wide > 1 && high > 1 && wide * high > 0.2 * least)
        found.push(`${svg.getAttribute("aria-label").slice(0, 60)}: ${one.text} / ${other.text}`);
    }
  }
  return found;
}"""
# Words that are cut off by the edge of their picture.
CUT = """() => [...document.querySelectorAll(".worldsize-picture svg")].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const box = text.getBoundingClientRect();
    const beside = box.left < frame.left - 2 || box.right > frame.right + 2;
    return box.width && (beside || box.top < frame.top - 2 || box.bottom > frame.bottom + 2);
  }).map(text => `${svg.getAttribute("aria-label").slice(0, 60)}: ${text.textContent}`);
})"""
WIDE = """() => [...document.querySelectorAll(".worldsize-picture svg, .worldsize-picture img")]
  .filter(picture => picture.getBoundingClientRect().right > window.innerWidth + 1)
  .map(picture => picture.getAttribute("aria-label") || picture.alt)"""
# What a front end that takes SVG and styles out leaves.
SANITISE = """() => {
  for (const part of document.querySelectorAll(".worldsize-picture svg, .worldsize-picture style")) part.remove();
}"""
SHOWN = """kind => [...document.querySelectorAll(".worldsize-picture " + kind)]
  .map(picture => picture.getBoundingClientRect().width > 50)"""


OPEN = "() => document.querySelectorAll('details').forEach((part) => part.open = true)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def opened(
    source: Path, kind: str, browser: Any, execute: Execute, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Any]]:
    """Opens the lab's executed solution as a page by itself, with no network, in a theme."""
    context = browser.new_context()
    context.route("http*://**", lambda route: route.abort())
    pages: dict[str, Any] = {}

    def page_in(theme: str) -> Any:
        if theme not in pages:
            notebook = nbformat.read(execute(source, kind).out, as_version=4)
            html, _ = HTMLExporter(theme=theme).from_notebook_node(notebook)
            path = tmp_path_factory.mktemp("page") / "lab.html"
            path.write_text(html)
            pages[theme] = context.new_page()
            pages[theme].goto(path.as_uri(), wait_until="domcontentloaded")
            pages[theme].evaluate(OPEN)
        pages[theme].set_viewport_size({"width": 1100, "height": 1000})
        return pages[theme]

    yield page_in
    context.close()


@every_lab
def test_no_words_of_a_picture_lie_on_others_or_are_cut_off(opened: Any) -> None:
    page = opened("light")
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(CUT) == []


@every_lab
def test_no_picture_is_wider_than_the_page(opened: Any) -> None:
    page, wide = opened("light"), {}
    for width in WIDTHS_PX:
        page.set_viewport_size({"width": width, "height": 1000})
        wide[width] = page.evaluate(WIDE)
    assert wide == {width: [] for width in WIDTHS_PX}


@every_lab
@pytest.mark.parametrize("theme", ["dark", pytest.param("light", marks=pytest.mark.soak)])
def test_axe_finds_no_serious_fault_in_the_outputs(theme: str, opened: Any) -> None:
    found = Axe().run(opened(theme), context={"include": [[OUTPUT]]})
    serious = [rule for rule in found.response["violations"] if rule["impact"] in ("serious", "critical")]
    assert [(rule["id"], node["html"][:200]) for rule in serious for node in rule["nodes"][:3]] == []


# the last one, because it takes the pictures out of the page
@every_lab
def test_a_picture_is_drawn_once_and_survives_a_sanitiser(opened: Any) -> None:
    page = opened("light")
    drawn = page.evaluate(SHOWN, "svg")
    assert drawn and all(drawn) and not any(page.evaluate(SHOWN, "img"))
    page.evaluate(SANITISE)
    assert all(page.evaluate(SHOWN, "img"))
