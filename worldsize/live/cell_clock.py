"""A line under a cell that works without output: what the cell does, and for how long.

People wait about a second without feedback (J. Nielsen, Usability Engineering, 1993). A cell with a view of its own
(`view`), or with other output, needs no line.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from worldsize.launch.run import Observer, Run
from worldsize.units import count

FIRST_S = 0.8
SILENCE_S = 4.0  # after some output
SOON_S = 0.2  # between looks, before there is a line
LONG_S = 5.0  # a shorter cell does not say how long it took
AGAIN_S = 1.0  # between looks, once there is one


class CellClock:
    """The clock of the line under a working cell. `show(text)` makes a line, and returns a function that replaces its text."""

    def __init__(self, show: Callable[[str], Callable[[str], None]], now: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._now = now
        self._change: Callable[[str], None] | None = None
        self._doing = ""
        self._runs = 0

        self._began_s = self._heard_s = now()
        self._has_said = False
        self._ended = threading.Event()
        self._ended.set()

    def begins(self, soon: bool = False) -> None:
        """Begin a cell's clock, and watch it in a thread until `ends`; `soon` is for a cell that began before."""
        self.restart()
        if soon:
            self._heard_s -= FIRST_S

        look_on = threading.Thread(target=self._look_on, args=(self._ended,), name="worldsize-cell-clock", daemon=True)
        look_on.start()

    def restart(self) -> None:
        self._ended.set()
        self._ended = threading.Event()
        self._began_s = self._heard_s = self._now()
        self._change, self._doing, self._runs, self._has_said = None, "", 0, False

    def ends(self) -> None:
        """End the cell's clock; its line, if any, says how long the cell took where that was long, else it goes."""
        self._ended.set()
        if self._change is not None:
            took_s = self._now() - self._began_s
            self._change(f"took {took_s:.0f} s" if took_s >= LONG_S else "")

    def says(self, doing: str) -> None:
        """Set the words, beside the clock, for what the cell does now."""
        self._doing = doing

    def runs(self, ranks: str) -> None:
        """Count on the clock's line one more run of the cell, on `ranks`."""
        self._runs += 1
        self._doing = f"run {self._runs}, {ranks}"

    def heard(self) -> None:
        """Note that the clock's cell has put something out."""
        self._has_said = True
        self._heard_s = self._now()

    def rests(self) -> None:
        """Stop the clock: the cell asks a person something, and the wait is not work."""
        self._ended.set()

    def look(self) -> None:
        """Make the clock's line, or renew it, if it is time to."""
        patience_s = SILENCE_S if self._has_said else FIRST_S
        if self._change is None and self._now() - self._heard_s < patience_s:
            return

        doing = f": {self._doing}" if self._doing else ""
        text = f"at work for {self._now() - self._began_s:.0f} s{doing}"
        if self._change is None:
            self._change = self._show(text)
        else:
            self._change(text)

    def _look_on(self, ended: threading.Event) -> None:
        wait_s = SOON_S
        while not ended.wait(wait_s):
            self.look()
            if self._change is not None:
                wait_s = AGAIN_S


class RunsSaid(Observer):
    """An observer that tells a cell's clock of every run, even of a run that belongs to a picture."""

    hears_all = True

    def __init__(self, clock: CellClock) -> None:
        self._clock = clock

    @override
    def started(self, run: Run) -> None:
        self._clock.runs(count(run.world_size, "rank"))


def clock_of(shell: Any) -> CellClock:
    """Return a clock for the cells of an IPython kernel, starting with the running one."""
    from IPython.display import display

    def show(text: str) -> Callable[[str], None]:
        handle = display({"text/plain": text}, raw=True, display_id=True)
        gone = {"text/html": "<span hidden></span>", "text/plain": ""}  # an empty text would take a line
        return lambda later: handle.update({"text/plain": later} if later else gone, raw=True)

    clock = CellClock(show)
    write = sys.stdout.write

    def hear(message: Any) -> Any:
        clock.heard()
        return message

    def heard_write(text: str) -> Any:
        clock.heard()
        return write(text)

    shell.display_pub.register_hook(hear)
    sys.stdout.write = heard_write  # not a hook of stdout's: those run in another thread
    shell.events.register("pre_run_cell", lambda *_: clock.begins())
    shell.events.register("post_run_cell", lambda *_: clock.ends())
    clock.begins(soon=True)
    return clock
