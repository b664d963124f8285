"""PyTorch's SyncBatchNorm without a GPU: its own autograd function and its own messages, over five plain kernels.

`torch.nn.SyncBatchNorm` refuses CPU tensors, because the five kernels that its function calls are written for GPUs. Here each
kernel is a line or two of tensor operations, and the rest is PyTorch's, messages included. Left out: running statistics, half
precision, ranks without rows in a group of one. The function is private to PyTorch (`torch/nn/modules/_functions.py`), and only
this file uses it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.nn.modules._functions import SyncBatchNorm as SyncedFunction

Tensors = tuple[torch.Tensor, ...]


def torch_synced_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, grad: torch.Tensor, eps: float) -> Tensors:
    """Run PyTorch's SyncBatchNorm over the rows of all ranks of the default group, forward and backward.

    x and `grad`, the loss's gradient of y, are [rows, features]. Returns y and the gradients of x, weight and bias.
    """
    x, weight, bias = (t.detach().clone().requires_grad_() for t in (x, weight, bias))
    with kernels_on_cpu():
        y = SyncedFunction.apply(x, weight, bias, None, None, eps, 0.1, dist.group.WORLD, dist.get_world_size())
        y.backward(grad)
    return y.detach(), x.grad, weight.grad, bias.grad


@contextmanager
def kernels_on_cpu() -> Iterator[None]:
    """Replace the kernels of PyTorch's SyncBatchNorm by this module's, in this process, while inside."""
    kernels = {
        "batch_norm_stats": _stats,
        "batch_norm_gather_stats_with_counts": _gathered_stats,
        "batch_norm_elemt": _normalized,
        "batch_norm_backward_reduce": _backward_sums,
        "batch_norm_backward_elemt": _backward,
    }
    own = {name: getattr(torch, name) for name in kernels}
    for name, kernel in kernels.items():
        setattr(torch, name, kernel)
    try:
        yield
    finally:
        for name, kernel in own.items():
            setattr(torch, name, kernel)


def _stats(x: torch.Tensor, eps: float) -> Tensors:
    return x.mean(0), (x.var(0, correction=0) + eps).rsqrt()


def _gathered_stats(
    x: torch.Tensor, means: torch.Tensor, invstds: torch.Tensor, running_mean: None, running_var: None, momentum: float,
    eps: float, counts: torch.Tensor,
) -> Tensors:  # fmt: skip
    """Return SyncBatchNorm's mean and 1/√(variance + eps) of all rows, from each rank's own and its number of rows."""
    part = (counts / counts.sum())[:, None]
    mean = (part * means).sum(0)
    variances = invstds**-2 - eps
    return mean, ((part * (variances + (means - mean) ** 2)).sum(0) + eps).rsqrt()


def _normalized(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, mean: torch.Tensor, invstd: torch.Tensor, eps: float
) -> torch.Tensor:
    return (x - mean) * invstd * weight + bias


def _backward_sums(
    grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, invstd: torch.Tensor, weight: torch.Tensor, *needed: bool
) -> Tensors:
    sum_dy, sum_dy_xmu = grad.sum(0), (grad * (x - mean)).sum(0)
    return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy.clone()


def _backward(
    grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, invstd: torch.Tensor, weight: torch.Tensor,
    sum_dy: torch.Tensor, sum_dy_xmu: torch.Tensor, counts: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    rows = counts.sum()
    return (grad - sum_dy / rows - (x - mean) * invstd**2 * sum_dy_xmu / rows) * invstd * weight
