"""Sixty faults in busy runs on two hosts over a network: who failed is named in time, and nothing is left anywhere."""

import _thread
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.support import namespaces
from tests.support.busy_run import END, FAILED, FAULT, busy, right
from tests.support.daemons import until
from tests.support.namespaces import Host, Network
from tests.support.open_hosts import Members, join
from tests.support.processes import leads
from worldsize import hosts
from worldsize.errors import Interrupted, RankFailed
from worldsize.launch import last_run, launch

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

WORLD_SIZE = 4
AT_ONCE_S, LOST_S, LEFT_S = 1.0, 3.0, 5.0
LIMIT_S = 60.0
KINDS = ("raise", "exit", "kill", "agent", "fork server", "link")
EACH = 4  # faults of each kind of rank 0 or its host, and as many of the last rank
STOPS = KERNELS = 6


@dataclass
class Lab:
    """Two hosts that are open, or will be."""

    network: Network
    folder: Path
    members: Members = field(init=False)
    idle: dict[str, set[int]] = field(default_factory=dict)  # the processes of each host where no run is
    tried: int = 0

    def __post_init__(self) -> None:
        self.members = Members(self.network, self.folder)

    def open(self) -> None:
        if len(hosts.names()) == 2:
            return
        hosts.close()
        self.members.close()
        hosts.open(self.members.way(), timeout_s=LIMIT_S)
        assert launch(right, WORLD_SIZE).results == [10.0] * WORLD_SIZE
        self.idle = {host.name: host.pids() for host in self.network.hosts}

    def new_folder(self) -> Path:
        self.tried += 1
        made = self.folder / f"run{self.tried}"
        made.mkdir()
        return made

    def host(self, name: str) -> Host:
        return next(host for host in self.network.hosts if host.name == name)

    def left(self, but: set[int]) -> list[str]:
        """What runs on the hosts beside `but` and is no fork server of theirs."""
        rows = []
        for host in self.network.hosts:
            rows += [f"{host.name}: {_command(pid)}" for pid in host.pids() - but if leads(pid)]
        return rows


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())[:200]
    except psutil.Error:
        return "gone"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if reason := namespaces.why_not():
        pytest.skip(reason)
    with namespaces.network(2) as network:
        made = Lab(network, tmp_path_factory.mktemp("f"))
        yield made
        hosts.close()
        made.members.close()


def at_work(folder: Path) -> list[int]:
    """The pids of the ranks, once all are at work."""
    notes = [folder / f"rank{rank}" for rank in range(WORLD_SIZE)]
    until(lambda: all(note.exists() for note in notes), LIMIT_S, "all ranks are at work")
    return [int(note.read_text()) for note in notes]


def agent_of(host: Host) -> psutil.Process:
    found = [psutil.Process(pid) for pid in host.pids()]
    return next(p for p in found if "worldsize.engines.remote.host_program" in p.cmdline())


def do_fault(lab: Lab, how: str, culprit: int, folder: Path) -> None:
    """Make one fault of a run that is at work; write when."""
    host = lab.host(last_run().hosts[culprit])
    if how in ("raise", "exit", "kill"):
        (folder / FAULT).touch()
        return

    if how == "link":
        host.link_down()  # a program of its own, which may take a second to start on a busy machine
    (folder / FAILED).write_text(repr(time.monotonic()))
    if how == "agent":
        agent_of(host).kill()
    elif how == "fork server":
        victim = next(p for p in agent_of(host).children() if "forkserver" in " ".join(p.cmdline()))
        victim.kill()
        (folder / END).touch()
    elif how == "stop":
        _thread.interrupt_main()


def provoke(lab: Lab, how: str, culprit: int) -> dict:
    """One fault at a random moment of a run, and what was wrong with how it went: "" where nothing was."""
    lab.open()
    folder = lab.new_folder()
    troubles: list[BaseException] = []

    def work() -> None:
        try:
            at_work(folder)
            time.sleep(random.uniform(0, 0.3))  # so that the fault comes at any moment of the run
            do_fault(lab, how, culprit, folder)
        except BaseException as error:
            troubles.append(error)
            (folder / END).touch()

    thread = threading.Thread(target=work)
    thread.start()
    caught: BaseException | None = None
    try:
        launch(busy, WORLD_SIZE, args=(str(folder), culprit, how), timeout_s=LIMIT_S)
    except (RankFailed, Interrupted) as error:
        caught = error
    except Exception as error:
        caught = error
    ended_s = time.monotonic()
    thread.join(LIMIT_S)

    after_s = ended_s - float((folder / FAILED).read_text()) if (folder / FAILED).exists() else float("nan")
    wrong = [repr(trouble) for trouble in troubles] + _wrong(how, culprit, caught, after_s)
    lost = how in ("agent", "link")
    wrong += _leftovers(lab, last_run().hosts[culprit] if lost else "")
    if how == "link":
        lab.host(last_run().hosts[culprit]).link_up()
    wrong += _next_is_right(lab)
    return {"how": how, "culprit": culprit, "after_s": after_s, "wrong": "; ".join(wrong)}


def _wrong(how: str, culprit: int, caught: BaseException | None, after_s: float) -> list[str]:
    host = last_run().hosts[culprit]
    first = str(caught).splitlines()[0]
    if how == "fork server":
        return [] if caught is None else [f"the run did not go on: {first}"]
    if how == "stop":
        expected = isinstance(caught, Interrupted) and after_s < AT_ONCE_S
    elif how in ("agent", "link"):
        named = isinstance(caught, RankFailed) and last_run().hosts[caught.rank] == host
        expected = named and first.endswith(f"lost with the host {host}") and after_s < LOST_S
    else:
        said = {"raise": "IndexError: chunk 3 of 3", "exit": "exited with code 3", "kill": "killed by SIGKILL"}[how]
        named = isinstance(caught, RankFailed) and caught.rank == culprit
        expected = named and f"(on {host})" in first and said in first and after_s < AT_ONCE_S
    return [] if expected else [f"after {after_s:.2f} s: {type(caught).__name__}: {first}"]


def _leftovers(lab: Lab, lost: str) -> list[str]:
    stays = set().union(*(pids for name, pids in lab.idle.items() if name != lost))
    try:
        until(lambda: not lab.left(stays), LEFT_S, "nothing is left")
    except TimeoutError:
        return [f"left: {row}" for row in lab.left(stays)]
    return []


def _next_is_right(lab: Lab) -> list[str]:
    try:
        lab.open()
        found = launch(right, WORLD_SIZE, timeout_s=LIMIT_S)
    except Exception as error:
        hosts.close()
        return [f"the next launch: {type(error).__name__}: {str(error).splitlines()[0]}"]
    used = len(set(found.hosts))
    return [] if found.results == [10.0] * WORLD_SIZE and used == 2 else [f"the next launch: {found.results} on {used} hosts"]


def show(rows: list[dict]) -> None:
    for how in dict.fromkeys(row["how"] for row in rows):
        these = [row for row in rows if row["how"] == how]
        well = sum(not row["wrong"] for row in these)
        slowest = max(row["after_s"] for row in these)
        print(f"{how:12} {well:3} of {len(these):3} as expected, told after {slowest:.2f} s at most")
    for row in rows:
        if row["wrong"]:
            print(f"  {row['how']}, culprit {row['culprit']}: {row['wrong']}")


@pytest.mark.parametrize("how", KINDS)
def test_faults_are_named_in_time_and_leave_nothing(lab: Lab, how: str) -> None:
    rows = [provoke(lab, how, culprit) for culprit in (0, WORLD_SIZE - 1) for _ in range(EACH)]
    show(rows)
    assert [row for row in rows if row["wrong"]] == []


def test_stops_are_obeyed_at_once_and_leave_the_hosts_open(lab: Lab) -> None:
    lab.open()
    agents = [agent_of(host).pid for host in lab.network.hosts]
    rows = [provoke(lab, "stop", 0) for _ in range(STOPS)]
    show(rows)
    assert [row for row in rows if row["wrong"]] == []
    assert [agent_of(host).pid for host in lab.network.hosts] == agents


def test_nothing_is_left_of_a_kernel_that_was_killed(lab: Lab, tmp_path: Path) -> None:
    hosts.close()
    lab.members.close()
    for number in range(KERNELS):
        folder = tmp_path / f"k{number}"
        folder.mkdir()
        _kill_a_kernel(lab, folder)


def _kill_a_kernel(lab: Lab, folder: Path) -> None:
    code = "import sys; from tests.support.busy_run import kernel; kernel(sys.argv[1], 2, sys.argv[2])"
    command = [sys.executable, "-c", code, lab.network.machine_address, str(folder)]
    env = {**os.environ, "TMPDIR": str(folder)}
    members: list[subprocess.Popen] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True) as process:
        try:
            for host, line in zip(lab.network.hosts, _invitations(process, 2), strict=True):
                members.append(join(host, line, folder))
            at_work(folder)
            head = psutil.Process(process.pid).children()
            time.sleep(random.uniform(0, 0.3))  # so that the end comes at any moment of the run
        finally:
            process.kill()
    _gone(lambda: not any(host.pids() for host in lab.network.hosts), "nothing is left on any host")
    _gone(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in head), "the head is gone")
    _gone(lambda: not list(folder.glob("worldsize-*")), "its folders are gone")
    for member in members:
        assert member.wait(LEFT_S) == 0
        member.stdin.close()


def _gone(done: Callable[[], bool], what: str) -> None:
    until(done, LEFT_S, what)


def _invitations(process: subprocess.Popen, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        line = process.stdout.readline()
        assert line, "the kernel ended"
        if line.startswith("{"):
            found.append(line.rstrip())
    return found
