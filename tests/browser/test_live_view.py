"""The live view in a browser: on a page of its own, with made-up news of ranks, and how a picture takes its place in Lab."""

import json
from typing import Any

import nbformat
import pytest

from tests.support.lab_page import LabTab, Tab
from worldsize.engines.job import Progress
from worldsize.failures import Failure, Wait
from worldsize.figures import tokens
from worldsize.live.run_state import RunState
from worldsize.live.view import script

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

SOAK = pytest.mark.soak
PAGE = """<!doctype html><html lang="en"><title>view</title><style>{css}</style>
<body data-jp-theme-light="{light}" style="background:{paper}"><main><div id="here"></div></main>
<script type="module">{script}
let hear;
const first = {first};
const model = {{ get: () => first, on: (name, act) => (hear = act), off() {{}}, send() {{}} }};
render({{ model, el: document.getElementById("here") }});
window.hear = (message) => hear(message);
</script>"""

# every pair of a text's colour and its ground that is on the page, as their contrast (WCAG 2.1, 1.4.3)
CONTRASTS = """() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const back = parts(getComputedStyle(node).backgroundColor);
      if (back.length < 4 || back[3] > 0) return back;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll(".ws-live *")].filter((node) => node.tagName !== "STYLE" &&
    [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()));
  return texts.map((node) => {
    const style = getComputedStyle(node);
    const [a, b] = [light(parts(node.closest("svg") ? style.fill : style.color)), light(ground(node))].sort((x, y) => x - y);
    return [node.textContent, (b + 0.05) / (a + 0.05)];
  });
}"""


# of every line of text, how many of its pixels a box around it cuts off: a line is shown whole, or not at all
CUT_LINES = """() => {
  const cut = [];
  const walk = document.createTreeWalker(document.querySelector(".ws-live"), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode;
    if (!text.textContent.trim() || text.parentElement.closest("style, .ws-hidden")) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    for (const { top, bottom, width } of range.getClientRects()) {
      if (!width) continue;
      let [from, to] = [top, bottom];
      for (let box = text.parentElement; box.closest(".ws-live"); box = box.parentElement) {
        if (getComputedStyle(box).overflowY === "visible") continue;
        const { top: above, height } = box.getBoundingClientRect();
        const inner = above + box.clientTop;
        [from, to] = [Math.max(from, inner), Math.min(to, inner + (box.clientHeight || height))];
      }
      const seen = Math.max(0, to - from);
      if (seen > 1 && bottom - top - seen > 1) cut.push([text.textContent.slice(0, 40), seen, bottom - top]);
    }
  }
  return cut;
}"""
# an output of Lab in a window of 1280 by 720, in one at 150 %, and in a phone's: its width, the window's height, pixels
SIZES = {"lab": (850, 720, 1.0), "zoomed": (500, 480, 1.5), "phone": (300, 844, 3.0)}


class Shown:
    """The view of a made-up run on a page of its own."""

    def __init__(self, tab: Tab, world_size: int, hosts: tuple[str, ...] = (), dark: bool = False) -> None:
        self.page = tab.page
        self.state = RunState(world_size, hosts=hosts)
        self._seq = 0
        first = json.dumps(self._message(self.state.whole(), whole=True))
        paper = tokens.PAPER.dark if dark else tokens.PAPER.light
        tab.page.set_content(PAGE.format(
            css=tokens.css(".ws-live"), script=script().replace("export default { render };", ""), first=first,
            light=str(not dark).lower(), paper=paper,
        ))  # fmt: skip
        self._drawn()

    def tell(self) -> None:
        """Send what is new, and wait until it is drawn."""
        self._seq += 1
        self.page.evaluate("(message) => window.hear(message)", self._message(self.state.news(), whole=False))
        self._drawn()

    def _message(self, content: dict[str, Any], whole: bool) -> dict[str, Any]:
        return {**content, "seq": self._seq, "whole": whole, "state": "running", "at": 1.0 + self._seq}

    def _drawn(self) -> None:
        self.page.wait_for_selector(f".ws-live[data-seq='{self._seq}']")

    def height(self) -> float:
        return self.page.locator(".ws-live").bounding_box()["height"]

    def every(self, rank_news: dict[str, Any]) -> None:
        for rank in range(len(self.state.rows)):
            self.state.progressed(Progress(rank, 0.0, **rank_news))


@pytest.mark.parametrize("world_size", [4, *(pytest.param(n, marks=SOAK) for n in (1, 8, 16, 64))])
def test_the_view_keeps_its_height_whatever_ranks_print_and_report(plain_tab, world_size):
    shown = Shown(plain_tab, world_size)
    before = shown.height()
    for step in range(30):
        for rank in range(world_size):
            shown.state.printed(rank, [f"line {step}"])
            shown.state.rows[rank].report({"t": 0.0, "step": step, "steps": 30, "loss": 1 / (1 + step)})
    shown.tell()
    assert shown.page.locator(".ws-chart").count() == 1 and shown.height() == before


@pytest.fixture
def sized_tab(browser, request):
    width, height, pixels = SIZES[request.param]
    context = browser.new_context(viewport={"width": width + 16, "height": height}, device_scale_factor=pixels)
    yield Tab(context)
    context.close()


ONE_SIZE = ["lab", *(pytest.param(size, marks=SOAK) for size in ("zoomed", "phone"))]


@pytest.mark.parametrize(
    "lines_and_reports", [(True, True), *(pytest.param(of, marks=SOAK) for of in ((True, False), (False, True)))]
)
@pytest.mark.parametrize("world_size", [4, *(pytest.param(n, marks=SOAK) for n in (1, 2, 3, 6, 8, 16, 64))])
@pytest.mark.parametrize("sized_tab", ONE_SIZE, indirect=True)
def test_every_line_that_is_seen_is_seen_whole(sized_tab, world_size, lines_and_reports):
    shown = Shown(sized_tab, world_size)
    tells(shown, *lines_and_reports)
    assert shown.page.locator(".ws-card").count() and shown.page.evaluate(CUT_LINES) == []
    boxes = ".ws-main, .ws-chips"
    shown.page.locator(boxes).evaluate_all("(boxes) => boxes.forEach((box) => box.scrollBy(0, 100))")
    assert shown.page.evaluate(CUT_LINES) == []


@pytest.mark.parametrize("hosts", [False, pytest.param(True, marks=SOAK)])
@pytest.mark.parametrize("sized_tab", ONE_SIZE, indirect=True)
def test_a_strip_of_activity_is_at_least_12_pixels_high(sized_tab, hosts):
    for world_size in (2, 8, 16):
        shown = Shown(sized_tab, world_size, ("north",) * (world_size // 2) + ("south",) * (world_size // 2) if hosts else ())
        for lines_and_reports in ((False, False), (False, True), (True, True)):
            tells(shown, *lines_and_reports)
            heights = shown.page.locator(".ws-strip").evaluate_all("(all) => all.map((one) => one.clientHeight)")
            assert min(heights) >= 12 and shown.page.evaluate(CUT_LINES) == []


def tells(shown, lines, reports):
    """Every rank works and waits; it prints and reports, or not."""
    for step in range(14):
        for rank, row in enumerate(shown.state.rows):
            wait = None if (rank + step) % 3 else Wait(rank, "recv", 0)
            state = "running" if wait is None else "waiting"
            shown.state.progressed(Progress(rank, 0.0, (), 1000 * step, 2000 * step, state=state, wait=wait))
            if lines:
                shown.state.printed(rank, [f"step {step}: a line that is longer than a narrow card is wide, from rank {rank}"])
            if reports:
                row.report({"t": 0.0, "step": step, "steps": 30, "loss": 1 / (1 + step)})
    shown.tell()
    shown.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.mark.parametrize("world_size", [4, pytest.param(16, marks=SOAK)])
def test_where_nothing_was_printed_there_is_no_box_for_lines(plain_tab, world_size):
    shown = Shown(plain_tab, world_size)
    assert shown.page.locator(".ws-tail:visible").count() == 0
    shown.state.printed(0, ["hello"])
    shown.tell()
    assert shown.page.locator(".ws-tail:visible").all_inner_texts() == ["hello"]


@pytest.mark.parametrize(("steps", "shown_steps"), [(1, ["0", "1"]), (3, ["0", "1", "2"]), (13, ["0", "5", "10"])])
def test_an_axis_of_steps_has_whole_numbers(plain_tab, steps, shown_steps):
    shown = Shown(plain_tab, 2)
    for row in shown.state.rows:
        for step in range(steps):
            row.report({"t": 0.0, "step": step, "loss": 1 + step + row.rank / 10})
    shown.tell()
    along = shown.page.locator(".ws-chart text[text-anchor='middle']")
    assert sorted(along.all_text_contents(), key=int) == shown_steps


@pytest.mark.parametrize("world_size", [5, pytest.param(16, marks=SOAK)])
def test_of_more_than_four_ranks_the_mean_and_the_latest_ends_have_names(plain_tab, world_size):
    shown = Shown(plain_tab, world_size)
    for row in shown.state.rows:
        for step in range(4):
            row.report({"t": 0.0, "step": step, "loss": 5 - step + row.rank})
    shown.tell()
    chart = shown.page.locator(".ws-chart")
    assert chart.locator("g text").all_text_contents() == ["rank 0", "mean", f"rank {world_size - 1}"]
    assert chart.locator(".ws-line.ws-pale").count() == world_size - 2
    assert chart.locator(".ws-mean").get_attribute("d").count("L") == 3


def test_in_wide_cards_a_rank_s_numbers_stand_in_the_first_line(plain_tab):
    plain_tab.page.set_viewport_size({"width": 900, "height": 720})
    shown = Shown(plain_tab, 8)
    tells(shown, True, True)
    first, second = (shown.page.locator(".ws-card").nth(rank).bounding_box() for rank in (0, 1))
    assert first["y"] == second["y"] and shown.page.locator(".ws-card:visible").count() == 8
    name, facts = (shown.page.locator(f".ws-card >> nth=0 >> {part}").bounding_box() for part in ("strong", ".ws-name .ws-facts"))
    assert abs(name["y"] - facts["y"]) < 4 and facts["x"] > name["x"] + name["width"]
    last = shown.page.locator(".ws-card").last.bounding_box()
    assert last["y"] + last["height"] <= shown.page.locator(".ws-live").bounding_box()["y"] + shown.height()


def test_up_to_eight_ranks_have_cards_and_nine_have_chips(plain_tab):
    counts = []
    for world_size in (8, 9):
        page = Shown(plain_tab, world_size).page
        counts.append((page.locator(".ws-card").count(), page.locator(".ws-chip").count()))
    assert counts == [(8, 0), (1, 9)]


def test_a_chip_says_its_state_by_mark_and_word_and_what_it_waits_for(plain_tab):
    shown = Shown(plain_tab, 16)
    shown.state.progressed(Progress(3, 0.0, state="waiting", wait=Wait(3, "recv", 2)))
    shown.state.progressed(Progress(4, 0.0, state="waiting", collective="barrier"))
    shown.state.progressed(Progress(5, 0.0, state="running"))
    shown.tell()
    chips = shown.page.locator(".ws-chip")
    assert [chips.nth(n).inner_text() for n in (3, 4, 5)] == ["‖ 3 recv ← 2", "‖ 4 barrier", "● 5 running"]
    assert shown.page.get_by_role("button", name="rank 3: waits in recv from rank 2").count() == 1


def test_of_64_ranks_one_is_chosen_by_keyboard_and_its_lines_stand_beside(plain_tab):
    shown = Shown(plain_tab, 64)
    for rank in range(64):
        shown.state.printed(rank, [f"I am {rank}"])
    shown.tell()
    page = shown.page
    page.keyboard.press("Tab")
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End", "Home", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
        seen.append(page.locator(".ws-tail").inner_text())
    assert seen[:5] == ["I am 1", "I am 2", "I am 1", "I am 63", "I am 0"]
    assert seen[5] not in ("I am 0", "I am 1") and seen[6] == "I am 0"
    assert page.locator(".ws-chip[tabindex='0']").count() == page.locator(".ws-chip[aria-pressed='true']").count() == 1


def test_a_rank_that_fails_is_chosen_until_a_person_chooses(plain_tab):
    shown = Shown(plain_tab, 16)
    failure = Failure(7, "raised", 0.0, type="ValueError", message="bad chunk")
    shown.state.progressed(Progress(7, 0.0, state="failed", failure=failure))
    shown.tell()
    assert "✘ failed: ValueError: bad chunk" in shown.page.locator(".ws-card").inner_text()
    shown.page.locator(".ws-chip").nth(2).click()
    shown.state.progressed(Progress(8, 0.0, state="failed", failure=failure))
    shown.tell()
    assert shown.page.locator(".ws-card").get_attribute("data-rank") == "2"


@pytest.mark.parametrize("world_size", [4, pytest.param(16, marks=SOAK)])
def test_ranks_of_named_hosts_stand_under_their_host(plain_tab, world_size):
    half = world_size // 2
    page = Shown(plain_tab, world_size, ("north",) * half + ("south",) * half).page
    assert page.locator(".ws-host").all_inner_texts() == ["on north", "on south"]
    if world_size == 16:
        assert [page.get_by_role("group", name=f"on {host}").locator(".ws-chip").count() for host in ("north", "south")] == [
            8, 8,
        ]  # fmt: skip


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("world_size", [pytest.param(4, marks=SOAK), 16])
def test_every_text_can_be_read_in_both_themes(plain_tab, world_size, dark):
    shown = Shown(plain_tab, world_size, dark=dark)
    states = ({"state": "running"}, {"state": "waiting", "collective": "barrier"}, {"state": "done"})
    for rank in range(world_size):
        shown.state.progressed(Progress(rank, 0.0, **states[rank % 3]))
        shown.state.printed(rank, ["hello"])
        shown.state.rows[rank].report({"t": 0.0, "step": 1, "loss": 1.0})
    shown.state.progressed(Progress(1, 0.0, state="failed", failure=Failure(1, "exit", 0.0)))
    shown.tell()
    found = shown.page.evaluate(CONTRASTS)
    assert len(found) > world_size and [pair for pair in found if pair[1] < 4.5] == []


def test_everything_that_can_be_focused_has_a_name_and_a_role(plain_tab):
    shown = Shown(plain_tab, 16)
    shown.state.printed(0, ["hello"])
    shown.tell()
    nameless = shown.page.evaluate("""() => [...document.querySelectorAll(".ws-live [tabindex], .ws-live button")]
      .filter((node) => !node.getAttribute("aria-label") || !(node.getAttribute("role") || node.tagName === "BUTTON"))
      .map((node) => node.outerHTML)""")
    assert nameless == []


SETUP = "import time\nimport torch\nfrom worldsize.notebook import *\nlaunch(lambda: None, 2);"
COMPUTES = "def computes(fabric):\n    fabric.compute(1.5)\nrun = launch(computes, 4)"
TWICE = "launch(computes, 2)\nlaunch(computes, 3);"
# the height of the cell's output at each frame in which the view or the picture was there
WATCH_HEIGHTS = """(cell) => {
  window.heights = [];
  const look = () => {
    const area = cell.querySelector(".jp-OutputArea");
    const kind = area?.querySelector(".ws-live") ? "view" : area?.querySelector(".worldsize-picture") ? "picture" : "none";
    const top = area?.querySelector(".jp-OutputArea-child:last-child")?.getBoundingClientRect().top;
    window.heights.push([kind, area?.offsetHeight ?? 0, top ?? 0]);
    requestAnimationFrame(look);
  };
  look();
}"""


@pytest.fixture(scope="module")
def lab_tab(context, server):
    path = server.work / "view.ipynb"
    sources = {"setup": SETUP, "computes": COMPUTES, "again": "last_run().show()", "twice": TWICE}
    cells = [nbformat.v4.new_code_cell(source, id=id) for id, source in sources.items()]
    kernel = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    tab = LabTab(context)
    tab.open(server.notebook_url(path.name))
    tab.run_cell("setup")
    tab.wait_for_output("setup", "2 ranks", timeout_s=120)
    yield tab
    tab.page.close()
    assert (tab.elsewhere, tab.errors) == ([], [])


@SOAK
def test_the_picture_takes_the_views_place_with_no_jump(lab_tab):
    lab_tab.page.evaluate(WATCH_HEIGHTS, lab_tab.cell("computes"))
    lab_tab.run_cell("computes")
    lab_tab.page.wait_for_selector(".worldsize-picture svg", timeout=60_000)
    seen = lab_tab.page.evaluate("window.heights")
    kinds = [kind for kind, _, _ in seen]
    began = kinds.index("view")
    least = min(height for _, height, _ in seen[began:])
    view = seen[began][1]  # the line of buttons comes below it at its end
    picture = [height for kind, height, _ in seen[began:] if kind == "picture"][-1]
    assert "none" not in kinds[kinds.index("picture") :] and least >= min(view, picture) - 1


@SOAK
def test_the_latest_run_shows_its_picture_and_its_table_again(lab_tab):
    lab_tab.run_cell("again")
    lab_tab.wait_for_output("again", "4 ranks, done")
    cell = lab_tab.cell("again")
    assert cell.query_selector(".worldsize-picture svg") and len(cell.query_selector_all("tbody tr")) == 4


@SOAK
def test_each_of_two_runs_is_a_line_that_keyboard_and_mouse_unfold(lab_tab):
    lab_tab.run_cell("twice")
    lab_tab.wait_for_output("twice", "computes: 3 ranks, done")
    cell = lab_tab.cell("twice")
    lines = cell.query_selector_all("details > summary")
    lines = [line for line in lines if line.inner_text().startswith("computes: ")]
    of_line = "(line) => line.parentElement.querySelector('.worldsize-picture')"
    pictures = [line.evaluate_handle(of_line).as_element() for line in lines]
    assert [picture.is_visible() for picture in pictures] == [False, False]
    assert cell.query_selector(".jp-OutputArea").bounding_box()["height"] < 200
    lines[0].focus()
    lab_tab.page.keyboard.press("Enter")
    lines[1].click()
    assert [picture.is_visible() for picture in pictures] == [True, True]
    lab_tab.page.keyboard.press("Space")
    assert [picture.is_visible() for picture in pictures] == [True, False]


@SOAK
def test_each_button_below_a_run_gives_what_it_says(lab_tab, tmp_path):
    lab_tab.run_cell("computes")
    row = lab_tab.page.locator(".ws-run-buttons").last
    row.wait_for(timeout=60_000)
    for name, file in (("open in Perfetto", "run.json"), ("save as a page", "run.html")):
        with lab_tab.page.expect_download() as download:
            row.get_by_role("button", name=name).click()
        saved = tmp_path / file
        download.value.save_as(saved)
        assert download.value.suggested_filename == file and saved.stat().st_size > 500
        assert "in your downloads" in row.get_by_role("status").inner_text()

    lab_tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    row.get_by_role("button", name="copy as text").click()
    copied = "row => row.querySelector('[role=status]').textContent === 'Copied.'"
    lab_tab.page.wait_for_function(copied, arg=row.element_handle())
    assert "Timeline of" in lab_tab.page.evaluate("navigator.clipboard.readText()")
    lab_tab.screenshot("buttons", row)


@SOAK
def test_the_page_of_a_run_plays_with_no_error_and_asks_for_nothing(lab_tab, tmp_path):
    lab_tab.run_cell("computes")
    row = lab_tab.page.locator(".ws-run-buttons").last
    row.wait_for(timeout=60_000)
    with lab_tab.page.expect_download() as download:
        row.get_by_role("button", name="save as a page").click()
    download.value.save_as(tmp_path / "run.html")

    errors, asked = [], []
    page = lab_tab.page.context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url) if not request.url.startswith(("file:", "data:")) else None)
    page.goto((tmp_path / "run.html").as_uri())
    page.wait_for_selector(".worldsize-picture svg")
    page.close()
    assert (errors, asked) == ([], [])
