"""A line of buttons below a run in a notebook: open it in Perfetto, keep it as a page, copy it as text.

A button's file is made when it is pressed, so a run without a press costs nothing.
"""

from __future__ import annotations

import functools
from collections import deque
from pathlib import Path
from typing import Any

from worldsize.launch.run import Run
from worldsize.live.run_page import run_page, run_text
from worldsize.pages.fallback import WidgetWithFallback

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
                said = f"run.json is in your downloads: open {PERFETTO} and drop the file there."
                return {"file": "run.json", "type": "application/json", "data": run.trace.chrome_json(), "said": said}
            if asked == "page":
                said = "run.html is in your downloads: one file, which needs no network."
                return {"file": "run.html", "type": "text/html", "data": run_page(run), "said": said}
            if asked == "text":
                return {"file": "run.txt", "type": "text/plain", "copy": "yes", "data": run_text(run), "said": "Copied."}
            raise KeyError(asked)
        except Exception as error:
            return {"said": f"This failed: {type(error).__name__}: {error}"}


@functools.cache
def buttons_class() -> type:
    """Return the widget's class, made on first use: headless runs need none of its libraries."""
    import anywidget

    class RunButtonsWidget(anywidget.AnyWidget):
        _esm = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")

    return RunButtonsWidget
