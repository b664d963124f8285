"""A fabric over a process group that is there already: the conformance suite, and labs' functions under a real torchrun."""

import inspect
import json
import sys
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from tests.checks.mutants import flattened, ring_all_reduce, sharded_adam, tree_broadcast
from tests.support.conformance import SUITE
from worldsize.fabric import Fabric, over_group
from worldsize.fabric.process_group import wire_over
from worldsize.fabric.recording import Recorded
from worldsize.lab.terminal import terminal
from worldsize.launch import launch
from worldsize.pytorch import timed_network
from worldsize.trace import merge

SOAK = pytest.mark.soak
MOST_RANKS = 4


def recorded_over_group(fn, *args):
    """In a rank that has a process group of its own: what `fn` returned over it, and the rank's side of the messages."""
    dist.init_process_group("gloo")
    recorded = Recorded(wire_over())
    fabric = Fabric(recorded)
    returned = fn(fabric, *args)
    dist.barrier()  # a rank that has ended, or a fabric that is gone, would take its unmet messages along
    return returned, recorded.record()


def run_over_group(fn, world_size, *args):
    ended = launch(recorded_over_group, world_size, args=(fn, *args), timeout_s=30)
    results, records = zip(*ended.results, strict=True)
    return SimpleNamespace(results=list(results), trace=merge(records, world_size))


@pytest.mark.parametrize("world_size", [pytest.param(2, marks=SOAK), 3, pytest.param(4, marks=SOAK)])
@pytest.mark.parametrize("rule", SUITE, ids=lambda rule: rule.__name__)
def test_conformance(rule, world_size):
    rule(run_over_group, world_size)


def of_labs(fabric):
    """The answers of four labs on this fabric, as plain values: {lab: what it made}."""
    n, rank = fabric.world_size, fabric.rank
    spread = torch.arange(5.0) + 1000 * rank
    tree_broadcast.doubling(fabric, spread, root=n - 1)

    summed = torch.arange(40_000, dtype=torch.float64) + 1000 * rank  # chunks on both sides of 128 KiB
    ring_all_reduce.the_usual_way(fabric, summed)

    trained = flattened.plain(fabric, timed_network.task(sizes=[4, 3, 2], steps=2, seed=5))

    weights = torch.arange(8.0)
    gradients = [torch.arange(8.0) + 10 * rank + step for step in range(2)]
    sharded_adam.every_part_straight_to_its_owner(fabric, (weights, gradients), 0.1)
    return {
        "02": spread.tolist(),
        "06": summed[::997].tolist(),
        "11": [p.tolist() for p in trained["weights"]],
        "12": weights.tolist(),
    }


UNDER_TORCHRUN = """
import json, sys
from pathlib import Path

import torch.distributed as dist

from tests.fabric.test_process_group import of_labs
from worldsize.fabric import over_group

dist.init_process_group("gloo")
rank, most = dist.get_rank(), dist.get_world_size()
made = {most: of_labs(over_group())}
for n in range(1, most):
    some = dist.new_group(list(range(n)))
    if rank < n:
        made[n] = of_labs(over_group(some))
Path(f"rank{rank}.json").write_text(json.dumps(made))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def made_under_torchrun(tmp_path_factory):
    """One run of torchrun, whose ranks also make groups of 1, 2 and 3 of them: {world size: [what each rank made]}."""
    folder = tmp_path_factory.mktemp("torchrun")
    (folder / "script.py").write_text(UNDER_TORCHRUN)
    path = {"PYTHONPATH": str(inspect.getfile(timed_network).partition("/worldsize/")[0])}
    terminal("torchrun", "--standalone", "--nproc-per-node", MOST_RANKS, "script.py", folder=folder, timeout_s=90, env=path)

    by_rank = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(MOST_RANKS)]
    return {n: [by_rank[rank][str(n)] for rank in range(n)] for n in range(1, MOST_RANKS + 1)}


@SOAK
@pytest.mark.parametrize("world_size", [1, 2, 3, MOST_RANKS])
def test_labs_functions_give_under_torchrun_what_they_give_in_the_notebook(made_under_torchrun, world_size):
    launched = launch(of_labs, world_size, timeout_s=30)
    assert made_under_torchrun[world_size] == json.loads(json.dumps(launched.results))


@SOAK
def test_what_they_give_is_right(made_under_torchrun):
    for n, by_rank in made_under_torchrun.items():
        summed = torch.arange(40_000, dtype=torch.float64) * n + 1000 * sum(range(n))
        for made in by_rank:
            assert made["02"] == (torch.arange(5.0) + 1000 * (n - 1)).tolist()
            assert made["06"] == summed[::997].tolist()
            assert made["11"] == by_rank[0]["11"]


def test_without_a_process_group_it_says_what_to_call():
    with pytest.raises(ValueError, match=r'expected a process group, got none: .*dist\.init_process_group\("gloo"\) first'):
        over_group()


def test_a_rank_outside_the_group_is_told_so():
    def outside():
        dist.init_process_group("gloo")
        first = dist.new_group([0])
        if dist.get_rank() == 0:
            return over_group(first).world_size
        try:
            over_group(first)
        except ValueError as error:
            return str(error)

    assert launch(outside, 2).results == [1, "over_group: rank 1 is not in that group. Call it on the group's ranks only."]


def test_the_ranks_of_a_fabric_are_those_of_its_group():
    def swapped_within_a_part():
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        parts = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        fabric = over_group(parts[rank % 2])
        came = torch.empty(1)
        handle = fabric.isend(torch.tensor([float(rank)]), 1 - fabric.rank)
        fabric.recv(came, 1 - fabric.rank)
        handle.wait()
        return fabric.rank, came.item()

    assert launch(swapped_within_a_part, 4).results == [(0, 2.0), (0, 3.0), (1, 0.0), (1, 1.0)]


def waits_for_nothing(limit):
    dist.init_process_group("gloo", timeout=limit)
    fabric = over_group()
    said = None
    if fabric.rank == 0:
        try:
            fabric.recv(torch.empty(1), 1)
        except TimeoutError as error:
            said = f"{type(error).__name__}: {error}"
    store = dist.group.WORLD.get_group_store()  # a barrier would wait no longer than the group does
    store.set(f"over{fabric.rank}", "")
    store.wait(["over0", "over1"], timedelta(seconds=20))
    return said


def test_the_time_limit_of_the_group_ends_a_wait_with_an_error_that_names_the_peer():
    said = launch(waits_for_nothing, 2, args=(timedelta(seconds=0.5),), timeout_s=30)[0]
    assert said.startswith("PeerSilent: recv from rank 1: expected an answer within the group's time limit, got none.")


def test_importing_the_face_of_the_fabric_brings_no_torch():
    code = "import sys, worldsize.fabric; print('torch' in sys.modules)"
    assert terminal(sys.executable, "-c", code).strip() == "False"
