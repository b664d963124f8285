"""A stage of a split model: layers built from plain data, with declared time, and a count of what autograd keeps.

A `part` is a dict: "layers", each {"weight", "bias", "relu"}; "xs" and "ys", tensors by micro-batch; and optionally "seconds",
a declared time forward and backward. A stage can thus travel to a rank or a check as numbers. Messages and the order of actions
are left to the lab of pipelines. Kept bytes are counted by autograd's hooks on saved tensors (the PyTorch manual, "Hooks for
autograd saved tensors"). Recomputing forward from the input alone is T. Chen et al.'s ("Training deep nets with sublinear memory
cost", arXiv:1604.06174, 2016).
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from worldsize.fabric.interface import Fabric
from worldsize.report import report, span

StagePart = dict[str, Any]


def cut(
    model: nn.Sequential, edges: Sequence[int], x: torch.Tensor, y: torch.Tensor, micro_batches: int = 1,
    seconds: Sequence[tuple[float, float]] | None = None, watch: bool = False, recompute: bool = False,
) -> list[StagePart]:
    """Cut an MLP (`models.mlp`) into stages, each a part as plain data that can travel to a rank.

    Stage s has the linear layers edges[s] to edges[s + 1], each with its ReLU. `x` [n, features] and `y` [n] are cut into equal
    micro-batches: the first part has `x`'s, the others empty tensors of the arriving shape; the last has `y`'s. `seconds[s]` is
    declared time, forward and backward. With `watch` the stages report their kept bytes; with `recompute` they keep only their
    inputs and run forward again in each backward. Raises ValueError if n does not divide by `micro_batches`, or `edges` do not
    run from 0 to the number of layers.
    """  # fmt: skip
    linear = [layer for layer in model if isinstance(layer, nn.Linear)]
    if edges[0] != 0 or edges[-1] != len(linear) or any(a >= b for a, b in pairwise(edges)):
        raise ValueError(f"cut: expected edges that grow from 0 to {len(linear)}, the linear layers, got {list(edges)}")

    if len(x) % micro_batches:
        raise ValueError(f"cut: expected a batch that {micro_batches} micro-batches divide evenly, got {len(x)} examples")

    parts = []
    for stage, (start, stop) in enumerate(pairwise(edges)):
        rows, width = len(x) // micro_batches, linear[start].in_features
        layers = []
        for k, layer in enumerate(linear[start:stop], start):
            plain = {"weight": layer.weight.detach().clone(), "bias": layer.bias.detach().clone()}
            layers.append({**plain, "relu": k < len(linear) - 1})

        xs = _chunks(x, micro_batches)
        if stage:
            xs = [torch.empty(rows, width, dtype=x.dtype) for _ in range(micro_batches)]
        parts.append({"layers": layers, "xs": xs, "ys": []})
        if seconds:
            parts[-1] |= {"seconds": tuple(seconds[stage]), "watch": watch, "recompute": recompute}

    parts[-1]["ys"] = _chunks(y, micro_batches)
    return parts


def _chunks(x: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Return a stage's chunks with memory of their own: a view would take the whole tensor along when it travels."""
    return [chunk.clone() for chunk in x.chunk(count)]


def build(part: StagePart, fabric: Fabric | None = None) -> nn.Module:
    """Build one stage's layers from its part, in the dtype of their weights.

    With "seconds", the layers take that long on `fabric`, as declared.
    """
    layers = nn.Sequential()
    for plain in part["layers"]:
        out_features, in_features = plain["weight"].shape
        linear = nn.Linear(in_features, out_features, dtype=plain["weight"].dtype)
        with torch.no_grad():
            linear.weight.copy_(plain["weight"])
            linear.bias.copy_(plain["bias"])

        layers.append(linear)
        if plain["relu"]:
            layers.append(nn.ReLU())

    if "seconds" not in part:
        return layers
    forward_s, backward_s = part["seconds"]
    return TimedLayers(layers, fabric, forward_s, backward_s, part["watch"], part.get("recompute", False))


class TimedLayers(nn.Module):
    """A stage's layers that work and then wait until a declared time is over, like a larger model's; the wait burns no core.

    The k-th forward and its backward are marked as the spans "forward k" and "backward k". With `watch`, the bytes that
    autograd keeps are reported as `kept_for_backward_kB` at each change. With `recompute` only the input is kept, and a
    backward also takes a forward's time.
    """

    def __init__(
        self, layers: nn.Module, fabric: Fabric, forward_s: float, backward_s: float, watch: bool, recompute: bool = False
    ) -> None:
        super().__init__()
        self.layers, self.fabric, self.recompute = layers, fabric, recompute
        self.seconds = {"forward": forward_s, "backward": backward_s + forward_s * recompute}
        self._count = 0
        self._counting: Callable[[], AbstractContextManager] = nullcontext
        if watch:
            self._counting = _Kept({p.data_ptr() for p in layers.parameters()}).counting

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        micro, self._count = self._count, self._count + 1

        if not x.requires_grad:
            x = x.detach().requires_grad_()

        with self._taking("forward", micro), self._counting():
            backward = ExitStack()  # entered and left when autograd runs backward
            begin = _Passing.apply(x, backward.close)
            if self.recompute:
                out = _Again.apply(self.layers, self._counting, begin, *self.layers.parameters())
            else:
                out = self.layers(begin)
            return _Passing.apply(out, lambda: backward.enter_context(self._taking("backward", micro)))

    @contextmanager
    def _taking(self, way: str, micro: int) -> Iterator[None]:
        """Mark a stage's work inside as a span, and take until its declared time is over."""
        start_s = time.monotonic()
        with span(f"{way} {micro}"):
            yield
            self.fabric.compute(max(0.0, self.seconds[way] - (time.monotonic() - start_s)))


class _Passing(torch.autograd.Function):
    """A stage's identity that calls `then` first in the backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, then: Callable[[], Any]) -> torch.Tensor:
        ctx.then = then
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        ctx.then()
        return grad, None


class _Again(torch.autograd.Function):
    """A stage's layers for which autograd keeps only the input: the backward runs forward once more, then back."""

    @staticmethod
    def forward(
        ctx: Any, layers: nn.Module, counting: Callable[[], AbstractContextManager], x: torch.Tensor, *weights: torch.Tensor
    ) -> torch.Tensor:
        ctx.layers, ctx.counting = layers, counting
        ctx.save_for_backward(x)
        with torch.no_grad():
            return layers(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        (x,) = ctx.saved_tensors
        again = x.detach().requires_grad_()
        with torch.enable_grad(), ctx.counting():
            out = ctx.layers(again)
        return None, None, *torch.autograd.grad(out, (again, *ctx.layers.parameters()), grad)


class _Kept:
    """The bytes of a stage that autograd keeps, without the weights, which exist anyway; a tensor saved twice counts once."""

    def __init__(self, weights: set[int]) -> None:
        self._weights, self._holders, self.size_bytes = weights, Counter(), 0

    def counting(self) -> AbstractContextManager:
        """Return a context manager that counts the tensors a stage saves inside."""
        return torch.autograd.graph.saved_tensors_hooks(lambda x: _Saved(self, x), lambda saved: saved.x)

    def note(self, x: torch.Tensor, step: int) -> None:
        place = x.untyped_storage().data_ptr()
        if place in self._weights:
            return

        self._holders[place] += step
        if self._holders[place] == (step > 0):  # its first holder came, or its last one went
            self.size_bytes += step * x.nbytes
            report(kept_for_backward_kB=self.size_bytes / 1e3)


class _Saved:
    """A stage's tensor kept by autograd, from the forward until the backward frees it."""

    def __init__(self, kept: _Kept, x: torch.Tensor) -> None:
        self._kept, self.x = kept, x.detach()  # an output would hold its own graph
        kept.note(self.x, 1)

    def __del__(self) -> None:
        self._kept.note(self.x, -1)
