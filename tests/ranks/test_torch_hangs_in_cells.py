"""A hang in torch's own communication in a cell of ranks that stay: it ends at once with its cause, and the ranks go on."""

import time

import pytest

from worldsize.errors import Deadlock

SOON_S = 10.0  # on a busy machine; usually half a second
CASES = {
    "uneven batches": (
        "import torch.nn as nn\nmodel = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))\n"
        "for _ in range(3 + (rank > 0)): model(torch.ones(2, 4)).sum().backward()",
        r"rank 0 returned; ranks? 1.* waits? in all_reduce of DDP's backward \(backward pass 4\)",
    ),
    "a barrier on one rank": ("if rank == 0: dist.barrier()", r"ranks? 1.* returned; rank 0 waits in barrier"),
    "different operations": (
        "if rank == 0: dist.barrier()\nelse: dist.all_reduce(torch.ones(20))",
        r"rank 0 called barrier, ranks? 1.* called all_reduce, each as collective 2 of the default group",
    ),
    "send against send": (
        "dist.send(torch.ones(3), (rank + 1) % world_size)", r"rank 0 waits in send to rank 1; rank 1 waits in send to",
    ),
    "recv against recv": (
        "dist.recv(torch.ones(3), (rank - 1) % world_size)", r"rank 0 waits in recv from rank \d; rank 1 waits in recv from",
    ),
    "a whole weight on one rank": (
        "from torch.distributed.fsdp import fully_shard\nmodel = torch.nn.Linear(4, 4)\nfully_shard(model)\n"
        "model(torch.ones(2, 4)).sum().backward()\nif rank == 0: model.weight.full_tensor()\nelse: dist.barrier()",
        r"rank 0 called all_gather of full_tensor\(\), ranks? 1.* called barrier",
    ),
    "one call skipped": (
        "for k in range(4):\n    if (k, rank) != (2, world_size - 1): dist.all_reduce(torch.ones(3))",
        r"rank \d returned; ranks? 0.* waits? in all_reduce",
    ),
    "groups in opposite order": (
        "pair, everyone = dist.new_group([0, 1]), dist.new_group(list(range(world_size)))\n"
        "for group in (pair, everyone) if rank == 0 else (everyone, pair):\n"
        "    if rank < 2 or group is everyone: dist.all_reduce(torch.ones(2), group=group)",
        r"rank 0 waits in all_reduce \(group 1: ranks 0, 1\); ranks? 1.* waits? in all_reduce \(group 2: ",
    ),
    "torch against the fabric": (
        "if rank == 0: dist.barrier()\nelse: fabric.recv(torch.ones(3), 0)",
        r"rank 0 waits in barrier; ranks? 1.* waits? in recv from rank 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.soak), pytest.param(4, marks=pytest.mark.soak)])
def test_every_hang_of_a_cell_ends_at_once_and_the_ranks_go_on(opened, world_size):
    world = opened(world_size)
    world.run("kept = rank")
    for case, (text, words) in CASES.items():
        world.run("dist.all_reduce(torch.ones(2))")
        began_s = time.monotonic()
        with pytest.raises(Deadlock, match=f"^deadlock: {words}"):
            world.run(text)
        assert time.monotonic() - began_s < SOON_S, case
        assert world["kept"] == [*range(world_size)], case


def test_a_rank_that_has_no_part_in_a_cell_is_named(opened):
    world = opened(3)
    with pytest.raises(Deadlock, match="^deadlock: ranks 0, 2 take no part in this; rank 1 waits in barrier"):
        world.run("dist.barrier()", ranks=[1])
    world.run("dist.barrier()")
