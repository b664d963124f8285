"""Hosts of a Dask cluster: a scheduler on this machine, and workers on two hosts."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.daemons import daemon, until
from tests.support.lab_launches import RUN_TIMEOUT_S, launches
from tests.support.namespaces import Network
from worldsize import hosts
from worldsize.engines.remote.ways.dask import one_a_host
from worldsize.fabric import Fabric
from worldsize.fabric.collectives import all_reduce
from worldsize.launch import launch

LIMIT_S = 60.0  # a bound against a hang
MAIN = "import distributed.cli.dask_{0} as program; program.main()"
# What a student's first cell would have: the client, and its hosts.
OPENED = """
from distributed import Client
from worldsize import hosts
hosts.open(hosts.Dask(Client({scheduler!r})))
"""


@pytest.fixture
def client(two_hosts: Network, tmp_path: Path, root: Path) -> Iterator[Any]:
    """The client of a cluster that has two workers on n1 and one on n2."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install distributed")
    found = tmp_path / "scheduler.json"
    env = {**os.environ, "PYTHONPATH": str(root)}
    known = ["--no-dashboard", "--scheduler-file", str(found)]
    with contextlib.ExitStack() as stack:
        scheduler = [sys.executable, "-c", MAIN.format("scheduler"), "--host", two_hosts.machine_address, "--port", "0"]
        stack.enter_context(daemon([*scheduler, *known], tmp_path / "scheduler.log", env))
        until(found.exists, LIMIT_S, "a scheduler answers")

        for number, host in enumerate((two_hosts[0], two_hosts[0], two_hosts[1])):
            worker = [sys.executable, "-c", MAIN.format("worker"), "--host", host.address, "--nthreads", "1", *known]
            command = host.command([*worker, "--local-directory", str(tmp_path)])
            stack.enter_context(daemon(command, tmp_path / f"worker{number}.log", env))
        made = stack.enter_context(distributed.Client(scheduler_file=str(found)))
        made.wait_for_workers(3, timeout=LIMIT_S)
        yield made
        hosts.close()
        until(lambda: members(two_hosts) == [], LIMIT_S, "no member is left")


def members(network: Network) -> list[bytes]:
    """The command lines of the members that run on the hosts."""
    found = []
    for pid in (pid for host in network.hosts for pid in host.pids()):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    return [command for command in found if b"remote.host_program" in command]


def rings(fabric: Fabric) -> tuple[list[float], str]:
    x = torch.full((1000,), float(fabric.rank))
    all_reduce(fabric, x)
    return x[:2].tolist(), os.uname().nodename


@pytest.mark.quick
def test_one_worker_of_each_host_is_taken() -> None:
    workers = ["tcp://10.0.0.2:40001", "tcp://10.0.0.1:40002", "tcp://10.0.0.2:40000", "tls://[fd00::1]:9"]
    assert one_a_host(dict.fromkeys(workers, 1)) == {
        "10.0.0.1": "tcp://10.0.0.1:40002", "10.0.0.2": "tcp://10.0.0.2:40000", "fd00::1": "tls://[fd00::1]:9",
    }  # fmt: skip


class _ClientOfTwo:
    """A client of two workers, which takes tasks and runs none."""

    def nthreads(self) -> dict[str, int]:
        return {"tcp://10.0.0.2:40001": 1, "tcp://10.0.0.1:40002": 1}

    def submit(self, *_: Any, **__: Any) -> object:
        return object()


class _EngineThatInvites:
    opening_s = 1.0

    def open_door(self, *_: Any) -> None: ...

    def invite(self, count: int, _: float) -> list[str]:
        return ["an invitation"] * count


@pytest.mark.quick
def test_while_hosts_are_awaited_it_says_on_which_a_task_was_started() -> None:
    way = hosts.Dask(_ClientOfTwo(), address="10.0.0.9")
    way.begin(_EngineThatInvites())
    assert way.standing() == "starting on Dask workers on 10.0.0.1, 10.0.0.2"


@pytest.mark.quick
def test_hosts_of_dask_are_called_so() -> None:
    assert hosts.Dask.label(object.__new__(hosts.Dask)) == "Dask"


@pytest.mark.quick
def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a client"):
        hosts.Dask("tcp://10.0.0.1:8786")


@pytest.mark.soak
def test_a_ring_runs_over_the_hosts_of_a_cluster(two_hosts: Network, client: Any, tmp_path: Path) -> None:
    hosts.open(hosts.Dask(client))
    assert hosts.names() == ("n1", "n2") and len(members(two_hosts)) >= 2
    run = launch(rings, 4)
    assert run.hosts == ("n1", "n1", "n2", "n2") and "Dask" in run.setup
    assert run.results == [([6.0, 6.0], host) for host in run.hosts]
    assert len(run.trace.transfers) == 24 and run.trace.total_bytes() == 24_000  # 2(n - 1) chunks from each of n ranks

    hosts.close()
    until(lambda: members(two_hosts) == [], LIMIT_S, "the members have ended")
    assert client.submit(sum, [1, 2]).result(timeout=LIMIT_S) == 3  # the workers are free again
    assert not [log for log in tmp_path.glob("*.log") if "secret_key" in log.read_text()]


@pytest.mark.soak
@pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)
def test_the_lab_of_the_ring_runs_on_workers_of_a_cluster(
    two_hosts: Network, client: Any, root: Path, tmp_path: Path
) -> None:
    source = root / "solutions" / "06_ring_all_reduce.py"
    here = launches(source, tmp_path / "here")
    there = launches(source, tmp_path / "there", OPENED.format(scheduler=client.scheduler.address))
    until(lambda: members(two_hosts) == [], LIMIT_S, "the members have ended with the notebook")

    assert [hosts for _, ranks, hosts, _ in there if set(hosts) != ({"n1", "n2"} if ranks > 1 else {"n1"})] == []
    assert [(state, ranks, sent) for state, ranks, _, sent in there if state == "done"] == [
        (state, ranks, sent) for state, ranks, _, sent in here if state == "done"
    ]


@pytest.mark.soak
def test_workers_that_do_not_reach_this_machine_say_so(client: Any, tmp_path: Path) -> None:
    with pytest.raises(hosts.NoHosts) as raised:
        hosts.open(hosts.Dask(client, address="127.0.0.1"))
    assert "no answer at the head's address" in str(raised.value) and "address=…" in str(raised.value)
    assert not [log for log in tmp_path.glob("*.log") if "secret_key" in log.read_text()]


@pytest.mark.soak
def test_a_cluster_without_workers_is_told(client: Any) -> None:
    client.retire_workers(list(client.nthreads()))
    with pytest.raises(hosts.NoHosts, match="at least one worker"):
        hosts.open(hosts.Dask(client))
