"""In a rank: run a student's function as its check asks, over the fabric, in a process group, or in TensorFlow.

The same code serves the ranks that `launch` starts for a notebook and those of a graded submission in its sandbox, so
that one answer gets one verdict. What comes back is (what it returned, its input afterwards), both plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from worldsize.arrays import plain, tensors

if TYPE_CHECKING:  # it imports torch, which a rank of TensorFlow has no use for
    from worldsize.fabric.interface import Fabric


def over_fabric(
    fabric: Fabric, fn: Callable, given: Any, more: Sequence[Any], driver: Callable | None = None
) -> tuple[Any, Any]:
    """In a rank with a fabric: `fn(fabric, given, *more)`, its arrays as tensors. There is no other way to a peer.

    Or the check's own `driver(fn, fabric, given, *more)`.
    """
    import torch

    with no_process_group():
        torch.manual_seed(fabric.rank)
        return run(fabric, fn, given, more, driver)


def run(
    fabric: Fabric, fn: Callable, given: Any, more: Sequence[Any], driver: Callable | None = None
) -> tuple[Any, Any]:
    """Run the function of `over_fabric` in a process that is prepared for it, real or shared with other simulated ranks."""
    fabric.guard_sends()
    x = tensors(given)
    returned = plain(fn(fabric, x, *more) if driver is None else driver(fn, fabric, x, *more))
    return returned, plain(x)


@contextmanager
def no_process_group() -> Iterator[None]:
    """Refuse process groups inside: there is no other way to a peer than the fabric."""
    import torch.distributed as dist

    places = [
        (dist, "init_process_group"), (dist.distributed_c10d, "init_process_group"),
        (dist.distributed_c10d, "_get_default_group"),  # what dist.isend and all the others ask for first
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
        "no process group is here: the ranks of an exercise over the fabric share nothing else. Write the messages "
        "yourself, with fabric.isend, send and recv."
    )


def in_group(fn: Callable, given: Any, more: Sequence[Any], driver: Callable | None = None) -> tuple[Any, Any]:
    """In a rank whose environment names its peers: `fn(given, *more)` in a torch.distributed group over gloo.

    Or the check's own `driver(fn, given, *more)`.
    """
    import torch.distributed as dist

    dist.init_process_group("gloo")
    x = tensors(given)

    returned = plain(fn(x, *more) if driver is None else driver(fn, x, *more))
    return returned, plain(x)


def in_tensorflow(fn: Callable | None, given: Any, more: Sequence[Any], driver: Callable | None) -> tuple[Any, Any]:
    """In a task of TensorFlow: `fn(given, *more)`, or the check's own `driver(fn, given, *more)`."""
    returned = fn(given, *more) if driver is None else driver(fn, given, *more)
    return plain(returned), plain(given)
