"""A torch.distributed process group whose collectives travel over a fabric, so that the run records DDP's messages.

    use_fabric(fabric)
    ddp = DistributedDataParallel(model)      # and dist.all_reduce, dist.get_world_size(), ...

The group's all-reduce is the ring of `fabric.collectives`, so an all-reduce of b bytes is 2(n − 1)b bytes over all ranks. A
collective is over when its call returns. Left out: collectives that neither DDP nor its exercise uses, operations other than
sum, mean, minimum and maximum, groups of some of the ranks, and devices other than the CPU. S. Li et al., "PyTorch Distributed",
VLDB 2020, section 3.3: DDP takes any process group.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from worldsize.fabric.collectives import all_reduce
from worldsize.fabric.interface import Fabric, Handle

TAG = 2  # of every message outside a sum, to keep it apart from a sum's parts

Tensors = Sequence[torch.Tensor]


class Done(dist._Work):
    """A group's collective that was over before its call returned; its future holds the tensors."""

    def __init__(self, tensors: Any) -> None:
        super().__init__()
        self._future: torch.futures.Future = torch.futures.Future()
        self._future.set_result(tensors)

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> torch.futures.Future:
        return self._future


class FabricGroup(dist.ProcessGroup):
    """The ranks of a fabric as a process group. Raises ValueError for an unsupported operation."""

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric.rank, fabric.world_size)
        self._fabric = fabric

    def getBackendName(self) -> str:
        return "fabric"

    def allreduce(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        """Reduce each tensor: each rank sends 2(n − 1)/n of it; for minimum and maximum, all of it to every other rank."""
        op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        adds = op == dist.ReduceOp.SUM or op == dist.ReduceOp.AVG  # a ReduceOp equals its kind only on the left side of ==
        extremes = {dist.ReduceOp.MIN: torch.amin, dist.ReduceOp.MAX: torch.amax}
        extreme = next((fn for known, fn in extremes.items() if op == known), None)
        if not adds and extreme is None:
            raise ValueError(f"all_reduce over the fabric: expected SUM, AVG, MIN or MAX, got {op}")

        for x in tensors:
            x = x.detach()
            if extreme is None:
                all_reduce(self._fabric, x)
                if op == dist.ReduceOp.AVG:
                    x /= self.size()
            else:
                every = [torch.empty_like(x) for _ in range(self.size())]
                self._gather(every, x)
                x.copy_(extreme(torch.stack(every), dim=0))
        return Done(list(tensors))

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        """Send over the fabric each tensor whole from the root to every other rank."""
        root = 0 if opts is None else opts.rootRank
        for x in tensors:
            if self.rank() != root:
                self._fabric.recv(x.detach(), frm=root, tag=TAG)
                continue
            for handle in self._begin_to_others(x.detach()):
                handle.wait()

        return Done(list(tensors))

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        """Send over the fabric each rank's tensor whole to every other rank."""
        for given, own in zip(outputs, inputs, strict=True):
            self._gather(list(given), own.detach())
        return Done([list(given) for given in outputs])

    def all_gather_single(self, output: torch.Tensor, own: torch.Tensor, opts: Any = None) -> dist.Work:
        self._gather(list(output.chunk(self.size())), own.detach())
        return Done(output)

    _allgather_base = all_gather_single

    def barrier(self, opts: Any = None) -> dist.Work:
        return self.allreduce([torch.ones(1)])

    # ---- messages ----------------------------------------------------------------------------

    def _gather(self, given: Tensors, own: torch.Tensor) -> None:
        """Gather over the fabric every rank's tensor into `given`, by rank."""
        handles = self._begin_to_others(own)

        for rank, landing in enumerate(given):
            if rank == self.rank():
                landing.copy_(own)
            else:
                self._fabric.recv(landing, frm=rank, tag=TAG)
        for handle in handles:
            handle.wait()

    def _begin_to_others(self, x: torch.Tensor) -> list[Handle]:
        n, rank = self.size(), self.rank()
        return [self._fabric.isend(x, to=(rank + k) % n, tag=TAG) for k in range(1, n)]


def use_fabric(fabric: Fabric) -> FabricGroup:
    """Make the fabric's ranks the default process group of this process: DDP and `dist`'s calls then use the fabric.

    Every rank must call this function, which works where `init_process_group` may not be called, as in an exercise over the
    fabric.
    """
    group = FabricGroup(fabric)
    world = c10d._world
    world.pg_map[group] = ("fabric", None)
    world.pg_names[group] = "fabric"
    world.pg_group_ranks[group] = {rank: rank for rank in range(fabric.world_size)}
    world.pg_backend_config[group] = "cpu:fabric"
    world.default_pg = group
    c10d._get_default_group = lambda: group  # dist's calls ask for this where no group is named
    return group
