"""Long campaigns on `launch` in real kernels: a hundred faults, two hundred launches, stops and kills, with figures.

Each prints what it measured. Left out: how launch compares with its peers (`bench/`).
"""

import json
import os
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from tests.support.kernels import BUSY, Kernel, launch_busy, pid_gone, printed, seconds_until
from tests.support.processes import listens

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

SETUP = """\
import json, os, random, signal, time
from pathlib import Path
from worldsize.launch import launch, last_run, warm
warm()

def all_reduce(fabric):
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    x = torch.full((1000,), float(fabric.rank + 1))
    dist.all_reduce(x)
    print("the sum is", x[0].item())
    handle = fabric.isend(x, (fabric.rank + 1) % fabric.world_size)
    fabric.recv(x, (fabric.rank - 1) % fabric.world_size)
    handle.wait()
    return x[0].item()

def right(world_size):
    return launch(all_reduce, world_size).results == [world_size * (world_size + 1) / 2] * world_size
"""
FAULT = """\
# Exercise 6.2: a fault

def fault(how, culprit):
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == culprit:
        Path("failed").write_text(repr(time.monotonic()))
        if how == "raise":
            raise IndexError("chunk 3 of 3")
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3))
"""
LINES = {
    "raise": 'raise IndexError("chunk 3 of 3")',
    "exit": "os._exit(3)",
    "kill": "os.kill(os.getpid(), signal.SIGKILL)",
}
TRY = """\
def provoke(how, world_size, culprit):
    try:
        launch(fault, world_size, args=(how, culprit))
    except Exception as error:
        after_s = time.monotonic() - float(Path("failed").read_text())
        return {"how": how, "world_size": world_size, "culprit": culprit, "after_s": after_s,
                "named": getattr(error, "rank", None), "message": str(error)}
"""


@pytest.fixture
def open_kernel(tmp_path_factory) -> Callable[[], Kernel]:
    return lambda: Kernel(tmp_path_factory.mktemp("k"))


@pytest.fixture
def kernel(open_kernel) -> Iterator[Kernel]:
    with open_kernel() as opened:
        for cell in (SETUP, FAULT, TRY, BUSY):
            assert opened.run(cell).error == ""
        assert printed(opened.run("print(right(2))")) == "True"
        yield opened


@pytest.fixture
def say(capsys) -> Callable[[str], None]:
    def aloud(text: str) -> None:
        with capsys.disabled():
            print(f"\n    {text}", end="", flush=True)

    return aloud


def spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"p50 {statistics.median(ordered):.2f} s, p95 {p95:.2f} s, max {ordered[-1]:.2f} s of {len(ordered)}"


def test_the_culprit_and_its_line_are_named_a_hundred_times_of_a_hundred(kernel, say):
    seed = time.time_ns() % 10**6
    draw = random.Random(seed)
    plan = [(how, size, draw.randrange(size)) for how in LINES for size in (2, 4) for _ in range(17)][:100]
    draw.shuffle(plan)
    rows = json.loads(printed(kernel.run(f"print(json.dumps([provoke(*row) for row in {plan}]))", timeout_s=900)))
    for how in LINES:
        say(f"{how}: to RankFailed {spread([r['after_s'] for r in rows if r['how'] == how])} (seed {seed})")
    assert [r for r in rows if r["named"] != r["culprit"] or not _line_is_named(r)] == []
    assert max(len(r["message"].splitlines()) for r in rows) <= 40
    assert sum(r["after_s"] > 1 for r in rows) <= 1


def _line_is_named(row: dict) -> bool:
    number = 1 + next(i for i, line in enumerate(FAULT.splitlines()) if line.strip() == LINES[row["how"]])
    told = row["message"].splitlines()[1:4]
    place = [i for i, line in enumerate(told) if line.startswith("  Exercise 6.2 (cell In[")]
    named = bool(place) and told[place[0]].endswith(f", line {number}, in fault")
    return named and told[place[0] + 1].strip() == LINES[row["how"]]


def test_twenty_runs_after_each_kind_of_failure_are_right(kernel):
    for how in LINES:
        code = f"row = provoke({how!r}, 2, 1)\nprint(row['named'], all([right(2) for _ in range(20)]))"
        assert printed(kernel.run(code, timeout_s=120)) == "1 True"


def test_two_hundred_launches_leave_nothing_behind_and_the_agent_does_not_grow(kernel, say):
    # what torch imports late, once, makes a folder: it is there before anything is counted
    assert kernel.run("def trains():\n    import torch\n    torch.optim.SGD\nlaunch(trains, 2)").error == ""
    held = {}
    for count in range(20, 201, 20):
        code = "print(all([right(2 + 2 * (n % 5 == 0)) for n in range(20)]))"
        assert printed(kernel.run(code, timeout_s=300)) == "True"
        held[count] = at_rest(lambda: what_it_holds(kernel))
        say(f"after {count}: {held[count] | {'files': len(held[count]['files'])}}")
    growth_mb = held[200]["agent_mb"] - held[20]["agent_mb"]
    assert {**held[200], "agent_mb": 0} == {**held[20], "agent_mb": 0}
    assert growth_mb < 5


def at_rest(measure: Callable[[], dict]) -> dict:
    """What `measure` says as soon as it says the same twice: a run's store and folder go a moment after the run."""
    before: dict | None = None
    while True:
        now = None
        with suppress(psutil.Error, FileNotFoundError):  # a rank ended or a folder went while it was looked at
            now = measure()
        if now is not None and now == before:
            return now
        before = now
        time.sleep(0.3)  # between two looks


def what_it_holds(kernel: Kernel) -> dict[str, Any]:
    """Descriptors, listening ports and processes of the kernel and all that it started; files, without their numbers; the
    agent's memory."""
    [agent], everyone = kernel.agents(), [psutil.Process(kernel.pid), *kernel.processes()]
    servers = [p for p in everyone if "multiprocessing.forkserver" in " ".join(p.cmdline())]
    return {
        "processes": len(everyone),
        "kernel_descriptors": everyone[0].num_fds(),
        "agent_descriptors": agent.num_fds(),
        "server_descriptors": sum(p.num_fds() for p in servers),
        "threads": everyone[0].num_threads() + agent.num_threads(),
        "ports": sum(listens(p.pid) for p in everyone),
        "files": sorted(re.sub(r"\d+", "#", str(path.relative_to(kernel.tmp))) for path in kernel.tmp.rglob("*")),
        "agent_mb": agent.memory_info().rss / 1e6,
    }


def test_the_first_launch_five_seconds_after_the_front_was_imported(open_kernel, say):
    # the sleep is a student who reads before the first cell
    taken_s = []
    for _ in range(5):
        with open_kernel() as kernel:
            assert kernel.run("from worldsize.notebook import *\nimport time\ntime.sleep(5)").error == ""
            kernel.run("def rank():\n    import torch.distributed as dist\n    dist.init_process_group('gloo')")
            cell = "began_s = time.monotonic()\nlaunch(rank, 2)\nprint(time.monotonic() - began_s)"
            taken_s.append(float(printed(kernel.run(cell)).splitlines()[-1]))
    say(f"first launch of 2 ranks, 5 s after the import: {spread(taken_s)} (load {os.getloadavg()[0]:.1f})")
    assert statistics.median(taken_s) <= 1


@pytest.mark.parametrize("function", ["loop", "collective", "receive"])
def test_twenty_stops_end_the_cell_within_three_seconds(kernel, say, function):
    taken_s = []
    for number in range(20):
        cell, ranks = launch_busy(kernel, function, world_size=2 + 2 * (number % 2))
        began_s = time.monotonic()
        kernel.manager.interrupt_kernel()
        assert kernel.finish(cell, timeout_s=10).name == "Interrupted"
        taken_s.append(time.monotonic() - began_s)
        assert all(pid_gone(pid) for pid in ranks)
    say(f"stop button while ranks are in {function}: {spread(taken_s)}")
    assert max(taken_s) <= 3


def test_stops_at_any_moment_leave_a_kernel_that_launches_rightly(kernel, say):
    seed = time.time_ns() % 10**6
    draw, names, taken_s, agents = random.Random(seed), [], [], set()
    for _ in range(100):
        cell = kernel.begin("launch(all_reduce, 3)\nPath('over').write_text('x')\ntime.sleep(1000)")
        time.sleep(draw.uniform(0, 0.3))  # so that the stop comes at any moment
        for _ in range(draw.choice([1, 1, 2, 3])):
            kernel.manager.interrupt_kernel()
            time.sleep(draw.uniform(0, 0.05))  # and so the next one
        began_s = time.monotonic()
        names.append(kernel.finish(cell, timeout_s=10).name)
        taken_s.append(time.monotonic() - began_s)
        assert printed(kernel.run("print(right(2))")) == "True"
        agents.update(p.pid for p in kernel.agents())
    counted = {name: names.count(name) for name in sorted(set(names))}
    say(f"100 stops at random moments (seed {seed}): {spread(taken_s)}; {counted}; {len(agents)} agents")
    assert max(taken_s) <= 3
    seconds_until(lambda: len(kernel.processes()) == 4, 5)  # the agent, its fork server, what holds stores, the resource tracker


@pytest.mark.parametrize("function", ["loop", "collective"])
def test_five_killed_kernels_leave_nothing_after_five_seconds(open_kernel, say, function):
    taken_s = []
    for _ in range(5):
        with open_kernel() as kernel:
            kernel.run(SETUP + BUSY)
            launch_busy(kernel, function, world_size=4)
            psutil.Process(kernel.pid).kill()
            taken_s.append(kernel.nothing_left())
    say(f"kernel killed while ranks are in {function}, until nothing is left: {spread(taken_s)}")


def test_five_kernels_killed_at_any_moment_of_the_warm_up_leave_nothing(open_kernel, say):
    taken_s = []
    for number in range(5):
        with open_kernel() as kernel:
            kernel.run(SETUP)
            time.sleep(0.6 * number)  # so that the kill comes at another moment of the warm-up each time
            psutil.Process(kernel.pid).kill()
            taken_s.append(kernel.nothing_left())
    say(f"kernel killed during the warm-up, until nothing is left: {spread(taken_s)}")
