"""Run a student's function in a rank beside the rank's expert, forwards and backwards, for the check of lab 17's experts.

Inputs and what came of them, no expected value. A rank is handed the weight of its own expert and no other's. What is noted
here is noted in the function's own process: a check lets it take points, and never give them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a task of TensorFlow has no torch
    import torch

    from worldsize.fabric.interface import Fabric


def there_and_back(fn: Callable, fabric: Fabric, given: dict[str, Any]) -> dict[str, Any]:
    """`fn(fabric, task, work)` with a rank's rows, then with the gradient of what came back, where `work` is the way back.

    given["task"] is the task, given["weight"] the rank's expert, [width, width], given["gradient"] the gradient of the rows.
    "forward" and "backward" are what came back, "calls" how often the expert worked forwards.
    """
    task = given["task"]
    expert = _Expert(fabric, given["weight"])
    forward = fn(fabric, task, expert.forward)
    backward = fn(fabric, task | {"x": given["gradient"]}, expert.backward)
    return {"forward": forward, "backward": backward, "calls": expert.calls}


class _Expert:
    """A rank's expert, tanh(rows weightᵀ); backwards it knows the rows that it has worked on."""

    def __init__(self, fabric: Fabric, weight: torch.Tensor) -> None:
        self._rank, self._weight = fabric.rank, weight
        self._made: list[torch.Tensor] = []
        self.calls = 0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self._made.append((rows @ self._weight.T).tanh())
        return self._made[-1]

    def backward(self, grad: torch.Tensor) -> torch.Tensor:
        made = self._made.pop(0)
        if made.shape != grad.shape:
            raise ValueError(
                f"work on rank {self._rank}, the way back: the expert had rows of shape {list(made.shape)} forwards, and now "
                f"{list(grad.shape)}. The gradient takes the way that the tokens took."
            )
        return (grad * (1 - made**2)) @ self._weight
