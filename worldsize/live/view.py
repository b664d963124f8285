"""The live view of a run in a notebook: the state, output and reports of each rank, while the run goes.

At most ten messages a second go to `view.js`, each with the news only; once a second a message has everything, for a front
end that missed one. The pair of one `.py` and one plain `.js` follows T. Manz's anywidget, https://anywidget.dev.
"""

import functools
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from worldsize.engines.job import Progress
from worldsize.figures import tokens, wait_graph
from worldsize.launch.run import Bundle, Run
from worldsize.live import result
from worldsize.live.cell_end import CellOutput, PlaceholderOutput, at_cell_end
from worldsize.live.run_buttons import MOST_KEPT, RunButtons
from worldsize.live.run_state import RunState
from worldsize.live.text import STARTING_HELPER, TextLines, last_words, lines_of, say, show_rich

# A shorter run needs no feedback but its result (the limit is a second: J. Nielsen, Usability Engineering, 1993), and a
# view that flashes by is worse than none. Lab 00's launches end before, even the failing ones.
OPEN_AFTER_S = 0.75
MESSAGE_S = 0.1
WHOLE_S = 1.0
WARMING_S = 0.3  # no line for a helper that is almost ready
WARMING_AGAIN_S = 1.0
LOADING_S = 1.5  # whole messages only: those before the browser has loaded the script are lost


class LiveView(TextLines):
    """An observer that holds back each run's lines until its end, and prints those that the view's result does not show."""

    def __init__(self, heard: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._heard = heard  # called while a run is followed: its cell needs no clock
        self._window: LiveWindow | None = None
        self._held: list[str] = []
        self._of: Run | None = None
        self._began_s = 0.0
        self._broken = False
        self._helper: PlaceholderOutput | None = None
        self._helper_told_s = 0.0
        self._offered: deque[Run] = deque(maxlen=MOST_KEPT)  # the cell's runs, the latest last

    @override
    def warming(self, waited_s: float) -> None:
        if waited_s < WARMING_S:
            return
        if self._helper and waited_s - self._helper_told_s < WARMING_AGAIN_S:
            return

        self._helper_told_s = waited_s
        line = STARTING_HELPER
        if waited_s >= 1:
            line = f"{line} ({waited_s:.0f} s)"
        if self._helper is None:
            self._helper = PlaceholderOutput(line)
        else:
            self._helper.close({"text/plain": line})

    @override
    def warmed(self, waited_s: float, ready: bool) -> None:
        helper, self._helper = self._helper, None
        if helper is None:
            return

        said = f"the helper that starts ranks was not ready after {waited_s:.1f} s"
        if ready:
            said = f"the helper that starts ranks is ready, for later launches too: {waited_s:.1f} s"
        helper.close({"text/plain": said})

    @override
    def started(self, run: Run) -> None:
        self._break_off()
        super().started(run)
        self._held = []
        self._begin(run)
        self._broken = False

    def _begin(self, run: Run) -> None:
        """Start a live view's clock at its first news, so that waiting for its ranks counts too."""
        if self._of is not run:
            self._of = run
            self._began_s = time.monotonic()

    @override
    def printed(self, run: Run, rank: int, text: str) -> None:
        lines = lines_of(text)
        self.run_state.printed(rank, lines)
        self._held += self.screenful.take(rank, lines)

    @override
    def displayed(self, run: Run, rank: int, bundle: Bundle) -> None:
        """Nothing in the view yet: pictures and tables come by rank, when all are there."""

    @override
    def progressed(self, run: Run, progress: Progress) -> None:
        for report in progress.reports:
            self.run_state.rows[progress.rank].report(report)
        self.run_state.progressed(progress)
        self.ticked(run)

    @override
    def ticked(self, run: Run) -> None:
        self._begin(run)
        self._heard()
        if not run.setup or self._broken:
            return
        if time.monotonic() - self._began_s < OPEN_AFTER_S:
            return

        with self._no_harm():
            if self._window is None:
                self._window = LiveWindow(run.setup, self.run_state, self._began_s)
                at_cell_end(self._break_off)
            self._window.refresh("running")

    @override
    def ended(self, run: Run) -> None:
        self._of = None
        words = last_words(run)
        if run.setup:
            self._held += self.screenful.rest()
            if run.state == "not yet":  # nothing else to show: these words replace the view
                self._held += words
                words = []

            with self._no_harm():
                self._offer(run)  # buttons first: a picture lower than the view would make the page jump
                self._leave(run)
            say(self._held)
            with self._no_harm():
                show_rich(run)

        say(words)

    def _leave(self, run: Run) -> None:
        """Show at once how the ranks ended; leave the picture, which takes a tenth of a second, for the cell's end."""
        window, run_state = self._window, self.run_state
        self._window = None
        if window is None:
            if run.state != "not yet" and (any(run.reports) or wait_graph.hangs(run)):
                self._close_at_cell_end(PlaceholderOutput(result.caption(run)), run, run_state)
            return

        for rank, end in enumerate(result.ends(run)):
            run_state.stands(rank, end.state, str(end))
        window.refresh(run.state, now=True)

        only_printed = run.state == "done" and self._held and not self.screenful.rest() and not result.has_picture(run)
        if run.state == "not yet" or only_printed:  # few lines: they stay, as if there had been no view
            window.close({"text/plain": "\n".join(self._held)})
            self._held = []
        else:
            self._close_at_cell_end(window, run, run_state)

    def _offer(self, run: Run) -> None:
        """Show, at the cell's end, one line of buttons for the latest run with a picture.

        Not earlier: the search reads the ranks' records, and a launch should not wait for that.
        """

        def show() -> None:
            offered = [*reversed(self._offered)]
            self._offered.clear()
            with self._no_harm():
                kept = next(filter(result.has_picture, offered), None)
                if kept is not None:
                    RunButtons(kept)

        if not self._offered:
            at_cell_end(show)
        self._offered.append(run)

    def _close_at_cell_end(self, window: CellOutput, run: Run, run_state: RunState) -> None:
        """Replace the live `window` at the cell's end by picture and table, with the lines that were held back folded below."""
        lines, self._held = self._held, []

        def made(is_open: bool) -> dict[str, str]:
            try:
                return result.folding(run, run_state, lines, is_open)
            except Exception as error:
                return {"text/plain": "\n".join([result.caption(run), f"note: its picture failed: {error!r}", *lines])}

        self._results.leave(window, run, made)

    def _break_off(self) -> None:
        """Close the view of a run whose end was not reported, for example because its agent died."""
        window, self._window = self._window, None
        if window is not None:
            with self._no_harm():
                window.close({"text/plain": "the run broke off"})

    @contextmanager
    def _no_harm(self) -> Iterator[None]:
        """Catch the view's errors with a note, so that the run goes on."""
        try:
            yield
        except Exception as error:
            self._broken = True
            print(f"note: the live view stopped ({type(error).__name__}: {error}); the run is not affected.")


class LiveWindow:
    """A live view in the launching cell, which sends a run's news to the browser until something replaces it."""

    def __init__(self, setup: str, run_state: RunState, began_s: float) -> None:
        from IPython.display import display

        now_s = time.monotonic()
        self._run_state = run_state
        self._began_s = began_s

        self._opened_s = now_s
        self._sent_s = now_s  # of the last message
        self._whole_s = now_s  # of the last whole message
        self._seq = 0
        self._asked = False

        self._widget = widget_class()(first=self._message(run_state.whole(), "running", whole=True))
        self._widget.on_msg(self._on_ask)
        data = {**self._widget._repr_mimebundle_()[0], "text/plain": f"{setup}: running"}
        self._handle = display(data, raw=True, display_id=True)

    def refresh(self, state: str, now: bool = False) -> None:
        """Send the view news, or everything if due. Without `now`, send nothing within `MESSAGE_S` of the last message."""
        now_s = time.monotonic()
        if not now and now_s - self._sent_s < MESSAGE_S:
            return

        loading = now_s - self._opened_s < LOADING_S
        whole = now or self._asked or loading or now_s - self._whole_s >= WHOLE_S
        if not whole and not self._run_state.changed:
            return

        self._sent_s = now_s
        self._seq += 1
        if whole:
            self._whole_s = now_s
            self._asked = False
            content = self._run_state.whole()
        else:
            content = self._run_state.news()
        self._widget.send(self._message(content, state, whole))

    def close(self, bundle: dict[str, str]) -> None:
        """Replace the live view by `bundle` in the same output."""
        self._handle.update(bundle, raw=True)
        self._widget.close()

    def _message(self, content: dict[str, Any], state: str, whole: bool) -> dict[str, Any]:
        return {**content, "seq": self._seq, "whole": whole, "state": state, "at": time.monotonic() - self._began_s}

    def _on_ask(self, widget: Any, content: Any, buffers: Any) -> None:
        self._asked = True


def script() -> str:
    """Return the live view's JavaScript module, joined from its four scripts."""
    here = Path(__file__).parent
    return "\n".join((here / name).read_text(encoding="utf-8") for name in ("charts.js", "ranks.js", "room.js", "view.js"))


@functools.cache
def widget_class() -> type:
    """Return the live view's widget class, made on first use: headless runs need none of its libraries."""
    import anywidget
    import traitlets

    class RunWidget(anywidget.AnyWidget):
        _esm = script()
        _css = tokens.css(".ws-live")
        first = traitlets.Dict().tag(sync=True)

    return RunWidget
