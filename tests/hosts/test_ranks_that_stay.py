"""Ranks that stay on two other hosts: the same calls, failures and evidence."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import namespaces
from tests.support.daemons import until
from tests.support.namespaces import Network
from tests.support.open_hosts import programs
from worldsize import hosts
from worldsize.engines.job import Prompt
from worldsize.errors import Deadlock, RankFailed, RunTimedOut
from worldsize.launch import launch, rank_output
from worldsize.ranks import OpenRanks, open_ranks
from worldsize.ranks.debugger_prompts import DebuggerPrompts
from worldsize.ranks.open_world import CELLS

LIMIT_S = 60.0
SUM = "x = torch.ones(2) * (rank + 1)\ndist.all_reduce(x)\ny = torch.zeros(1)\n" + (
    "handle = fabric.isend(torch.ones(1) * rank, (rank + 1) % world_size)\n"
    "fabric.recv(y, (rank - 1) % world_size)\n"
    "handle.wait()"
)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    if reason := namespaces.why_not():
        pytest.skip(reason)
    shifts = {} if namespaces.why_no_shifted_clock() else {"n2": 100_000}
    with namespaces.network(2, clock_shifts_s=shifts) as made:
        yield made


@pytest.fixture(scope="module")
def two_hosts(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Both hosts are open, as this user's own."""
    hosts.open(programs(network, tmp_path_factory.mktemp("hosts")))
    yield network
    hosts.close()
    until(lambda: not any(host.pids() for host in network.hosts), LIMIT_S, "nothing is left on any host")


@pytest.fixture
def world(two_hosts: Network) -> Iterator[OpenRanks]:
    """Four ranks on both hosts."""
    with open_ranks(4) as opened:
        yield opened


def right(world: OpenRanks) -> bool:
    world.run(SUM)
    return [x.tolist() for x in world["x"]] == [[10.0, 10.0]] * 4 and [y.item() for y in world["y"]] == [3, 0, 1, 2]


def test_ranks_on_both_hosts_keep_what_they_have_and_every_text_is_a_run(world):
    world.run("kept = [rank]")
    run = world.run(
        "kept.append(__import__('os').uname().nodename)\nprint('rank', rank)\n"
        "if rank == 0:\n    fabric.send(torch.ones(4), 1)\nif rank == 1:\n    fabric.recv(torch.ones(4), 0)"
    )
    assert world["kept"] == [[0, "n1"], [1, "n1"], [2, "n2"], [3, "n2"]]
    assert run.hosts == ("n1", "n1", "n2", "n2") and [run.log(rank).split("\n")[0] for rank in range(4)] == [
        f"rank {r}" for r in range(4)
    ]
    assert [(t.src, t.dst, t.size_bytes) for t in run.trace.transfers] == [(0, 1, 16)]
    assert 0 <= run.trace.transfers[0].start_s <= run.wall_s and right(world)


def test_large_values_go_there_and_come_back(world):
    world.push(large=bytes(3_000_000))
    assert world["len(large)"] == [3_000_000] * 4 and {len(found) for found in world["large"]} == {3_000_000}


def test_figures_and_tables_of_a_host_come_along(world):
    run = world.run("import matplotlib.pyplot as plt\nplt.plot([1, rank])\nprint('drawn')", [3])
    (group,) = rank_output.groups(run, [3])
    assert [sorted(dict(piece.bundle)) for piece in group.pieces] == [[], ["image/png", "text/plain"]]
    world.run(
        "net = torch.nn.Linear(2, 2)\nwith torch.no_grad():\n    [p.fill_(1.5 if rank == 3 else 1.0) for p in net.parameters()]"
    )
    found = world.differ("net")
    assert found.difference == 0.5 and found.first_difference.letters == ("A", "A", "A", "B")


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (
            "if rank == 3:\n    raise IndexError('chunk 3')\ndist.all_reduce(torch.ones(1))",
            RankFailed,
            r"rank 3 of 4 \(on n2\) failed first: IndexError",
        ),
        ("fabric.recv(torch.ones(1), (rank + 1) % 4)", Deadlock, "rank 0 waits for 1"),
        (
            "if rank == 0:\n    fabric.recv(torch.ones(1), 2)\nelse:\n    __import__('time').sleep(1000)",
            RunTimedOut,
            "these ranks of 4 were not done",
        ),
    ],
)
def test_what_goes_wrong_frees_the_ranks_of_both_hosts(world, text, error, words):
    world.run("kept = rank")
    with pytest.raises(error, match=words):
        world.run(text, timeout_s=2)
    assert world["kept"] == [0, 1, 2, 3] and right(world)


def test_a_rank_that_ends_is_named_with_its_host_and_the_others_can_be_read(world):
    with pytest.raises(RankFailed, match=r"rank 2 of 4 \(on n2\) .*exited with code 3"):
        world.run("import os\nif rank == 2:\n    os._exit(3)\ndist.barrier()")
    assert world["rank"] == [0, 1, None, 3]
    world.restart()
    assert right(world)


def test_a_rank_of_another_host_is_stepped_through(world, monkeypatch):
    typed, said = ["p rank * 11", "c"], []

    def ask(prompts: dict[int, Prompt]):
        return DebuggerPrompts(lambda prompt: typed.pop(0), said.append).ask(prompts)

    monkeypatch.setattr(CELLS, "ask", ask)
    world.run("if rank == 3:\n    breakpoint()\nafter = rank\ndist.barrier()")
    assert "33" in said and world["after"] == [0, 1, 2, 3]


def test_a_launch_meanwhile_is_refused_with_what_to_do(world):
    world.run("kept = rank")
    with pytest.raises(ValueError, match=r"the hosts still hold open ranks.*world\.close\(\)"):
        launch(lambda: 1, 2)
    assert world["kept"] == [0, 1, 2, 3]
    world.close()
    assert launch(lambda: 1, 2).results == [1, 1]


def test_a_host_that_is_lost_is_named_and_the_other_hosts_ranks_can_be_read(network: Network, tmp_path: Path):
    hosts.close()
    hosts.open(programs(network, tmp_path))
    try:
        world = open_ranks(4)
        world.run("kept = rank")
        network.hosts[1].kill_all()
        with pytest.raises(RankFailed, match="lost with the host n2"):
            while True:
                world.run("dist.barrier()")
        assert world["kept"] == [0, 1, None, None]
        world.restart()
        assert world["rank"] == [0, 1, 2, 3]
    finally:
        hosts.close()
