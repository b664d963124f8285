"""Run a student's wrapper of modules in a rank, round modules that the check chose: for lab 11.

Inputs and what came of them, no expected value. The loop is the driver's: a wrapper sees a module, and is called after
backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a task of TensorFlow has no torch
    from worldsize.fabric.interface import Fabric


def trained(fn: Callable, fabric: Fabric, given: dict[str, Any]) -> list[dict[str, Any]]:
    """For each of given["tasks"]: the states that `torch_modules.train` tells, where `fn` has wrapped the module.

    given["caps"] are the caps of a bucket, in bytes.
    """
    import torch

    from worldsize.pytorch import torch_modules

    torch.set_num_threads(1)  # a second one would wait for a core more often than it would compute
    told = []
    for task, cap_bytes in zip(given["tasks"], given["caps"], strict=True):
        model = torch_modules.module(task)
        finish = _wrapped(fn, fabric, model, cap_bytes)
        told.append(torch_modules.train(task, fabric.rank, model, finish))
    return told


def timed(fn: Callable, fabric: Fabric, given: dict[str, Any]) -> dict[str, Any]:
    """Return what `timed_network.train` does for given["task"], whose network `fn` has wrapped."""
    from worldsize.pytorch.timed_network import network, train

    task = given["task"]
    model = network(fabric, task)
    finish = _wrapped(fn, fabric, model, given["cap_bytes"])

    def gradients(loss: Any) -> None:
        loss.backward()
        finish()

    return train(fabric, task, model, gradients)


def _wrapped(fn: Callable, fabric: Fabric, model: Any, cap_bytes: int) -> Callable:
    finish = fn(fabric, model, cap_bytes)
    if callable(finish) and finish is not model:
        return finish

    got = "None (does the function return it?)" if finish is None else f"a {type(finish).__name__}"
    raise TypeError(
        f"wrap_module on rank {fabric.rank}: expected a function, the finish() that is called after each backward, got {got}."
    )
