"""Run a student's function on a rank while metering what it holds, or with gradients at its current weights: labs 12 and 17.

The function's own process takes these notes, so a check lets them cost points, never earn them. Left out: the expected values
(`checks.sharding`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a TensorFlow task runs without torch
    import torch

    from worldsize.fabric.interface import Fabric
    from worldsize.pytorch.live_bytes import LiveBytes

_CALLS = ("send", "isend", "recv", "compute")  # inside these calls a simulated rank yields to another


@contextmanager
def metered(fabric: Fabric, known: Iterable[torch.Tensor], at_work: Callable[[LiveBytes], None]) -> Iterator[LiveBytes]:
    """Meter what a rank with shards holds, in this context, and call `at_work(meter)` whenever the rank declares work.

    In simulated time the ranks take turns inside the fabric's calls, so the meter is off there: it must see this rank alone.
    """
    from worldsize.pytorch.live_bytes import LiveBytes

    meter, owner = LiveBytes(known), threading.get_ident()

    @contextmanager
    def off() -> Iterator[None]:
        mine = threading.get_ident() == owner
        if mine:
            meter.__exit__(None, None, None)
        try:
            yield
        finally:
            if mine:
                meter.__enter__()

    def without_meter(call: Callable, /, *given: Any, **more: Any) -> Any:
        if call.__name__ == "compute":
            at_work(meter)
        with off():
            done = call(*given, **more)
        return _Handle(done, off) if call.__name__ == "isend" else done

    calls = [name for name in _CALLS if hasattr(fabric, name)]
    for name in calls:
        setattr(fabric, name, partial(without_meter, getattr(fabric, name)))
    try:
        with meter:
            yield meter
    finally:
        for name in calls:
            delattr(fabric, name)


class _Handle:
    """The handle of an isend, with the meter off during its wait, when other ranks take their turns."""

    def __init__(self, handle: Any, off: Callable) -> None:
        self._handle, self._off = handle, off

    def wait(self) -> None:
        with self._off():
            self._handle.wait()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


def held_at_work(fn: Callable, fabric: Fabric, task: dict[str, Any]) -> dict[str, Any]:
    """Run a sharded `fn(fabric, task)`, and count the tensors as large as a whole weight at each layer's work.

    Returns "returned", the result, and "held", the counts. The weights are of one size: task["shapes"].
    """
    (rows, columns), *_ = task["shapes"]
    whole_bytes = rows * columns * task["parts"][0].itemsize
    return _counted_at_work(partial(parts_of, fn), fabric, task, task["parts"], whole_bytes)


def _counted_at_work(
    fn: Callable, fabric: Fabric, task: dict[str, Any], known: list[torch.Tensor], least_bytes: int
) -> dict[str, Any]:
    """Return `fn(fabric, task)` as "returned", and as "held" the number of tensors of `least_bytes` or more at each work."""
    held: list[int] = []

    def note(meter: LiveBytes) -> None:
        held.append(sum(size >= least_bytes for size in meter.sizes()))

    with metered(fabric, known, note):
        returned = fn(fabric, task)
    return {"returned": returned, "held": held}


def parts_of(fn: Callable, fabric: Fabric, task: dict[str, Any]) -> Any:
    """Return `fn(fabric, task)`, as a list if it is another iterable of sharded parts, such as a generator."""
    returned = fn(fabric, task)
    if isinstance(returned, Iterable) and not isinstance(returned, (dict, str)) and getattr(returned, "ndim", 1):
        return list(returned)
    return returned


def stepped(fn: Callable, fabric: Fabric, given: dict[str, Any], learning_rate: float) -> dict[str, Any]:
    """Run a sharded optimizer `fn(fabric, (weights, gradients), learning_rate)`; `gradients` yields each gradient on request.

    A gradient is its item of given["gradients"] plus given["pull"] times the current weights, of which NaN count as 0. Returns
    "state", the function's result; "storage", the bytes of the storages its tensors lie in; and "held", at each request, the
    number of tensors as large as all weights, besides the weights, the items read so far and the previous gradient.
    """
    import torch

    weights, held = given["weights"], []

    def gradients(meter: LiveBytes) -> Iterator[torch.Tensor]:
        gradient = None
        for number, base in enumerate(given["gradients"]):
            others = 1 + number + (gradient is not None)  # the weights, the items read so far, and the last gradient
            held.append(sum(size >= weights.nbytes for size in meter.sizes()) - others)
            gradient = base + given["pull"] * weights.nan_to_num(0.0)
            yield gradient

    with metered(fabric, [weights], lambda meter: None) as meter:
        state = fn(fabric, (weights, gradients(meter)), learning_rate)

    storages = {}
    if isinstance(state, dict):
        for x in state.values():
            if isinstance(x, torch.Tensor) and x.ndim:
                storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
    return {"state": state, "held": held, "storage": sum(storages.values())}


def kept_for_backward(fn: Callable, fabric: Fabric, task: dict[str, Any]) -> dict[str, Any]:
    """Run a sharded `fn(fabric, task)`, and record the shapes of all tensors that autograd keeps for backward, each storage once.

    Returns "returned", the result, and "kept", the shapes.
    """
    import torch

    kept: dict[int, torch.Tensor] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept.setdefault(x.untyped_storage().data_ptr(), x)  # held, so that no other tensor reuses its address
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        returned = fn(fabric, task)
    return {"returned": returned, "kept": [list(x.shape) for x in kept.values()]}


def blocks_at_work(fn: Callable, fabric: Fabric, task: dict[str, Any]) -> dict[str, Any]:
    """Run `fn(fabric, task)`, and count the tensors as large as a block of keys at the work on each block.

    Returns "returned", the result, and "held", the counts.
    """
    return _counted_at_work(fn, fabric, task, [task["q"], task["k"], task["v"]], task["k"].nbytes)
