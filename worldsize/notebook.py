"""The names that a notebook imports: `from worldsize.notebook import *`. Wiring only; no other module imports it.

This module alone runs only in a notebook: it starts the agent at once, shows runs while they go on, draws verdicts, and rebuilds
a student's function from the cells that count before a check runs it.
"""

import os

from worldsize import data, figures
from worldsize.checks.verdict import Verdict
from worldsize.doctor import CapabilitySheet, examine
from worldsize.errors import Deadlock, Interrupted, LaunchError, NotYet, RankFailed, RunTimedOut
from worldsize.lab.checker import Checker
from worldsize.lab.handed_in import notebook_shell
from worldsize.lab.knobs import knobs
from worldsize.lab.lab import Lab
from worldsize.lab.terminal import terminal
from worldsize.lab.verdict_view import verdict_html
from worldsize.launch import Run, last_run, launch, quiet_launch, warm
from worldsize.launch.run import observe
from worldsize.links import Link
from worldsize.live.cell_clock import CellClock, RunsSaid, clock_of
from worldsize.live.text import TextLines
from worldsize.live.view import LiveView
from worldsize.ranks import magics, open_ranks
from worldsize.ranks.cell_observers import CellText, CellView
from worldsize.report import report, span
from worldsize.simulate import Nodes, simulate

__all__ = [
    "Deadlock", "Interrupted", "Lab", "LaunchError", "Link", "Nodes", "NotYet", "RankFailed", "Run", "RunTimedOut",
    "capability_sheet", "data", "figures", "knobs", "last_run", "launch", "open_lab", "open_ranks", "report", "simulate", "span",
    "terminal",
]  # fmt: skip


def capability_sheet() -> CapabilitySheet:
    """Return this machine's capability sheet, from a real run of two ranks."""
    return examine(quiet_launch)


def open_lab(number: str) -> tuple[Lab, Checker]:
    """Open a lab in a notebook's first cell: return its predictions and points, and its checks, as (lab, check).

    Predictions and points are kept in a file.
    """
    lab = Lab(number)
    if _CLOCK is None:
        return lab, Checker(lab)
    return lab, Checker(lab, says=_CLOCK.says)


def _wire() -> CellClock | None:
    warm()
    shell, clock = notebook_shell(), None
    if hasattr(shell, "kernel") and os.environ.get("WORLDSIZE_HEADLESS") != "1":
        clock = clock_of(shell)
        clock.says("loading its libraries, once in a notebook: some seconds")
        observe(RunsSaid(clock))
        observe(LiveView(clock.heard))
    else:
        observe(TextLines())
    if shell is None:
        return None

    def ask(prompt: str) -> str:
        clock.rests()
        return input(prompt)  # in the box of the running cell

    if clock is not None:
        magics.register(shell, CellView(), ask)
    else:
        magics.register(shell, CellText(), None)
    shell.display_formatter.formatters["text/html"].for_type(Verdict, verdict_html)
    shell.display_formatter.formatters["text/plain"].for_type(Verdict, lambda v, p, cycle: p.text(_plain(v)))
    return clock


def _plain(verdict: Verdict) -> str:
    """Return a verdict's text, or under nbgrader its points: nbgrader takes every result that is no number for full marks.

    Source: nbgrader's `utils.get_partial_grade`; nbgrader sets the variable for its kernels.
    """
    return f"{verdict.points:g}" if "NBGRADER_EXECUTION" in os.environ else str(verdict)


_CLOCK = _wire()
