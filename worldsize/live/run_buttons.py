"""A line of buttons below a run in a notebook: open it in Perfetto, keep it as a page, copy it as text.

A button's file is made when it is pressed, so a run without a press costs nothing. The page stands alone: it fetches nothing and
needs no kernel, so it can be mailed, or opened in a year. Long runs are cut to `MOST_MESSAGES` and `MOST_LOG_CHARS`, and the page
says so.
"""

from __future__ import annotations

import functools
from collections import deque
from pathlib import Path
from typing import Any

from worldsize import pages, units
from worldsize.figures.replay.bands import replay
from worldsize.launch.run import Run
from worldsize.live import result
from worldsize.pages.fallback import WidgetWithFallback

MOST_MESSAGES = 1000
MOST_LOG_CHARS = 200_000


def run_page(run: Run) -> str:
    """Return the page of a run that has ended, as HTML of at most about a megabyte."""
    heads, rows = result.table(run, result.state_of(run))
    log = run.log()

    return pages.render(
        "run_page.html",
        caption=result.caption(run),
        setup=run.setup,
        pictures=[picture.html(picture.png()) for picture in result.pictures(run)],
        player=replay({"this run": run})._repr_html_() if run.trace.transfers else "",
        heads=heads,
        rows=[row.texts() for row in rows],
        messages=_messages(run.trace),
        left_out=max(0, len(run.trace.transfers) - MOST_MESSAGES),
        log=log[:MOST_LOG_CHARS],
        log_cut=len(log) > MOST_LOG_CHARS,
    )


def run_text(run: Run) -> str:
    """Return a run's page, to copy, as text: the picture's finding, the table, and the ranks' output."""
    told = result.bundle(run, result.state_of(run))["text/plain"]
    return "\n".join(filter(None, [run.setup, told, run.log().rstrip()]))


def _messages(trace: Any) -> list[list[str]]:
    """Return a page's first messages as rows: source, destination, tag, size, and the moments of sending and of full receipt."""
    start_s = min((t.start_s for t in trace.transfers), default=0.0)

    rows = []
    for t in trace.transfers[:MOST_MESSAGES]:
        sent, received = units.seconds(t.start_s - start_s), units.seconds(t.end_s - start_s)
        rows.append([str(t.src), str(t.dst), str(t.tag), units.size(t.size_bytes), sent, received])
    return rows


MOST_KEPT = 20  # runs whose files stay for their buttons; files of older runs are deleted
PERFETTO = "https://ui.perfetto.dev"
_kept: deque[RunButtons] = deque(maxlen=MOST_KEPT)


class RunButtons:
    """The buttons of one run, shown at once."""

    def __init__(self, run: Run) -> None:
        self.run: Run | None = run
        if len(_kept) == MOST_KEPT:
            _kept[0].run = None  # no longer keeps the run's files
        _kept.append(self)

        self._widget = buttons_class()()
        self._widget.on_msg(lambda _, content, __: self._widget.send(self.answer(content.get("ask"))))
        WidgetWithFallback(self._widget, "", "")

    def answer(self, asked: Any) -> dict[str, str]:
        """Return the response to the button `asked`: a file or text to copy, and a message."""
        run = self.run
        if run is None:
            return {"said": "This run's files are gone: newer runs replaced them. Run this cell again."}

        try:
            if asked == "perfetto":
                message = f"run.json is in your downloads: open {PERFETTO} and drop the file there."
                return {"file": "run.json", "type": "application/json", "data": run.trace.chrome_json(), "said": message}
            if asked == "page":
                message = "run.html is in your downloads: one file, which needs no network."
                return {"file": "run.html", "type": "text/html", "data": run_page(run), "said": message}
            if asked == "text":
                return {"file": "run.txt", "type": "text/plain", "copy": "yes", "data": run_text(run), "said": "Copied."}
            raise KeyError(asked)
        except Exception as error:
            return {"said": f"This failed: {type(error).__name__}: {error}"}


@functools.cache
def buttons_class() -> type:
    """Return the buttons' widget class, made on first use: headless runs need none of its libraries."""
    import anywidget

    class RunButtonsWidget(anywidget.AnyWidget):
        _esm = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")

    return RunButtonsWidget
