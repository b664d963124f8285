"""Pickles that travel to ranks and back: cloudpickle's, which also take what torch's own pickling cannot read again.

torch 2.13 writes tensors of the newer types (fp8, uint16) and bare storages in a form that plain pickle fails to load. Objects
that hold a process group are refused by name, because another process cannot have that group. Code keeps the name of its file,
which cloudpickle 3.1.3 replaces by "<dynamic-code>": a traceback names the cell and its line by it.
"""

from __future__ import annotations

import io
import pickle
import sys
from types import CodeType
from typing import TYPE_CHECKING, Any

import cloudpickle

_NO_FILE = "<dynamic-code>"

if TYPE_CHECKING:  # the agent, and TensorFlow's tasks, do without torch
    import torch


class Pickler(cloudpickle.Pickler):
    """cloudpickle's pickler, with the reductions of this module."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):
            make, values = self.dispatch_table[CodeType](obj)
            return make, tuple(obj.co_filename if value == _NO_FILE else value for value in values)
        torch = sys.modules.get("torch")
        if hasattr(torch, "nn"):  # imported, and not half
            from worldsize.pytorch.abilities import newer_types

            kind = type(obj)
            if kind is torch.Tensor and obj.dtype in newer_types():
                return loaded, (_saved(obj),)
            if kind is torch.UntypedStorage:
                return storage_of, (torch.empty(0, dtype=torch.uint8, device=obj.device).set_(obj),)
            if isinstance(obj, torch.nn.Module):
                _refuse_wrapped(obj)
        return super().reducer_override(obj)


def dumps(value: Any) -> bytes:
    """Pickle a value. Raises whatever its parts raise, and PicklingError for a model that holds a process group."""
    with io.BytesIO() as file:
        Pickler(file).dump(value)
        return file.getvalue()


def dumps_result(value: Any) -> bytes:
    """Pickle a rank's result. Raises TypeError that names it, with what to return in its place."""
    try:
        return dumps(value)
    except Exception as error:
        got = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        reason = str(error).splitlines()[0] if str(error) else ""
        advice = _INSTEAD.get(got, "return the plain data in it, such as numbers, tensors or model.state_dict()")
        if isinstance(error, pickle.PicklingError) and _HOLDS_A_GROUP in reason:
            reason, _, advice = reason.partition(": ")
        raise TypeError(
            f"the result (a {got}) cannot be sent back: {reason}\n"
            f"ranks are separate processes, and a result must be picklable: {advice}"
        ) from None


_HOLDS_A_GROUP = "holds a process group"
_INSTEAD = {
    "generator": "return a list, such as list(numbers())",
    "coroutine": "run it in the function, and return its value: asyncio.run(train())",
    "async_generator": "collect its values in the function, and return a list",
}


def _refuse_wrapped(model: torch.nn.Module) -> None:
    """Raise PicklingError for a model in DDP or FSDP2, with what to send in its place."""
    parallel = sys.modules.get("torch.nn.parallel")
    if parallel is not None and isinstance(model, parallel.DistributedDataParallel):
        raise pickle.PicklingError(f"a model in DistributedDataParallel {_HOLDS_A_GROUP}: take model.module in its place")
    sharded = sys.modules.get("torch.distributed.fsdp")
    if sharded is not None and isinstance(model, getattr(sharded, "FSDPModule", ())):
        raise pickle.PicklingError(
            f"a model in fully_shard {_HOLDS_A_GROUP}: take [p.full_tensor() for p in model.parameters()] on every rank, or this "
            f"rank's shards, p.to_local()"
        )



def _saved(tensor: torch.Tensor) -> bytes:
    import torch

    with io.BytesIO() as file:
        torch.save(tensor, file)
        return file.getvalue()


def loaded(data: bytes) -> torch.Tensor:
    """Return the tensor that `torch.save` wrote into a pickle."""
    import torch

    return torch.load(io.BytesIO(data))


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()
