"""Cgroups: made only where nobody else keeps them, and there the kernel holds a submission within its memory and its tasks."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.graded_arena import arena_of
from worldsize.grade.isolation import bubblewrap, cgroups
from worldsize.grade.isolation.bubblewrap import NoSandbox
from worldsize.grade.isolation.limits import Limits, descendants
from worldsize.grade.outside.arena import Submitted
from worldsize.grade.outside.boxes import Sandbox

LIMITS = Limits(case_s=60, memory_bytes=500_000_000)


@pytest.fixture(params=["own", pytest.param("fresh", marks=pytest.mark.soak)])
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    try:
        bubblewrap.best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))
    with_limits = Sandbox(request.param, LIMITS)
    yield with_limits
    with_limits.close()


def expect_controller(name: str) -> None:
    if not any(name in found.controllers for found in cgroups.available()):
        pytest.skip(f"no cgroup with a limit on {name} can be made here")


def left_of(process: int) -> list[Path]:
    return [folder for found in cgroups.homes() for folder in found.home.glob(f"worldsize-{process}-*")]


FAST = """
def fast(x, many):
    held = [b"x" * 300_000_000 for _ in range(many)]
    return x
"""


def test_memory_that_is_taken_faster_than_anybody_looks_stays_within_the_limit(box):
    expect_controller("memory")
    arena = arena_of(box, FAST)
    ended = arena.ranks(Submitted("fast"), [np.zeros(1)] * 4, 1)
    assert (ended.state, ended.message) == ("raised", "more than 0.5 GB of memory")
    assert arena.incidents == ["crashed"]
    assert 300_000_000 < box.cgroup.peak_bytes() < 1.6 * LIMITS.memory_bytes

    again = arena.ranks(Submitted("fast"), [np.zeros(1)] * 4, 0)
    assert again.state == "done", again.message


CHILD = """
import subprocess, sys
def fast(x, many):
    taken = subprocess.run([sys.executable, "-c", "a = [b'x' * 300_000_000 for _ in range(%d)]" % many])
    assert taken.returncode == 0, taken.returncode
"""


def test_a_rank_whose_child_is_ended_for_its_memory_is_told_so(box):
    expect_controller("memory")
    ended = arena_of(box, CHILD).ranks(Submitted("fast"), [np.zeros(1)] * 3, 1)
    assert (ended.state, ended.message) == ("raised", "more than 0.5 GB of memory")


def test_the_kernel_ends_ranks_before_it_ends_their_server(box):
    """Whatever is short: the machine's memory or the cgroup's."""
    source = "def sends(fabric, x):\n    fabric.send(x, to=1)\n"
    seen = {}

    def looks(fabric, x):
        fabric.recv(x, frm=0)
        for server in box.processes():
            seen[server] = [Path(f"/proc/{p}/oom_score_adj").read_text().strip() for p in (server, *descendants(server))]
        return x

    ended = arena_of(box, source).ranks(Submitted("sends"), [np.zeros(1, "float32")] * 2, played={1: looks})
    assert ended.state == "done", ended.message
    own = Path("/proc/self/oom_score_adj").read_text().strip()
    assert list(seen.values()) == [[own, "1000"]]


CROWD = """
import threading
def crowd(many):
    wait = threading.Event()
    for _ in range(many):
        threading.Thread(target=wait.wait, daemon=True).start()
    wait.wait()
"""


@pytest.mark.parametrize("framework", ["torch", pytest.param("tensorflow", marks=pytest.mark.soak)])
def test_thousands_of_threads_are_the_submission_s_own_failure(box, framework):
    arena = arena_of(box, CROWD, limits=Limits(case_s=30, threads=300))
    way = arena.call if framework == "torch" else lambda fn, many: arena.tensorflow(fn, [many])
    ended = way(Submitted("crowd"), 100_000)
    assert ended.state == "raised"
    assert ended.message == "more than 300 threads at once" or "can't start new thread" in ended.message


def test_a_sandbox_has_one_cgroup_and_leaves_none(box):
    expect_controller("pids")
    box.close()
    others = set(left_of(os.getpid()))  # of sandboxes that other tests share
    looks = "def looks():\n    return 1"
    assert arena_of(box, looks).call(Submitted("looks")).state == "done"
    assert len({folder.name for folder in set(left_of(os.getpid())) - others}) == 1
    box.close()
    assert set(left_of(os.getpid())) == others


KILLED = """
import os, signal, subprocess, sys
from worldsize.grade.isolation.cgroups import SandboxCgroup
from worldsize.grade.isolation.limits import Limits
SandboxCgroup(Limits()).take_in(os.getpid())
print(open("/proc/self/cgroup").read(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_worker_leaves_the_next_removes():
    expect_controller("pids")
    worker = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    said, _ = worker.communicate()
    assert f"worldsize-{worker.pid}-" in said  # a grader of another test may have removed it by now
    cgroups.remove_left_behind()
    assert left_of(worker.pid) == []


def test_what_another_worker_uses_stays():
    expect_controller("pids")
    code = KILLED.replace("os.kill", "sys.stdin.read(); os.kill")
    worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert any(f"worldsize-{worker.pid}-" in row for row in iter(worker.stdout.readline, "\n"))
    cgroups.remove_left_behind()
    assert left_of(worker.pid) != []

    worker.communicate("")
    cgroups.remove_left_behind(wait_s=5.0)
    assert left_of(worker.pid) == []


class FakeMachine:
    """A process' places in hierarchies that are plain folders."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._mounts: list[str] = []
        self._places: list[str] = []
        monkeypatch.setattr(cgroups, "_SELF", folder)
        (folder / "mountinfo").write_text("")
        (folder / "cgroup").write_text("")

    def mounted(self, kind: str, controllers: str, path: str, root: str = "/") -> Path:
        mount = self.folder / (controllers or "unified")
        own = mount / Path(path).relative_to(root)
        own.mkdir(parents=True)
        for name, text in (("cgroup.procs", f"{os.getpid()}\n"), ("cgroup.controllers", "cpu memory pids\n")):
            (own / name).write_text(text)
        (own / "cgroup.subtree_control").write_text("memory pids\n")

        self._mounts.append(f"30 20 0:26 {root} {mount} rw,relatime - {kind} cgroup rw,{controllers}")
        self._places.append(f"{len(self._places)}:{controllers}:{path}")
        (self.folder / "mountinfo").write_text("\n".join(self._mounts) + "\n")
        (self.folder / "cgroup").write_text("\n".join(self._places) + "\n")
        return own

    def homes(self) -> list[cgroups.Hierarchy]:
        return list(cgroups._found())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    return FakeMachine(tmp_path, monkeypatch)


@pytest.mark.parametrize(("kind", "controllers"), [("cgroup", "memory"), ("cgroup", "pids"), ("cgroup2", "")])
def test_the_root_of_a_machine_or_of_a_container_may_have_cgroups(machine, kind, controllers):
    own = machine.mounted(kind, controllers, "/docker/1", root="/docker/1")
    assert [found.home for found in machine.homes()] == [own]


@pytest.mark.parametrize(("kind", "controllers"), [("cgroup", "memory"), ("cgroup", "pids"), ("cgroup2", "")])
def test_nothing_is_made_in_a_service_s_cgroup(machine, monkeypatch, kind, controllers):
    monkeypatch.setattr(os, "getuid", lambda: 0)
    machine.mounted(kind, controllers, "/system.slice/jupyter.service")
    assert machine.homes() == []


def test_a_cgroup_that_was_handed_over_may_have_cgroups(machine, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1", raising=False)
    own = machine.mounted("cgroup2", "", "/system.slice/grading.scope")
    assert [found.home for found in machine.homes()] == [own]


def test_a_user_s_own_cgroup_may_have_cgroups(machine, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid or 1)
    own = machine.mounted("cgroup2", "", "/user.slice/grading.scope")
    os.chown(own, os.getuid(), -1) if os.geteuid() == 0 else None
    assert [found.home for found in machine.homes()] == [own]


def test_other_controllers_are_not_asked_for(machine):
    machine.mounted("cgroup", "cpu,cpuacct", "/")
    assert machine.homes() == []


def test_where_others_run_in_a_cgroup_nothing_is_moved(machine, monkeypatch):
    own = machine.mounted("cgroup2", "", "/", root="/")
    (own / "cgroup.subtree_control").write_text("\n")
    (own / "cgroup.procs").write_text("1\n")
    monkeypatch.setattr(cgroups, "_enable", lambda home: False)
    assert not cgroups._can_limit(own)
    assert (own / "cgroup.procs").read_text() == "1\n" and not (own / "worldsize-grader").exists()


def test_a_machine_without_cgroups_is_graded_on(machine):
    (machine.folder / "mountinfo").unlink()
    (machine.folder / "cgroup").unlink()
    assert machine.homes() == []
    kept = cgroups.SandboxCgroup(Limits(), hierarchies=lambda: tuple(machine.homes()))
    kept.take_in(os.getpid())
    assert (kept.ran_out_of_memory(), kept.peak_bytes()) == (False, None)
    kept.close()
