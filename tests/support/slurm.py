"""A real Slurm on this machine, for tests: compute nodes on hosts of `namespaces`, and its controller on one more.

Everything it writes, its munge key and socket too, is in a temporary folder, and it listens in the hosts' own networks
only, where every port is free: a Slurm that the machine already has is neither used nor touched. Jobs run as who submits
them. Left out: accounting (`sacct`), cgroups, GPUs, limits on memory.
"""

import contextlib
import functools
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support import namespaces
from tests.support.daemons import daemon, program, until
from tests.support.namespaces import Host

PARTITION = "debug"  # the default one, with every host
CLOSED = "closed"  # a partition that is DOWN: a job in it never starts
_START_S = 60.0
_ANSWER_S = 60.0
_PACKAGES = {  # the program that tells that Debian's package is installed
    "munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client",
}  # fmt: skip
_OF_ANOTHER_SLURM = ("SLURM", "SBATCH_", "SALLOC_", "SRUN_", "SINFO_", "SQUEUE_", "SCANCEL_", "MUNGE")
_CONF = """\
ClusterName=tests
SlurmctldHost={controller.name}({controller.address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
# the hosts are namespaces: they have more processors than the machine, and no cgroups of their own
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MailProg=/bin/true
PropagateResourceLimits=NONE
ReturnToService=2
# quick answers: a job starts when it is submitted, and is forgotten soon after it ended
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
MinJobAge=2
KillWait=1
CompleteWait=0
InactiveLimit=0
SlurmdTimeout=30
{nodes}
PartitionName={partition} Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName={closed} Nodes=ALL MaxTime=INFINITE State=DOWN
"""


@dataclass(frozen=True)
class Job:
    """A line of squeue: a state such as PENDING, and for one that waits the reason, such as Resources."""

    state: str
    reason: str


@dataclass(frozen=True)
class Slurm:
    """A Slurm that answers: `env()` is what a program needs to find it."""

    hosts: tuple[Host, ...]
    controller: Host
    folder: Path

    def env(self) -> dict[str, str]:
        """This process's environment, without another Slurm and with this one."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_ANOTHER_SLURM)}
        return kept | {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *command: str) -> str:
        """What a command of Slurm's (`srun`, `squeue`, `scontrol`, …) prints; it must succeed."""
        done = subprocess.run(command, env=self.env(), capture_output=True, text=True, timeout=_ANSWER_S)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def job_states(self) -> dict[str, Job]:
        """The jobs that wait, run or are ending, by number."""
        lines = [line.split("|") for line in self.run("squeue", "-h", "-o", "%i|%T|%r").splitlines()]
        return {number: Job(state, reason) for number, state, reason in lines}

    def pids(self) -> set[int]:
        """The processes of jobs on all hosts: their tasks, and Slurm's own beside each."""
        return {pid for host in self.hosts for pid in host.pids() if program(pid) not in {"", "slurmd"}}

    def cancel_all(self) -> None:
        """End every job, and wait until there is none. A task that ignores SIGTERM is killed: Slurm itself would wait 5 s."""
        self.cancel(*self.job_states())
        until(self._killed, _ANSWER_S, "Slurm has no jobs")

    def cancel(self, *jobs: str) -> None:
        """Tell these jobs to end; one may have ended by itself."""
        if jobs:
            subprocess.run(["scancel", *jobs], env=self.env(), capture_output=True, timeout=_ANSWER_S, check=False)

    def _killed(self) -> bool:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                if program(pid) != "slurmstepd":
                    os.kill(pid, signal.SIGKILL)
        return not self.job_states()

    def _state(self, job: str) -> str:
        return self.job_states().get(job, Job("ENDED", "")).state

    @contextlib.contextmanager
    def partition_down(self) -> Iterator[None]:
        """The default partition starts no job: one that is submitted waits with the reason PartitionDown."""
        self.run("scontrol", "update", f"PartitionName={PARTITION}", "State=DOWN")
        try:
            yield
        finally:
            self.run("scontrol", "update", f"PartitionName={PARTITION}", "State=UP")

    @contextlib.contextmanager
    def all_taken(self) -> Iterator[str]:
        """A job has every processor, and another one waits with the reason Resources. Yields the first one's number."""
        everything = ["--exclusive", f"--nodes={len(self.hosts)}", "--output=/dev/null"]
        job = self.run("sbatch", "--parsable", *everything, "--wrap=exec sleep infinity").strip()
        try:
            until(lambda: self._state(job) == "RUNNING", _ANSWER_S, "a job has every processor")
            yield job
        finally:
            self.cancel(job)
            until(lambda: job not in self.job_states(), _ANSWER_S, f"job {job} has ended")


@contextlib.contextmanager
def cluster(count: int = 2, clock_shifts_s: Mapping[str, int] | None = None, cpus: int = 8) -> Iterator[Slurm]:
    """A Slurm of `count` hosts with `cpus` processors each, by what it believes; shifts as in `namespaces.network`."""
    with contextlib.ExitStack() as stack:
        *hosts, controller = stack.enter_context(namespaces.network(count + 1, clock_shifts_s)).hosts
        made = tempfile.TemporaryDirectory(prefix="worldsize-slurm-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(made))
        slurm = Slurm(tuple(hosts), controller, folder)
        _write(slurm, cpus)
        stack.enter_context(daemon(_munged(folder), folder / "munged.out", slurm.env()))
        until((folder / "munge.socket").exists, _START_S, "munged listens")
        stack.enter_context(daemon(controller.command(["slurmctld", "-D", "-i"]), folder / "slurmctld.out", slurm.env()))
        until(functools.partial(_controller_answers, slurm), _START_S, f"slurmctld answers; its log is in {folder}")
        for host in hosts:
            # so that what its jobs left running goes while the controller's folder still stands
            stack.callback(host.kill_all)
            stack.enter_context(daemon(_slurmd(host), folder / f"slurmd-{host.name}.out", slurm.env()))
        until(lambda: _idle(slurm) == count, _START_S, f"{count} nodes are idle")
        yield slurm


@functools.cache
def why_not() -> str:
    """One sentence that says why this machine cannot have it; empty if it can."""
    if refused := namespaces.why_not():
        return refused
    missing = [package for program, package in _PACKAGES.items() if shutil.which(program) is None]
    if missing:
        return f"a Slurm needs Debian's packages {', '.join(missing)}: install what apt-dev.txt names"
    return ""


def _write(slurm: Slurm, cpus: int) -> None:
    """The folder as its daemons expect it; others than root may submit, so they read slurm.conf and reach the socket."""
    folder = slurm.folder
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    for name in ("state", *(f"spool-{host.name}" for host in slurm.hosts)):
        (folder / name).mkdir(mode=0o755)
    conf = _CONF.format(
        controller=slurm.controller,
        folder=folder,
        nodes="\n".join(f"NodeName={h.name} NodeAddr={h.address} CPUs={cpus} State=UNKNOWN" for h in slurm.hosts),
        partition=PARTITION,
        closed=CLOSED,
    )
    (folder / "slurm.conf").write_text(conf)


def _munged(folder: Path) -> list[str]:
    files = {"key-file": "munge.key", "log-file": "munged.log", "pid-file": "munged.pid", "seed-file": "munged.seed"}
    options = [f"--{option}={folder / name}" for option, name in files.items()]
    return ["munged", "--foreground", f"--socket={folder / 'munge.socket'}", *options]


def _slurmd(host: Host) -> list[str]:
    return host.command(["slurmd", "-D", "-N", host.name])


def _controller_answers(slurm: Slurm) -> bool:
    done = subprocess.run(["scontrol", "ping"], env=slurm.env(), capture_output=True, text=True, timeout=_ANSWER_S)
    return done.returncode == 0 and "is UP" in done.stdout


def _idle(slurm: Slurm) -> int:
    """How many nodes could start a job now."""
    return slurm.run("sinfo", "-h", "-N", "-p", PARTITION, "-o", "%T").split().count("idle")
