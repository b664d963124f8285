"""What ranks do in the tests that need a GPU. `kind` is "cuda"; "cpu" runs the same lines in the dry run.

All that comes back is plain: numbers, lists, text. Left out: what has to come out (the tests say it).
"""

import os
import pickle
import time
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from worldsize.fabric.collectives import all_reduce
from worldsize.pytorch import torch_modules
from worldsize.pytorch.models import flat, mlp
from worldsize.pytorch.resnet import resnet

SIZES = [64, 96, 10]


def device_of(kind: str) -> torch.device:
    """This rank's device; ranks share the GPUs where there are fewer of them."""
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def joined(backend: str, kind: str) -> tuple[torch.device, int, int]:
    """(device, rank, world size) in a process group that was made here."""
    device = device_of(kind)
    dist.init_process_group(backend)
    return device, dist.get_rank(), dist.get_world_size()


def finish(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def sum_and_broadcast(backend: str, kind: str) -> dict[str, Any]:
    device, rank, _ = joined(backend, kind)
    total = torch.arange(5.0, device=device) * (rank + 1)
    dist.all_reduce(total)
    told = torch.full((3,), float(rank), device=device)
    dist.broadcast(told, 0)
    finish(device)
    return {"sum": total.tolist(), "told": told.tolist(), "device": str(total.device), "backend": dist.get_backend()}


def halves_of_an_all_reduce(backend: str, kind: str) -> dict[str, Any]:
    """A reduce-scatter, then an all-gather, of [10 * element + rank]."""
    device, rank, n = joined(backend, kind)
    x = 10 * torch.arange(2.0 * n, device=device) + rank
    part, whole = torch.empty(2, device=device), torch.empty(2 * n, device=device)
    dist.reduce_scatter_tensor(part, x)
    dist.all_gather_into_tensor(whole, part)
    finish(device)
    return {"part": part.tolist(), "whole": whole.tolist()}


def rate_of_an_all_reduce(backend: str, kind: str, size_mb: float, times: int) -> dict[str, Any]:
    """Seconds of one all-reduce of a tensor of `size_mb` MB, the least of `times` after one that is not counted, and whether it
    is right.
    """
    device, rank, n = joined(backend, kind)
    x = torch.empty(round(size_mb * 1e6 / 4), device=device)
    least_s = float("inf")
    for number in range(times + 1):
        x.fill_(rank + 1)
        dist.barrier()
        finish(device)
        started_s = time.monotonic()
        dist.all_reduce(x)
        finish(device)
        if number:
            least_s = min(least_s, time.monotonic() - started_s)
    return {"seconds": least_s, "right": bool((x == n * (n + 1) / 2).all())}


def sum_over_the_fabric(fabric: Any, kind: str) -> dict[str, Any]:
    """The course's own messages, with tensors of the device: they pass through the host's memory."""
    x = 1000.0 * fabric.rank + torch.arange(7.0, device=device_of(kind))
    return {"sum": all_reduce(fabric, x).tolist(), "device": x.device.type}


def batch(n: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The same 8 n examples on every rank."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(8 * n, SIZES[0], generator=generator)
    return x.to(device), (torch.arange(8 * n) % SIZES[-1]).to(device)


def gradients(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> list[float]:
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    finish(x.device)
    return flat([p.grad for p in model.parameters()]).cpu().tolist()


def ddp_and_one_device(backend: str, kind: str) -> dict[str, list[float]]:
    """Gradients of the whole batch: by DDP, each rank with its share, and on this device alone."""
    device, rank, n = joined(backend, kind)
    x, y = batch(n, device)
    alone = gradients(mlp(SIZES, seed=1).to(device), x, y)
    ddp = DistributedDataParallel(mlp(SIZES, seed=1 if rank == 0 else 2).to(device))  # rank 0's weights are to count
    return {"ddp": gradients(ddp, x[rank::n], y[rank::n]), "alone": alone}


def data_parallel_and_one_device(cards: int, kind: str) -> dict[str, Any]:
    """The same by PyTorch's DataParallel on so many GPUs; and every copy that it made, (from, to, bytes)."""
    from worldsize.pytorch.data_parallel import Cards, RecordedCopies

    device, record = device_of(kind), Cards(cards)
    x, y = batch(4, device)
    model = mlp(SIZES, seed=1).to(device)
    alone = gradients(model, x, y)
    parallel = nn.DataParallel(model, device_ids=[*range(cards)] if kind == "cuda" else None)
    with RecordedCopies(record):
        together = gradients(parallel, x, y)
    copies = [(t.src, t.dst, t.size_bytes) for t in record.trace().transfers]
    return {"together": together, "alone": alone, "copies": copies, "cards": len(parallel.device_ids)}


def images_per_second(kind: str, depth: int, width: int, images: int, side: int, steps: int) -> dict[str, float]:
    """A training's speed on one device, and its loss before and after: always the same images."""
    device = device_of(kind)
    torch.manual_seed(3)
    model = resnet(depth, channels=1, classes=10, width=width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    x, y = torch.randn(images, 1, side, side, device=device), torch.arange(images, device=device) % 10
    losses = []
    for step in range(steps + 2):
        if step == 2:  # the first ones choose algorithms and take memory
            finish(device)
            start_s = time.monotonic()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    finish(device)
    seconds = time.monotonic() - start_s
    return {"images_per_s": images * steps / seconds, "first_loss": losses[0].item(), "last_loss": losses[-1].item()}


def memory_of_a_step(backend: str, kind: str, sizes: list[int], sharded: bool) -> dict[str, float]:
    """Two steps of Adam, with FSDP or with replicas: bytes kept by count, and, on a GPU, kept and at the peak."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    device, _, n = joined(backend, kind)
    model = mlp(sizes, seed=0).to(device)
    if sharded:
        mesh = init_device_mesh(device.type, (n,))
        for part in [*(p for p in model if isinstance(p, nn.Linear)), model]:
            fully_shard(part, mesh=mesh)
    else:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.ones(4, sizes[0], device=device)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=sharded)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        model(x).sum().backward()
        optimizer.step()
        finish(device)
    found = {"counted": float(sum(map(_local_bytes, _kept(model, optimizer))))}
    if device.type == "cuda":
        found |= {"kept": torch.cuda.memory_allocated(device), "peak": torch.cuda.max_memory_allocated(device)}
    return found


def live_bytes_of_a_step(kind: str, sizes: list[int], folder: str | None = None) -> dict[str, Any]:
    """The bytes of tensors at the fullest moment of a step: by the course's meter, and, on a GPU, by its allocator.

    On a GPU, `folder` receives the allocator's list, step.pickle; "lines": the functions of this file that asked for its blocks.
    """
    from worldsize.pytorch.live_bytes import LiveBytes

    device = device_of(kind)
    model = mlp(sizes, seed=0).to(device)
    x = torch.ones(512, sizes[0], device=device)
    (model(x[:1]).sum() * 0).backward()  # work space is taken now, and not measured
    model.zero_grad(set_to_none=True)
    if device.type == "cuda":
        finish(device)
        extra = torch.cuda.memory_allocated(device) - sum(t.nbytes for t in [*model.parameters(), x])
        torch.cuda.reset_peak_memory_stats(device)
        torch.cuda.memory._record_memory_history()
    with LiveBytes([*model.parameters(), x]) as meter:
        model(x).sum().backward()
    found: dict[str, Any] = {"meter": meter.peak}
    if device.type == "cuda":
        finish(device)
        path = os.path.join(folder or ".", "step.pickle")
        torch.cuda.memory._dump_snapshot(path)
        torch.cuda.memory._record_memory_history(enabled=None)
        found |= {"allocator": torch.cuda.max_memory_allocated(device) - extra, "lines": _functions_in(path)}
    return found


def _functions_in(snapshot: str) -> list[str]:
    with open(snapshot, "rb") as file:
        traces = pickle.load(file)["device_traces"]
    frames = [frame for trace in traces for event in trace for frame in event.get("frames", ())]
    return sorted({frame["name"] for frame in frames if frame["filename"].endswith("gpu_work.py")})


def any_module_wrapped(fabric: Any, kind: str) -> dict[str, float]:
    """{module: the largest distance of a weight, after three steps, from one process on the CPU that has all ranks' rows}."""
    from tests.checks.mutants.wrap_module import plain

    device, rank = device_of(kind), fabric.rank
    torch.manual_seed(0)
    off = {}
    for name in torch_modules.MODULES:
        tasks = [torch_modules.module_task(name, seed=20 + other, steps=3) for other in range(fabric.world_size)]
        model = torch_modules.module(tasks[rank]).to(device)
        finish_gradients = plain(fabric, model, 700)
        end = torch_modules.train(tasks[rank], rank, model, finish_gradients, partial(_there_and_back, model, device))["end"]
        alone = torch_modules.train_alone(tasks)["end"]
        off[name] = max(float((end[key].cpu() - alone[key]).abs().max()) for key in alone)
    return off


def _there_and_back(model: nn.Module, device: torch.device, *inputs: Any) -> torch.Tensor:
    """The module's output on the CPU, where its inputs come from and its loss is taken."""
    made = model(*[x.to(device) if isinstance(x, torch.Tensor) else x for x in inputs])
    return (made[0] if isinstance(made, tuple) else made).cpu()


def _kept(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    states = [t for state in optimizer.state.values() for t in state.values() if t.ndim]
    return [t for p in model.parameters() for t in (p, p.grad)] + states


def _local_bytes(x: torch.Tensor) -> int:
    return x.to_local().nbytes if hasattr(x, "to_local") else x.nbytes
