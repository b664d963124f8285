"""Sums in the background: they are right, they keep their order, and they travel while the rank does something else."""

import threading

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from worldsize.fabric.background import Background, OverGloo, over_the_fabric
from worldsize.fabric.collectives import all_reduce, broadcast
from worldsize.launch import launch
from worldsize.links import Link


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_sums_begun_together_are_those_of_all_ranks(n):
    def several(fabric):
        sums = Background(fabric)
        given = [torch.arange(length, dtype=torch.float64) + 1000 * fabric.rank for length in (7, 1, 12)]
        for work in [sums.start(x) for x in given]:
            work.wait()
        return given

    for result in launch(several, n).results:
        for x, length in zip(result, (7, 1, 12), strict=True):
            assert x.tolist() == [n * i + 1000 * sum(range(n)) for i in range(length)]


def test_messages_travel_while_the_rank_computes():
    def overlap(fabric):
        arrived = threading.Event()
        work = Background(fabric).start_then(torch.ones(1000), lambda _: arrived.set())
        fabric.compute(0.001)
        while not arrived.is_set():  # for ever, if they travelled in `wait` only
            fabric.compute(0.01)
        fabric.compute(0.001)
        work.wait()

    trace = launch(overlap, 2, link=Link("1 MB/s", "5 ms"), timeout_s=30).trace
    ends_s = {rank: max(s.end_s for s in trace.spans if s.rank == rank and s.kind == "compute") for rank in range(2)}
    assert len(trace.transfers) == 4
    assert all(t.end_s < ends_s[t.dst] for t in trace.transfers)


def test_what_goes_wrong_on_the_way_is_raised_where_the_sum_is_waited_for():
    def uneven(fabric):
        work = Background(fabric).start(torch.ones(4 + 2 * fabric.rank))
        try:
            work.wait()
        except ValueError as error:
            return str(error)

    assert any("expected float32[" in (said or "") for said in launch(uneven, 2).results)


def test_gloo_carries_the_sums_of_a_fabric_that_is_over_it():
    def over_gloo(fabric):
        dist.init_process_group("gloo")
        x = torch.full((3,), float(fabric.rank))
        Background(OverGloo(fabric)).start(x).wait()
        return x.tolist()

    run = launch(over_gloo, 3)
    assert run.results == [[3.0] * 3] * 3
    assert run.trace.transfers == ()


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_broadcast_gives_everybody_rank_0s_parameters_once(n):
    def begin(fabric):
        torch.manual_seed(fabric.rank)
        model = torch.nn.Linear(3, 2)
        broadcast(fabric, model.parameters())
        return [p.tolist() for p in model.parameters()]

    run = launch(begin, n)
    assert all(result == run[0] for result in run.results)
    assert run.trace.total_bytes() == (n - 1) * 4 * 8


def test_torchs_ddp_sends_its_buckets_over_the_fabric_and_gets_their_mean():
    def train(fabric):
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1, bias=False)
        ddp = DistributedDataParallel(model)
        ddp.register_comm_hook(Background(fabric), over_the_fabric)
        x = torch.arange(4.0) + 10 * fabric.rank
        ddp(x).sum().backward()
        return model.weight.grad.tolist()

    run = launch(train, 3)
    assert run.results == [[[10.0, 11.0, 12.0, 13.0]]] * 3
    assert run.trace.total_bytes() == 2 * 2 * 16


def test_torchs_default_bucket_is_25_mib_and_its_first_1():
    def ask():
        dist.init_process_group("gloo")
        return DistributedDataParallel(torch.nn.Linear(1, 1)).bucket_bytes_cap / 2**20

    assert launch(ask, 1)[0] == 25
    assert dist._DEFAULT_FIRST_BUCKET_BYTES == 2**20


def test_after_its_works_were_waited_for_a_rank_may_send_by_itself_again():
    def both(fabric):
        sums = Background(fabric)
        sums.start(torch.ones(2)).wait()
        return all_reduce(fabric, torch.ones(2)).tolist()

    assert launch(both, 2).results == [[2.0, 2.0]] * 2
