"""What a check runs beside a student's function on a rank: steps that hand on what is kept, and steps that a rank takes alone.

Inputs and what came of them, no expected value. Left out: what should have come (`checks.less_communication`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a task of TensorFlow has no torch
    import torch

    from worldsize.fabric.interface import Fabric


def step_by_step(fn: Callable, fabric: Fabric, given: dict[str, Any], *more: Any) -> list[Any]:
    """`fn(fabric, gradient, *kept, *more)` once for each of given["gradients"], which are of equal shape.

    It begins with given["kept"], a list, and every step is handed what the step before returned beside its average. The list
    holds what each step returned; it ends with the first that does not return an average and tensors like those in given["kept"].
    given["after"] has the gradient of each step and what was kept, as they are after the step.
    """
    kept, told = [value.clone() for value in given["kept"]], []
    given["after"] = []
    shapes = [value.shape for value in kept]
    for gradient in given["gradients"]:
        handed = [gradient.clone(), *kept]
        returned = fn(fabric, *handed, *more)
        given["after"].append([value.clone() for value in handed])
        if not _are_tensors(returned, 1 + len(kept)):
            return [*told, returned]

        told.append([value.detach().clone() for value in returned])
        kept = list(returned)[1:]
        if [value.shape for value in kept] != shapes:
            break
    return told


def _are_tensors(returned: Any, expected: int) -> bool:
    import torch

    if not isinstance(returned, (tuple, list)) or len(returned) != expected:
        return False
    return all(isinstance(value, torch.Tensor) for value in returned)


def local_rounds(fn: Callable, fabric: Fabric, given: dict[str, Any], rounds: int, rate: float, momentum: float) -> Any:
    """`fn(fabric, weights, train_locally, rounds, rate, momentum)`, where this rank's `train_locally` is the check's.

    In round k it brings every weight nearer to that of given["targets"][k]: what is left of the distance is given["left"], of
    the same shape. Where given["in_place"] it does so in its argument, and returns that.
    """
    targets, left = given["targets"], given["left"]

    def train_locally(weights: torch.Tensor, number: int) -> torch.Tensor:
        if not 0 <= number < len(targets):
            raise IndexError(f"train_locally: expected a round from 0 to {len(targets) - 1}, got {number!r}")

        moved = targets[number] + left * (weights - targets[number])
        if not given["in_place"]:
            return moved
        return weights.copy_(moved)

    return fn(fabric, given["weights"], train_locally, rounds, rate, momentum)
