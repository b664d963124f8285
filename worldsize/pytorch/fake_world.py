"""A rank of a world of any size under PyTorch's own sharding: its memory and its messages, in one process.

PyTorch's `fake` process group answers every collective at once and moves nothing. Real `fully_shard` and `parallelize_module`
thus show shapes, memory and bytes at world size 10,000; numbers and times mean nothing. The group is private to PyTorch, so
a version may lack it. The world lives in its own process. Left out: other ranks' memory (ask for another rank), traffic inside
a collective, NCCL's buffers.
"""

import importlib
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from worldsize.pytorch.abilities import FAKE_GROUP, has_fake_group
from worldsize.pytorch.live_bytes import LiveBytes

TESTED = "2.13"  # the release of constraints.txt
# part of a dispatcher operation's name -> its name in torch.distributed
_NAMES = {
    "allgather": "all_gather", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "allreduce": "all_reduce",
    "all_reduce": "all_reduce", "broadcast": "broadcast", "alltoall": "all_to_all", "all_to_all": "all_to_all",
}  # fmt: skip
_OUTPUT_FIRST = ("allgather", "reduce_scatter", "alltoall")  # c10d's own operations with arguments (output, input, …)


@dataclass(frozen=True)
class HeldParameter:
    """A parameter in a fake world: its `whole` shape, and the `local` shape that this rank holds."""

    name: str
    whole: tuple[int, ...]
    local: tuple[int, ...]


@dataclass(frozen=True)
class CollectiveCalls:
    """The number of calls of one collective in a fake rank's step, and the bytes of this rank's inputs to them."""

    op: str
    calls: int
    input_bytes: int


@dataclass(frozen=True)
class FakeRank:
    """The memory of one rank of a fake world after a step, in bytes, and its collectives in that step.

    `peak_bytes`: the most bytes that lived at once, of tensors that operations touched.
    """

    rank: int
    world_size: int
    parameters: tuple[HeldParameter, ...]
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    peak_bytes: int
    collectives: tuple[CollectiveCalls, ...]

    @property
    def elements(self) -> int:
        """The number of parameter elements on this fake rank."""
        return sum(torch.Size(held.local).numel() for held in self.parameters)


def fully_sharded(model: nn.Module, mesh: Any) -> nn.Module:
    """Apply FSDP2's `fully_shard` to each child that has parameters, then to the whole; the default plan."""
    from torch.distributed.fsdp import fully_shard

    for child in model.children():
        if any(True for _ in child.parameters()):
            fully_shard(child, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fake_rank(
    build: Callable[[], nn.Module],
    example: Callable[[], torch.Tensor],
    world_size: int,
    rank: int = 0,
    *,
    plan: Callable[[nn.Module, Any], nn.Module] = fully_sharded,
    mesh: Mapping[str, int] | None = None,
    limit_s: float = 120.0,
) -> FakeRank:
    """Take one training step (forward, sum as loss, backward, AdamW) of one rank in a fake world of `world_size` ranks.

    `build()` makes the model and `example()` this rank's input. `plan(model, mesh)` spreads the model and returns it, with
    PyTorch's own functions; `mesh` maps the dimensions of the `DeviceMesh` to sizes, by default {"data": world_size}. All runs
    in a new process. Raises ValueError if the rank or the mesh does not fit, RuntimeError if PyTorch lacks its fake group or the
    step fails, TimeoutError after `limit_s`.
    """
    sizes = dict(mesh or {"data": world_size})
    if not 0 <= rank < world_size:
        raise ValueError(f"fake_rank: expected a rank from 0 to {world_size - 1}, got rank {rank!r} of {world_size!r}.")
    if torch.Size(sizes.values()).numel() != world_size:
        raise ValueError(f"fake_rank: the mesh {sizes} doesn't hold {world_size} ranks. Its sizes must multiply to that number.")
    if not has_fake_group():
        raise RuntimeError(
            f"fake_rank: expected a PyTorch with its private {FAKE_GROUP}, got PyTorch {torch.__version__} without it. "
            f"Install torch=={TESTED}.*, which has it."
        )

    with tempfile.TemporaryDirectory() as folder:
        job, answer = Path(folder, "job"), Path(folder, "answer")
        job.write_bytes(cloudpickle.dumps((build, example, world_size, rank, plan, sizes)))
        command = [sys.executable, "-c", _CHILD, repr(sys.path), str(job), str(answer)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"fake_rank: the step of rank {rank} of {world_size} took longer than {limit_s} s. Build a smaller model."
            ) from None
        if not answer.is_file():
            raise RuntimeError(
                f"fake_rank: the process of rank {rank} of {world_size} ended with {done.returncode} before its step was "
                f"over: {done.stderr.strip()[-500:]} (Out of memory? Build a smaller model.)"
            )
        result, failure = cloudpickle.loads(answer.read_bytes())

    if failure:
        last = failure.strip().splitlines()[-1]
        raise RuntimeError(f"fake_rank: the step of rank {rank} of {world_size} failed: {last}\n{failure}")
    return result


# with the caller's path, so that the functions of its modules are found
_CHILD = """
import ast, sys
sys.path[:] = ast.literal_eval(sys.argv[1])
from pathlib import Path
from worldsize.pytorch import fake_world
fake_world._answer(Path(sys.argv[2]), Path(sys.argv[3]))
"""


def _answer(job: Path, answer: Path) -> None:
    """Do the fake rank's job in the new process, and write (the result, the failure as text)."""
    result, failure = None, ""
    try:
        result = _step(*cloudpickle.loads(job.read_bytes()))
    except Exception:
        failure = traceback.format_exc()

    unfinished = answer.with_suffix(".part")
    unfinished.write_bytes(cloudpickle.dumps((result, failure)))
    unfinished.rename(answer)


def _step(build: Callable, example: Callable, world_size: int, rank: int, plan: Callable, sizes: dict) -> FakeRank:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    store = importlib.import_module(FAKE_GROUP).FakeStore()
    dist.init_process_group("fake", store=store, rank=rank, world_size=world_size)
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))

    model = plan(build(), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x = example()

    with LiveBytes(model.parameters()) as meter, _Calls() as calls:
        model(x).sum().backward()
        optimizer.step()

    held, parameter_bytes, gradient_bytes = [], 0, 0
    for name, p in model.named_parameters():
        held.append(HeldParameter(name, tuple(p.shape), tuple(_local(p).shape)))
        parameter_bytes += _local(p).nbytes
        if p.grad is not None:
            gradient_bytes += _local(p.grad).nbytes

    optimizer_bytes = 0
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor) and value.dim():  # not the count of steps
                optimizer_bytes += _local(value).nbytes

    dist.destroy_process_group()
    return FakeRank(
        rank, world_size, tuple(held), parameter_bytes, gradient_bytes, optimizer_bytes, peak_bytes=meter.peak,
        collectives=tuple(CollectiveCalls(op, calls.calls[op], calls.bytes[op]) for op in sorted(calls.calls)),
    )  # fmt: skip


class _Calls(TorchDispatchMode):
    """A fake world's counter of collectives in the dispatcher: `torch.distributed`'s and DTensor's functional ones.

    `calls[op]` counts an operation's calls, `bytes[op]` the bytes of this rank's inputs to them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        from torch.distributed.tensor import DTensor

        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor takes the operation apart, and its collectives come here one by one

        op = ""
        if func.namespace in ("c10d", "_c10d_functional"):
            op = next((name for part, name in _NAMES.items() if part in func._opname), "")
        if op:
            given = args[0]
            if func.namespace == "c10d" and any(part in func._opname for part in _OUTPUT_FIRST):
                given = args[1]
            self.calls[op] += 1
            for x in tree_leaves(given):
                if isinstance(x, torch.Tensor):
                    self.bytes[op] += x.nbytes

        return func(*args, **(kwargs or {}))


def _local(x: torch.Tensor) -> torch.Tensor:
    return getattr(x, "_local_tensor", x)
