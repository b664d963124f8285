"""Run a student's function on a rank with the rank's expert, forward and backward, for the check of lab 17's experts.

A rank is handed only its own expert's weight, and no expected value. The function's own process takes the notes, so a check
lets them cost points, never earn them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a TensorFlow task runs without torch
    import torch

    from worldsize.fabric.interface import Fabric


def there_and_back(fn: Callable, fabric: Fabric, given: dict[str, Any]) -> dict[str, Any]:
    """Run `fn(fabric, task, work)` on the rows of a rank's expert, then on the gradient of the result with the backward `work`.

    given["task"] is the task, given["weight"] the rank's expert, [width, width], given["gradient"] the gradient of the rows.
    "forward" and "backward" are the results, "calls" how often the expert worked forward.
    """
    task = given["task"]
    expert = _Expert(fabric, given["weight"])
    forward = fn(fabric, task, expert.forward)
    backward = fn(fabric, task | {"x": given["gradient"]}, expert.backward)
    return {"forward": forward, "backward": backward, "calls": expert.calls}


class _Expert:
    """A rank's expert, tanh(rows weightᵀ), which keeps its outputs for backward."""

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
                f"gets {list(grad.shape)}. Send the gradient the way that the tokens took."
            )
        return (grad * (1 - made**2)) @ self._weight
