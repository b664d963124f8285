"""Run an answer on the ranks' tensors, some of them long, so that no wire copies their messages when they are sent.

An answer that sends tensors number by number has no long message, and would take minutes for one: it gets no long tensors.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.trace import Trace

LONG_BYTES = 100_000


class Runs:
    """The runs of an answer in one check, on long tensors too."""

    def __init__(self, arena: Arena, fn: Callable) -> None:
        self._arena, self._fn = arena, fn
        self._first = Trace(0)

    def on(self, inputs: Sequence[np.ndarray], *more: Any, driver: Callable | None = None) -> ArenaResult:
        """Run the answer on `inputs`, the ranks' tensors, long or not; `driver` is as in `Arena.ranks`."""
        ended = self._arena.ranks(self._fn, inputs, *more, driver=driver)
        if not self._first.transfers:
            self._first = ended.trace
        return ended

    def would_take_minutes(self, inputs: Sequence[np.ndarray]) -> bool:
        """Return whether these tensors are long, and the first messages held fewer than two numbers on average."""
        numbers = self._first.total_bytes() / inputs[0].itemsize
        return inputs[0].nbytes >= LONG_BYTES and numbers < 2 * len(self._first.transfers)
