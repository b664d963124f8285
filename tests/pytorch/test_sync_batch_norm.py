"""PyTorch's own SyncBatchNorm, on the CPU over plain kernels: equal to one device, with the messages of PyTorch's source."""

import pytest
import torch
import torch.distributed as dist

from worldsize.launch import launch
from worldsize.pytorch.sync_batch_norm import kernels_on_cpu, torch_synced_norm

RANKS, FEATURES, EPS = 3, 4, 1e-3
ROWS = [5, 1, 3]


def inputs():
    torch.manual_seed(3)
    x, grad = torch.randn(2, sum(ROWS), FEATURES, dtype=torch.float64)
    weight, bias = torch.randn(2, FEATURES, dtype=torch.float64)
    return x, weight, bias, grad


def on_a_rank():
    dist.init_process_group("gloo")
    x, weight, bias, grad = inputs()
    own = slice(sum(ROWS[: dist.get_rank()]), sum(ROWS[: dist.get_rank() + 1]))
    return torch_synced_norm(x[own], weight, bias, grad[own], EPS)


@pytest.fixture(scope="module")
def run():
    return launch(on_a_rank, RANKS, device="cpu")


def test_uneven_ranks_get_what_one_device_gets(run):
    x, weight, bias, grad = inputs()
    x.requires_grad_()
    weight.requires_grad_()
    bias.requires_grad_()
    y = torch.nn.functional.batch_norm(x, None, None, weight, bias, training=True, eps=EPS)
    y.backward(grad)

    ys, grad_xs, grad_weights, grad_biases = zip(*run.results, strict=True)
    torch.testing.assert_close(torch.cat(ys), y.detach())
    torch.testing.assert_close(torch.cat(grad_xs), x.grad)
    torch.testing.assert_close(sum(grad_weights), weight.grad)
    torch.testing.assert_close(sum(grad_biases), bias.grad)


def test_it_gathers_once_forwards_and_adds_up_once_backwards(run):
    sent = [(c.op, c.size_bytes) for c in run.trace.collectives if c.rank == 0]
    assert sent == [("all_gather", 8 * (2 * FEATURES + 1)), ("all_reduce", 8 * 2 * FEATURES)]


def test_afterwards_torch_has_its_own_kernels_again():
    own = torch.batch_norm_stats
    with kernels_on_cpu():
        assert torch.batch_norm_stats is not own
    assert torch.batch_norm_stats is own
