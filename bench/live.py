"""The live view in a real browser: how late it is, what it costs, and what is saved.

JupyterLab and a headless Chromium run one notebook. "lines": every rank prints 500 lines a second, each with the time;
"reports": every rank reports 200 steps a second. The lag of a line or a step is the time until the view has drawn it.
Then launches that the view watches and launches that nobody watches take turns in a kernel of their own. Left out:
other browsers, and a kernel on another machine.

    python bench/live.py [--seconds 10] [--repeats 20] [--smoke]
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import psutil
import report
from playwright.sync_api import Page, sync_playwright

RANKS = 4
LINES_PER_S, REPORTS_PER_S = 500, 200
CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
_START_S = 90.0

SETUP = """
import json, time
from worldsize.notebook import *

def paced(count, per_s):
    start = time.monotonic()
    for number in range(count):
        time.sleep(max(0, start + number / per_s - time.monotonic()))
        yield number
launch(lambda: None, 2);
"""
LINES = """
def lines():
    for number in paced({count}, {per_s}):
        print(f"{{number}} {{time.time():.4f}}")
run = launch(lines, {ranks})
json.dump([len(run.log(r).splitlines()) for r in range({ranks})], open("lines.json", "w"))
"""
REPORTS = """
def reports():
    said = []
    for number in paced({count}, {per_s}):
        said.append(time.time())
        report(step=number, loss=1 / (1 + number))
    return said
run = launch(reports, {ranks})
json.dump(run.results, open("reports.json", "w"))
"""
OVERHEAD = """
import json, statistics, time
from worldsize.notebook import *
from worldsize.launch.run import Observer, observe, unobserved
from worldsize.live.view import LiveView
import IPython
def seconds(observer, fn):
    with unobserved():
        observe(observer)
        start = time.monotonic()
        run = launch(fn, {ranks})
        return time.monotonic() - start, run.wall_s
def goes_on():
    for _ in range(12):
        time.sleep(0.1)
        print("still here")
def reports():
    goes_on()
    for step in range(100):
        report(step=step, loss=1 / (1 + step))
seconds(LiveView(), goes_on)
rows = {{}}
for name, fn in (("is quick", lambda: None), ("goes on", goes_on), ("reports", reports)):
    for _ in range({repeats}):
        for kind in (LiveView, Observer):
            rows.setdefault(f"{{name}} {{kind.__name__}}", []).append(seconds(kind(), fn))
json.dump(rows, open("overhead.json", "w"))
"""
# notes, at every drawing, what each rank's card shows and when
WATCH = """() => {
  window.shown = [];
  const look = () => {
    const root = document.querySelector(".ws-live");
    if (!root || root.dataset.seq === window.seq) return;
    window.seq = root.dataset.seq;
    for (const card of root.querySelectorAll(".ws-card")) {
      const tail = card.querySelector(".ws-tail").textContent.split("\\n");
      window.shown.push([Date.now() / 1000, +card.dataset.rank, card.querySelector(".ws-facts").textContent, tail]);
    }
  };
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true });
}"""

RUN_CELL = """(index) => {
  const notebook = [...window.jupyterapp.shell.widgets("main")].find((w) => w.content?.widgets).content;
  notebook.activeCellIndex = index;
  notebook.deselectAll();
  window.jupyterapp.commands.execute("notebook:run-cell");
}"""
IDLE = """() => {
  const panel = [...window.jupyterapp.shell.widgets("main")].find((w) => w.content?.widgets);
  return panel?.sessionContext.session?.kernel?.status === "idle";
}"""
HAS_RUN = """(index) => {
  const prompt = document.querySelectorAll(".jp-Notebook .jp-CodeCell")[index].querySelector(".jp-InputPrompt");
  return /\\d/.test(prompt.textContent);
}"""


@contextmanager
def lab(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A JupyterLab in `folder`: the address of its notebook, and the server's process."""
    settings = folder / "settings" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"windowingMode": "none"}')
    env = {**os.environ, "IPYTHONDIR": f"{folder}/ipython", "JUPYTER_CONFIG_DIR": f"{folder}/jupyter"}
    env["JUPYTERLAB_SETTINGS_DIR"] = f"{folder}/settings"
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), env.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.port=0", "--IdentityProvider.token=t"]
    command += ["--LabApp.expose_app_in_browser=True", *(["--allow-root"] if os.getuid() == 0 else [])]
    with open(folder / "log.txt", "w") as log:
        server = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        found = wait_for(lambda: re.search(r"127\.0\.0\.1:(\d+)/", (folder / "log.txt").read_text()))
        yield f"http://127.0.0.1:{found[1]}/lab/tree/bench.ipynb?token=t&reset", psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait(20)


def wait_for(ready: Callable[[], object], timeout_s: float = _START_S) -> object:
    deadline_s = time.monotonic() + timeout_s
    while not (answer := ready()):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not so after {timeout_s:g} s")
        time.sleep(0.1)
    return answer


def cpu_s(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


class Bench:
    """One notebook in one page; each cell is run by itself."""

    def __init__(self, folder: Path, page: Page, server: psutil.Process, own: psutil.Process) -> None:
        self.folder, self.page, self.server, self.own = folder, page, server, own

    def run_cell(self, index: int, timeout_s: float) -> dict[str, float]:
        """Run a cell to its end. Returns the share of one core that kernel and browser took meanwhile."""
        self.page.evaluate(WATCH)
        kernel = self._kernel()
        browser = [p for p in self.own.children(recursive=True) if "chrom" in p.name()]
        before, start_s = [cpu_s(kernel), cpu_s(browser)], time.monotonic()
        self.page.evaluate(RUN_CELL, index)
        self.page.wait_for_function(HAS_RUN, arg=index, timeout=1000 * timeout_s)
        took_s = time.monotonic() - start_s
        after = [cpu_s(kernel), cpu_s(browser)]
        return {n: (b - a) / took_s for n, a, b in zip(("kernel", "browser"), before, after, strict=True)}

    def _kernel(self) -> list[psutil.Process]:
        """The kernel's own process: ranks and the agent are work that there is without a view, too."""
        return [p for p in self.server.children() if "ipykernel_launcher" in " ".join(p.cmdline())]

    def shown(self) -> list[list]:
        return self.page.evaluate("window.shown")

    def saved_bytes(self, index: int) -> int:
        self.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
        notebook = json.loads((self.folder / "bench.ipynb").read_text())
        return len(json.dumps(notebook["cells"][index]["outputs"]))


def line_lags(shown: list[list]) -> tuple[list[float], float]:
    """The lag of every line that was seen, and how far behind the last picture was."""
    lags, newest = [], {}
    for now_s, rank, _, tail in shown:
        told = [float(line.split()[1]) for line in tail if re.fullmatch(r"\d+ [\d.]+", line)]
        lags += [now_s - t for t in told if t > newest.get(rank, 0.0)]
        newest[rank] = max([newest.get(rank, 0.0), *told])
    return lags, shown[-1][0] - min(newest.values())


def report_lags(shown: list[list], told: list[list[float]]) -> list[float]:
    """The lag of every step: told by its rank at `told[rank][step]`, seen when a card first shows it or a later one.

    What a rank told before its card was there is no lag of the view, which opens only for a run that goes on.
    """
    lags, seen = [], [None] * len(told)
    for now_s, rank, facts, _ in shown:
        if found := re.match(r"step ([\d,]+)", facts):
            step = int(found[1].replace(",", "")) + 1
            lags += [now_s - t for t in told[rank][step if seen[rank] is None else seen[rank] : step]]
            seen[rank] = max(seen[rank] or 0, step)
    return lags


def p95(values: list[float]) -> float | None:
    return statistics.quantiles(values, n=20)[-1] if len(values) > 1 else None


def in_browser(folder: Path, seconds: float) -> dict[str, object]:
    lines = LINES.format(count=int(LINES_PER_S * seconds), per_s=LINES_PER_S, ranks=RANKS)
    reports = REPORTS.format(count=int(REPORTS_PER_S * seconds), per_s=REPORTS_PER_S, ranks=RANKS)
    cells = [nbformat.v4.new_code_cell(source) for source in (SETUP, lines, reports)]
    kernel = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), folder / "bench.ipynb")
    with lab(folder) as (address, server), sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS).new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(address)
        page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=1000 * _START_S)
        page.wait_for_function(IDLE, timeout=1000 * _START_S)
        bench = Bench(folder, page, server, psutil.Process())
        bench.run_cell(0, _START_S)
        shares = {"lines": bench.run_cell(1, 5 * seconds + 30)}
        lags, behind_s = line_lags(bench.shown())
        saved = {"lines": bench.saved_bytes(1)}
        shares["reports"] = bench.run_cell(2, 5 * seconds + 30)
        report_s = report_lags(bench.shown(), json.loads((folder / "reports.json").read_text()))
        saved["reports"] = bench.saved_bytes(2)
    return {
        "line_lags_s": lags, "report_lags_s": report_s, "behind_s": behind_s, "shares": shares, "saved_bytes": saved,
        "lines_on_disk": json.loads((folder / "lines.json").read_text()),
        "rate_exceeded": any("rate exceeded" in text for text in [*said, (folder / "log.txt").read_text()]),
    }  # fmt: skip


def overhead(folder: Path, repeats: int) -> dict[str, list[list[float]]]:
    """{kind of run and observer: [[seconds of the call, seconds of the run], …]} in a kernel that has a display."""
    from nbclient import NotebookClient

    cell = nbformat.v4.new_code_cell(OVERHEAD.format(ranks=RANKS, repeats=repeats))
    NotebookClient(
        nbformat.v4.new_notebook(cells=[cell]), timeout=600, resources={"metadata": {"path": str(folder)}}
    ).execute()
    return json.loads((folder / "overhead.json").read_text())


def print_results(found: dict, rows: dict, seconds: float) -> None:
    header = ["what", "median lag, s", "p95 lag, s", "kernel, cores", "browser, cores", "saved, bytes"]
    shown = []
    for what, lags in (("lines", found["line_lags_s"]), ("reports", found["report_lags_s"])):
        shares = found["shares"][what]
        shown.append(
            [what, report.median(lags), p95(lags), shares["kernel"], shares["browser"], found["saved_bytes"][what]]
        )
    report.table(f"live view, {RANKS} ranks, {seconds:g} s", header, shown)
    for what, _, late_s, kernel, browser, saved in shown:
        report.target(f"{what}: p95 lag, s", late_s, at_most={"lines": 0.15, "reports": 0.25}[what])
        report.target(f"{what}: kernel's share of a core", kernel, at_most=0.06)
        report.target(f"{what}: browser's share of a core", browser, at_most=0.3)
        report.target(f"{what}: saved output, bytes", float(saved), at_most=40_000)
    report.target("lines: behind at the end, s", found["behind_s"], at_most=0.5)
    lost = int(LINES_PER_S * seconds) * RANKS - sum(found["lines_on_disk"])
    report.target("lines: lost on disk", float(lost), at_most=0)
    report.target("message rate exceeded", float(found["rate_exceeded"]), at_most=0)
    for name in ("is quick", "goes on", "reports"):
        calls = [report.median([call for call, _ in rows[f"{name} {kind}"]]) for kind in ("LiveView", "Observer")]
        report.target(f"launch that {name}: with the view - without, s",
                      calls[0] - calls[1], at_most=0.05)  # fmt: skip


def main() -> None:
    parser = report.options(__doc__, repeats=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    seconds, repeats = (2.0, 2) if given.smoke else (given.seconds, given.repeats)
    print(report.machine())
    with tempfile.TemporaryDirectory(prefix="worldsize-bench-") as folder:
        rows = overhead(Path(folder), repeats)
        found = in_browser(Path(folder), seconds)
    print_results(found, rows, seconds)
    report.keep(given.out / "live.json", {"machine": report.machine(), "browser": found, "overhead": rows})
    lags = {"median": report.median, "p95": p95}
    series = {name: [f(found["line_lags_s"]), f(found["report_lags_s"])] for name, f in lags.items()}
    title = f"Live view, {RANKS} ranks: lag until drawn"
    report.bars(given.out / "live.png", title, ["lines", "reports"], series, axis="seconds", line=0.25)


if __name__ == "__main__":
    main()
