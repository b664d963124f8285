"""A rank's shard of a transformer layer, some heads and some hidden units of the MLP, to measure what it keeps.

Shards are joined either by all-reduces (Megatron's f and g), or by all-gather and reduce-scatter of tokens (sequence
parallelism), where the gathered tokens are not kept but gathered again in backward. Left out: causal masks, biases of the
linear layers, speed. M. Shoeybi et al., arXiv:1909.08053, 2019; V. Korthikanti et al., arXiv:2205.05198, 2022, sections 4.1 and
4.2.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from worldsize.fabric.collectives import all_gather, all_reduce, reduce_scatter
from worldsize.fabric.interface import Fabric

Way = Callable[[torch.Tensor], torch.Tensor]


class TwoWays(torch.autograd.Function):
    """A conjugate pair of sharding: `there` acts on a value in forward, `back` on its gradient in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, there: Way, back: Way) -> torch.Tensor:
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.back(grad), None, None


class GatheredLinear(torch.autograd.Function):
    """The product x Wᵀ of all ranks' tokens under sequence parallelism: keeps this rank's tokens only, and gathers again in
    backward."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, weight: torch.Tensor, fabric: Fabric) -> torch.Tensor:
        ctx.save_for_backward(own, weight)
        ctx.fabric = fabric
        return gathered(fabric, own) @ weight.T

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        own, weight = ctx.saved_tensors
        whole = gathered(ctx.fabric, own)
        of_weight = grad.flatten(0, -2).T @ whole.flatten(0, -2)
        return scattered(ctx.fabric, grad @ weight), of_weight, None


def gathered(fabric: Fabric, own: torch.Tensor) -> torch.Tensor:
    """All-gather a transformer's tokens: [tokens/n, …] on each rank to [tokens, …] on all. n must divide the tokens."""
    whole = torch.empty(fabric.world_size * own.shape[0], *own.shape[1:], dtype=own.dtype)
    whole.tensor_split(fabric.world_size)[fabric.rank].copy_(own.detach())
    all_gather(fabric, whole.view(-1))
    return whole


def scattered(fabric: Fabric, whole: torch.Tensor) -> torch.Tensor:
    """Reduce-scatter a transformer's tokens: return this rank's tokens of the sum of all ranks' [tokens, …]."""
    part = reduce_scatter(fabric, whole.detach().contiguous().view(-1))
    return part.view(-1, *whole.shape[1:])


class TransformerShard(nn.Module):
    """This rank's shard of a PyTorch transformer layer: x [tokens, batch, width] to the same shape.

    With `sequence`, x has this rank's tokens only. All ranks draw the whole weights from `seed` and keep their own rows and
    columns. Raises ValueError if the number of ranks does not divide `heads`, or `heads` the width.
    """

    def __init__(
        self, fabric: Fabric, width: int, heads: int, sequence: bool = False, dropout: float = 0.1, seed: int = 0,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:  # fmt: skip
        super().__init__()
        n = fabric.world_size
        if heads % n or width % heads:
            raise ValueError(f"TransformerShard: expected heads that split over {n} ranks and divide the width, got {heads}")

        self._fabric, self._sequence, self._dropout = fabric, sequence, dropout
        self._heads, self._head_width = heads // n, width // heads
        random = torch.Generator().manual_seed(seed)

        def drawn(*shape: int) -> torch.Tensor:
            return (torch.randn(shape, generator=random, dtype=torch.float64) / shape[-1] ** 0.5).to(dtype)

        def own(x: torch.Tensor, dim: int) -> nn.Parameter:
            return nn.Parameter(x.tensor_split(n, dim)[fabric.rank].clone())

        # each rank has its own heads' rows of queries, keys and values
        self.qkv = nn.Parameter(torch.cat([drawn(width, width).tensor_split(n)[fabric.rank] for _ in range(3)]))
        self.out = own(drawn(width, width), 1)
        self.up, self.down = own(drawn(4 * width, width), 0), own(drawn(width, 4 * width), 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width, dtype=dtype) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self._attend(self._enter(self._norm(x, 0), self.qkv))
        x = x + self._drop(self._leave(mixed @ self.out.T))

        hidden = F.gelu(self._enter(self._norm(x, 1), self.up))
        return x + self._drop(self._leave(hidden @ self.down.T))

    def _norm(self, x: torch.Tensor, number: int) -> torch.Tensor:
        """Normalize x. With sharded tokens each rank has only a part of the weights' gradient, so the parts are added up."""
        norm = self.norms[number]
        scale, shift = norm.weight, norm.bias
        if self._sequence:
            scale, shift = self._shared(scale), self._shared(shift)
        return F.layer_norm(x, norm.normalized_shape, scale, shift)

    def _shared(self, x: torch.Tensor) -> torch.Tensor:
        """Return the transformer shard's x as it is, and add up its gradient over the ranks: Megatron's f."""
        return TwoWays.apply(x, lambda x: x.view_as(x), lambda grad: all_reduce(self._fabric, grad.clone()))

    def _enter(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if self._sequence:
            return GatheredLinear.apply(x, weight, self._fabric)
        return self._shared(x) @ weight.T

    def _leave(self, x: torch.Tensor) -> torch.Tensor:
        fabric = self._fabric
        if self._sequence:
            return TwoWays.apply(x, lambda x: scattered(fabric, x), lambda grad: gathered(fabric, grad))
        return TwoWays.apply(x, lambda x: all_reduce(fabric, x.clone()), lambda grad: grad)

    def _attend(self, qkv: torch.Tensor) -> torch.Tensor:
        """Attend with the shard's heads: map [tokens, batch, 3 · own width] to [tokens, batch, own width], head by head."""
        tokens, batch, _ = qkv.shape
        shape = tokens, batch * self._heads, self._head_width
        q, k, v = (part.reshape(shape).transpose(0, 1).contiguous() for part in qkv.chunk(3, -1))

        scores = (q @ k.transpose(1, 2)) * self._head_width**-0.5
        mixed = self._drop(scores.softmax(-1)) @ v
        return mixed.transpose(0, 1).reshape(tokens, batch, -1)

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the transformer's dropout that keeps one byte per element."""
        if not self._dropout:
            return x
        return torch.native_dropout(x, self._dropout, True)[0]
