"""One rank of a world of 10,000: what PyTorch's own sharding gives it, seen in a process that ends."""

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn

from worldsize.formulas import sharding
from worldsize.pytorch import abilities, fake_world
from worldsize.pytorch.fake_world import fake_rank

WIDTH, RANKS = 256, 10_000


def build():
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


def example():
    return torch.ones(2, WIDTH)


def tensor_parallel(model, mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    return parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})


def both(model, mesh):
    return fake_world.fully_sharded(tensor_parallel(model, mesh), mesh["data"])


@pytest.fixture(scope="module")
def rank_37():
    return fake_rank(build, example, RANKS, 37)


@pytest.fixture(scope="module")
def tensor_parallel_8():
    return fake_rank(build, example, 8, 3, plan=tensor_parallel, mesh={"data": 1, "tensor": 8})


@pytest.fixture(scope="module")
def on_4():
    return fake_rank(build, example, 4, 1)


# in a small process of its own: a child's peak of memory begins with what its parent has
MEASURED = """
import resource
from tests.pytorch.test_fake_world import RANKS, build, example
from worldsize.pytorch.fake_world import fake_rank
fake_rank(build, example, RANKS, 37)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
"""


@pytest.mark.soak
def test_a_rank_of_10000_takes_less_than_20_seconds_of_a_core_and_2_gb():
    ended = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    seconds, size_bytes = map(float, ended.stdout.split())
    assert seconds < 20 and size_bytes < 2e9, f"{seconds:.1f} s of a core, {size_bytes / 1e9:.2f} GB"


@pytest.mark.soak
def test_fully_shard_cuts_along_the_first_dimension_so_a_rank_holds_a_row_of_each_weight(rank_37):
    assert [held.local for held in rank_37.parameters] == [(1, WIDTH), (1,), (1, 4 * WIDTH), (1,)]
    assert [held.whole for held in rank_37.parameters] == [
        (4 * WIDTH, WIDTH), (4 * WIDTH,), (WIDTH, 4 * WIDTH), (WIDTH,),
    ]  # fmt: skip


@pytest.mark.soak
def test_it_holds_more_than_an_even_share_where_rows_are_fewer_than_ranks(rank_37):
    even = sum(p.numel() for p in build().parameters()) / RANKS
    assert rank_37.elements > 10 * even


@pytest.mark.soak
def test_a_rank_beyond_the_last_row_holds_nothing():
    assert fake_rank(build, example, RANKS, RANKS - 1).elements == 0


def test_a_rank_holds_what_zeros_third_stage_says_where_ranks_divide_the_rows(on_4):
    parameters = sum(p.numel() for p in build().parameters())
    expected = sharding.memory(parameters, 4, 3, 4, 4, 8)
    assert on_4.parameter_bytes == expected["parameters"]
    assert on_4.gradient_bytes == expected["gradients"]
    assert on_4.optimizer_bytes == expected["optimizer"]


def test_the_collectives_of_a_step_carry_the_bytes_of_zeros_third_stage(on_4):
    whole = 4 * sum(p.numel() for p in build().parameters())
    called = {found.op: found.input_bytes for found in on_4.collectives}
    sent = sum(sharding.bytes_sent_by(op, size_bytes, 4) for op, size_bytes in called.items())
    # the last layer stays whole from its forward to its backward where it is the root's: at most the formula
    assert set(called) == {"all_gather", "reduce_scatter"}
    assert called["reduce_scatter"] == whole
    assert sent <= sharding.bytes_sent(4, whole, 3)


def test_a_whole_layer_is_on_the_rank_at_the_peak(on_4):
    assert on_4.peak_bytes > on_4.parameter_bytes + 4 * WIDTH * 4 * WIDTH


@pytest.mark.soak
def test_tensor_parallel_cuts_columns_then_rows(tensor_parallel_8):
    assert [held.local for held in tensor_parallel_8.parameters] == [
        (WIDTH // 2, WIDTH), (WIDTH // 2,), (WIDTH, WIDTH // 2), (WIDTH,),
    ]  # fmt: skip


@pytest.mark.soak
def test_tensor_parallel_adds_up_an_activation_forwards(tensor_parallel_8):
    assert [(c.op, c.input_bytes) for c in tensor_parallel_8.collectives] == [("all_reduce", example().nbytes)]


@pytest.mark.soak
def test_tensor_parallel_and_fully_shard_go_together_at_10000():
    found = fake_rank(build, example, RANKS, 5, plan=both, mesh={"data": RANKS // 8, "tensor": 8})
    assert found.parameters[0].whole == (4 * WIDTH, WIDTH)
    assert found.parameters[0].local == (1, WIDTH)
    assert {c.op for c in found.collectives} == {"all_gather", "all_reduce", "reduce_scatter"}


def test_the_callers_process_keeps_no_group(on_4):
    assert on_4.world_size == 4
    assert not dist.is_initialized()


def test_a_pytorch_without_the_fake_group_is_named(monkeypatch):
    monkeypatch.setattr(abilities, "FAKE_GROUP", "torch.testing._internal.nowhere.fake_pg")
    with pytest.raises(RuntimeError, match=r"expected a PyTorch with its private .* Install torch==2\.13"):
        fake_rank(build, example, 4)


@pytest.mark.soak
def test_a_model_that_fails_is_told_by_its_own_error():
    def wrong():
        return nn.Linear(WIDTH, 2)(torch.ones(2, WIDTH + 1))

    with pytest.raises(RuntimeError, match="rank 1 of 4 failed: RuntimeError: mat1 and mat2"):
        fake_rank(wrong, example, 4, 1)


def test_a_rank_outside_the_world_is_refused():
    with pytest.raises(ValueError, match="expected a rank from 0 to 3, got rank 4 of 4"):
        fake_rank(build, example, 4, 4)


def test_a_mesh_of_another_size_is_refused():
    with pytest.raises(ValueError, match="doesn't hold 8 ranks"):
        fake_rank(build, example, 8, mesh={"data": 3})
