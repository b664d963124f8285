"""What people report of other launchers, tried on `launch`: the usual model code runs, and what fails is told with its line.

Each test names the report. Left out: what has tests of its own, such as workers of a DataLoader (`test_children`), hangs
(`test_torch_hangs`), tutorial scripts (`test_tutorial_scripts`) and results that cannot travel (`test_results`).
"""

import shutil
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from worldsize.errors import RankFailed
from worldsize.launch import launch
from worldsize.ranks.open_world import open_ranks

DDP = nn.parallel.DistributedDataParallel


def rows() -> torch.Tensor:
    return torch.arange(8.0).reshape(2, 4) + 10 * dist.get_rank()


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.used(x)


def a_branch_is_unused():
    dist.init_process_group("gloo")
    model = DDP(TwoBranches())
    for _ in range(2):
        model(rows()).sum().backward()


def test_ddp_with_an_unused_branch_fails_at_its_second_step_with_pytorch_s_advice():
    """https://github.com/pytorch/pytorch/issues/43259"""
    with pytest.raises(RankFailed) as failed:
        launch(a_branch_is_unused, 2)
    assert "find_unused_parameters=True" in str(failed.value) and "model(rows()).sum().backward()" in str(failed.value)


class BranchByRank(TwoBranches):
    def forward(self, x):
        return (self.unused if dist.get_rank() else self.used)(x)


def branches_by_rank():
    dist.init_process_group("gloo")
    model = DDP(BranchByRank(), find_unused_parameters=True)
    for _ in range(2):
        model(rows()).sum().backward()
    return [parameter.grad.sum().item() for parameter in model.parameters()]


@pytest.mark.parametrize("n", [2, 3])
def test_other_branches_on_other_ranks_train_with_find_unused_parameters(n):
    first, *others = launch(branches_by_rank, n).results
    assert all(other == first for other in others)


def checkpointed():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(4, 4), static_graph=True)
    for _ in range(2):
        model.zero_grad()
        checkpoint(model, rows().requires_grad_(), use_reentrant=False).sum().backward()
    return model.module.weight.grad


@pytest.mark.parametrize("n", [2, 3])
def test_a_checkpointed_model_in_ddp_averages_its_gradients(n):
    """https://github.com/huggingface/accelerate/issues/389"""
    mean = torch.stack([(torch.arange(8.0).reshape(2, 4) + 10 * rank).sum(0) for rank in range(n)]).mean(0)
    for gradient in launch(checkpointed, n).results:
        torch.testing.assert_close(gradient, mean.expand(4, 4))


def clipped():
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Linear(4, 5)
    fully_shard(model)
    model(torch.arange(8.0).reshape(2, 4)).square().sum().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return norm.full_tensor().item(), model.weight.grad.full_tensor()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_clipping_shards_clips_by_the_norm_of_the_whole_gradient(n):
    """https://github.com/pytorch/pytorch/issues/121020"""
    torch.manual_seed(0)
    whole = nn.Linear(4, 5)
    whole(torch.arange(8.0).reshape(2, 4)).square().sum().backward()
    norm = nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
    for clipped_norm, gradient in launch(clipped, n).results:
        assert clipped_norm == pytest.approx(norm.item(), rel=1e-5)
        torch.testing.assert_close(gradient, whole.weight.grad)


def batch_norm():
    dist.init_process_group("gloo")
    return nn.SyncBatchNorm(4)(rows())


def test_synchronized_batch_norm_on_cpu_is_refused_with_its_line():
    with pytest.raises(RankFailed) as failed:
        launch(batch_norm, 2)
    said = str(failed.value)
    assert "SyncBatchNorm expected input tensor to be on" in said and "nn.SyncBatchNorm(4)(rows())" in said


def test_a_layer_that_is_unfrozen_after_wrapping_is_the_one_that_differs():
    """https://github.com/pytorch/pytorch/issues/12603"""
    with open_ranks(3) as world:
        world.run(
            "net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))\n"
            "net[0].requires_grad_(False)\n"
            "model = torch.nn.parallel.DistributedDataParallel(net)\n"
            "net[0].requires_grad_(True)\n"
            "model(torch.ones(2, 4) * (rank + 1)).sum().backward()\n"
            "with torch.no_grad():\n"
            "    for parameter in net.parameters():\n"
            "        parameter -= parameter.grad"
        )
        assert "0.weight" in str(world.differ("net"))


FEW_FILES = """
import resource
from worldsize.launch import launch

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    print(launch(lambda: 7, 9).results)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such limit")
def test_nine_ranks_run_where_a_process_may_open_64_files(tmp_path):
    (tmp_path / "few.py").write_text(FEW_FILES)
    done = subprocess.run([sys.executable, "few.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True)
    assert f"{[7] * 9}" in done.stdout


def compiled():
    dist.init_process_group("gloo")
    model = DDP(torch.compile(nn.Linear(4, 4)))
    model(rows()).sum().backward()
    return model.module.weight.grad


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_trains_on_ranks():
    mean = torch.stack([(torch.arange(8.0).reshape(2, 4) + 10 * rank).sum(0) for rank in range(2)]).mean(0)
    for gradient in launch(compiled, 2, timeout_s=800).results:
        torch.testing.assert_close(gradient, mean.expand(4, 4))
