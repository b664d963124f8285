"""The ranks' output and reports as tagged lines of text, for a terminal and for a headless run.

A screenful of lines is shown and the rest counted; reports print at most one line per rank and epoch. A run with reports
ends with a picture and a table.
"""

import sys
from collections.abc import Sequence

from typing_extensions import override

from worldsize import failures
from worldsize.engines.job import Progress
from worldsize.figures import wait_graph
from worldsize.launch import rank_output
from worldsize.launch.rank_output import as_seen
from worldsize.launch.run import Bundle, Observer, Run, in_kernel
from worldsize.live import output_by_rank, result
from worldsize.live.cell_end import CellResults, PlaceholderOutput
from worldsize.live.run_state import RunState

SHOWN_LINES = 30
LONG_WARMING_S = 2.0  # a shorter wait for the helper is not mentioned
STARTING_HELPER = "starting the helper that starts ranks. It takes some seconds; later launches find it ready"


def lines_of(text: str) -> list[str]:
    """Return the lines of text that a rank printed.

    A progress bar's line is its last state, as in a terminal: a rank's name in front of it must not be overwritten.
    """
    return as_seen(text.removesuffix("\n")).split("\n")


class Screenful:
    """A filter of text that tags the first lines of a run by rank, and counts the others."""

    def __init__(self, tasks: failures.TaskNames = ()) -> None:
        self._tasks = tasks
        self._shown = self._kept_back = 0

    def take(self, rank: int, lines: list[str]) -> list[str]:
        """Return the first of `lines` that there is room for, tagged."""
        shown = lines[: SHOWN_LINES - self._shown]
        self._shown += len(shown)
        self._kept_back += len(lines) - len(shown)

        return [f"[{failures.name(rank, self._tasks)}] {line}" for line in shown]

    def rest(self) -> list[str]:
        if not self._kept_back:
            return []
        first = failures.name(0, self._tasks)
        return [f"… {self._kept_back} more lines; all of {first}'s: print(run.log(0))"]


class TextLines(Observer):
    """An observer that prints the set-up line and each rank's lines as they come."""

    # of the latest run
    run_state: RunState
    screenful: Screenful
    told_warming = False

    def __init__(self) -> None:
        self._results = CellResults()

    @override
    def warming(self, waited_s: float) -> None:
        if waited_s >= LONG_WARMING_S and not self.told_warming:
            self.told_warming = True
            print(STARTING_HELPER, flush=True)

    @override
    def warmed(self, waited_s: float, ready: bool) -> None:
        self.told_warming = False

    @override
    def show(self, run: Run) -> None:
        """Show an earlier run again: its picture and table, and its first lines folded."""
        screenful, lines = Screenful(run.tasks), []
        for rank in range(run.world_size):
            text = run.log(rank)
            if text:
                lines += screenful.take(rank, lines_of(text))

        show(run, result.state_of(run), [*lines, *screenful.rest()])
        show_rich(run)

    @override
    def started(self, run: Run) -> None:
        self.run_state = RunState(run.world_size, run.tasks, run.hosts)
        self.screenful = Screenful(run.tasks)
        if in_notebook():
            self._results.launched()
        print(run.setup)

    @override
    def printed(self, run: Run, rank: int, text: str) -> None:
        lines = lines_of(text)
        self.run_state.printed(rank, lines)
        say(self.screenful.take(rank, lines))

    @override
    def displayed(self, run: Run, rank: int, bundle: Bundle) -> None:
        self.printed(run, rank, dict(bundle).get("text/plain", ""))

    @override
    def progressed(self, run: Run, progress: Progress) -> None:
        row = self.run_state.rows[progress.rank]
        for report in progress.reports:
            if "epoch" in report and row.latest.get("epoch", report["epoch"]) != report["epoch"]:
                self._tell_epoch(progress.rank)
            row.report(report)

        self.run_state.progressed(progress)

    @override
    def ended(self, run: Run) -> None:
        if run.setup:
            for rank in range(run.world_size):
                self._tell_epoch(rank)
            say(self.screenful.rest())

            if any(run.reports) or (in_notebook() and wait_graph.hangs(run)):
                if in_kernel():  # a person reads the notebook later: leave the result as the live view does
                    state = self.run_state
                    output = PlaceholderOutput(result.caption(run))
                    self._results.leave(output, run, lambda is_open: result.folding(run, state, (), is_open))
                else:
                    show(run, self.run_state)

        say(last_words(run))

    def _tell_epoch(self, rank: int) -> None:
        row = self.run_state.rows[rank]
        if "epoch" in row.latest:
            say(self.screenful.take(rank, [row.told()]))


def say(lines: list[str]) -> None:
    """Print a run's lines with one write, since each write is a message to the front end."""
    if lines:
        print("\n".join(lines))


def last_words(run: Run) -> list[str]:
    """Return the lines of text that end a run's output: "not yet: …" for an exercise, and the launcher's notes."""
    notes = [f"note: {note}" for note in run.notes]
    if run.state == "not yet":
        return [f"not yet: {run.not_yet}", *notes]
    return notes


def show_rich(run: Run) -> None:
    """Show in a notebook the pictures and tables that ranks displayed, by rank."""
    everyone = range(run.world_size)
    groups = rank_output.groups(run, everyone, only_rich=True)
    if groups and in_kernel():
        page = output_by_rank.html_of(groups, everyone)
        text = output_by_rank.text_of(groups, everyone)
        sys.modules["IPython"].display.display({"text/html": page, "text/plain": text}, raw=True)


def in_notebook() -> bool:
    """Return True under IPython, which can show pictures."""
    return "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None


def show(run: Run, run_state: RunState, lines: Sequence[str] = ()) -> None:
    """Show a run's picture and table in a notebook, or the table alone, as text, in a terminal."""
    made = result.folding(run, run_state, lines, is_open=True)
    if in_notebook():
        sys.modules["IPython"].display.display(made, raw=True)
    else:
        print(made["text/plain"])
