"""What the check of a training with DDP hands to a student's function on a rank: a model, a loss, and who moved what.

The model is a line whose weights are shifted, the loss a multiple of the mean squared error; so a training that takes others
has other weights. A device that is the CPU cannot be told from none by any value: the calls that move are noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def with_model_and_loss(
    fn: Callable, data: dict[str, Any], epochs: int, batch_size: int, rate: float, shift: float, scale: float
) -> dict[str, Any]:
    """`fn(data, epochs, batch_size, rate, build, loss)`, with a `build` and a `loss` of the check's own.

    `build(data)` is the line of data plus `shift`, `loss` is `scale` times the mean squared error. "returned" is what came
    back, "built" how often `build` was called, "moved" whether the model was, and the examples.
    """
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

    with _noted_moves(moved):
        returned = fn(data, epochs, batch_size, rate, build, loss)
    return {"returned": returned, "built": len(built), "moved": moved}


@contextmanager
def _noted_moves(moved: dict[str, bool]) -> Iterator[None]:
    """Notes in `moved` that a tensor which is no parameter was moved, in one of the ways that PyTorch has."""
    import torch

    original, made = torch.Tensor.to, {name: getattr(torch, name) for name in ("as_tensor", "tensor")}

    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            moved["examples"] = True
        return original(tensor, *args, **kwargs)

    def making(make: Callable) -> Callable:
        def noted(*args: Any, **kwargs: Any) -> torch.Tensor:
            if kwargs.get("device") is not None:
                moved["examples"] = True
            return make(*args, **kwargs)

        return noted

    torch.Tensor.to = to
    for name, make in made.items():
        setattr(torch, name, making(make))
    try:
        yield
    finally:
        torch.Tensor.to = original
        for name, make in made.items():
            setattr(torch, name, make)
