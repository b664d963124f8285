"""A coordinator as a student's function sees it; the check decides the order of closures remotely.

`seen` are the check's callables: "schedule" returns a closure's number (None: the server is lost), "next" the closure to run
now, and "stop" is called when no more run. "fetch", if there is one, is called when a fetch waits for closures. Left out:
real workers (lab 09 has those).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class ScheduledValue:
    """The result of a coordinator's `schedule`, which may not be computed yet."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator, self.value = coordinator, None

    def fetch(self) -> Any:
        return _each(self.get(), lambda value: value.numpy() if hasattr(value, "numpy") else value)

    def get(self) -> Any:
        self._coordinator.wait(by_fetch=True)
        return self.value


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change`, for a coordinator, to every value in nested lists, tuples and dicts."""
    if isinstance(value, (list, tuple)):
        return type(value)(_each(v, change) for v in value)
    if isinstance(value, dict):
        return {k: _each(v, change) for k, v in value.items()}
    return change(value)


def lost_server() -> Exception:
    """Return the error that a coordinator's function meets if a parameter server does not answer."""
    import tensorflow as tf

    return tf.errors.UnavailableError(None, None, "failed to connect to all addresses; Connection refused")


class Coordinator:
    """A coordinator that runs closures when they are waited for; an `eager` one also at the next `schedule`.

    So a closure's error comes out of either call, as in TensorFlow, whose workers run while the chief goes on.
    """

    def __init__(self, seen: Mapping[str, Callable], eager: bool = False) -> None:
        self._seen, self._eager = seen, eager
        self._closures: dict[int, tuple[ScheduledValue, Callable, tuple, dict]] = {}
        self._pending = self._running = False  # whether closures wait for their turn; whether `next` hands some over

    def schedule(self, fn: Callable, args: Sequence = (), kwargs: dict | None = None) -> ScheduledValue:
        if self._eager:
            self.wait()

        number = self._seen["schedule"]()
        if number is None:
            raise lost_server()

        later = ScheduledValue(self)
        self._closures[number] = (later, fn, tuple(args or ()), dict(kwargs or {}))
        self._pending = True
        return later

    def wait(self, by_fetch: bool = False) -> None:
        if by_fetch and (self._pending or self._running) and "fetch" in self._seen:
            self._seen["fetch"]()
        while not self.done():
            pass

    def join(self) -> None:
        self.wait()

    def done(self) -> bool:
        """Return whether no closure is left; one runs between this answer and the next."""
        if not (self._pending or self._running):
            return True
        if not self._running:
            self._pending, self._running = False, True
        going = False
        try:
            number = self._seen["next"]()
            if number is not None:
                later, fn, args, kwargs = self._closures[number]
                later.value = fn(*args, **kwargs)
                going = True
        finally:
            if not going:  # also after a closure's error
                self._running = False
                self._seen["stop"]()
        return not (self._pending or self._running)

    def fetch(self, value: Any) -> Any:
        return _each(value, lambda later: later.fetch() if isinstance(later, ScheduledValue) else later)


def scored(fn: Callable, cases: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return `fn`'s results, one for each of the played coordinators."""
    import tensorflow as tf

    def answers_of(case: Mapping[str, Any]) -> Callable:
        def right_in(part: Any) -> Any:
            right, of = case["right_in"](part)
            return tf.constant(right), tf.constant(of)

        return right_in

    return [fn(Coordinator(case["coordinator"]), answers_of(case), list(range(case["parts"]))) for case in cases]
