"""Framework collectives, seen one level up: each call of `torch.distributed` becomes a `Collective` event.

What moves inside a collective does not pass through the fabric, so only the call is recorded: operation, bytes of this
rank's input, from when to when. FSDP2 calls from Python too, and is seen. Left out: calls from C++ (DDP's reducer has
none in Python, unless it is given a communication hook).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from worldsize.trace import Collective

# all_gather_into_tensor and reduce_scatter_tensor are older names of two of them, and call those
OPERATIONS = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_single", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_single", "all_to_all", "all_to_all_single", "barrier",
)  # fmt: skip
_INPUT = {  # place and name of this rank's input, where it is not the first argument
    "all_gather": (1, "tensor"), "all_gather_single": (1, "input_tensor"), "scatter": (1, "scatter_list"),
    "reduce_scatter": (1, "input_list"), "reduce_scatter_single": (1, "input"),
    "all_to_all": (1, "input_tensor_list"), "all_to_all_single": (1, "input"),
}  # fmt: skip


class CollectiveLog:
    """Records this process's collectives from `install()` on. Times are seconds since `origin_s`."""

    def __init__(self, rank: int, origin_s: float) -> None:
        self._rank, self._origin_s = rank, origin_s
        self._rows: list[Collective] = []

    def install(self) -> None:
        for name in OPERATIONS:
            recorded = self._recorded(name, getattr(distributed_c10d, name))
            for module in (dist, distributed_c10d):
                setattr(module, name, recorded)

    def rows(self) -> tuple[Collective, ...]:
        return tuple(self._rows)

    def _recorded(self, name: str, original: Callable) -> Callable:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            start_s = time.monotonic()
            work = original(*args, **kwargs)
            size_bytes = _size(args, kwargs, *_INPUT.get(name, (0, "")))
            if work is None:
                self._add(name, size_bytes, start_s)
            else:
                work.get_future().add_done_callback(lambda _: self._add(name, size_bytes, start_s))
            return work

        return wrapper

    def _add(self, name: str, size_bytes: int, start_s: float) -> None:
        end_s = time.monotonic()
        self._rows.append(
            Collective(name, size_bytes, self._rank, start_s - self._origin_s, end_s - self._origin_s)
        )


def _size(args: tuple, kwargs: dict, place: int, name: str) -> int:
    """Bytes of this rank's input: the argument of this place or name, or without a name the first of tensors."""
    if len(args) > place:
        return sum(t.nbytes for t in _tensors(args[place]))

    for given in [kwargs.get(name)] if name else kwargs.values():
        tensors = _tensors(given)
        if tensors:
            return sum(t.nbytes for t in tensors)
    return 0


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for t in value if isinstance(t, torch.Tensor)]
    return []
