"""A hang in torch's own communication ends at once, with its cause: which ranks disagree, or who has ended while others wait.

Each case runs on 2 ranks, with the marker `soak` on 3 and 4. A program that is only slow runs through.
"""

import multiprocessing
import re
import threading
import time
from datetime import timedelta

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.support.random_programs import drawn, hangs, play
from worldsize.errors import Deadlock, RankFailed
from worldsize.launch import launch

SOON_S = 10.0  # on a busy machine; usually half a second


def begin() -> tuple[int, int]:
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def uneven_batches():
    rank, _ = begin()
    model = DistributedDataParallel(nn.Linear(4, 4))
    for _ in range(3 + (rank > 0)):
        model(torch.ones(2, 4)).sum().backward()


def validation_on_one_rank():
    rank, _ = begin()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    model(torch.ones(2, 4)).sum().backward()
    if rank == 0:
        model(torch.ones(2, 4))
        model(torch.ones(2, 4))
    dist.barrier()


def barrier_on_one_rank():
    rank, _ = begin()
    if rank == 0:
        dist.barrier()


def different_operations():
    rank, _ = begin()
    dist.all_reduce(torch.ones(3))
    if rank == 0:
        dist.barrier()
    else:
        dist.all_reduce(torch.ones(20))


def send_against_send():
    rank, n = begin()
    dist.send(torch.ones(3), (rank + 1) % n)


def recv_against_recv():
    rank, n = begin()
    dist.recv(torch.ones(3), (rank - 1) % n)


def whole_weight_on_one_rank():
    from torch.distributed.fsdp import fully_shard

    rank, _ = begin()
    model = nn.Linear(4, 4)
    fully_shard(model)
    model(torch.ones(2, 4)).sum().backward()
    if rank == 0:
        model.weight.full_tensor()
    else:
        dist.barrier()


def one_call_skipped():
    rank, n = begin()
    for k in range(4):
        if (k, rank) != (2, n - 1):
            dist.all_reduce(torch.ones(3))


def groups_in_opposite_order():
    rank, n = begin()
    pair, everyone = dist.new_group([0, 1]), dist.new_group(list(range(n)))
    for group in (pair, everyone) if rank == 0 else (everyone, pair):
        if rank < 2 or group is everyone:
            dist.all_reduce(torch.ones(2), group=group)


def beside_a_pool_of_processes():
    """Its three threads wait in multiprocessing's code, where nothing is posted."""
    rank, _ = begin()
    with multiprocessing.Pool(1):
        if rank == 0:
            dist.barrier()


def objects_of_one_rank():
    rank, n = begin()
    if rank == 0:
        dist.all_gather_object([None] * n, {"a": 1})


def handle_of_a_missing_rank():
    rank, _ = begin()
    if rank:
        dist.all_reduce(torch.ones(4), async_op=True).wait()


def handle_dropped():
    rank, _ = begin()
    if rank == 1:
        dist.isend(torch.ones(3), 0)
    elif rank == 0:
        time.sleep(0.5)
        dist.recv(torch.ones(3), 1)


def one_rank_joins_nobody():
    import os

    if os.environ["RANK"] != "0":
        begin()


def barrier_against_message():
    rank, _ = begin()
    if rank == 0:
        dist.barrier()
    else:
        dist.send(torch.ones(3), 0)


def torch_against_fabric(fabric):
    rank, _ = begin()
    if rank == 0:
        dist.barrier()
    else:
        fabric.recv(torch.ones(3), 0)


CASES = {
    uneven_batches: r"rank 0 returned; ranks? 1.* waits? in all_reduce of DDP's backward \(backward pass 4\)",
    validation_on_one_rank: r"rank 0 called broadcast of DDP's forward, ranks? 1.* called barrier, each as collective \d+ of",
    barrier_on_one_rank: r"ranks? 1.* returned; rank 0 waits in barrier",
    different_operations: r"rank 0 called barrier, ranks? 1.* called all_reduce, each as collective 2 of the default group",
    send_against_send: r"rank 0 waits in send to rank 1; rank 1 waits in send to rank",
    recv_against_recv: r"rank 0 waits in recv from rank \d; rank 1 waits in recv from rank 0",
    whole_weight_on_one_rank: r"rank 0 called all_gather of full_tensor\(\), ranks? 1.* called barrier",
    one_call_skipped: r"rank \d returned; ranks? 0.* waits? in all_reduce",
    groups_in_opposite_order: r"rank 0 waits in all_reduce \(group 1: ranks 0, 1\); ranks? 1.* waits? in all_reduce \(group 2: ",
    beside_a_pool_of_processes: r"ranks? 1.* returned; rank 0 waits in barrier",
    objects_of_one_rank: r"ranks? 1.* returned; rank 0 waits in all_gather_object",
    handle_of_a_missing_rank: r"rank 0 returned; ranks? 1.* waits? in wait\(\) of all_reduce",
    handle_dropped: r"rank 1 returned without waiting for its isend; rank 0 waits in recv from rank 1",
    one_rank_joins_nobody: r"rank 0 returned; ranks? 1.* waits? in init_process_group",
    barrier_against_message: r"rank 0 waits in barrier; ranks? 1.* waits? in send to rank 0",
    torch_against_fabric: r"rank 0 waits in barrier; ranks? 1.* waits? in recv from rank 0",
}
SIZES = [2, pytest.param(3, marks=pytest.mark.soak), pytest.param(4, marks=pytest.mark.soak)]


@pytest.mark.parametrize("world_size", SIZES)
@pytest.mark.parametrize("hang", CASES, ids=lambda fn: fn.__name__)
def test_a_hang_ends_at_once_with_its_cause(hang, world_size):
    began_s = time.monotonic()
    with pytest.raises(Deadlock, match=f"^deadlock: {CASES[hang]}") as caught:
        launch(hang, world_size)
    run = caught.value.run
    assert time.monotonic() - began_s - run.startup_s < SOON_S
    assert all(standing.awaits and (standing.wait or standing.collective) for standing in run.outcome.standings)
    children = psutil.Process().children(recursive=True)
    assert [child for child in children if child.status() != psutil.STATUS_ZOMBIE and str(run.dir) in str(child.cmdline())] == []


def sizes_that_differ(many):
    rank, _ = begin()
    dist.all_reduce(torch.ones(many if rank else many + 1))


def dtypes_that_differ():
    rank, _ = begin()
    dist.all_reduce(torch.ones(4, dtype=torch.float64 if rank else torch.float32))


@pytest.mark.parametrize("world_size", SIZES)
@pytest.mark.parametrize("fn, args", [(sizes_that_differ, (4,)), (sizes_that_differ, (30000,)), (dtypes_that_differ, ())])
def test_sizes_or_dtypes_that_differ_are_named(fn, args, world_size):
    with pytest.raises((Deadlock, RankFailed)) as caught:
        launch(fn, world_size, args=args)
    text = str(caught.value)
    assert re.search(r"called all_reduce with \d+ float(32|64)", text)
    if isinstance(caught.value, RankFailed):
        assert "its last fatal line: op.preamble.length <= op.nbytes" in text
        assert "Is there a distributed collective mismatch" in text


def computes_meanwhile():
    rank, _ = begin()
    if rank == 0:
        until_s = time.monotonic() + 1.5
        while time.monotonic() < until_s:
            torch.ones(200, 200) @ torch.ones(200, 200)
    dist.barrier()


def posts_from_a_thread():
    rank, _ = begin()
    if rank == 0:
        threading.Thread(target=lambda: (time.sleep(1.5), dist.barrier())).start()
    else:
        dist.barrier()


def sleeps_with_a_handle_open():
    rank, _ = begin()
    work = dist.all_reduce(torch.ones(3), async_op=True) if rank == 0 else None
    time.sleep(1.5)
    if rank:
        dist.all_reduce(torch.ones(3))
    else:
        work.wait()


def never_waits_for_its_handle():
    rank, _ = begin()
    if rank == 0:
        dist.all_reduce(torch.ones(3), async_op=True)
        time.sleep(1.5)


def expects_torch_s_own_time_limit():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    if dist.get_rank() == 0:
        with pytest.raises(RuntimeError, match=r"[Tt]imed out"):
            dist.barrier()


def large_messages():
    rank, n = begin()
    x = torch.ones(20_000_000)
    for _ in range(3):
        dist.broadcast(x, 0)
        dist.all_reduce(x)


@pytest.mark.parametrize("fn", [
    computes_meanwhile, posts_from_a_thread, sleeps_with_a_handle_open, never_waits_for_its_handle,
    expects_torch_s_own_time_limit, large_messages,
], ids=lambda fn: fn.__name__)  # fmt: skip
def test_what_is_only_slow_is_no_deadlock(fn):
    assert launch(fn, 2).state == "done"


def check_program(seed: int) -> None:
    program = drawn(seed)
    try:
        ended = launch(play, program.world_size, args=(program,), timeout_s=60, seed=1)[0]
    except Deadlock:
        ended = "deadlock"
    assert ended == ("deadlock" if hangs(program) else "through"), program


@pytest.mark.parametrize("seed", range(20))
def test_a_random_program_hangs_or_runs_through_as_it_must(seed):
    check_program(seed)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_random_programs_end_as_they_must():
    for seed in range(20, 1020):
        check_program(seed)
