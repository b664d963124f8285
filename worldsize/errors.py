"""The errors that a launch raises, and the error that an exercise's stub raises.

    LaunchError
      RankFailed      a rank raised, was killed, or left without a result
      Deadlock        every rank waits in the fabric for something that cannot come
      RunTimedOut     the time limit passed
      EngineLost      the process that starts the ranks is gone
    Interrupted       the stop button (a KeyboardInterrupt)
    NotYet            a stub of an unwritten exercise

`failures` and `launch.outcome_error` write the messages.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from typing_extensions import override

from worldsize.failures import Failure

if TYPE_CHECKING:  # a launch raises these errors, so it imports this module
    from worldsize.launch.run import Run


SHOWN_COLUMNS = 96  # of JupyterLab at 1280 pixels, with the list of files open


def _lines(text: str) -> list[str]:
    """Return an error's text in lines that a cell has room for: a front end breaks a longer line within a word."""
    rows = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        look = {"initial_indent": indent, "subsequent_indent": f"{indent}    "}
        shown = textwrap.wrap(line.lstrip(), SHOWN_COLUMNS, break_long_words=False, break_on_hyphens=False, **look)
        rows += shown or [""]
    return rows


class NotYet(NotImplementedError):
    """Raised by a stub: `raise NotYet("Exercise 6.2: reduce-scatter")`. A launch answers with a run "not yet"."""


class LaunchError(RuntimeError):
    """The error of a launch that did not end well. `run` has its remains: logs, partial trace, results so far.

    `message` says what happened, `hint` what to do next; both are in the error's text.
    """

    def __init__(self, message: str, run: Run | None = None, hint: str = "") -> None:
        super().__init__("\n".join(filter(None, (message, hint))))
        self.message = message
        self.run = run
        self.hint = hint

    def _render_traceback_(self) -> list[str]:
        """Return the text that IPython shows in place of the launcher's own frames, in lines that a cell has room for."""
        return _lines(f"{type(self).__name__}: {self}")


class RankFailed(LaunchError):
    """The error of the first rank that failed. `failure` is a `Failure`; `rank` is the failed rank's number."""

    def __init__(
        self, message: str, run: Run | None = None, hint: str = "", failure: Failure | None = None
    ) -> None:
        super().__init__(message, run, hint)
        self.failure = failure
        self.rank = failure.rank if failure else None


class Deadlock(LaunchError):
    """Every live rank is blocked in the fabric and no message can match."""

    @override
    def _render_traceback_(self) -> list[str]:
        """Return the text that IPython shows, without the word "deadlock", which the class name already has."""
        return _lines(f"{type(self).__name__}: {str(self).removeprefix('deadlock: ')}")


class RunTimedOut(LaunchError):
    """`timeout_s` passed before every rank returned."""


class EngineLost(LaunchError):
    """The agent that owns the ranks could not start or has ended."""


class Interrupted(KeyboardInterrupt):
    """The run was interrupted; `run` holds the logs and the trace so far."""

    def __init__(self, message: str, run: Run | None = None) -> None:
        super().__init__(message)
        self.run = run

    def _render_traceback_(self) -> list[str]:
        return _lines(f"{type(self).__name__}: {self}")
