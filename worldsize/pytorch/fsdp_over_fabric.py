"""PyTorch's FSDP2 over a fabric: its all-gathers and reduce-scatters are messages on a launch's links and in its record.

`fully_shard` lets a module's communication be replaced. On GPUs its gathers run ahead on separate streams. CPUs have none, so
here a gather begins with sends and ends where FSDP waits for it (`async_op`), and the layer to gather ahead is set layer by
layer. The model is the stack of tanh layers that the course's own stage 3 trains, with declared work. Left out: mixed
precision, and dimensions that the ranks do not divide (FSDP2 pads them). Y. Zhao et al., "PyTorch FSDP", VLDB 2023, section
3.3: overlap and prefetching.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, Comm, ReduceScatter

from worldsize.fabric.collectives import reduce_scatter
from worldsize.fabric.interface import Fabric, Handle
from worldsize.pytorch.transformer_shard import TwoWays

TAG = 1  # of gathers, to keep them apart from a reduce-scatter's parts


class _Gathering(dist._Work):
    """FSDP's gather over the fabric that has begun; it ends when FSDP waits for it."""

    def __init__(self, fabric: Fabric, out: torch.Tensor, handles: Sequence[Handle]) -> None:
        super().__init__()
        self._fabric, self._out, self._handles = fabric, out, handles

    def wait(self, timeout: Any = None) -> bool:
        for rank, part in enumerate(self._out.chunk(self._fabric.world_size)):
            if rank != self._fabric.rank:
                self._fabric.recv(part, frm=rank, tag=TAG)
        for handle in self._handles:
            handle.wait()
        return True


class _OverFabric(Comm):
    """FSDP's communication over the fabric, and its buffers."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class FabricAllGather(_OverFabric, AllGather):
    """FSDP's all-gather over the fabric."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool = False
    ) -> dist.Work | None:
        fabric = self._fabric
        others = [(fabric.rank + k) % fabric.world_size for k in range(1, fabric.world_size)]
        work = _Gathering(fabric, output_tensor, [fabric.isend(input_tensor, to=rank, tag=TAG) for rank in others])
        if async_op:
            return work
        work.wait()
        return None


class FabricReduceScatter(_OverFabric, ReduceScatter):
    """FSDP's reduce-scatter over the fabric; it returns the sum or the mean, as FSDP asks."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        part = reduce_scatter(self._fabric, input_tensor.flatten())
        if op == dist.ReduceOp.AVG:
            part /= self._fabric.world_size
        output_tensor.copy_(part.view_as(output_tensor))


class TanhLayer(nn.Module):
    """A PyTorch layer tanh(x weightᵀ) whose forward and backward each take declared time."""

    def __init__(self, fabric: Fabric, weight: torch.Tensor, work_s: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self._fabric, self._work_s = fabric, work_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def working(value: torch.Tensor) -> torch.Tensor:
            self._fabric.compute(self._work_s)
            return value.view_as(value)

        return torch.tanh(TwoWays.apply(x @ self.weight.T, working, working))


def sharded_stack(fabric: Fabric, weights: Sequence[torch.Tensor], work_s: float, ahead: bool = True) -> nn.Sequential:
    """Return a stack of tanh layers under FSDP2, stage 3, that sends over the fabric. A process group must exist.

    `weights` are whole, and each rank keeps its part. With `ahead`, each layer's gather begins before the work of the layer
    before it, in both passes.
    """
    model = nn.Sequential(*(TanhLayer(fabric, weight, work_s) for weight in weights))
    mesh = init_device_mesh("cpu", (fabric.world_size,))

    for layer in model:
        fully_shard(layer, mesh=mesh)
        layer.set_custom_all_gather(FabricAllGather(fabric))
        layer.set_custom_reduce_scatter(FabricReduceScatter(fabric))
        layer._set_unshard_async_op(ahead)
    fully_shard(model, mesh=mesh)  # the root, which has no weights of its own

    if ahead:
        for layer, after in pairwise(model):
            layer.set_modules_to_forward_prefetch([after])
            after.set_modules_to_backward_prefetch([layer])
    return model
