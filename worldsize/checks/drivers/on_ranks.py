"""Run a student's function on a rank: through aliases of its tensors, with parts of a training, or watching generators.

Left out: the expected values (`checks.replicas`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from worldsize.arrays import gone_through, tensors

if TYPE_CHECKING:  # a TensorFlow task runs without torch
    import torch

    from worldsize.fabric.interface import Fabric

Tensors = list["torch.Tensor"]


def in_memory(fn: Callable, fabric: Fabric, given: Tensors, *more: Any) -> dict[str, Any]:
    """Run `fn(fabric, given, *more)` on a rank, watched through aliases of the tensors, as a model sees its weights.

    "returned" is the result, "memory" what each tensor's memory holds afterwards, "same" whether the list still has that tensor
    in its place, "more" the other arguments afterwards.
    """
    before = list(given)
    aliases = [tensor.detach() for tensor in before]
    returned = fn(fabric, given, *more)
    return {"returned": returned, "memory": aliases, "same": _in_place(given, before), "more": more}


def _in_place(given: Tensors, before: Tensors) -> list[bool]:
    return [k < len(given) and given[k] is tensor for k, tensor in enumerate(before)]


def with_parts(fn: Callable, fabric: Fabric, weights: Tensors, *more: Any) -> dict[str, Any]:
    """Run `fn(fabric, weights, x, y, batch_size, epochs, learning_rate, begin, average)`; the check supplies the last two.

    `more` ends with `shift` and `scale`. `begin` gives all ranks rank 0's weights, the first time plus `shift`; `average`
    gives them `scale` times the mean over all examples. "returned" is the result, "begun" the number of calls of `begin`,
    "counts" the counts of each call of `average`; "memory" and "same" are of the weights, as in `in_memory`, "more" are the
    other arguments. On a single rank a first run trains copies of the weights: "drawn" is as in `answers`.
    """
    from worldsize.fabric.collectives import all_reduce, broadcast

    *lesson, shift, scale = more
    numbers = sum(weight.numel() for weight in weights)
    begun: list[int] = []
    counted: list[Any] = []

    def begin(fabric: Fabric, weights: Tensors) -> None:
        first = sum(begun) < numbers  # it may begin with one tensor after the other
        begun.append(sum(weight.numel() for weight in weights))
        broadcast(fabric, weights)
        for weight in weights:
            weight += shift * first

    def average(fabric: Fabric, gradients: Tensors, counts: Sequence[int]) -> None:
        if len(counts) != fabric.world_size:
            raise ValueError(f"average: expected counts, the examples of each of {fabric.world_size} ranks, got {counts}")

        counted.append([int(count) for count in counts])
        mine = counts[fabric.rank]
        for gradient in gradients:
            if mine:
                gradient.mul_(scale * mine / sum(counts))
            else:
                gradient.zero_()  # not mul_(0): the mean over no examples is NaN
            all_reduce(fabric, gradient)

    drawn: dict[str, list[list[float]]] = {}
    if fabric.world_size == 1:
        fn(fabric, [weight.clone() for weight in weights], *tensors(lesson), begin, average)
        drawn = {name: [numbers] for name, numbers in _drawn().items()}
        begun.clear()
        counted.clear()

    before, arguments = list(weights), tensors(lesson)
    aliases = [weight.detach() for weight in before]
    returned = fn(fabric, weights, *arguments, begin, average)
    if drawn:
        drawn = {name: [*drawn[name], numbers] for name, numbers in _drawn().items()}
    return {
        "returned": returned, "begun": len(begun), "counts": counted, "memory": aliases, "same": _in_place(weights, before),
        "more": arguments, "drawn": drawn,
    }  # fmt: skip


def answers(fn: Callable, fabric: Fabric, asked: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Run a plain function on one rank: "returned" has `fn(*arguments)` for each of `asked`.

    "drawn" has, by generator, the numbers that the process's own generators give after one call and after another. In between
    they have advanced, so equal numbers mean that the call has reset them. "moved" lists the generators whose state is another
    one after a call.
    """
    before = _states()
    fn(*asked[0])
    moved = [name for name, state in _states().items() if state != before[name]]
    one = _drawn()
    fn(*asked[0])
    drawn = {name: [one[name], numbers] for name, numbers in _drawn().items()}
    return {"returned": [fn(*arguments) for arguments in asked], "drawn": drawn, "moved": moved}


def listed_answers(fn: Callable, fabric: Fabric, asked: Sequence[Sequence[Any]]) -> list[Any]:
    """Return `fn(*arguments)` for each of `asked`, a generator as a list."""
    return [gone_through(fn(*arguments)) for arguments in asked]


def listed(fn: Callable, fabric: Fabric, given: Any, *more: Any) -> Any:
    """Return `fn(fabric, given, *more)`, a generator as a list."""
    return gone_through(fn(fabric, given, *more))


def answers_by_hand(fn: Callable, fabric: Fabric, asked: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Run a plain function as `answers` does; "library" says whether it made one of torch's DistributedSamplers."""
    from torch.utils.data import DistributedSampler

    made, original = [], DistributedSampler.__init__

    def noted(sampler: DistributedSampler, *args: Any, **kwargs: Any) -> None:
        made.append(type(sampler))
        original(sampler, *args, **kwargs)

    DistributedSampler.__init__ = noted
    try:
        return {**answers(fn, fabric, asked), "library": bool(made)}
    finally:
        DistributedSampler.__init__ = original


def _drawn() -> dict[str, list[float]]:
    """Return the next numbers of each of the generators of the rank's process."""
    import torch

    generators = {"torch": lambda: float(torch.rand(1)), "random": random.random, "numpy": np.random.random}
    return {name: [draw() for _ in range(4)] for name, draw in generators.items()}


def _states() -> dict[str, Any]:
    """Return the state of each of the generators of the rank's process, to compare."""
    import torch

    _, key, *rest = np.random.get_state()
    return {"torch": torch.get_rng_state().tolist(), "random": random.getstate(), "numpy": (key.tolist(), rest)}


def on_each(fn: Callable, given: Sequence[Sequence[Any]]) -> list[Any]:
    """Return what `fn(*arguments)` returned for each of `given`, one after the other on the same ranks."""
    return [fn(*arguments) for arguments in given]


def and_arguments(fn: Callable, fabric: Fabric, given: Any, *more: Any) -> dict[str, Any]:
    """Run `fn(fabric, given, *more)` on a rank: "returned" is the result, "more" the other arguments afterwards."""
    return {"returned": fn(fabric, given, *more), "more": more}


def with_named(fn: Callable, fabric: Fabric, given: dict[str, Any], *more: Any) -> Any:
    """Return `fn(fabric, *values, *more)`, with the values of `given` in their order: what a rank alone has."""
    return fn(fabric, *given.values(), *more)
