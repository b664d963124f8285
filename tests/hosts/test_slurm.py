"""Hosts of a Slurm job: they come, run launches, go with the notebook, and keep its secrets.

The usual suite opens them once, in the engineer's journey; the long campaign has what may go wrong in a queue.
"""

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.support.daemons import until
from tests.support.slurm import CLOSED, Slurm
from worldsize import hosts, tf
from worldsize.engines import current_engine
from worldsize.engines.remote.ways.opening import open_hosts
from worldsize.errors import EngineLost, RankFailed
from worldsize.launch import launch

LIMIT_S = 60.0  # a bound against a hang
GONE_S = 10.0  # for a job whose notebook was killed: its members notice within 3 s
CANARY = "c0ffee-canary-9f3b"


@pytest.fixture
def in_slurm(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """This process finds the Slurm of the tests, and leaves nothing there."""
    for name in [name for name in os.environ if name.startswith(("SLURM", "SBATCH_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", slurm.env()["SLURM_CONF"])
    yield slurm
    hosts.close()
    slurm.cancel_all()
    until(lambda: not slurm.pids(), LIMIT_S, "no process of a job is left")


def total() -> tuple[list[float], str]:
    dist.init_process_group("gloo")
    x = torch.full((3,), float(dist.get_rank()))
    dist.all_reduce(x)
    print("summed")
    return x.tolist(), os.uname().nodename


def opened(folder: Path, parameters: dict = {}, **given: object) -> None:  # noqa: B006, it is only read
    hosts.open(hosts.Slurm(nodes=2, timeout_min=10, folder=folder, **parameters), **given)


def left(slurm: Slurm) -> tuple[dict, set[int]]:
    return slurm.job_states(), slurm.pids()


def no_job(slurm: Slurm, limit_s: float = LIMIT_S) -> None:
    until(lambda: left(slurm) == ({}, set()), limit_s, "no job and no process of one is left")


def test_hosts_of_a_job_are_called_by_its_number() -> None:
    way = object.__new__(hosts.Slurm)
    way._job = "4711"
    assert way.label() == "Slurm job 4711"


@pytest.mark.soak
def test_four_ranks_run_on_two_nodes_and_nothing_is_left(
    in_slurm: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    opened(tmp_path / "slurm", {"slurm_setup": f"touch {tmp_path}/set-up", "slurm_srun_args": ["--unbuffered"]}, idle_min=5)
    assert (tmp_path / "set-up").exists()
    said = capsys.readouterr().out
    assert "2 hosts are open: n1, n2" in said and "Closes after 5 idle minutes" in said

    run = launch(total, 4)
    assert run.hosts == ("n1", "n1", "n2", "n2")
    assert run.results == [([6.0] * 3, host) for host in run.hosts]
    assert launch(lambda: {"a", "set"}, 2).results == [{"a", "set"}] * 2  # a job's hosts are its user's own
    (job,) = in_slurm.job_states()
    assert f"Slurm job {job}" in run.setup
    hosts.close()
    no_job(in_slurm)
    assert list((tmp_path / "slurm").iterdir()) == []
    assert run.log(3) == "summed\n"  # read after the hosts are closed


def test_the_log_files_of_a_notebook_stay_open_when_hosts_are(root: Path) -> None:
    """In a process of its own: what counts is the first import of submitit."""
    text = """
import logging, sys
from worldsize.engines.remote.ways.slurm import import_submitit
handler = logging.StreamHandler(open(sys.argv[1], "w"))
handler.close = lambda: handler.stream.close()  # as absl's does, which TensorFlow brings
import_submitit()
assert not handler.stream.closed
"""
    subprocess.run([sys.executable, "-c", text, os.devnull], cwd=root, check=True, timeout=LIMIT_S)


@contextlib.contextmanager
def at(condition: Callable[[], bool], then: Callable[[], None]) -> Iterator[None]:
    """Meanwhile in a thread: when something is so, do something."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            until(condition, LIMIT_S, "what is waited for meanwhile")
            then()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert failed == []


def states(slurm: Slurm) -> list[str]:
    return [job.state for job in slurm.job_states().values()]


@pytest.mark.soak
def test_why_a_job_waits_is_told_and_an_interrupt_cancels_it(in_slurm: Slurm, tmp_path: Path) -> None:
    said: list[str] = []
    with in_slurm.all_taken() as taker:

        def told() -> bool:
            return any("is pending (Resources) · 0 of 2 hosts have joined" in line for line in said)

        way = hosts.Slurm(nodes=2, timeout_min=10, folder=tmp_path / "slurm")
        with at(told, lambda: os.kill(os.getpid(), signal.SIGINT)), pytest.raises(KeyboardInterrupt):
            open_hosts(way, say=said.append)
        until(lambda: set(in_slurm.job_states()) == {taker}, LIMIT_S, "only the other job is there")


@pytest.mark.soak
def test_a_job_that_does_not_start_in_time_is_cancelled_and_its_reason_told(in_slurm: Slurm, tmp_path: Path) -> None:
    with in_slurm.all_taken() as taker:
        with pytest.raises(hosts.NoHosts) as raised:
            opened(tmp_path / "slurm", timeout_s=3)
        until(lambda: set(in_slurm.job_states()) == {taker}, LIMIT_S, "only the other job is there")
    assert "timeout_s=3" in str(raised.value) and "is pending (Resources)" in str(raised.value)
    with pytest.raises(ValueError, match="timeout_s"):
        opened(tmp_path / "slurm", timeout_s=0)


@pytest.mark.soak
def test_a_partition_that_is_not_there_is_told_with_those_that_are(in_slurm: Slurm, tmp_path: Path) -> None:
    with pytest.raises(hosts.NoHosts) as raised:
        hosts.open(hosts.Slurm(nodes=2, folder=tmp_path, slurm_partition="gpu"))
    assert "debug, closed" in str(raised.value) and "slurm_partition=" in str(raised.value)
    assert in_slurm.job_states() == {}


@pytest.mark.soak
def test_a_partition_that_is_down_is_told_at_once(in_slurm: Slurm, tmp_path: Path) -> None:
    with pytest.raises(hosts.NoHosts, match="PartitionDown.*choose another"):
        hosts.open(hosts.Slurm(nodes=2, folder=tmp_path, slurm_partition=CLOSED))
    until(lambda: in_slurm.job_states() == {}, LIMIT_S, "the job is cancelled")


@pytest.mark.soak
def test_more_nodes_than_there_are_and_unknown_parameters_are_told(in_slurm: Slurm, tmp_path: Path) -> None:
    with pytest.raises(hosts.NoHosts, match="PartitionConfig.*too few"):
        hosts.open(hosts.Slurm(nodes=3, folder=tmp_path))
    with pytest.raises(ValueError, match="partitoin"):
        hosts.open(hosts.Slurm(nodes=2, folder=tmp_path, slurm_partitoin="gpu"))
    assert in_slurm.job_states() == {}


@pytest.mark.soak
def test_nodes_that_do_not_reach_this_machine_say_so(in_slurm: Slurm, tmp_path: Path) -> None:
    with pytest.raises(hosts.NoHosts) as raised:
        hosts.open(hosts.Slurm(nodes=2, folder=tmp_path, address="127.0.0.1"))
    assert "no answer at the head's address" in str(raised.value) and "address=…" in str(raised.value)
    assert list(tmp_path.glob("*/*_log.err")) and not list(tmp_path.glob("*/*.pkl"))
    no_job(in_slurm)


@pytest.mark.soak
def test_without_slurms_programs_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(hosts.NoHosts, match="expected the program sbatch"):
        hosts.open(hosts.Slurm(nodes=2, folder=tmp_path))


def wait_for_ever(started: str) -> None:
    dist.init_process_group("gloo")
    Path(started, str(dist.get_rank())).touch()
    if dist.get_rank() != 3:
        dist.barrier()
    threading.Event().wait()


@pytest.mark.soak
def test_a_job_that_is_cancelled_in_mid_run_is_hosts_lost(in_slurm: Slurm, tmp_path: Path) -> None:
    opened(tmp_path / "slurm")
    started = tmp_path / "started"
    started.mkdir()
    (job,) = in_slurm.job_states()
    all_run = lambda: len(list(started.iterdir())) == 4  # noqa: E731
    with at(all_run, lambda: in_slurm.cancel(job)), pytest.raises(RankFailed) as raised:
        launch(wait_for_ever, 4, (str(started),))
    assert "lost with the host n" in str(raised.value)
    no_job(in_slurm)
    with pytest.raises((EngineLost, ValueError), match="worldsize.hosts.open"):
        launch(total, 2)


_KERNEL = """
import sys
from worldsize import hosts
from worldsize.launch import launch
from tests.hosts.test_slurm import wait_for_ever
hosts.open(hosts.Slurm(nodes=2, timeout_min=10, folder=sys.argv[1]))
if len(sys.argv) > 2:
    launch(wait_for_ever, 4, (sys.argv[2],))
"""


@pytest.mark.soak
@pytest.mark.parametrize("how", ["killed", "ends"])
def test_a_job_ends_with_its_notebook(in_slurm: Slurm, tmp_path: Path, root: Path, how: str) -> None:
    started = tmp_path / "started"
    started.mkdir()
    words = [str(started)] if how == "killed" else []
    kernel = subprocess.Popen([sys.executable, "-c", _KERNEL, str(tmp_path / "slurm"), *words], cwd=root)
    try:
        if how == "killed":
            until(lambda: len(list(started.iterdir())) == 4, LIMIT_S, "four ranks run")
            kernel.kill()
        assert kernel.wait(LIMIT_S) == (-signal.SIGKILL if how == "killed" else 0)
        no_job(in_slurm, GONE_S)
    finally:
        kernel.kill()
        kernel.wait(LIMIT_S)
    with contextlib.suppress(FileNotFoundError):
        assert list((tmp_path / "slurm").iterdir()) == [] or how == "killed"


@pytest.mark.soak
def test_a_job_whose_notebook_was_killed_in_the_queue_ends_when_it_starts(
    in_slurm: Slurm, tmp_path: Path, root: Path
) -> None:
    with in_slurm.all_taken():
        said = tmp_path / "said"
        with open(said, "w") as out:
            words = [sys.executable, "-u", "-c", _KERNEL, str(tmp_path / "slurm")]
            kernel = subprocess.Popen(words, cwd=root, stdout=out)
        try:
            # from then on: a job whose submission was cut short waits a minute for its function (submitit's own limit)
            until(lambda: "pending" in said.read_text(), LIMIT_S, "it waits")
        finally:
            kernel.kill()
            kernel.wait(LIMIT_S)
    no_job(in_slurm)


def where() -> tuple[list[str], str]:
    cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
    return [address.rpartition(":")[0] for address in cluster["worker"]], os.uname().nodename


@pytest.mark.soak
def test_the_variable_brings_tensorflows_tasks_to_both_nodes(
    in_slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLDSIZE_HOSTS", f"slurm:nodes=2,trusted_network=1,folder={tmp_path}")
    monkeypatch.setattr(current_engine, "_decided", [])
    run = tf.launch(where, cluster=tf.Cluster(worker=2))
    addresses = [host.address for host in in_slurm.hosts]
    assert run.results == [(addresses, "n1"), (addresses, "n2")]


@pytest.mark.soak
def test_idle_hosts_close_and_the_next_launch_says_so(in_slurm: Slurm, tmp_path: Path) -> None:
    opened(tmp_path / "slurm", idle_min=0.05)
    assert launch(three_times_idle, 2).results == [None, None]  # a job keeps them open
    no_job(in_slurm)
    assert hosts.names() == ()
    with pytest.raises(EngineLost, match="without a launch.*worldsize.hosts.open"):
        launch(total, 2)
    hosts.close()
    assert launch(total, 2).hosts == ()


def three_times_idle() -> None:
    threading.Event().wait(9)


def holds(path: Path) -> bool:
    try:
        return CANARY.encode() in path.read_bytes()
    except OSError:  # it went meanwhile
        return False


def members_folders(pid: int) -> list[Path]:
    """The temporary folders of the members that are on the host of a process: where they listen for their ranks."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/net/unix").read_text().split()
        return [Path(word).parent for word in words if word.endswith("/agent.sock")]
    return []


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.soak
def test_the_notebooks_environment_stays_here(
    in_slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", CANARY)
    monkeypatch.setenv("SBATCH_EXPORT", "ALL")
    folder = tmp_path / "slurm"
    opened(folder)
    started = tmp_path / "started"
    started.mkdir()
    found: list[Path] = []
    seen: list[int] = []

    def look() -> None:
        pids = in_slurm.pids()
        seen.extend(pids)
        homes = {home for pid in pids for home in members_folders(pid)}
        assert len(homes) == 2
        files = [path for top in (folder, in_slurm.folder, *homes) for path in top.rglob("*") if path.is_file()]
        places = [Path(f"/proc/{pid}/{what}") for pid in pids for what in ("environ", "cmdline")]
        found.extend(path for path in [*places, *files] if holds(path))
        assert {mode(path) for path in [folder, *folder.iterdir()]} == {0o700}
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        assert {mode(path) for path in files} == {0o600} and len(files) >= 4

    def look_and_end() -> None:
        try:
            look()
        finally:
            in_slurm.cancel(*in_slurm.job_states())

    with at(lambda: len(list(started.iterdir())) == 4, look_and_end), pytest.raises(RankFailed):
        launch(wait_for_ever, 4, (str(started),))
    assert found == [] and len(seen) >= 8


@pytest.mark.soak
def test_an_invitation_is_in_no_command_line_and_in_no_environment(in_slurm: Slurm, tmp_path: Path) -> None:
    folder = tmp_path / "slurm"
    opened(folder)
    (pickled,) = folder.glob("*/*_submitted.pkl")
    data = pickled.read_bytes()
    key = data[data.index(b'"secret_key": "') + 15 :][:40]
    shown = [Path(f"/proc/{pid}/{what}") for pid in in_slurm.pids() for what in ("environ", "cmdline")]
    assert len(shown) >= 8 and [path for path in shown if key in path.read_bytes()] == []
    logs = [path for path in (*folder.rglob("*_log.*"), *in_slurm.folder.rglob("*.log")) if path.is_file()]
    assert [path for path in logs if key in path.read_bytes()] == []
