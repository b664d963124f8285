"""An arena that counts the runs that a check makes: which of them failed, and what the same one is with another answer.

Left out: the runs themselves (`arena`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from worldsize.arena import Ended


class Enough(Exception):
    """The run that was asked for has ended; `ended` is what came of it."""

    def __init__(self, ended: Ended) -> None:
        self.ended = ended


class Counted:
    """`arena`, whose runs so far are `runs`, the latest one `over_fabric` or not. The run number `last` raises Enough."""

    def __init__(self, arena: Any, last: int | None = None) -> None:
        self._arena, self._last = arena, last
        self.runs, self.over_fabric = 0, False

    def __getattr__(self, name: str) -> Any:
        """Whatever the arena has; a call of one of its ways to run a function counts."""
        found = getattr(self._arena, name)
        return functools.partial(self._counted, found) if callable(found) else found

    def _counted(self, way: Callable[..., Ended], *args: Any, **more: Any) -> Ended:
        ended = way(*args, **more)
        self.runs, self.over_fabric = self.runs + 1, way.__name__ == "ranks"
        if self.runs == self._last:
            raise Enough(ended)
        return ended
