"""Run a student's function in a rank: over the fabric, in a process group, or in TensorFlow.

The same code serves ranks started by `launch` and ranks of a graded submission in its sandbox, so an answer gets the same
verdict in both. Each function returns (the function's value, its input afterwards), both plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from worldsize.arrays import plain, tensors

if TYPE_CHECKING:  # the interface imports torch, which a TensorFlow rank does not need
    from worldsize.fabric.interface import Fabric


def over_fabric(
    fabric: Fabric, fn: Callable, given: Any, more: Sequence[Any], driver: Callable | None = None
) -> tuple[Any, Any]:
    """Call `fn(fabric, given, *more)` in a rank, with arrays as tensors, or the check's own `driver(fn, fabric, given, *more)`.

    The fabric is the only way to a peer: process groups are refused.
    """
    import torch

    with no_process_group():
        torch.manual_seed(fabric.rank)
        return run(fabric, fn, given, more, driver)


def run(
    fabric: Fabric, fn: Callable, given: Any, more: Sequence[Any], driver: Callable | None = None
) -> tuple[Any, Any]:
    """Run the function of `over_fabric` in a prepared process, real or shared with other simulated ranks."""
    fabric.guard_sends()
    x = tensors(given)
    returned = plain(fn(fabric, x, *more) if driver is None else driver(fn, fabric, x, *more))
    return returned, plain(x)


@contextmanager
def no_process_group() -> Iterator[None]:
    """Refuse process groups in a rank: the fabric is the only way to a peer."""
    import torch.distributed as dist

    places = [
        (dist, "init_process_group"), (dist.distributed_c10d, "init_process_group"),
        (dist.distributed_c10d, "_get_default_group"),  # dist.isend and all other operations call it first
    ]  # fmt: skip
    real = [getattr(*place) for place in places]
    for owner, name in places:
        setattr(owner, name, _no_group)
    try:
        yield
    finally:
        for (owner, name), way in zip(places, real, strict=True):
            setattr(owner, name, way)


def _no_group(*_: Any, **__: Any) -> None:
    raise RuntimeError(
        "no process group is here: in an exercise over the fabric, ranks share nothing else. Write the messages "
        "yourself, with fabric.isend, send and recv."
    )


def in_group(fn: Callable, given: Any, more: Sequence[Any], driver: Callable | None = None) -> tuple[Any, Any]:
    """Call in a rank `fn(given, *more)`, or the check's own `driver(fn, given, *more)`, in a torch.distributed group over gloo.

    The environment names the rank's peers.
    """
    import torch.distributed as dist

    dist.init_process_group("gloo")
    x = tensors(given)

    returned = plain(fn(x, *more) if driver is None else driver(fn, x, *more))
    return returned, plain(x)


def in_tensorflow(fn: Callable | None, given: Any, more: Sequence[Any], driver: Callable | None) -> tuple[Any, Any]:
    """Call `fn(given, *more)` in a rank, a task of TensorFlow, or the check's own `driver(fn, given, *more)`."""
    if driver is not None:
        returned = driver(fn, given, *more)
    else:
        assert fn is not None  # a driver alone does without
        returned = fn(given, *more)
    return plain(returned), plain(given)
