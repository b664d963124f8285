"""Why a simulation ends before its ranks do: each reason an exception of its own.

Left out: the words that a caller reads (`outcome`).
"""

from __future__ import annotations


class Abandoned(BaseException):
    """Ends a simulation from inside a rank; `reason` is what its caller is told. No student's `except Exception` gets it."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class SimulatedFailure(RuntimeError):
    """A rank has failed, as its failure rate had it drawn."""


class TooManyMessages(ValueError):
    """A simulation would have more messages than are simulated one by one."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit:,} messages")


class WaitsInBackward(RuntimeError):
    """A rank waits for a message inside of backward, of which torch runs one at a time in a thread."""

    def __init__(self) -> None:
        super().__init__("a rank waits for a message inside of backward: autograd runs one at a time in a thread")
