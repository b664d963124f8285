"""Ranks in a network of their own: they reach each other, nobody else reaches them, and a system that refuses it."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import other_user, own_network
from tests.support.daemons import until
from tests.support.processes import LONG_S, agents, ports_around, ports_of
from tests.support.tensorflow_work import PAIR, multi_worker
from worldsize.engines import own_network as ours
from worldsize.engines.remote.engine import HostsEngine
from worldsize.launch import launch
from worldsize.tf import launch as launch_tensorflow

OWN = pytest.mark.skipif(bool(own_network.why_not()), reason=own_network.why_not())
OTHER_USER = pytest.mark.skipif(bool(other_user.why_not()), reason=other_user.why_not())
NET = "/proc/self/ns/net"

# What is printed by a launch in a Python of its own: its run, and whether its ranks are where that Python is.
LAUNCH = """
import json, os, sys, torch.distributed as dist
from pathlib import Path
from worldsize.launch import launch

def work(folder):
    import torch
    dist.init_process_group("gloo")
    x = torch.ones(2)
    dist.all_reduce(x)
    Path(folder, f"rank{dist.get_rank()}").write_text("here")
    return x.tolist(), os.readlink("/proc/self/ns/net")

run = launch(work, 2, args=(sys.argv[1],))
sums, networks = zip(*run.results)
alone = os.readlink("/proc/self/ns/net") not in networks
print(json.dumps({"sums": sums, "alone": alone, "network": run.network, "why_shared": run.why_shared}))
"""
# Prints those of the ports that it is given to which it can connect on this machine.
CONNECT = """
import socket, sys
for port in sys.argv[1:]:
    try:
        socket.create_connection(("127.0.0.1", int(port)), timeout=5).close()
        print(port)
    except OSError:
        pass
"""


def where():
    return os.readlink(NET)


def meet():
    dist.init_process_group("gloo")
    x = torch.ones(3) * (1 + dist.get_rank())
    dist.all_reduce(x)
    return x.tolist()


@OWN
def test_the_ranks_of_a_run_share_one_network_which_is_not_the_notebooks():
    run = launch(where, 3)
    assert len(set(run.results)) == 1 and where() not in run.results
    assert (run.network, run.why_shared) == ("own", "")


@OWN
def test_a_network_of_their_own_has_loopback_alone():
    (names,) = launch(lambda: [name for _, name in socket.if_nameindex()], 1).results
    assert names == ["lo"]


def test_ranks_that_are_to_share_the_machines_network_are_in_it(monkeypatch):
    monkeypatch.setenv("WORLDSIZE_NETWORK", "shared")
    run = launch(where, 2)
    assert run.results == [where()] * 2
    assert (run.network, run.why_shared) == ("shared", "WORLDSIZE_NETWORK=shared")


@OWN
@pytest.mark.soak
def test_the_variable_may_change_between_two_launches(monkeypatch):
    networks = []
    for word in ("own", "shared", "own"):
        monkeypatch.setenv("WORLDSIZE_NETWORK", word)
        networks.append(launch(where, 1)[0] == where())
    assert networks == [False, True, False]


def test_another_word_is_a_value_error_before_anything_starts(monkeypatch):
    monkeypatch.setenv("WORLDSIZE_NETWORK", "none")
    before = [agent.pid for agent in agents()]
    with pytest.raises(ValueError, match="WORLDSIZE_NETWORK: expected one of own, shared, got 'none'"):
        launch(where, 1)
    assert [agent.pid for agent in agents()] == before


def test_hosts_that_are_open_stay_open_when_the_variable_changes(monkeypatch):
    engine = HostsEngine()
    try:
        for word in ("own", "shared"):
            monkeypatch.setenv("WORLDSIZE_NETWORK", word)
            assert engine.complaints() == []
    finally:
        engine.close()


def test_gpus_of_three_kinds_of_driver_are_known(monkeypatch):
    monkeypatch.delenv("WORLDSIZE_NETWORK", raising=False)
    for device in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"):
        monkeypatch.setattr(Path, "exists", lambda path, device=device: str(path) == device)
        assert ours.why_shared() == "this machine has GPUs", device


def test_a_machine_with_gpus_keeps_its_network(monkeypatch, tmp_path):
    (tmp_path / "gpu").touch()
    monkeypatch.delenv("WORLDSIZE_NETWORK", raising=False)
    monkeypatch.setattr(ours, "_GPUS", (str(tmp_path / "gpu"),))
    before = where()
    assert ours.enter_own_network() == "this machine has GPUs"
    assert where() == before


@OWN
def test_ranks_in_a_network_of_their_own_meet_over_gloo():
    run = launch(meet, 3)
    assert run.network == "own" and run.results == [[6.0] * 3] * 3


@OWN
def test_an_interface_that_only_the_machine_has_does_not_keep_them_apart(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    assert launch(meet, 2).results == [[3.0] * 3] * 2


@contextmanager
def beside(folder: Path, launched: Callable[[Path], Any], ranks: int) -> Iterator[set[int]]:
    """The ports on which a run's ranks, and what serves them, listen while it lasts: all ranks wait meanwhile."""
    with ThreadPoolExecutor(1) as other:
        run = other.submit(launched, folder)
        try:
            until(lambda: run.done() or len(list(folder.glob("ready*"))) == ranks, 2 * LONG_S, "the ranks are ready")
            if run.done():
                run.result()  # the error with which it ended
            yield set().union(*(ports_of(p.pid) for agent in agents() for p in agent.children(recursive=True)))
        finally:
            (folder / "go").touch()
        run.result()


def say_ready_and_wait(folder, rank):
    (folder / f"ready{rank}").touch()
    until(lambda: (folder / "go").exists(), 2 * LONG_S, "the test has looked")


def listen(folder):
    dist.init_process_group("gloo")
    with socket.create_server(("127.0.0.1", 0)):
        say_ready_and_wait(folder, dist.get_rank())


def serve(task, folder):
    multi_worker(task)
    say_ready_and_wait(folder, task.rank)


def of_no_one_here(ports: set[int]) -> set[int]:
    """Without those on which somebody listens in this process's network too."""
    return ports - ports_around(os.getpid())


def reached_by_another_user(ports: set[int]) -> set[int]:
    return {int(line) for line in other_user.python(CONNECT, *ports).split()}


@OWN
@OTHER_USER
def test_another_user_reaches_no_port_on_which_ranks_listen(tmp_path):
    with beside(tmp_path, lambda folder: launch(listen, 2, args=(folder,)), 2) as ports:
        assert len(of_no_one_here(ports)) >= 3  # two ranks' and the store's
        assert reached_by_another_user(of_no_one_here(ports)) == set()


@OTHER_USER
@pytest.mark.soak
def test_on_the_machines_network_another_user_reaches_them(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLDSIZE_NETWORK", "shared")
    with beside(tmp_path, lambda folder: launch(listen, 2, args=(folder,)), 2) as ports:
        assert len(reached_by_another_user(ports)) >= 3


@OWN
@OTHER_USER
@pytest.mark.soak
def test_tasks_of_tensorflow_meet_and_another_user_does_not_reach_them(tmp_path):
    launched = []

    def run(folder: Path) -> None:
        launched.append(launch_tensorflow(serve, (folder,), cluster=PAIR))

    with beside(tmp_path, run, 2) as ports:
        assert len(of_no_one_here(ports)) >= 2
        assert reached_by_another_user(of_no_one_here(ports)) == set()
    assert launched[0].network == "own"


@OWN
@OTHER_USER
def test_an_ordinary_user_has_it_too_and_owns_the_files_that_ranks_write():
    with other_user.home() as folder:
        said = json.loads(other_user.python(LAUNCH, folder, home=folder))
        written = [Path(folder, f"rank{rank}").stat() for rank in (0, 1)]
    assert said == {"sums": [[2.0, 2.0]] * 2, "alone": True, "network": "own", "why_shared": ""}
    assert [(file.st_uid, file.st_gid) for file in written] == [(other_user.NUMBER, other_user.NUMBER)] * 2


NO_ADMIN = "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin"
NO_MORE_USERS = f'echo 0 > /proc/sys/user/max_user_namespaces && exec {NO_ADMIN} "$@"'
REFUSING = {
    "no namespace at all": (["unshare", "--user", "--map-root-user", "sh", "-c", NO_MORE_USERS, "sh"], "No space"),
    "one whose user it may not say": (
        ["bwrap", "--dev-bind", "/", "/", "--ro-bind", "/proc", "/proc", "--cap-drop", "ALL"], "Read-only",
    ),
}  # fmt: skip


def skip_where_refused(prefix: list[str]) -> None:
    missing = [program for program in (prefix[0], "setpriv") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs the programs {', '.join(missing)}")
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, timeout=LONG_S)
    if tried.returncode:
        pytest.skip(f"this machine cannot be made to refuse namespaces: {tried.stderr.strip()}")


@OWN
@pytest.mark.soak
@pytest.mark.parametrize("how", REFUSING)
def test_where_the_system_refuses_it_a_launch_works_on_the_machines_network_and_says_why(how, tmp_path):
    prefix, reason = REFUSING[how]
    skip_where_refused(prefix)
    done = subprocess.run(
        [*prefix, sys.executable, "-c", LAUNCH, str(tmp_path)], capture_output=True, text=True, timeout=2 * LONG_S
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["sums"] == [[2.0, 2.0]] * 2
    assert (said["alone"], said["network"]) == (False, "shared")
    assert said["why_shared"].startswith(f"the system refuses ranks a network of their own: {reason}")


@OWN
@pytest.mark.soak
def test_root_that_may_not_turn_on_loopback_gets_it_as_an_ordinary_user_does(tmp_path):
    prefix = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
    if os.geteuid():
        pytest.skip("only root can give up a right of root's")
    skip_where_refused(prefix)
    done = subprocess.run(
        [*prefix, sys.executable, "-c", LAUNCH, str(tmp_path)], capture_output=True, text=True, timeout=2 * LONG_S
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["network"] == "own"
