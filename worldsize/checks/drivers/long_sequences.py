"""Run a student's function for lab 17: with a rank's expert, forward and backward, or without the package's own answer.

A rank is handed only its own expert's weight, and no expected value. The function's own process takes the notes, so a check
lets them cost points, never earn them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a TensorFlow task runs without torch
    import torch

    from worldsize.fabric.interface import Fabric


def by_hand(fn: Callable, fabric: Fabric, layer: dict[str, Any]) -> Any:
    """Return `fn(layer)`. The package's seconds of attention raise an error meanwhile, as in a graded run.

    `grade.outside.withheld` lists them. A profile function sees every call, however the answer imported what it calls.
    """
    from worldsize.formulas import attention

    answers = ("ring_seconds", "heads_seconds")
    code_of = {getattr(attention, name).__code__: name for name in answers if hasattr(attention, name)}

    def refuse(frame: FrameType, event: str, _: Any) -> None:
        name = code_of.get(frame.f_code)
        if name and event == "call":
            raise RuntimeError(
                f"{attention.__name__}.{name} is not available in graded runs: it answers an exercise, so write it yourself"
            )

    before = sys.getprofile()
    sys.setprofile(refuse)
    try:
        return fn(layer)
    finally:
        sys.setprofile(before)


def there_and_back(fn: Callable, fabric: Fabric, given: dict[str, Any]) -> dict[str, Any]:
    """Run `fn(fabric, task, work)` on the rows of a rank's expert, then on the gradient of the result with the backward `work`.

    given["task"] is the task, given["weight"] the rank's expert, [width, width], given["gradient"] the gradient of the rows.
    "forward" and "backward" are the results, "calls" how often the expert worked forward; "unlike" says, in words, that it was
    handed another number of rows backward, "" if not.
    """
    task = given["task"]
    expert = _Expert(fabric, given["weight"])
    forward = fn(fabric, task, expert.forward)
    backward = fn(fabric, task | {"x": given["gradient"]}, expert.backward)
    return {"forward": forward, "backward": backward, "calls": expert.calls, "unlike": expert.unlike}


class _Expert:
    """A rank's expert, tanh(rows weightᵀ), which keeps its outputs for backward."""

    def __init__(self, fabric: Fabric, weight: torch.Tensor) -> None:
        self._rank, self._weight = fabric.rank, weight
        self._made: list[torch.Tensor] = []
        self.calls = 0
        self.unlike = ""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self._made.append((rows @ self._weight.T).tanh())
        return self._made[-1]

    def backward(self, grad: torch.Tensor) -> torch.Tensor:
        made = self._made.pop(0) if self._made else grad[:0]
        if made.shape != grad.shape:  # told only if all rows are right: a run that broke off would hide why they are not
            self.unlike = self.unlike or (
                f"work on rank {self._rank}, the way back: the expert had rows of shape {list(made.shape)} forwards, and now "
                f"gets {list(grad.shape)}. Send the gradient the way that the tokens took."
            )
            return grad.clone()
        return (grad * (1 - made**2)) @ self._weight
