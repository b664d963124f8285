"""The record of torch's own communication is whole: the flight recorder adds what Python does not see, and nothing twice."""

from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from worldsize.engines.ranks import flight_recorder
from worldsize.launch import launch
from worldsize.ranks.cell_observers import caption
from worldsize.trace import RankRecord, merge


def ops(run, rank: int = 0) -> list[tuple[str, int]]:
    return [(c.op, c.size_bytes) for c in run.trace.collectives if c.rank == rank]


def buckets():
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(400, 400, bias=False), nn.Linear(400, 400, bias=False))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.5)
    for _ in range(3):
        ddp(torch.ones(2, 400)).sum().backward()
    with ddp.no_sync():
        ddp(torch.ones(2, 400)).sum().backward()
    dist.barrier()


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_ddp_s_backward_is_recorded_bucket_by_bucket(world_size):
    run = launch(buckets, world_size)
    for rank in range(world_size):
        sums = [c for c in run.trace.collectives if c.rank == rank and c.op == "all_reduce"]
        assert [c.size_bytes for c in sums] == [1_280_000] + 4 * [640_000]  # DDP makes its buckets after the first pass
        assert all(c.end_s > c.start_s and c.ended and not c.blocking for c in sums)
        assert sum(op == "barrier" for op, _ in ops(run, rank)) == 1
    assert "collectives" in caption(run, range(world_size))


def messages():
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % n, (rank - 1) % n
    x, y = torch.ones(3), torch.empty(3)
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        dist.recv(y, 0)
    work = dist.isend(x, right, tag=1)
    dist.irecv(y, left, tag=1).wait()
    work.wait()
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)]):
        work.wait()
    pair = dist.new_group([n - 2, n - 1])
    if rank == n - 2:
        dist.send(torch.ones(5), n - 1, group=pair)
    elif rank == n - 1:
        dist.recv(torch.empty(5), group=pair)  # from anyone


@pytest.mark.parametrize("world_size", [2, 3, pytest.param(4, marks=pytest.mark.soak)])
def test_messages_of_torch_s_own_are_transfers(world_size):
    found = Counter((t.src, t.dst, t.size_bytes) for t in launch(messages, world_size).trace.transfers)
    expected = Counter({(0, 1, 12): 1, (world_size - 2, world_size - 1, 20): 1})
    for rank in range(world_size):
        expected[rank, (rank + 1) % world_size, 12] += 2
    assert found == expected


def pipeline():
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stage = PipelineStage(nn.Linear(8, 8), rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=nn.MSELoss())
    if rank == 0:
        schedule.step(torch.ones(4, 8))
    else:
        schedule.step(target=torch.zeros(4, 8))


@pytest.mark.skipif(
    not hasattr(dist, "all_gather_single"), reason="PyTorch 2.9 aborts in a pipeline over gloo, under torchrun too"
)
def test_a_pipeline_s_micro_batches_are_transfers():
    found = Counter((t.src, t.dst) for t in launch(pipeline, 2).trace.transfers if t.size_bytes == 64)
    assert found == {(0, 1): 2, (1, 0): 2}


def functional():
    from torch.distributed import _functional_collectives as functions
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo")
    functions.all_reduce(torch.ones(4), "sum", dist.group.WORLD) + 1
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    distribute_tensor(torch.ones(6, 2), mesh, [Shard(0)]).full_tensor()


def test_functional_collectives_and_dtensors_are_recorded():
    assert ops(launch(functional, 2)) == [("all_reduce", 16), ("scatter", 48), ("all_gather", 24)]


def seen_by_python():
    dist.init_process_group("gloo")
    work = dist.all_reduce(torch.ones(2), async_op=True)
    work.wait()
    dist.all_gather_object([None] * 2, {"a": 1})
    dist.broadcast(torch.ones(3), 0)


def test_nothing_is_recorded_twice():
    found = Counter(op.removesuffix("_single") for op, _ in ops(launch(seen_by_python, 2)))  # objects, from PyTorch 2.15 on
    assert found == {"all_reduce": 1, "all_gather": 2, "broadcast": 1}


@pytest.mark.soak
def test_a_run_longer_than_the_recorder_s_memory_is_recorded_whole():
    def long_training():
        dist.init_process_group("gloo")
        model = DistributedDataParallel(nn.Linear(4, 4))
        for _ in range(5000):
            model(torch.ones(2, 4)).sum().backward()

    found = Counter(op for op, _ in ops(launch(long_training, 2)))
    assert found["all_reduce"] == 5000


def test_a_torch_without_a_recorder_says_what_is_missing():
    def without():
        flight_recorder.dump_recorder = None
        dist.init_process_group("gloo")
        DistributedDataParallel(nn.Linear(4, 4))(torch.ones(2, 4)).sum().backward()
        dist.barrier()

    run = launch(without, 2)
    assert ops(run) == [("barrier", 0)]
    assert run.trace.unseen == "this torch has no flight recorder: collectives that it calls from C++ are missing"
    assert caption(run, [0, 1]).count("no flight recorder") == 1


def test_lost_collectives_are_counted():
    trace = merge([RankRecord(0, lost=3), RankRecord(1)], 2)
    assert trace.unseen == "3 of torch's own collectives were not recorded"
