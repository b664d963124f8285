"""FSDP of PyTorch keeps and sends what ZeRO's formulas say, as far as real tensors and recorded collectives tell."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from worldsize.formulas import sharding
from worldsize.launch import launch
from worldsize.pytorch.models import mlp

SIZES, RANKS = [16, 32, 8], 2
COUNT = sum(p.numel() for p in mlp(SIZES).parameters())


def step(reshard):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    model, mesh = mlp(SIZES, seed=0), init_device_mesh("cpu", (RANKS,))
    for layer in [*(part for part in model if isinstance(part, nn.Linear)), model]:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, SIZES[0])).sum().backward()
    optimizer.step()
    states = [t for state in optimizer.state.values() for t in state.values() if t.ndim]
    return {
        "parameters": sum(p.to_local().nbytes for p in model.parameters()),
        "gradients": sum(p.grad.to_local().nbytes for p in model.parameters()),
        "optimizer": sum(t.to_local().nbytes for t in states),
    }


@pytest.fixture(scope="module")
def runs():
    return {reshard: launch(step, RANKS, args=(reshard,), device="cpu") for reshard in (True, False)}


def test_a_rank_keeps_what_stage_3_says(runs):
    assert list(runs[True].results) == [sharding.memory(COUNT, RANKS, 3, 4, 4, 8)] * RANKS


@pytest.mark.parametrize(("reshard", "stage"), [(True, 3), (False, 2)])
def test_a_rank_sends_what_its_stage_says(runs, reshard, stage):
    for rank in range(RANKS):
        mine = [c for c in runs[reshard].trace.collectives if c.rank == rank]
        sent = sum(sharding.bytes_sent_by(c.op, c.size_bytes, RANKS) for c in mine)
        assert sent == sharding.bytes_sent(RANKS, 4 * COUNT, stage)
