"""Work for the end of the running cell: results of its runs are put into their places, folded or open.

A cell's own picture should be the first thing under it, so a result is one line to unfold. The result is open if the run
failed or hung, or if its picture belongs to the cell's only launch and the cell showed no other.
"""

from collections.abc import Callable
from typing import Any, Protocol

from worldsize.figures import wait_graph
from worldsize.launch.run import Run
from worldsize.live import result

PICTURE_MARKS = ("worldsize-picture", "<img ")


class CellOutput(Protocol):
    """An output that can be replaced when its cell ends."""

    def close(self, bundle: dict[str, str]) -> None: ...


def at_cell_end(act: Callable[[], None]) -> None:
    """Call `act` once the running cell has ended, before the next one starts."""
    from IPython import get_ipython

    events = get_ipython().events

    def once() -> None:
        events.unregister("post_execute", once)
        act()

    events.register("post_execute", once)


class PlaceholderOutput:
    """An output with a line of text until the cell's end replaces it."""

    def __init__(self, text: str) -> None:
        from IPython.display import display

        self._handle = display({"text/plain": text}, raw=True, display_id=True)

    def close(self, bundle: dict[str, str]) -> None:
        self._handle.update(bundle, raw=True)


class CellResults:
    """The results of one cell's runs, which appear when the cell has ended."""

    def __init__(self) -> None:
        self._left: list[tuple[CellOutput, Run, Callable[[bool], dict[str, str]]]] = []
        self._pictures = 0
        self._launches = 0
        self._alone = True  # the cell that has ended had one launch
        self._hears = False

    def launched(self) -> None:
        """Count a launch before the cell's end, even one too short to leave a result."""
        if not self._launches:
            at_cell_end(self._count)
        self._launches += 1

    def _count(self) -> None:
        self._alone = self._launches == 1
        self._launches = 0

    def leave(self, output: CellOutput, run: Run, made: Callable[[bool], dict[str, str]]) -> None:
        """Replace `output` at the cell's end by `made(is_open)`, the run's result by MIME type."""
        if not self._hears:
            from IPython import get_ipython

            register = getattr(getattr(get_ipython(), "display_pub", None), "register_hook", None)
            if register is not None:
                self._hears = True
                register(self._hear)

        if not self._left:
            self._pictures = 0
            at_cell_end(self._close)
        self._left.append((output, run, made))

    def _close(self) -> None:
        left, self._left = self._left, []
        alone = self._alone and len(left) == 1 and not self._pictures

        for output, run, made in left:
            is_open = run.state in ("failed", "interrupted") or wait_graph.hangs(run)
            if alone and not is_open:
                is_open = result.has_picture(run)
            output.close(made(is_open))

    def _hear(self, message: Any) -> Any:
        """Count the pictures that the cell itself shows before its end."""
        if message.get("msg_type") == "display_data":
            data = message["content"].get("data", {})
            page = data.get("text/html", "")
            shows = [kind.startswith("image/") for kind in data] + [mark in page for mark in PICTURE_MARKS]
            self._pictures += any(shows)

        return message
