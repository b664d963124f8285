"""Run a student's steps on a rank: steps that hand on a state, steps that a rank takes alone, and steps in float16.

Only inputs go in. Left out: the expected values (`checks.less_communication`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a TensorFlow task runs without torch
    import torch

    from worldsize.fabric.interface import Fabric


def step_by_step(fn: Callable, fabric: Fabric, given: dict[str, Any], *more: Any) -> list[Any]:
    """Run a compressed step, `fn(fabric, gradient, *kept, *more)`, once for each of given["gradients"], of equal shape.

    `kept` begins as the list given["kept"], and then is what the previous step returned after its average. Returns each step's
    result, up to the first that is not an average and tensors shaped like given["kept"]. given["after"] gets the gradient and
    `kept` of each step, as they are after the step.
    """
    import torch

    kept, results = [value.clone() for value in given["kept"]], []
    given["after"] = []
    shapes = [value.shape for value in kept]
    for gradient in given["gradients"]:
        handed = [gradient.clone(), *kept]
        returned = fn(fabric, *handed, *more)
        given["after"].append([value.clone() for value in handed])
        if not isinstance(returned, (tuple, list)) or len(returned) != 1 + len(kept):
            return [*results, returned]
        if not all(isinstance(value, torch.Tensor) for value in returned):
            return [*results, returned]

        results.append([value.detach().clone() for value in returned])
        kept = list(returned)[1:]
        if [value.shape for value in kept] != shapes:
            break  # the next step could not use such a state
    return results


def local_rounds(fn: Callable, fabric: Fabric, given: dict[str, Any], rounds: int, rate: float, momentum: float) -> Any:
    """Return `fn(fabric, weights, train_locally, rounds, rate, momentum)`, with the check's own `train_locally`.

    In round k it moves every weight towards given["targets"][k], and leaves the fraction given["left"], of the same shape, of
    the distance. If given["in_place"], it changes and returns its argument; else given["overwritten"] gets the numbers of the
    rounds after which what it returned was changed.
    """
    targets, left = given["targets"], given["left"]
    ends: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def train_locally(weights: torch.Tensor, number: int) -> torch.Tensor:
        if not 0 <= number < len(targets):
            raise IndexError(f"train_locally: expected a round from 0 to {len(targets) - 1}, got {number!r}")

        moved = targets[number] + left * (weights - targets[number])
        if not given["in_place"]:
            ends[number] = moved, moved.clone()
            return moved
        return weights.copy_(moved)

    returned = fn(fabric, given["weights"], train_locally, rounds, rate, momentum)
    given["overwritten"] = [number for number, (end, before) in ends.items() if not end.equal(before)]
    return returned


def scaled_gradients(
    fn: Callable, fabric: Fabric, given: dict[str, Any], steps: int, rate: float, scale: float, patience: int
) -> Any:
    """Return `fn(fabric, weights, gradient, steps, rate, scale, patience)`, with the check's own `gradient`.

    At float16 weights w, given["slope"] · w + given["pushes"][step] is the rank's gradient in a step; it is scaled before it
    is rounded to float16, and overflows there.
    """
    import torch

    pushes, slope = iter(given["pushes"]), given["slope"]

    def gradient(half: torch.Tensor, scale: float) -> torch.Tensor:
        if half.dtype != torch.float16:
            raise TypeError(f"gradient: expected the weights as float16, got {str(half.dtype).removeprefix('torch.')}")
        push = next(pushes, None)
        if push is None:
            raise IndexError(f"gradient: expected a call in each of {steps} steps, got one more")
        return ((slope * half.float() + push) * scale).half()

    return fn(fabric, given["weights"], gradient, steps, rate, scale, patience)
