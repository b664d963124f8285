"""torch.distributed over a fabric: its collectives give what gloo's give, and DDP's bytes are in the record."""

import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn

from worldsize.launch import launch
from worldsize.pytorch.group_over_fabric import use_fabric

WORLDS = [1, pytest.param(2, marks=pytest.mark.soak), 3, pytest.param(4, marks=pytest.mark.soak)]


def every_collective(fabric):
    n, rank = fabric.world_size, fabric.rank
    own = 1000.0 * rank + torch.arange(5, dtype=torch.float64)
    given = {name: own.clone() for name in ("sum", "mean", "least", "largest", "broadcast")}
    dist.all_reduce(given["sum"])
    dist.all_reduce(given["mean"], op=dist.ReduceOp.AVG)
    dist.all_reduce(given["least"], op=dist.ReduceOp.MIN)
    dist.all_reduce(given["largest"], op=dist.ReduceOp.MAX, async_op=True).wait()
    dist.broadcast(given["broadcast"], src=n - 1)
    dist.barrier()

    every = [torch.empty_like(own) for _ in range(n)]
    dist.all_gather(every, own)
    whole = torch.empty(5 * n, dtype=own.dtype)
    with warnings.catch_warnings(action="ignore"):  # the only name before PyTorch 2.13, where it is deprecated
        dist.all_gather_into_tensor(whole, own)
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    return {**given, "gathered": torch.stack(every), "whole": whole, "objects": objects, "size": dist.get_world_size()}


def over_the_fabric(fabric):
    use_fabric(fabric)
    return every_collective(fabric)


def over_gloo(fabric):
    dist.init_process_group("gloo")
    return every_collective(fabric)


@pytest.mark.parametrize("n", WORLDS)
def test_collectives_give_what_those_of_gloo_give(n):
    ours, theirs = launch(over_the_fabric, n).results, launch(over_gloo, n).results
    for rank in range(n):
        for name, value in theirs[rank].items():
            got = ours[rank][name]
            assert torch.equal(got, value) if isinstance(value, torch.Tensor) else got == value, name


def trained(fabric, steps):
    use_fabric(fabric)
    torch.manual_seed(fabric.rank)
    model = nn.Linear(100, 50, dtype=torch.float64)
    ddp = nn.parallel.DistributedDataParallel(model)
    for _ in range(steps):
        ddp(torch.full((3, 100), 1.0 + fabric.rank, dtype=torch.float64)).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("n", WORLDS)
def test_ddp_sends_its_weights_once_and_its_gradients_at_every_step(n):
    few, many = (launch(trained, n, args=(steps,)) for steps in (2, 5))
    weights = 8 * (100 * 50 + 50)
    assert many.trace.total_bytes() - few.trace.total_bytes() == 3 * 2 * (n - 1) * weights
    words = few.trace.total_bytes() - (n - 1) * weights * (1 + 2 * 2)  # what DDP tells itself about shapes and buckets
    assert 0 <= words < 1000 * n
    for rank in range(n):
        assert all(torch.equal(a, b) for a, b in zip(many.results[rank], many.results[0], strict=True))


def multiplies(fabric):
    use_fabric(fabric)
    dist.all_reduce(torch.ones(2), op=dist.ReduceOp.PRODUCT)


def test_an_operation_that_it_has_not_is_refused_by_name():
    with pytest.raises(Exception, match="expected SUM, AVG, MIN or MAX"):
        launch(multiplies, 2)
