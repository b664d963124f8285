"""A network of plain layers with declared durations of forward and backward, and its training, for labs on DDP.

A `task` is a dict of plain values that defines a training, so it can travel to ranks and be given out by a check. `task()`
fills in defaults. Every rank draws its own weights and examples from the task's seed and its number; nothing is sent here.
Making the ranks agree is left to the lab's student.
"""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from worldsize.fabric.interface import Fabric

TrainingTask = dict[str, Any]


def task(**given: Any) -> TrainingTask:
    """Return a timed network's training task as plain values: the given values, and defaults for the rest.

    `sizes`: widths from the input to the output, a layer between each two. `tied`: pairs (a, b), layer b uses layer a's weight.
    `frozen`: layers that don't learn. `unused`: by rank, layers that this rank's loss skips (which must be square). `forward_s`,
    `backward_s`: declared seconds of a layer's forward and backward. `parts`: micro-batches of a step, each of `examples`.
    `buckets`: lists of numbers of learning tensors. Raises ValueError for another name.
    """
    plain: TrainingTask = {
        "sizes": [4, 4, 4, 4], "examples": 3, "steps": 1, "rate": 0.1, "seed": 0, "dtype": "float32", "tied": [],
        "frozen": [], "unused": {}, "forward_s": 0.0, "backward_s": 0.0, "parts": 1, "buckets": [],
    }  # fmt: skip

    unknown = sorted(set(given) - set(plain))
    if unknown:
        raise ValueError(f"task: expected some of {', '.join(plain)}, got {unknown[0]!r}")
    return {**plain, **given}


class _Stretch(torch.autograd.Function):
    """A layer's declared time in forward, and in backward before the gradient goes on. Only the fabric may change the values."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, fabric: Fabric, forward_s: float, backward_s: float) -> torch.Tensor:
        ctx.fabric, ctx.backward_s = fabric, backward_s
        made = _declare(fabric, forward_s, x)
        return made.view_as(made)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _declare(ctx.fabric, ctx.backward_s, gradient), None, None, None


def _declare(fabric: Fabric, seconds: float, x: torch.Tensor) -> torch.Tensor:
    return fabric.compute(seconds, x) if seconds else x


class KeptGraphs:
    """A network's counter of the forward passes whose tensors autograd keeps for backward: `now`, and the `most` at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def mark(self, x: torch.Tensor) -> torch.Tensor:
        """Return the same tensor, with a mark in its graph that disappears with the graph's tensors."""
        with torch.autograd.graph.saved_tensors_hooks(lambda kept: _Mark(self, kept), lambda mark: mark.tensor):
            return _Marked.apply(x)


class _Mark:
    def __init__(self, graphs: KeptGraphs, tensor: torch.Tensor) -> None:
        self.graphs, self.tensor = graphs, tensor.detach()
        graphs.now += 1
        graphs.most = max(graphs.most, graphs.now)

    def __del__(self) -> None:
        self.graphs.now -= 1


class _Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Network(nn.Module):
    """Linear layers without bias, tanh between them: one weight [out, in] per layer, in `parameters()` from the input on."""

    def __init__(self, fabric: Fabric, task: TrainingTask) -> None:
        super().__init__()
        self._fabric, self._task = fabric, task
        self.graphs = KeptGraphs()
        unused, rank = task["unused"], fabric.rank
        self._passed_by = set(unused.get(rank, unused.get(str(rank), [])))  # JSON has no integer keys

        random = _random(task, fabric.rank)
        dtype = getattr(torch, task["dtype"])
        self.weights = nn.ParameterList()
        for inputs, outputs in pairwise(task["sizes"]):
            drawn = torch.randn((outputs, inputs), generator=random, dtype=torch.float64) / inputs**0.5
            self.weights.append(nn.Parameter(drawn.to(dtype)))

        for first, second in task["tied"]:
            self.weights[second] = self.weights[first]
        for layer in task["frozen"]:
            self.weights[layer].requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last = len(self.weights) - 1
        declared_s = self._task["forward_s"], self._task["backward_s"]
        for layer, weight in enumerate(self.weights):
            if layer in self._passed_by:
                continue
            x = x @ weight.T
            if any(declared_s):
                x = _Stretch.apply(x, self._fabric, *declared_s)
            if layer < last:
                x = x.tanh()

        if self._task["parts"] > 1:
            x = self.graphs.mark(x)
        return x


def network(fabric: Fabric, task: TrainingTask) -> Network:
    """Return this rank's copy of the timed network, with its own weights.

    Forward and backward take the task's declared time.
    """
    return Network(fabric, task)


def batch(task: TrainingTask, rank: int, step: int, part: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a rank's examples for the network for one step, and their targets.

    Shapes [examples, in], [examples, out].
    """
    random = _random(task, rank, 1 + step, part)
    shape = (task["examples"], task["sizes"][0] + task["sizes"][-1])

    numbers = torch.randn(shape, generator=random, dtype=torch.float64).to(getattr(torch, task["dtype"]))
    return numbers[:, : task["sizes"][0]], numbers[:, task["sizes"][0] :]


def loss(task: TrainingTask, rank: int, forward: Callable, step: int, part: int = 0) -> torch.Tensor:
    """Return the network's mean squared error over the rank's examples of one step."""
    x, y = batch(task, rank, step, part)
    return nn.functional.mse_loss(forward(x), y)


def train(
    fabric: Fabric, task: TrainingTask, model: nn.Module, gradients: Callable, forward: Callable | None = None
) -> dict[str, Any]:
    """Train the network by gradient descent; a given function makes the gradients of each step.

    `gradients(loss)` must leave each parameter's step direction in p.grad. A task with several parts passes an iterator instead,
    which runs the next micro-batch's forward on request. `forward` replaces `model(x)`. Returns {"weights": the parameters at the
    end, "seconds": of each step} and, with several parts, "graphs": the most micro-batches whose tensors autograd kept at once.
    """
    if forward is None:
        forward = model
    seconds = []
    for step in range(task["steps"]):
        model.zero_grad()
        losses = (loss(task, fabric.rank, forward, step, part) for part in range(task["parts"]))

        begin_s = time.monotonic()
        gradients(losses if task["parts"] > 1 else next(losses))
        descend(model, task["rate"])
        seconds.append(time.monotonic() - begin_s)

    told: dict[str, Any] = {"weights": [p.detach() for p in model.parameters()], "seconds": seconds}
    if task["parts"] > 1:
        told["graphs"] = next(part.graphs.most for part in model.modules() if isinstance(part, Network))
    return told


@torch.no_grad()
def descend(model: nn.Module, rate: float) -> None:
    """Take the network's step against each parameter's gradient, if it has one."""
    for p in model.parameters():
        if p.grad is not None:
            p -= rate * p.grad


def _random(task: TrainingTask, *place: int) -> torch.Generator:
    number = task["seed"]
    for k in place:
        number = (number * 1_000_003 + k + 1) % 2**61
    return torch.Generator().manual_seed(number)
