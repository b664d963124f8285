"""The reasons for which a simulation ends before its ranks do, each an exception.

`outcome.py` writes the messages for the caller.
"""


class Abandoned(BaseException):
    """The end of a simulation, raised inside a rank; its caller gets `reason`. A student's `except Exception` does not catch it.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class SimulatedFailure(RuntimeError):
    """A simulated rank has failed, at a moment drawn from its failure rate."""


class TooManyMessages(ValueError):
    """A simulation ends early: it would have more messages than are simulated one by one."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit:,} messages")


class WaitsInBackward(RuntimeError):
    """A simulated rank waits for a message inside backward, of which torch runs one at a time per thread."""

    def __init__(self) -> None:
        super().__init__("a rank waits for a message inside backward, but autograd runs only one backward at a time in a thread")
