"""Lab 11 beyond its checks: the wrapper of any module at every size, on a plain process group, and beside DDP."""

import json

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.checks.mutants.wrap_module import plain
from tests.support.lab_functions import ROOT, lab_functions
from worldsize.fabric import over_group
from worldsize.fabric.background import Background, over_the_fabric
from worldsize.lab.terminal import terminal
from worldsize.launch import launch
from worldsize.pytorch import timed_network, torch_modules
from worldsize.pytorch.torch_modules import MODULES, module_task

SOAK = pytest.mark.soak
CAP_BYTES = 700
NOTEBOOK = "11_ddp_from_the_inside.ipynb"


def tasks_of(name, n):
    return [module_task(name, seed=20 + rank) for rank in range(n)]


def trained(fabric, wrap):
    """The state at the end of every module."""
    torch.set_num_threads(1)
    ends = []
    for name in MODULES:
        task = tasks_of(name, fabric.world_size)[fabric.rank]
        model = torch_modules.module(task)
        ends.append(torch_modules.train(task, fabric.rank, model, wrap(fabric, model, CAP_BYTES))["end"])
    return ends


def farthest(ends, n):
    """{module: how far a value on a rank is from that of one process}; `ends[rank]` are the states of all modules."""
    found = {}
    for place, name in enumerate(MODULES):
        alone = torch_modules.train_alone(tasks_of(name, n))["end"]
        found[name] = max(float((made[place][key] - alone[key]).abs().max()) for made in ends for key in alone)
    return found


def is_near(off):
    return all(value < (1e-5 if name == "weights of two dtypes" else 1e-10) for name, value in off.items())


@pytest.mark.parametrize("world_size", [1, pytest.param(2, marks=SOAK), 3, pytest.param(4, marks=SOAK)])
def test_the_lab_s_wrapper_gives_every_module_the_weights_of_one_process(world_size):
    wrap = lab_functions(NOTEBOOK).wrap_module
    off = farthest(launch(trained, world_size, args=(wrap,), timeout_s=60).results, world_size)
    assert is_near(off), off


def trained_in_a_group():
    dist.init_process_group("gloo")
    ends = trained(over_group(), plain)
    dist.barrier()
    return ends


def test_it_runs_over_a_plain_process_group():
    off = farthest(launch(trained_in_a_group, 2, timeout_s=60).results, 2)
    assert is_near(off), off


UNDER_TORCHRUN = """
import torch, torch.distributed as dist
from tests.labs.test_ddp_from_the_inside import trained_in_a_group

ends = trained_in_a_group()
torch.save(ends, f"rank{dist.get_rank()}.pt")
dist.destroy_process_group()
"""


@SOAK
def test_it_runs_under_torchrun(tmp_path):
    (tmp_path / "script.py").write_text(UNDER_TORCHRUN)
    path = {"PYTHONPATH": str(ROOT)}
    terminal("torchrun", "--standalone", "--nproc-per-node", 3, "script.py", folder=tmp_path, timeout_s=90, env=path)
    off = farthest([torch.load(tmp_path / f"rank{rank}.pt") for rank in range(3)], 3)
    assert is_near(off), off


def in_ddp(fabric):
    dist.init_process_group("gloo")
    for name in MODULES:
        task = tasks_of(name, fabric.world_size)[fabric.rank]
        some_unused = name == "layers used in turn"
        ddp = DistributedDataParallel(
            torch_modules.module(task), bucket_cap_mb=CAP_BYTES / 2**20, find_unused_parameters=some_unused
        )
        ddp.register_comm_hook(Background(fabric), over_the_fabric)
        torch_modules.train(task, fabric.rank, ddp.module, forward=ddp)


@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=SOAK)])
def test_gradients_take_the_bytes_that_ddp_s_take(world_size):
    own, ddp = launch(trained, world_size, args=(plain,), timeout_s=60), launch(in_ddp, world_size, timeout_s=60)
    at_the_start = 0
    for name in MODULES:
        state = torch_modules.state(torch_modules.module(tasks_of(name, 1)[0]))
        at_the_start += sum(x.nbytes for x in state.values())
    assert own.trace.total_bytes() - (world_size - 1) * at_the_start == ddp.trace.total_bytes() > 0


def given(name):
    """A function that a cell without a title gives, in the namespace of the lab's other cells."""
    cells = json.loads((ROOT / "solutions" / NOTEBOOK).read_text())["cells"]
    names = dict(vars(lab_functions(NOTEBOOK)))
    exec(next("".join(cell["source"]) for cell in cells if "".join(cell["source"]).startswith(f"def {name}(")), names)
    return names[name]


def test_one_by_one_passes_frozen_weights_by():
    task = timed_network.task(sizes=[4, 4, 4, 3], steps=2, frozen=[1])
    one, other = launch(given("one_by_one"), 2, args=(task,)).results
    assert all(torch.equal(a, b) for a, b in zip(one["weights"], other["weights"], strict=True))
