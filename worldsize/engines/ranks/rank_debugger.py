"""A rank's debugger: Python's pdb, whose prompts go to the notebook and whose commands come from there.

While it waits for a command, the other ranks go on until they need this one, and no time limit runs. Left out: who is asked
(`ranks/debugger_prompts.py`).
"""

from __future__ import annotations

import io
import pdb
import queue
import sys
from collections.abc import Callable
from types import FrameType, TracebackType

from worldsize.engines.job import Prompt

_OWN = ["worldsize.*"]  # stepping out of a cell ends there


class RankDebugger(pdb.Pdb):
    """pdb that tells its prompts by `tell`, and gets what was typed from `typed`."""

    def __init__(self, rank: int, tell: Callable[[Prompt], None], typed: queue.SimpleQueue[str]) -> None:
        self._rank, self._tell, self._typed = rank, tell, typed
        self._written = io.StringIO()
        super().__init__(stdin=self, stdout=self._written, nosigint=True, skip=_OWN)  # type: ignore[arg-type]

    def readline(self) -> str:
        """Return what was typed at the prompt that was written last."""
        *lines, prompt = self._written.getvalue().split("\n")
        self._written.seek(0)
        self._written.truncate()
        sys.stdout.flush()
        self._tell(Prompt(self._rank, "\n".join(lines), prompt))
        return f"{self._typed.get()}\n"

    def _cmdloop(self) -> None:
        """Without pdb's own, which goes on where it is interrupted."""
        self.cmdloop()

    def stop_at(self, frame: FrameType) -> None:
        """Stop at the next line of this frame, as `breakpoint()` does."""
        self.set_trace(frame)

    def look_at(self, traceback: TracebackType) -> None:
        """Look at where an error was raised, until the one at the prompt goes on."""
        self.reset()
        self.interaction(None, traceback)
