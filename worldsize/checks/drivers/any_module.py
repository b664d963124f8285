"""Run a student's wrapper on a rank, around modules that the check chose: for lab 11.

The training loop is the driver's: the wrapper sees a module, and its finish() is called after backward. No expected values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a TensorFlow task runs without torch
    from worldsize.fabric.interface import Fabric


def trained(fn: Callable, fabric: Fabric, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the states that `torch_modules.train` reports for each of given["tasks"], with the module wrapped by `fn`.

    given["caps"] has a bucket cap in bytes for each task.
    """
    import torch

    from worldsize.pytorch import torch_modules

    torch.set_num_threads(1)  # with a rank per process, a second thread mostly waits for a core
    states = []
    for task, cap_bytes in zip(given["tasks"], given["caps"], strict=True):
        model = torch_modules.module(task)
        finish = _wrapped(fn, fabric, model, cap_bytes)
        states.append(torch_modules.train(task, fabric.rank, model, finish))
    return states


def timed(fn: Callable, fabric: Fabric, given: dict[str, Any]) -> dict[str, Any]:
    """Return what `timed_network.train` returns for given["task"], whose network `fn`, a wrapper of any module, has wrapped."""
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
