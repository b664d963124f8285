"""Record the calls that a launched task makes to a check's own callables, and repeat them on the originals.

In the task a copy answers each call. Once the run has ended well, the calls are repeated in order, so the callables must
answer equal calls equally: their randomness comes from a seed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from worldsize.arrays import plain
from worldsize.checks.plain_call import handed_out

NotedCall = tuple[int, tuple]  # the callable's number in the order of `callables_in`, and its arguments


class NotedCalls:
    """A record of the calls to the callables that `instead` has replaced."""

    def __init__(self) -> None:
        self.calls: list[NotedCall] = []
        self._numbers = iter(range(1_000_000))

    def instead(self, value: Any) -> Any:
        """Return the same lists, tuples and dicts, with each callable replaced by a copy that records its calls."""
        if isinstance(value, (list, tuple)):
            return type(value)(self.instead(v) for v in value)
        if isinstance(value, dict):
            return {k: self.instead(v) for k, v in value.items()}
        if callable(value):
            return self._noting(next(self._numbers), value)
        return value

    def _noting(self, number: int, theirs: Callable) -> Callable:
        def call(*args: Any) -> Any:
            values = tuple(map(plain, args))
            self.calls.append((number, values))
            return handed_out(theirs(*values))

        return call


def callables_in(value: Any) -> Iterator[Callable]:
    """Yield the callables in `value` whose calls are noted, in the order in which `NotedCalls` numbers them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from callables_in(v)
    elif callable(value):
        yield value


def make_again(calls: Iterable[NotedCall], value: Any) -> None:
    """Repeat the noted calls on the callables in `value`. Ignore errors: a call that raised in the task raises again here."""
    theirs = list(callables_in(value))
    for number, args in calls:
        with suppress(Exception):
            theirs[number](*args)
