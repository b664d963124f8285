"""The hosts, the Slurm and the ssh server that other tests stand on do what they say, and leave nothing behind."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import namespaces, sshd
from tests.support import slurm as slurm_support
from tests.support.daemons import daemon, program, until
from tests.support.namespaces import Host, Network, network_of, pids_in
from tests.support.slurm import CLOSED, PARTITION, Job, Slurm

PYTHON = [sys.executable, "-I", "-S", "-c"]
LIMIT_S = 30.0  # a bound against a hang
ANSWERS_S = 0.5  # for no answer to come over a link that is cut
SHIFT_S = 100_000
# Answers whoever connects with the host's name; says the port first.
SERVE = """
import socket
server = socket.create_server(("", 0))
print(server.getsockname()[1], flush=True)
while True:
    with server.accept()[0] as connection:
        connection.sendall(socket.gethostname().encode())
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])) as connection:
    print(connection.makefile().read(), connection.getpeername()[0], connection.getsockname()[0])
"""


@contextlib.contextmanager
def serving(host: Host, folder: Path) -> Iterator[str]:
    """Something that answers on the host. Yields its port."""
    log = folder / f"{host.name}.log"
    with daemon(host.command([*PYTHON, SERVE]), log):
        until(lambda: "\n" in log.read_text(), LIMIT_S, f"a port of {host.name}")
        yield log.read_text().strip()


def answer(asking: list[str]) -> list[str]:
    """The name of who answered, its address and the asker's; nothing without an answer in time."""
    return subprocess.run(asking, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=LIMIT_S).stdout.split()


def asking(address: str, port: str, limit_s: float = LIMIT_S) -> list[str]:
    return [*PYTHON, ASK, address, port, str(limit_s)]


def said(host: Host, *command: str) -> str:
    done = subprocess.run(host.command([*command]), capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return done.stdout.strip()


def sleepers(pids: set[int]) -> int:
    return [program(pid) for pid in pids].count("sleep")


def test_two_hosts_reach_each_other_under_names_and_addresses_of_their_own(two_hosts: Network, tmp_path: Path) -> None:
    one, two = two_hosts.hosts
    with serving(one, tmp_path) as port_1, serving(two, tmp_path) as port_2:
        assert answer(one.command(asking("n2", port_2))) == ["n2", two.address, one.address]
        assert answer(two.command(asking("n1", port_1))) == ["n1", one.address, two.address]
    assert one.address != two.address


def test_this_machine_reaches_a_host_and_has_an_address_there(two_hosts: Network, tmp_path: Path) -> None:
    with serving(two_hosts[0], tmp_path) as port:
        address = two_hosts[0].address
        assert answer(asking(address, port)) == ["n1", address, two_hosts.machine_address]


def test_a_host_has_the_machines_files_folder_and_control_groups(two_hosts: Network, tmp_path: Path) -> None:
    tell = "import os; print(os.getcwd(), *sorted(os.listdir('/sys/fs/cgroup')))"
    command = two_hosts[0].command([*PYTHON, tell])
    told = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True).stdout
    assert told.split() == [str(tmp_path), *sorted(os.listdir("/sys/fs/cgroup"))]


def test_a_command_on_a_host_is_one_process_which_kill_all_ends(two_hosts: Network) -> None:
    host = two_hosts[1]
    process = subprocess.Popen(host.command(["sleep", "infinity"]))
    until(lambda: process.pid in host.pids(), LIMIT_S, "the process is on the host")
    assert (host.pids(), two_hosts[0].pids()) == ({process.pid}, set())
    host.kill_all()
    assert (host.pids(), process.wait(LIMIT_S)) == (set(), -9)


def test_a_hosts_link_can_be_cut_and_mended(two_hosts: Network, tmp_path: Path) -> None:
    one, two = two_hosts.hosts
    with serving(two, tmp_path) as port:
        two.link_down()
        try:
            assert answer(one.command(asking(two.address, port, ANSWERS_S))) == []
            assert answer(two.command(asking(two.address, port)))[0] == "n2"
        finally:
            two.link_up()
        assert answer(one.command(asking(two.address, port)))[0] == "n2"


@pytest.mark.soak
def test_two_networks_at_a_time_have_other_addresses(two_hosts: Network) -> None:
    with namespaces.network(1) as another:
        addresses = [host.address for network in (two_hosts, another) for host in network.hosts]
    assert len({address.rpartition(".")[0] for address in addresses}) == 2


def test_a_shifted_clock_is_ahead_by_its_seconds_and_the_date_is_not() -> None:
    if reason := namespaces.why_no_shifted_clock():
        pytest.skip(reason)
    with namespaces.network(1, clock_shifts_s={"n1": SHIFT_S}) as network:
        before = time.monotonic(), time.time()
        there = [float(word) for word in said(network[0], *PYTHON, "import time; print(time.monotonic(), time.time())").split()]
        after = time.monotonic(), time.time()
    assert before[0] <= there[0] - SHIFT_S <= after[0]
    assert before[1] <= there[1] <= after[1]


def test_nothing_is_left_of_hosts_after_an_error(two_hosts: Network) -> None:
    with pytest.raises(ZeroDivisionError), namespaces.network(2) as network:
        process = subprocess.Popen(network[0].command(["sleep", "infinity"]))
        until(lambda: process.pid in network[0].pids(), LIMIT_S, "the process is on the host")
        nets = [network_of(host.holder) for host in network.hosts]
        were = [pids_in(net) for net in nets]
        assert all(were) and network.machine_link in psutil.net_if_addrs()
        raise ZeroDivisionError
    process.wait(LIMIT_S)
    assert network.machine_link not in psutil.net_if_addrs()
    # the number of a network that is gone may be another's by now: whoever is in it was not there
    assert [pids_in(net) & pids for net, pids in zip(nets, were, strict=True)] == [set(), set()]


def test_srun_runs_one_task_on_each_of_two_nodes(slurm: Slurm) -> None:
    names = slurm.run("srun", "--nodes=2", "--ntasks-per-node=1", "hostname").split()
    assert sorted(names) == [host.name for host in slurm.hosts] == ["n1", "n2"]


@pytest.mark.soak
def test_a_job_waits_for_the_reason_that_one_wants_to_see(slurm: Slurm) -> None:
    submit = ["sbatch", "--parsable", "--output=/dev/null", "--wrap=true"]
    with slurm.all_taken() as taker:
        resources = slurm.run(*submit).strip()
        states = {taker: Job("RUNNING", "None"), resources: Job("PENDING", "Resources")}
        until(lambda: slurm.job_states() == states, LIMIT_S, f"Slurm says {states}")
        slurm.cancel_all()
    with slurm.partition_down():
        waiting = {slurm.run(*submit, f"--partition={name}").strip() for name in (PARTITION, CLOSED)}
        states = dict.fromkeys(waiting, Job("PENDING", "PartitionDown"))
        until(lambda: slurm.job_states() == states, LIMIT_S, f"Slurm says {states}")
        slurm.cancel_all()


@pytest.mark.soak
def test_a_cancelled_job_leaves_no_process_on_its_nodes(slurm: Slurm) -> None:
    slurm.run("sbatch", "--nodes=2", "--output=/dev/null", "--wrap=srun sleep infinity")
    until(lambda: sleepers(slurm.pids()) == 2, LIMIT_S, "two tasks run")
    slurm.cancel_all()
    until(lambda: not slurm.pids(), LIMIT_S, "no process of a job is left")


@pytest.mark.soak
def test_a_job_that_ignores_the_signal_to_end_is_ended_all_the_same(slurm: Slurm) -> None:
    slurm.run("sbatch", "--output=/dev/null", "--wrap=trap '' TERM; exec sleep infinity")
    until(lambda: sleepers(slurm.pids()) == 1, LIMIT_S, "the job runs")
    slurm.cancel_all()
    until(lambda: not slurm.pids(), LIMIT_S, "no process of a job is left")


@pytest.mark.soak
def test_nothing_is_left_of_a_slurm_whose_job_still_ran() -> None:
    if reason := slurm_support.why_not():
        pytest.skip(reason)
    with slurm_support.cluster(1) as slurm:
        slurm.run("sbatch", "--output=/dev/null", "--wrap=exec sleep infinity")
        until(lambda: sleepers(slurm.pids()) == 1, LIMIT_S, "the job runs")
        nets = [network_of(host.holder) for host in (*slurm.hosts, slurm.controller)]
    assert [pids_in(net) for net in nets] == [set(), set()]
    assert [p.pid for p in psutil.process_iter(["cmdline"]) if str(slurm.folder) in " ".join(p.info["cmdline"] or [])] == []
    assert not slurm.folder.exists()


def test_ssh_runs_a_command_on_a_host_and_what_it_left_ends_with_the_server(two_hosts: Network) -> None:
    if reason := sshd.why_not():
        pytest.skip(reason)
    host = two_hosts[1]
    with sshd.sshd(host) as server:
        done = subprocess.run(server.command("hostname"), capture_output=True, text=True, timeout=LIMIT_S)
        assert (done.returncode, done.stdout) == (0, "n2\n"), done.stderr
        left = subprocess.Popen(server.command("exec sleep infinity"), stderr=subprocess.DEVNULL)
        until(lambda: sleepers(host.pids()) == 1, LIMIT_S, "it runs")
    assert (host.pids(), left.wait(LIMIT_S)) == (set(), 255)
