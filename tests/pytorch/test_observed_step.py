"""The two witnesses of a framework's step: connections' counters and the profiler say what DDP really did."""

import sys

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from worldsize.launch import launch
from worldsize.pytorch.models import mlp
from worldsize.pytorch.observed_step import received_bytes, together, witnessed

SIZES, RANKS = [300, 200, 100], 4
GRADIENT = sum(4 * p.numel() for p in mlp(SIZES).parameters())
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the counters are Linux's")


def give_evidence():
    dist.init_process_group("gloo")
    with witnessed() as start:
        ddp = DistributedDataParallel(mlp(SIZES))
    x = torch.ones(4, SIZES[0])
    for _ in range(2):
        ddp(x).sum().backward()
    with witnessed() as step:
        ddp(x).sum().backward()
    with witnessed() as nothing:
        pass
    with witnessed() as star:
        dist.reduce(torch.ones(GRADIENT // 4), 0)
    return start, step, nothing, star


@pytest.fixture(scope="module")
def traces():
    return [together(seen) for seen in zip(*launch(give_evidence, RANKS, device="cpu").results, strict=True)]


def test_a_step_of_ddp_is_an_all_reduce_on_every_rank_and_nothing_else(traces):
    assert sorted((c.op, c.rank) for c in traces[1].collectives) == [("all_reduce", rank) for rank in range(RANKS)]


def test_the_profiler_tells_the_bytes_of_the_bucket(traces):
    assert {c.size_bytes for c in traces[1].collectives} == {GRADIENT}


def test_every_rank_gets_three_halves_of_a_gradient_in_a_step_of_four(traces):
    for rank in range(RANKS):
        assert traces[1].received_bytes(rank) == pytest.approx(1.5 * GRADIENT, rel=0.02)


def test_rank_0_gets_and_sends_what_the_others_do(traces):
    for moved in (traces[1].sent_bytes, traces[1].received_bytes):
        others = [moved(rank) for rank in range(1, RANKS)]
        assert 0.98 * min(others) <= moved(0) <= 1.02 * max(others)


def test_the_start_is_a_broadcast_from_rank_0(traces):
    assert {c.op for c in traces[0].collectives} >= {"broadcast"}
    received = [traces[0].received_bytes(rank) for rank in range(RANKS)]
    assert received[0] < 0.1 * GRADIENT and min(received[1:]) >= GRADIENT


def test_where_nothing_moves_nothing_is_told(traces):
    assert (traces[2].transfers, traces[2].collectives) == ((), ())


def test_a_reduce_to_rank_0_would_have_shown(traces):
    """The witness is no machine that always says "ring": what is gathered on rank 0 is seen to arrive there."""
    assert traces[3].received_bytes(0) > 1.02 * traces[3].received_bytes(2)
    assert {c.op for c in traces[3].collectives} == {"reduce"}


def test_a_process_without_connections_has_counted_nothing(monkeypatch):
    monkeypatch.setattr("os.listdir", lambda path: (_ for _ in ()).throw(FileNotFoundError(path)))
    assert received_bytes() == {}
