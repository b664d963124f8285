"""How many bytes of tensors a rank of PyTorch holds, seen at every operation and not taken on trust.

While the meter is on, every storage that an operation reads or makes is known to it by a weak reference; what is still
there is counted by its size of that moment. So a tensor that is freed, or emptied as FSDP empties a gathered weight, drops
out. Left out: what no operation has touched (name it with `know`), what lies in buffers of a network library, and what an
allocator keeps for later. Work space inside one operation is not seen either.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Meters the bytes of PyTorch tensors that live: `with LiveBytes(model.parameters()) as meter: step()`, then `meter.peak`.

    `known`: tensors that are there already. `now()` is this moment's number, `peak` the largest after any operation, and
    `at_peak(tensors)` what these were of it.
    """

    def __init__(self, known: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.peak = 0
        self._storages: weakref.WeakSet = weakref.WeakSet()
        self._at_peak: weakref.WeakSet = weakref.WeakSet()
        self.know(known)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and to say so to dynamo imports it: a second for each process."""
        return False

    def know(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count these from now on."""
        for x in tensors:
            local = getattr(x, "_local_tensor", x)  # of a DTensor what lies on this rank
            self._storages.add(local.untyped_storage())

    def now(self) -> int:
        """Bytes that live at this moment."""
        return sum(self.sizes())

    def sizes(self) -> list[int]:
        """The bytes of each storage that lives at this moment."""
        return [storage.nbytes() for storage in tuple(self._storages)]

    def at_peak(self, tensors: Iterable[torch.Tensor]) -> int:
        """Bytes of those of `tensors` that lived at the moment of `peak`, each storage once."""
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


class SavedBytes:
    """Meters what PyTorch saves from forward for backward: `with SavedBytes(leave_out) as saved: loss = model(x)`.

    `saved.total` is the bytes of the tensors that operations kept, each storage once. Parameters in `leave_out` are no
    activations.
    """

    def __init__(self, leave_out: Iterable[torch.Tensor] = ()) -> None:
        self._left_out = {x.untyped_storage().data_ptr() for x in leave_out}
        self._kept: dict[int, torch.Tensor] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._keep, lambda x: x)

    @property
    def total(self) -> int:
        return sum(x.untyped_storage().nbytes() for x in self._kept.values())

    def _keep(self, x: torch.Tensor) -> torch.Tensor:
        place = x.untyped_storage().data_ptr()
        if place not in self._left_out:
            self._kept[place] = x  # held, so that nothing else comes to lie in its place
        return x

    def __enter__(self) -> SavedBytes:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)
