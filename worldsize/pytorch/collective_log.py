"""Framework collectives, seen one level up: each call of `torch.distributed` becomes a `Collective` event.

What moves inside a collective does not pass through the fabric, so only the call is recorded: operation, bytes of this
rank's input, from when to when. FSDP2 calls from Python too, and is seen. Left out: calls from C++ (DDP's reducer has
none in Python, unless it is given a communication hook).
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from worldsize.trace import Collective

OPERATIONS = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_single", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_single", "all_to_all", "all_to_all_single", "barrier",
)  # fmt: skip
# PyTorch 2.13 keeps these names and calls the newer ones; a PyTorch before it has these alone
_OLDER_NAMES = {"all_gather_single": "all_gather_into_tensor", "reduce_scatter_single": "reduce_scatter_tensor"}
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
        self._open: dict[int, tuple[str, int, float]] = {}  # by number of the call: operation, bytes, when it began
        self._begun: set[int] = set()  # those of them whose call has returned: the rank goes on meanwhile
        self._numbers = itertools.count()

    def install(self) -> None:
        for op in OPERATIONS:
            name = op if hasattr(distributed_c10d, op) else _OLDER_NAMES[op]
            recorded = self._recorded(op, getattr(distributed_c10d, name))
            for module in (dist, distributed_c10d):
                setattr(module, name, recorded)

    def begin(self, origin_s: float) -> None:
        """Forget what was recorded; times are seconds since `origin_s` from now on. Calls that are open stay open."""
        self._origin_s, self._rows = origin_s, []

    def rows(self) -> tuple[Collective, ...]:
        """Those that ended, and then those that are open now, up to this moment."""
        found = list(self._rows)
        for op, size_bytes, start_s in self._open.copy().values():
            found.append(self._row(op, size_bytes, start_s, ended=False))
        return tuple(found)

    def waits_in(self, since_s: float) -> str:
        """The collective whose call this rank has been in for `since_s` seconds and more; "" where there is none."""
        latest_s = time.monotonic() - since_s
        for number, (op, _, start_s) in self._open.copy().items():
            if start_s <= latest_s and number not in self._begun:
                return op
        return ""

    def _recorded(self, name: str, original: Callable) -> Callable:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            size_bytes = _size(args, kwargs, *_INPUT.get(name, (0, "")))
            number = next(self._numbers)
            self._open[number] = name, size_bytes, time.monotonic()
            try:
                work = original(*args, **kwargs)
            except BaseException:
                self._close(number, ended=False)
                raise

            if work is None:
                self._close(number)
            else:
                self._begun.add(number)
                work.get_future().add_done_callback(lambda _: self._close(number))
            return work

        return wrapper

    def _close(self, number: int, ended: bool = True) -> None:
        self._rows.append(self._row(*self._open[number], ended))
        del self._open[number]
        self._begun.discard(number)

    def _row(self, op: str, size_bytes: int, start_s: float, ended: bool) -> Collective:
        end_s = time.monotonic()
        return Collective(op, size_bytes, self._rank, start_s - self._origin_s, end_s - self._origin_s, ended)


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
