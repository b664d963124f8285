"""The bytes of PyTorch tensors on a rank, measured at every operation.

While the meter is on, it keeps a weak reference to every storage that an operation reads or makes, and counts the living
storages by their current sizes. A tensor that is freed, or emptied as FSDP empties a gathered weight, drops out. Left out:
tensors that no operation has touched (name them with `know`), buffers of a network library, an allocator's reserve, and work
space inside one operation.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """A meter of living PyTorch tensors' bytes: `with LiveBytes(model.parameters()) as meter: step()`, then `meter.peak`.

    `known`: tensors that exist already. `now()` is the current number of bytes, `peak` the largest after any operation, and
    `at_peak(tensors)` the part of the peak in these tensors.
    """

    def __init__(self, known: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.peak = 0
        self._storages: weakref.WeakSet = weakref.WeakSet()
        self._at_peak: weakref.WeakSet = weakref.WeakSet()
        self.know(known)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: nothing is compiled here, and skipping dynamo would import it, a second per process."""
        return False

    def know(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count these tensors' bytes from now on."""
        for x in tensors:
            local = getattr(x, "_local_tensor", x)  # a DTensor's part on this rank
            self._storages.add(local.untyped_storage())

    def now(self) -> int:
        """Return the bytes that live now."""
        return sum(self.sizes())

    def sizes(self) -> list[int]:
        """Return the bytes of each living storage."""
        return [storage.nbytes() for storage in tuple(self._storages)]

    def at_peak(self, tensors: Iterable[torch.Tensor]) -> int:
        """Return the bytes of the `tensors` that lived at the moment of `peak`, each storage once."""
        storages = {x.untyped_storage() for x in tensors}
        return sum(storage.nbytes() for storage in storages if storage in self._at_peak)

    def __torch_dispatch__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.know(x for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor))
        now = self.now()
        if now > self.peak:
            self.peak = now
            self._at_peak = self._storages.copy()
        return out


class SavedBytes(torch.autograd.graph.saved_tensors_hooks):
    """A meter of the bytes that PyTorch saves from forward for backward: `with SavedBytes(leave_out) as saved: loss = model(x)`.

    `saved.total` is the bytes of the saved tensors, each storage once. Parameters in `leave_out` do not count, since parameters
    are no activations.
    """

    def __init__(self, leave_out: Iterable[torch.Tensor] = ()) -> None:
        left_out = {x.untyped_storage().data_ptr() for x in leave_out}
        self._kept: dict[int, torch.Tensor] = {}

        def keep(x: torch.Tensor) -> torch.Tensor:
            place = x.untyped_storage().data_ptr()
            if place not in left_out:
                self._kept[place] = x  # held, so that no other tensor takes its address
            return x

        super().__init__(keep, lambda x: x)

    @property
    def total(self) -> int:
        return sum(x.untyped_storage().nbytes() for x in self._kept.values())

    def __enter__(self) -> SavedBytes:
        super().__enter__()
        return self
