"""Where ranks start. The seam is one method: `engine.start(job) -> Ranks`.

`agent_client` has the engine of this machine: an agent for each framework, over a fork server (or spawn). Left out: what a job
means to the one who launched it (`launch/`, `tf/`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from worldsize.engines.cluster import Cluster
from worldsize.engines.own_network import Network
from worldsize.failures import Failure, Outcome, TaskNames, Wait
from worldsize.links import Link

Framework = Literal["torch", "tensorflow"]
Device = Literal["auto", "cpu", "cuda"]
StartMethod = Literal["forkserver", "spawn"]
NewGroups = Literal["", "fabric", "all"]
SMALL_BYTES = 16_000  # of what travels to ranks that stay, and back, with a message and in no file
ProgressState = Literal["running", "waiting", "done", "not yet", "failed"]


@dataclass(frozen=True)
class TensorFlowTasks:
    """What a job of TensorFlow has beside ranks: its cluster, and which types of tasks are servers."""

    cluster: Cluster | None = None
    servers: tuple[str, ...] = ()
    logical_devices: int = 1
    legacy_keras: bool = False

    def names(self) -> TaskNames:
        """The names of the tasks by rank; () where one process runs without a cluster."""
        return self.cluster.tasks() if self.cluster else ()

    def serving_ranks(self) -> set[int]:
        """The ranks whose tasks are servers."""
        return {rank for rank, name in enumerate(self.names()) if name.partition(":")[0] in self.servers}


@dataclass(frozen=True)
class RunFiles:
    """The files of one run, by name, in the run's own `folder`."""

    folder: Path

    @property
    def job(self) -> Path:
        return self.folder / "job.pkl"

    @property
    def payload(self) -> Path:
        return self.folder / "payload.pkl"

    def log(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.log"

    def native_log(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.native.log"

    def result(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.result.pkl"

    def last_seen(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.last_seen.pkl"

    def stack(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.stack"

    def record(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.record.pkl"

    def shown(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.shown.jsonl"


@dataclass(frozen=True)
class Job:
    """All that ranks need, as plain data.

    `dir` holds the payload, the logs, the results and the traces; it and `origin_s`, the moment of the launch on the
    machine's monotonic clock, are filled in when the job is executed.
    """

    world_size: int
    env: dict[str, str]
    sys_path: tuple[str, ...]
    cwd: str
    seed: int
    timeout_s: float
    dir: Path = Path()
    origin_s: float = 0.0
    device: Device = "auto"
    link: Link | None = None
    framework: Framework = "torch"
    tasks: TensorFlowTasks | None = None
    sources: tuple[tuple[str, str], ...] = ()  # (file name, text) of notebook cells, for tracebacks
    wants_late_imports: bool = False  # whether the function seems to use what torch imports late
    asked_env: tuple[str, ...] = ()  # names in `env` that the launch itself was given
    travelling_env: dict[str, str] = field(default_factory=dict)  # what of `env` goes to other hosts
    trusted_network: bool = False  # whether everyone on the hosts' network may run code in the ranks
    hosts_label: str = ""  # such as "Slurm job 4711"
    plain_results: bool = False  # whether results are plain values, since some host is not this user's own
    world: str = ""  # of ranks that stay: the name by which what they do next finds them

    @property
    def files(self) -> RunFiles:
        return RunFiles(self.dir)

    @property
    def task_names(self) -> TaskNames:
        return self.tasks.names() if self.tasks else ()

    def native_log(self, rank: int) -> Path:
        """Where what a rank's libraries write past Python goes. Only TensorFlow's has a file of its own: it is chatty."""
        return self.files.native_log(rank) if self.tasks else self.files.log(rank)


@dataclass(frozen=True)
class Use:
    """Order ranks that stay to do the payload of `job`, on `ranks`.

    `job` has a folder of its own for this run, and neither environment nor path: those are as they were opened with.
    `new_groups` says which of their groups they first make anew, since what they did last was cut short. A small payload
    comes along as `packed`, and is in no file.
    """

    job: Job
    ranks: tuple[int, ...]
    new_groups: NewGroups = ""
    packed: bytes = b""


@dataclass(frozen=True)
class Close:
    """Order ranks that stay to end."""

    world: str


Order = Job | Use | Close  # a job with a `world` opens ranks that stay


@dataclass(frozen=True)
class Setup:
    """What the engine chose. `text` is one line such as "4 ranks · gloo on CPU · 1 thread each · fork server".

    `hosts` names the host of each rank, () for ranks of this machine; `clock_error_s` is how well their clocks are known.
    `network`: whether the ranks have one of their own, with loopback alone, or share the machine's; `why_shared` says
    why they do, where that is known.
    """

    text: str
    threads: int
    on_gpus: bool = False
    hosts: tuple[str, ...] = ()
    clock_error_s: float = 0.0
    network: Network = "shared"
    why_shared: str = ""


@dataclass(frozen=True)
class Progress:
    """News of one rank while it runs: new `report` rows, bytes so far, and what it does. At most 10 a second.

    `wait` says what a rank waits for that is "waiting", or `collective` in which of a framework's calls; `failure` how
    one ended that "failed" or is "not yet".
    """

    rank: int
    at_s: float
    reports: tuple[dict, ...] = ()
    sent_bytes: int = 0
    received_bytes: int = 0
    state: ProgressState = "running"
    wait: Wait | None = None
    failure: Failure | None = None
    collective: str = ""


@dataclass(frozen=True)
class Prompt:
    """Ask for a command of a rank's debugger: what it has said since its last one, and its prompt."""

    rank: int
    text: str
    prompt: str


@dataclass(frozen=True)
class Typed:
    """Answer a rank's prompt with what was typed."""

    rank: int
    text: str


class Ranks(Protocol):
    """A running job."""

    def next_event(self, timeout_s: float) -> Setup | Progress | Prompt | Outcome | None:
        """The next event, or None when `timeout_s` passed without one. `Outcome` is the last."""

    def answer(self, typed: Typed) -> None:
        """Give a rank what was typed at its prompt."""

    def stop(self) -> None:
        """End every rank now; the `Outcome` that follows says where each one stood."""


class Engine(Protocol):
    def start(self, order: Order) -> Ranks: ...
