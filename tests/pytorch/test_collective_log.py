"""Framework collectives are recorded as events of every rank, on the launch's clock."""

import time
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed import all_reduce as imported_by_name
from torch.distributed import distributed_c10d

from worldsize.launch import launch
from worldsize.pytorch.collective_log import CollectiveLog


def several():
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    x = torch.ones(4) * rank
    dist.all_reduce(x)
    imported_by_name(torch.ones(2))
    dist.broadcast(torch.zeros(8), src=0)
    dist.all_gather([torch.zeros(4) for _ in range(n)], x)
    dist.barrier()
    return x.tolist()


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_each_call_is_an_event_of_each_rank_with_its_own_bytes(world_size):
    run = launch(several, world_size)
    expected = [("all_reduce", 16), ("all_reduce", 8), ("broadcast", 32), ("all_gather", 16), ("barrier", 0)]
    for rank in range(world_size):
        mine = [c for c in run.trace.collectives if c.rank == rank]
        assert [(c.op, c.size_bytes) for c in mine] == expected
        assert all(0 <= a.start_s <= a.end_s <= b.end_s for a, b in zip(mine, mine[1:], strict=False))
    assert run[0] == [float(sum(range(world_size)))] * 4


def test_an_asynchronous_call_ends_when_its_work_is_done():
    def later():
        dist.init_process_group("gloo")
        work = dist.all_reduce(torch.ones(1000), async_op=True)
        work.wait()
        dist.barrier()

    ops = [c.op for c in launch(later, 2).trace.collectives if c.rank == 0]
    assert sorted(ops) == ["all_reduce", "barrier"]


def test_a_collective_into_one_tensor_is_one_event_with_the_bytes_of_its_input():
    def into_one():
        dist.init_process_group("gloo")
        part, whole = torch.ones(3), torch.zeros(6)
        if hasattr(dist, "all_gather_single"):  # from PyTorch 2.13 on
            dist.all_gather_single(whole, part)
            dist.reduce_scatter_single(output=part, input=whole)
        with warnings.catch_warnings(action="ignore"):  # the older names of the two
            dist.all_gather_into_tensor(whole, part)
            dist.reduce_scatter_tensor(part, whole)

    mine = [(c.op, c.size_bytes) for c in launch(into_one, 2).trace.collectives if c.rank == 0]
    times = 2 if hasattr(dist, "all_gather_single") else 1
    assert mine == times * [("all_gather_single", 12), ("reduce_scatter_single", 24)]


def test_a_collective_of_a_group_names_the_ranks_of_the_group():
    def in_rows():
        dist.init_process_group("gloo")
        rows = [dist.new_group([0, 1]), dist.new_group([2])]
        dist.all_reduce(torch.ones(2), group=rows[dist.get_rank() // 2])
        dist.all_reduce(torch.ones(2), dist.ReduceOp.SUM, rows[dist.get_rank() // 2])
        dist.all_reduce(torch.ones(2))

    collectives = launch(in_rows, 3).trace.collectives
    named = [[c.ranks for c in collectives if c.rank == rank and c.op == "all_reduce"] for rank in range(3)]
    assert named == [[(0, 1), (0, 1), ()], [(0, 1), (0, 1), ()], [(2,), (2,), ()]]


def test_a_pytorch_with_the_older_names_alone_is_recorded_too():
    def on_the_older_names():
        for module in (dist, distributed_c10d):
            if hasattr(module, "all_gather_single"):
                module.all_gather_into_tensor = module.all_gather_single  # as before 2.13
                del module.all_gather_single
        log = CollectiveLog(0, 0.0)
        log.install()
        dist.init_process_group("gloo")
        dist.all_gather_into_tensor(torch.zeros(6), torch.ones(3))
        return [(row.op, row.size_bytes) for row in log.rows()]

    assert launch(on_the_older_names, 2).results == 2 * [[("all_gather_single", 12)]]


def late_message(way):
    dist.init_process_group("gloo")
    x = torch.ones(3)
    if dist.get_rank() == 1:
        time.sleep(0.3)  # is late: the other stands and waits
        dist.send(x, 0)
    elif way == "recv":
        dist.recv(x, 1)
    elif way == "recv by name":
        dist.recv(x, src=1)
    elif way == "irecv":
        dist.irecv(x, 1).wait()
    else:
        (work,) = dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, 1)])
        work.wait()


@pytest.mark.parametrize("way", ["recv", "recv by name", "irecv", "batch"])
def test_a_message_of_torch_s_own_is_a_transfer_and_its_wait_names_the_peer(way):
    trace = launch(late_message, 2, args=(way,)).trace
    (transfer,) = trace.transfers
    assert (transfer.src, transfer.dst, transfer.size_bytes) == (1, 0, 12)
    (wait,) = [s for s in trace.spans if s.rank == 0 and s.kind == "recv"]
    assert wait.label == "from rank 1" and wait.end_s - wait.start_s > 0.1


def test_a_wait_that_gave_up_has_ended():
    def gives_up():
        dist.init_process_group("gloo")
        store = dist.distributed_c10d._get_default_store()
        with pytest.raises(dist.DistStoreError):
            store.wait(["nobody sets this"], timedelta(milliseconds=200))

    (wait,) = [s for s in launch(gives_up, 1).trace.spans if s.label == "store.wait"]
    assert wait.ended and wait.end_s - wait.start_s > 0.1
