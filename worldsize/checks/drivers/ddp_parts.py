"""Run a student's training with DDP on a rank, and note its samplers' orders, its optimizers and whether it calls DDP.

With a model and a loss of the check's own, note also what is moved to a device. The model is linear with
shifted weights, the loss a multiple of the mean squared error, so a training that uses its own ends with other weights. No
value tells the CPU from no device, so the calls that move are noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


def noted(fn: Callable, data: dict[str, Any], epochs: int, batch_size: int, rate: float) -> dict[str, Any]:
    """Run with DDP `fn(data, epochs, batch_size, rate)`: "returned" is the result, and the rest is as `_noted_parts` has it."""
    with _noted_parts() as parts:
        returned = fn(data, epochs, batch_size, rate)
    return {"returned": returned, **parts}


def with_model_and_loss(
    fn: Callable, data: dict[str, Any], epochs: int, batch_size: int, rate: float, shift: float, scale: float
) -> dict[str, Any]:
    """Run with DDP `fn(data, epochs, batch_size, rate, build, loss)`, with the check's own `build` and `loss`.

    `build(data)` is the linear model of data plus `shift`, `loss` is `scale` times the mean squared error. "returned" is the
    result, "built" the number of calls of `build`, "moved" whether the model was moved, and the examples, "group" whether the
    process group is still there; the rest is as `_noted_parts` has it.
    """
    import torch.distributed as dist
    from torch import nn

    moved = {"model": False, "examples": False}
    built: list[int] = []

    class ShiftedLine(nn.Linear):
        def _apply(self, move: Callable, recurse: bool = True) -> nn.Module:  # to, cuda and double go through it
            moved["model"] = True
            return super()._apply(move, recurse)

    def build(data: dict[str, Any]) -> nn.Module:
        built.append(len(data["x"]))
        model = ShiftedLine(data["x"].shape[1], 1, dtype=data["x"].dtype)
        model.load_state_dict({"weight": data["weight"] + shift, "bias": data["bias"] + shift})
        return model

    def loss(output: Any, wanted: Any) -> Any:
        if output.shape != wanted.shape:
            raise ValueError(f"loss: expected outputs and y of one shape, got {list(output.shape)} and {list(wanted.shape)}")
        return scale * nn.functional.mse_loss(output, wanted)

    with _noted_parts() as parts, _noted_moves(moved):
        returned = fn(data, epochs, batch_size, rate, build, loss)
    return {"returned": returned, "built": len(built), "moved": moved, "group": dist.is_initialized(), **parts}


@contextmanager
def _noted_parts() -> Iterator[dict[str, list[Any]]]:
    """Note the parts of a training: "orders" has the epoch and the seed of each order that a DistributedSampler gave,
    "optimizers" the name of each optimizer, with its learning rate, momentum and weight decay. "called" has the name of
    the model that DDP wraps, for each forward pass through DDP.
    """
    import torch
    from torch.utils.data import DistributedSampler

    parts: dict[str, list[Any]] = {"orders": [], "optimizers": [], "called": []}
    ordered, made = DistributedSampler.__iter__, torch.optim.Optimizer.__init__

    def order(sampler: DistributedSampler) -> Iterator[int]:
        parts["orders"].append((sampler.epoch, sampler.seed))
        return ordered(sampler)

    def make(optimizer: torch.optim.Optimizer, params: Any, defaults: dict[str, Any]) -> None:
        kept = {name: float(defaults.get(name) or 0) for name in ("lr", "momentum", "weight_decay")}
        parts["optimizers"].append({"name": type(optimizer).__name__, **kept})
        made(optimizer, params, defaults)

    DistributedSampler.__iter__, torch.optim.Optimizer.__init__ = order, make
    try:
        with _noted_calls(parts["called"]):
            yield parts
    finally:
        DistributedSampler.__iter__, torch.optim.Optimizer.__init__ = ordered, made


@contextmanager
def _noted_calls(called: list[str]) -> Iterator[None]:
    """Note in `called` each forward pass of a model that is wrapped in DDP."""
    from torch.nn.parallel import DistributedDataParallel

    original = DistributedDataParallel.forward

    def forward(wrapped: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
        called.append(type(wrapped.module).__name__)
        return original(wrapped, *args, **kwargs)

    DistributedDataParallel.forward = forward
    try:
        yield
    finally:
        DistributedDataParallel.forward = original


@contextmanager
def _noted_moves(moved: dict[str, bool]) -> Iterator[None]:
    """Note in `moved` if a tensor that is no parameter is moved, by `to` or by a `device` in its creation."""
    import torch

    original, made = torch.Tensor.to, {name: getattr(torch, name) for name in ("as_tensor", "tensor")}

    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            moved["examples"] = True
        return original(tensor, *args, **kwargs)

    def noted(make: Callable, /, *args: Any, **kwargs: Any) -> torch.Tensor:
        if kwargs.get("device") is not None:
            moved["examples"] = True
        return make(*args, **kwargs)

    torch.Tensor.to = to
    for name, make in made.items():
        setattr(torch, name, partial(noted, make))
    try:
        yield
    finally:
        torch.Tensor.to = original
        for name, make in made.items():
            setattr(torch, name, make)
