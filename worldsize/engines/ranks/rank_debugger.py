"""A rank's debugger: Python's pdb, with prompts and commands in the notebook.

While it waits for a command, other ranks run until they need this one, and no time limit runs.
`ranks/debugger_prompts.py` asks the user.
"""

import io
import pdb
import queue
import sys
from collections.abc import Callable
from types import TracebackType

from typing_extensions import override

from worldsize.engines.job import Prompt

_OWN = ["worldsize.*"]  # stepping out of a cell ends there


class RankDebugger(pdb.Pdb):
    """A rank's pdb that sends its prompts by `tell`, and takes typed commands from `typed`."""

    def __init__(self, rank: int, tell: Callable[[Prompt], None], typed: queue.SimpleQueue[str]) -> None:
        self._rank, self._tell, self._typed = rank, tell, typed
        self._written = io.StringIO()
        super().__init__(stdin=self, stdout=self._written, nosigint=True, skip=_OWN)

    def readline(self) -> str:
        """Send the debugger's prompt written last, with the output before it, and return what is typed."""
        *lines, prompt = self._written.getvalue().split("\n")
        self._written.seek(0)
        self._written.truncate()
        sys.stdout.flush()
        self._tell(Prompt(self._rank, "\n".join(lines), prompt))
        return f"{self._typed.get()}\n"

    @override
    def _cmdloop(self) -> None:
        """Run the debugger's command loop without pdb's handling of interrupts, which would resume the loop."""
        self.cmdloop()

    def look_at(self, traceback: TracebackType) -> None:
        """Debug in the frame where an error was raised, until the user leaves the prompt."""
        self.reset()
        self.interaction(None, traceback)
