"""A notebook in a real browser: open it, run it, press its buttons, and what went wrong meanwhile.

Left out: the server (`lab_server`), and what a notebook should show.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ElementHandle, Locator, Page, sync_playwright

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
SCREENSHOTS = Path(__file__).resolve().parents[1] / "browser" / "screenshots"
WAIT_MS = 60_000
HERE = {"127.0.0.1", "localhost", ""}

_PANEL = "window.jupyterapp.shell.currentWidget"
_IDLE = f"() => {_PANEL}?.sessionContext?.session?.kernel?.status === 'idle'"
# every text that each rank's card in a live view has had
_WATCH = """() => {
  window.seenCards = {};
  new MutationObserver(() => {
    for (const card of document.querySelectorAll(".ws-live [data-rank].ws-card")) {
      (window.seenCards[card.dataset.rank] ??= new Set()).add(card.textContent);
    }
  }).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS, headless=True)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page that keeps what it asked for and what failed in it: `elsewhere` and `errors` should stay empty."""

    def __init__(self, context: BrowserContext) -> None:
        self.elsewhere: list[str] = []
        self.errors: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("websocket", lambda socket: self._asked(socket.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _asked(self, url: str) -> None:
        if (urlsplit(url).hostname or "") not in HERE:
            self.elsewhere.append(url)

    def screenshot(self, name: str, element: Locator | None = None) -> None:
        """For a person to look at."""
        SCREENSHOTS.mkdir(exist_ok=True)
        (element or self.page).screenshot(path=SCREENSHOTS / f"{name.lower().replace(' ', '_')}.png")


class LabTab(Tab):
    """A tab with one notebook in JupyterLab."""

    def open(self, url: str) -> None:
        self.page.goto(url)
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
        # a run-all before the kernel is ready runs only the first cell
        self.page.wait_for_function(_IDLE)

    def command(self, name: str, arguments: str = "{}") -> None:
        """Begin a command of Lab, without waiting for its end."""
        self.page.evaluate(f"() => {{ window.jupyterapp.commands.execute({name!r}, {arguments}) }}")

    def watch_live_views(self) -> None:
        self.page.evaluate(_WATCH)

    def seen_cards(self) -> dict[str, int]:
        """By rank, how many different texts its card has had."""
        return self.page.evaluate(
            "() => Object.fromEntries(Object.entries(window.seenCards).map(([r, s]) => [r, s.size]))"
        )

    def run_all(self, timeout_s: float) -> None:
        self.command("notebook:run-all-cells")
        self.ended(timeout_s)

    def ended(self, timeout_s: float) -> None:
        """Wait until every code cell has run; fail at once where a cell raises, because the cells below it never run."""
        cells = f"{_PANEL}.content.widgets.filter((w) => w.model.type === 'code')"
        ended = self.page.wait_for_function(
            f"""() => {{
              const cells = {cells};
              const outputs = cells.flatMap((w) => w.outputArea.model.toJSON());
              const raised = outputs.filter((o) => o.output_type === 'error').map((o) => `${{o.ename}}: ${{o.evalue}}`);
              const all = cells.every((w) => w.model.executionCount);
              return ({_IDLE})() && (all || raised.length) ? {{ all, raised }} : null;
            }}""",
            timeout=1000 * timeout_s,
            polling=200,
        ).json_value()
        assert ended["all"], f"the cells below the one that raised never ran: {ended['raised']}"

    def code_cells(self) -> list[str]:
        """Their ids."""
        return self.page.evaluate(
            f"() => {_PANEL}.content.widgets.filter((w) => w.model.type === 'code').map((w) => w.model.id)"
        )

    def cell(self, id: str) -> ElementHandle:
        found = self.page.evaluate_handle(
            f"(id) => {_PANEL}.content.widgets.find((w) => w.model.id === id)?.node", id
        ).as_element()
        assert found is not None, f"no cell {id!r}"
        return found

    def run_cell(self, id: str) -> None:
        """Begin to run one cell."""
        self.page.evaluate(
            f"""(id) => {{
              const notebook = {_PANEL}.content;
              notebook.activeCellIndex = notebook.widgets.findIndex((w) => w.model.id === id);
              notebook.deselectAll();
            }}""",
            id,
        )
        self.command("notebook:run-cell")

    def output_text(self, id: str) -> str:
        return self.page.evaluate(
            f"(id) => {_PANEL}.content.widgets.find((w) => w.model.id === id).outputArea?.node.innerText ?? ''", id
        )

    def wait_for_output(self, id: str, text: str, timeout_s: float = 30) -> None:
        self.page.wait_for_function(
            f"([id, text]) => {_PANEL}.content.widgets.find((w) => w.model.id === id).outputArea.node.innerText.includes(text)",
            arg=[id, text], timeout=1000 * timeout_s, polling=50,
        )  # fmt: skip

    def predict(self, number: str) -> None:
        """Type into the first field, and wait until it is kept."""
        box = self.page.locator(".worldsize-field input").first
        box.fill(number)
        box.press("Enter")
        self.page.get_by_text(f"saved: {number}").first.wait_for()

    def turn_knob(self, name: str, choice: str) -> None:
        """Choose in the field `name` beside a figure, and wait until the figure was drawn with it."""
        self.page.get_by_label(name, exact=True).select_option(choice)
        self.page.get_by_text(re.compile(f"drawn with .*{name} = {choice}")).first.wait_for()

    def save(self) -> None:
        """Save until nothing is left unsaved: a late output, or an autosave under way, leaves the first save short."""
        self.page.wait_for_function(
            f"""async () => {{
              await window.jupyterapp.commands.execute('docmanager:save');
              return !{_PANEL}.context.model.dirty;
            }}""",
            polling=200,
        )

    def widgets_settled(self) -> None:
        """Wait until every widget is there, or known to be lost."""
        self.page.wait_for_selector(".jp-OutputArea-output", state="attached")
        outputs = "[...document.querySelectorAll('.jp-OutputArea-output')]"
        self.page.wait_for_function(f"() => !{outputs}.some((o) => o.textContent.startsWith('Loading widget'))")

    def restart_kernel(self) -> None:
        self.page.evaluate(f"() => {_PANEL}.sessionContext.session.kernel.restart()")
        self.page.wait_for_function(_IDLE)

    def is_trusted(self) -> bool:
        return self.page.evaluate(f"() => {_PANEL}.content.widgets.every((w) => w.model.trusted !== false)")

    def theme(self, name: str) -> None:
        """ "JupyterLab Light" or "JupyterLab Dark"."""
        self.page.evaluate("(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
        light = str(name.endswith("Light")).lower()
        self.page.wait_for_selector(
            f'body[data-jp-theme-name="{name}"][data-jp-theme-light="{light}"]', state="attached"
        )
