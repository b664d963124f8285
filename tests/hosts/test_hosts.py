"""Launches on two other hosts, over a program's standard input and output: unedited calls, and what comes back."""

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
import torch.distributed as dist

import worldsize
from tests.support import namespaces
from tests.support.daemons import until
from tests.support.namespaces import INTERFACE, Network
from tests.support.open_hosts import programs
from worldsize import hosts, tf
from worldsize.errors import Deadlock, RankFailed, RunTimedOut
from worldsize.launch import launch, quiet_launch
from worldsize.links import Link
from worldsize.report import report

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the hosts do not have the tests' modules

LIMIT_S = 60.0  # a bound against a hang
SHIFT_S = 100_000
CANARY = "WORLDSIZE_TEST_CANARY"
SENT = "WORLDSIZE_TEST_SENT"
BIG_BYTES = 10_000_000  # ten times what one message between hosts may carry
SLOW = Link("20 MB/s", "10 ms")


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """The clock of the second host is ahead, where this machine allows that."""
    if reason := namespaces.why_not():
        pytest.skip(reason)
    shifts = {} if namespaces.why_no_shifted_clock() else {"n2": SHIFT_S}
    with namespaces.network(2, clock_shifts_s=shifts) as made:
        yield made


@pytest.fixture(scope="module")
def opened(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Both hosts are open; in this folder each has one of its own, by name."""
    folder = tmp_path_factory.mktemp("hosts")
    os.environ.update({CANARY: uuid.uuid4().hex, SENT: "went along"})
    hosts.open(programs(network, folder, env={"PYTHONPATH": "/of/the/host", "OWN": "of the host"}), env=[SENT])
    yield folder
    hosts.close()
    del os.environ[CANARY], os.environ[SENT]
    until(lambda: not any(host.pids() for host in network.hosts), LIMIT_S, "nothing is left on any host")
    assert [list((folder / host.name).iterdir()) for host in network.hosts] == [[], []]


@pytest.fixture
def closed() -> Iterator[None]:
    """For a test that opens hosts of its own, or fails to: it stands after those that share some."""
    hosts.close()
    yield
    hosts.close()


def add_up(start: float) -> dict[str, Any]:
    dist.init_process_group("gloo")
    x = torch.full((3,), start + dist.get_rank())
    dist.all_reduce(x)
    print(f"rank {dist.get_rank()} printed")
    report(rank=dist.get_rank())
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE")
    return {"sum": x, "host": os.uname().nodename, **{name: int(os.environ[name]) for name in names}}


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, pytest.param(8, marks=pytest.mark.soak)])
def test_neighbours_share_a_host_and_all_find_each_other(opened: Path, world_size: int) -> None:
    run = launch(add_up, world_size, args=(1.0,))
    first = -(-world_size // 2)
    assert list(run.hosts) == [found["host"] for found in run.results] == ["n1"] * first + ["n2"] * (world_size - first)

    total = world_size * (world_size + 1) / 2
    for rank, found in enumerate(run.results):
        node, local = (0, rank) if rank < first else (1, rank - first)
        assert torch.equal(found["sum"], torch.full((3,), total))
        assert (found["RANK"], found["WORLD_SIZE"], found["ROLE_WORLD_SIZE"]) == (rank, world_size, world_size)
        assert (found["GROUP_RANK"], found["LOCAL_RANK"]) == (node, local)
        assert found["LOCAL_WORLD_SIZE"] == run.hosts.count(found["host"])
        assert found["GROUP_WORLD_SIZE"] == len(set(run.hosts))
        assert run.log(rank) == f"rank {rank} printed\n"
        assert [row["rank"] for row in run.reports[rank]] == [rank]
    assert "2 hosts (n1, n2)" in run.setup or world_size == 1


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.tensor([float(number)])


def as_in_a_tutorial(rank: int, world_size: int) -> float:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    total = sum(torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2, collate_fn=sum))
    dist.all_reduce(total)
    return total.item()


def test_a_tutorials_script_with_a_data_loader_runs_unedited(opened: Path) -> None:
    assert launch(as_in_a_tutorial, 3, timeout_s=LIMIT_S).results == [3 * 66.0] * 3


@pytest.mark.soak
def test_a_check_stays_on_this_machine(opened: Path) -> None:
    run = quiet_launch(lambda: os.uname().nodename, 1)
    assert (run.hosts, run[0]) == ((), os.uname().nodename)


def surroundings() -> tuple[dict[str, str], str, list[str], int, int]:
    return dict(os.environ), os.getcwd(), sys.path, os.getpid(), os.getppid()


def test_a_rank_has_the_environment_folder_and_module_path_of_its_host(
    opened: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend("/of/the/kernel")
    run = launch(surroundings, 2)
    for host, (env, folder, modules, *_) in zip(run.hosts, run.results, strict=True):
        assert (env["OWN"], env[SENT], folder) == ("of the host", "went along", str(opened / host))
        assert "/of/the/host" in modules and "/of/the/kernel" not in modules
        assert CANARY not in env


def look_for(half: str, other_half: str, folder: str) -> list[str]:
    """What on this host has the word in its environment, its command line or its files."""
    canary, found = half + other_half, []
    mine = os.readlink("/proc/self/ns/net")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns/net") == mine:
                found += [str(path) for path in (process / "environ", process / "cmdline") if canary in path.read_text()]
        except OSError:
            continue
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return found + [str(path) for path in files if canary.encode() in path.read_bytes()]


def test_what_is_not_named_stays_off_the_hosts(opened: Path) -> None:
    word = os.environ[CANARY]
    half = len(word) // 2  # so that the arguments do not have the word themselves
    assert launch(look_for, 2, args=(word[:half], word[half:], str(opened))).results == [[], []]


def moments() -> tuple[float, float]:
    before = time.monotonic()
    report(x=1)
    return before, time.monotonic()


@pytest.mark.parametrize("most_s", [SHIFT_S / 1000, pytest.param(0.001, marks=pytest.mark.soak)])
def test_moments_of_hosts_whose_clocks_differ_are_on_one_clock(opened: Path, network: Network, most_s: float) -> None:
    run = launch(moments, 2)
    origins = [(before + after) / 2 - rows[0]["t"] for (before, after), rows in zip(run.results, run.reports, strict=True)]
    spare = sum(after - before for before, after in run.results) / 2
    off = abs(origins[1] - origins[0] - (network[1].clock_shift_s - network[0].clock_shift_s))
    assert off <= most_s + spare
    assert off <= run.clock_error_s + spare and run.clock_error_s > 0


def play(fabric: Any) -> None:
    x = torch.zeros(1)
    for _ in range(100):
        if fabric.rank:
            fabric.recv(x, 0)
            fabric.send(x, 0)
        else:
            fabric.send(x, 1)
            fabric.recv(x, 1)


def test_no_transfer_ends_before_it_starts(opened: Path) -> None:
    run = launch(play, 2)
    assert len(run.trace.transfers) == 200
    assert min(t.end_s - t.start_s for t in run.trace.transfers) >= -run.clock_error_s
    assert 0 <= run.trace.transfers[0].start_s <= run.trace.transfers[-1].end_s <= run.wall_s


def one_message(fabric: Any) -> None:
    x = torch.zeros(250_000)
    if fabric.rank == 0:
        fabric.send(x, 3)
    elif fabric.rank == 3:
        fabric.recv(x, 0)


def test_a_link_shapes_what_crosses_hosts(opened: Path) -> None:
    run = launch(one_message, 4, link=SLOW)
    (transfer,) = run.trace.transfers
    assert transfer.end_s - transfer.start_s >= SLOW.seconds(1e6) - run.clock_error_s


def wait_in_a_ring(fabric: Any) -> None:
    fabric.recv(torch.empty(1), (fabric.rank - 1) % fabric.world_size)


def test_a_deadlock_across_hosts_is_found_and_named(opened: Path) -> None:
    with pytest.raises(Deadlock, match="rank 0 waits for 3 .*rank 3 waits for 2") as caught:
        launch(wait_in_a_ring, 4, timeout_s=60)
    assert set(caught.value.run.hosts) == {"n1", "n2"}


def fail_at(culprit: int) -> None:
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == culprit:
        raise KeyError("the culprit")
    dist.all_reduce(torch.ones(1))


@pytest.mark.parametrize(("culprit", "host"), [(0, "n1"), (3, "n2")])
def test_the_rank_that_failed_is_named_with_its_host(opened: Path, culprit: int, host: str) -> None:
    with pytest.raises(RankFailed, match=rf"rank {culprit} of 4 \(on {host}\) failed first: KeyError: 'the culprit'"):
        launch(fail_at, 4, args=(culprit,))


def spin() -> None:
    while True:
        pass


def test_a_time_limit_holds_on_every_host(opened: Path) -> None:
    with pytest.raises(RunTimedOut, match="these ranks of 2 were not done"):
        launch(spin, 2, timeout_s=2)
    assert launch(add_up, 2, args=(0.0,)).state == "done"


def weigh(given: torch.Tensor) -> tuple[torch.Tensor, float]:
    rank = int(os.environ["RANK"])
    return torch.full((BIG_BYTES,), rank + 1, dtype=torch.uint8), float(given.sum())


def test_large_arguments_and_results_arrive_whole(opened: Path) -> None:
    run = launch(weigh, 2, args=(torch.ones(2_500_000),))
    for rank, (result, weight) in enumerate(run.results):
        assert weight == 2_500_000 and len(result) == BIG_BYTES and bool((result == rank + 1).all())


@pytest.mark.soak
def test_another_version_on_a_host_is_refused_with_both_named(
    network: Network, closed: None, tmp_path: Path
) -> None:
    own = Path(worldsize.__file__).parent
    shutil.copytree(own, tmp_path / "worldsize", ignore=shutil.ignore_patterns("__pycache__"))
    with open(tmp_path / "worldsize" / "units.py", "a") as changed:
        changed.write("\n")
    other = programs(network, tmp_path, wrap={"n2": ["env", f"PYTHONPATH={tmp_path}"]})
    with pytest.raises(hosts.NoHosts, match=r"n2 .*worldsize \S+ \(\w+\) there, \S+ \(\w+\) here.*[Ii]nstall") as caught:
        hosts.open(other)
    assert "\n" not in str(caught.value)
    until(lambda: not any(host.pids() for host in network.hosts), LIMIT_S, "nothing is left on any host")


@pytest.mark.soak
def test_hosts_that_do_not_reach_each_other_are_named_with_what_to_do(
    network: Network, closed: None, tmp_path: Path
) -> None:
    route = ["ip", "route", "add", "blackhole", f"{network[0].address}/32"]
    subprocess.run(network[1].command(route), check=True, timeout=20)
    try:
        with pytest.raises(hosts.NoHosts, match="n2 cannot reach n1 at .*firewall") as caught:
            hosts.open(programs(network, tmp_path))
    finally:
        subprocess.run(network[1].command([*route[:2], "delete", *route[3:]]), check=True, timeout=20)
    assert "\n" not in str(caught.value) and INTERFACE not in str(caught.value)
    until(lambda: not any(host.pids() for host in network.hosts), LIMIT_S, "nothing is left on any host")
    assert hosts.names() == ()


def test_a_host_whose_python_has_no_such_package_is_refused_with_what_it_said(
    network: Network, closed: None, tmp_path: Path
) -> None:
    command = network[0].command([sys.executable, "-I", "-S", "-m", "worldsize.engines.remote.host_program", "--stdio"])
    with pytest.raises(hosts.NoHosts, match="odd did not join: .*No module named"):
        hosts.open(hosts.Programs({"odd": command}))


def test_a_program_that_does_not_start_is_named_at_once(closed: None) -> None:
    with pytest.raises(hosts.NoHosts, match="me/n1 did not join: its program did not start: .*nowhere"):
        hosts.open(hosts.Programs({"me/n1": ["/nowhere/ssh"]}))


def add_up_in_tensorflow() -> tuple[float, str]:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step() -> Any:
        context = tf.distribute.get_replica_context()
        own = tf.cast(context.replica_id_in_sync_group, tf.float32) + 1.0
        return context.all_reduce(tf.distribute.ReduceOp.SUM, own)

    return float(strategy.run(step)), os.uname().nodename


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_tensorflow_across_hosts_needs_a_word_and_then_works(network: Network, closed: None, tmp_path: Path) -> None:
    cluster = tf.Cluster(worker=2)
    hosts.open(programs(network, tmp_path))
    with pytest.raises(ValueError, match=r"gRPC.*trusted_network=True"):
        tf.launch(add_up_in_tensorflow, cluster=cluster)

    hosts.open(programs(network, tmp_path), trusted_network=True)
    run = tf.launch(add_up_in_tensorflow, cluster=cluster, timeout_s=200)
    assert run.results == [(3.0, "n1"), (3.0, "n2")] and run.hosts == ("n1", "n2")
    assert launch(add_up, 2, args=(1.0,)).state == "done"
