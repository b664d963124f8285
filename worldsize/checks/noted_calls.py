"""A check's own callables among the inputs of a task that `launch` starts: there a copy answers, and every call is noted.

When the run has ended well the calls are made again, in their order, on the check's own objects: so a check sees them
as it does where its callables are called from afar. It must answer equal calls equally; chance comes from a seed.
Left out: calls between processes (`grade`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from worldsize.arrays import plain
from worldsize.checks.plain_call import handed_out

NotedCall = tuple[int, tuple]  # which callable, in the order of `callables_in`, and its arguments


class NotedCalls:
    """The calls so far of what `instead` has put in the place of callables."""

    def __init__(self) -> None:
        self.calls: list[NotedCall] = []
        self._numbers = iter(range(1_000_000))

    def instead(self, value: Any) -> Any:
        """The same lists, tuples and dicts, in which calls are noted."""
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
    """In the order in which `NotedCalls` counts them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from callables_in(v)
    elif callable(value):
        yield value


def make_again(calls: Iterable[NotedCall], value: Any) -> None:
    """On the callables in `value`. One that raised there raises here, too, and has been answered."""
    theirs = list(callables_in(value))
    for number, args in calls:
        with suppress(Exception):
            theirs[number](*args)
