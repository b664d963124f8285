"""The site in a browser: nothing comes from elsewhere, no link is broken, it fits a phone, and all can read it.

The soak alone makes it: with one lab, and with all of them, where it looks at every page.
"""

import functools
import http.server
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator

from tests.support.contrast import too_low
from tests.support.lab_page import chromium
from tests.support.notebook_runs import RUN_TIMEOUT_S, SOURCES
from tests.support.site_links import broken_links
from worldsize.authoring.site import pages
from worldsize.authoring.site.site_folder import build_site

# the first test of all pages waits for 17 labs, each of which has a bound of its own
pytestmark = [pytest.mark.browser, pytest.mark.soak, pytest.mark.timeout(len(SOURCES) * RUN_TIMEOUT_S + 300)]

LAB = SOURCES[0]
SOME = [
    *("index", "labs/index", f"labs/{LAB.stem}", "glossary", "support", "papers", "instructors", "teaching/00", "api/launch"),
    "search",
]
ALL = [pytest.param("some"), pytest.param("all", marks=pytest.mark.soak)]
DESK, PHONE = (1440, 900), (390, 844)
MOST_LAB_PX = 15_000
LEAST_TEXT_PX = 11
# of every text in sight, with what covers and folds opened
SMALL_TEXTS = """(least) => {
  document.querySelectorAll(".ws-cover button").forEach((button) => button.click());
  document.querySelectorAll("[hidden]").forEach((part) => part.removeAttribute("hidden"));
  const small = [];
  const look = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot) look(element.shadowRoot);
      if (!element.checkVisibility() || element.matches("style, script, option")) continue;
      if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
      const matrix = element.closest("svg") ? element.getScreenCTM() : { a: 1, b: 0 };
      const size = parseFloat(getComputedStyle(element).fontSize) * Math.hypot(matrix.a, matrix.b);
      if (size < least - 0.05) small.push([element.textContent.trim().slice(0, 40), size]);
    }
  };
  look(document.querySelector("main"));
  return small;
}"""
ON_BOTH = [(DESK, "light"), (PHONE, "dark")]
SWAPPED = [(DESK, "dark"), (PHONE, "light")]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module", params=ALL)
def site(request, notebook_runs, tmp_path_factory, root) -> Iterator[tuple[Path, str, list[str]]]:
    """The folder, where it is served, and the names of its pages to look at."""
    asked = [LAB] if request.param == "some" else SOURCES
    copy = tmp_path_factory.mktemp("site")
    for name in ("docs", "labs", "solutions", "datasets"):
        (copy / name).symlink_to(root / name)
    (copy / "README.md").symlink_to(root / "README.md")
    kept = copy / "build" / "executed"
    kept.mkdir(parents=True)
    kind = "quick" if request.param == "some" else "solution"  # lab 00 is as small as it is
    for source in asked:
        shutil.copy(notebook_runs.result(source, kind).out, kept / f"{source.stem}.ipynb")

    out = copy / "build" / "site"
    made = build_site(copy, out, [source.stem[:2] for source in asked])
    names = SOME if request.param == "some" else [str(path.relative_to(out).with_suffix("")) for path in made]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=out)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield out, f"http://127.0.0.1:{server.server_port}", names
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def looked_at(browser: Any, site: tuple, name: str, size: tuple[int, int], scheme: str) -> tuple[list[str], Any, Any]:
    """Opens a page; what it said, the page, and the context to close."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda asked: said.append(asked.url) if not asked.url.startswith((site[1], "data:", "blob:")) else None)
    page.on("response", lambda got: said.append(f"{got.status} {got.url}") if got.status >= 400 else None)
    page.goto(f"{site[1]}/{name}.html", wait_until="load")
    return said, page, context


@dataclass
class Seen:
    """What is wrong with the pages, by page, size and scheme: each was opened once in each."""

    said: dict[tuple, list[str]] = field(default_factory=dict)
    beyond: dict[tuple, int] = field(default_factory=dict)
    serious: dict[tuple, list[tuple[str, Any]]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def seen(browser: Any, site: tuple) -> Seen:
    """The usual run opens a page as light on a desk and as dark on a phone, the soak the other way round too."""
    found = Seen()
    for name in site[2]:
        for size, scheme in ON_BOTH if site[2] is SOME else [*ON_BOTH, *SWAPPED]:
            said, page, context = looked_at(browser, site, name, size, scheme)
            beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            said = list(said)  # before axe, which asks for style sheets by itself
            faults = [fault for fault in Axe().run(page).response["violations"] if fault["impact"] in ("serious", "critical")]
            context.close()
            serious = [(fault["id"], fault["nodes"][0]["target"]) for fault in faults]
            for kept, wrong in ((found.said, said), (found.beyond, max(0, beyond)), (found.serious, serious)):
                if wrong:
                    kept[name, size, scheme] = wrong
    return found


def test_a_page_asks_nobody_else_and_has_no_error(seen):
    assert seen.said == {}


def test_a_page_fits_a_desk_and_a_phone(seen):
    assert seen.beyond == {}


def test_axe_finds_nothing_serious(seen):
    assert seen.serious == {}


def labs_of(site: tuple) -> list[str]:
    return [name for name in site[2] if re.fullmatch(r"labs/\d\d_\w+", name)]


@pytest.mark.parametrize(("scheme", "chosen"), [("light", ""), ("dark", ""), ("light", "dark"), ("dark", "light")])
def test_text_and_pictures_stand_out_from_their_ground_in_the_system_s_scheme_and_in_the_chosen_one(
    browser, site, scheme, chosen
):
    low = {}
    for name in ["index", *labs_of(site)]:
        _, page, context = looked_at(browser, site, name, DESK, scheme)
        if chosen:
            page.locator(".theme-switch-button:visible").click()
            page.locator(f".theme-change-button[data-mode={chosen}]:visible").click()
        page.wait_for_function("(theme) => document.documentElement.dataset.theme === theme", arg=chosen or scheme)
        page.evaluate("document.querySelectorAll('.ws-cover button').forEach((button) => button.click())")
        if found := too_low(page):
            low[name] = found[:5]
        context.close()
    assert low == {}


def test_every_text_of_a_lab_can_be_read_on_a_phone(browser, site):
    small = {}
    for name in labs_of(site):
        _, page, context = looked_at(browser, site, name, PHONE, "light")
        if found := page.evaluate(SMALL_TEXTS, LEAST_TEXT_PX):
            small[name] = found[:5]
        context.close()
    assert small == {}


def test_the_page_of_a_lab_is_not_too_long_before_anything_is_opened(browser, site):
    heights = {}
    for name in labs_of(site):
        _, page, context = looked_at(browser, site, name, DESK, "light")
        heights[name] = page.evaluate("document.documentElement.scrollHeight")
        context.close()
    assert {name: height for name, height in heights.items() if height > MOST_LAB_PX} == {}


def test_no_link_within_the_site_is_broken(site):
    assert broken_links(site[0]) == []


def test_the_search_finds_a_word_of_a_lab(browser, site):
    _, page, context = looked_at(browser, site, "search", DESK, "light")
    page.goto(f"{site[1]}/search.html?q=rendezvous")
    page.wait_for_selector("#search-results li a")
    assert any("glossary" in link.get_attribute("href") for link in page.query_selector_all("#search-results li a"))
    context.close()


def test_a_page_is_found_once_by_its_prose_and_a_term_with_its_explanation(browser, site):
    _, page, context = looked_at(browser, site, "search", DESK, "light")
    page.goto(f"{site[1]}/search.html?q=deadlock")
    page.wait_for_function("/^\\d+ pages$/.test(document.querySelector('.search-summary')?.innerText)")
    page.wait_for_function("[...document.querySelectorAll('#search-results li')].every((found) => found.children.length > 1)")
    found = page.locator("#search-results li").all_inner_texts()
    context.close()
    assert sum(text.startswith("Glossary") for text in found) == 1
    assert re.fullmatch(r"Glossary\s+deadlock: Ranks that wait[^\n]*", found[0].strip())
    (lab,) = [text for text in found if text.startswith("Lab 00")]
    assert "launch(" not in lab


def test_everything_on_a_lab_s_page_ends_at_one_line_and_paragraphs_stand_apart(browser, site):
    _, page, context = looked_at(browser, site, f"labs/{LAB.stem}", (1280, 720), "light")
    boxes = page.locator("div.cell > .cell_input, .ws-question, .ws-cover:not(.ws-later), article section > p")
    edges = {round(box["x"] + box["width"]) for box in map(Locator.bounding_box, boxes.all()) if box}
    apart = page.locator("article section > p").first.evaluate("(p) => parseFloat(getComputedStyle(p).marginBottom)")
    context.close()
    assert len(edges) == 1 and apart >= 12


def test_a_step_through_plays_on_the_site(browser, site):
    _, page, context = looked_at(browser, site, f"labs/{LAB.stem}", DESK, "light")
    player = page.locator(".ws-steps").first
    said = "player => player.shadowRoot.textContent"
    before = player.evaluate(said)
    player.locator("button.step:enabled").first.click()  # it may open at its end
    assert player.evaluate(said) != before
    context.close()


def test_a_lab_links_to_the_glossary(site):
    out, _, _ = site
    assert "glossary.html#term-" in (out / "labs" / f"{LAB.stem}.html").read_text(encoding="utf-8")


def test_every_face_has_a_page_of_the_api(site):
    out, _, _ = site
    assert all((out / "api" / f"{module}.html").is_file() for module in pages.api_modules())
