"""What the check of lab 17's experts runs beside a student's function in a rank: the rank's own experts, forwards and backwards.

Inputs and what came of them, no expected value. A rank is handed the weights of its own experts and no others'. What is noted
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

    given["task"] is the task, given["weights"] {expert: its weight, [width, width]}, given["gradient"] the gradient of the rows.
    "forward" and "backward" are what came back, "calls" the experts that worked, forwards, in order.
    """
    task = given["task"]
    experts = _Experts(fabric, given["weights"])
    forward = fn(fabric, dict(task), experts.forward)
    backward = fn(fabric, task | {"x": given["gradient"]}, experts.backward)
    return {"forward": forward, "backward": backward, "calls": experts.calls}


class _Experts:
    """A rank's experts, tanh(rows weightᵀ) each; backwards they know the rows that they have worked on."""

    def __init__(self, fabric: Fabric, weights: dict[int, torch.Tensor]) -> None:
        self._rank, self._weights = fabric.rank, weights
        self._seen: dict[int, list[torch.Tensor]] = {expert: [] for expert in weights}
        self.calls: list[int] = []

    def forward(self, expert: int, rows: torch.Tensor) -> torch.Tensor:
        expert = self._known(expert)
        self.calls.append(expert)
        made = (rows @ self._weights[expert].T).tanh()
        self._seen[expert].append(made)
        return made

    def backward(self, expert: int, rows: torch.Tensor) -> torch.Tensor:
        expert = self._known(expert)
        made = self._seen[expert].pop(0)
        if made.shape != rows.shape:
            raise ValueError(
                f"work on rank {self._rank}, the way back: expert {expert} had {len(made)} rows forwards, expected as many, got "
                f"{len(rows)}. The gradient takes the way that the tokens took."
            )
        return (rows * (1 - made**2)) @ self._weights[expert]

    def _known(self, expert: int) -> int:
        if int(expert) not in self._weights:
            raise ValueError(
                f"work on rank {self._rank}: expert {int(expert)} is not here. Experts are dealt out in order: expected one of "
                f"{', '.join(map(str, self._weights))}."
            )
        return int(expert)
