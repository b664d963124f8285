"""Jobs and orders for ranks, and the events they answer with.

`local_engine.py` has this machine's engine: an agent for each framework, over a fork server (or spawn).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from worldsize.engines.cluster_spec import TensorFlowTasks
from worldsize.engines.own_network import Network
from worldsize.failures import Failure, TaskNames, Wait
from worldsize.links import Link, Nodes

Framework = Literal["torch", "tensorflow"]
Device = Literal["auto", "cpu", "cuda"]
StartMethod = Literal["forkserver", "spawn"]
NewGroups = Literal["", "fabric", "all"]
SMALL_BYTES = 16_000  # ranks that stay get and return this much in a message, more in a file
ProgressState = Literal["running", "waiting", "done", "not yet", "failed"]
RankFile = Literal["log", "native_log", "result", "shown", "record", "last_seen", "stack"]
_SUFFIXES: dict[RankFile, str] = {
    "log": "log", "native_log": "native.log", "result": "result.pkl", "shown": "shown.jsonl", "record": "record.pkl",
    "last_seen": "last_seen.pkl", "stack": "stack",
}  # fmt: skip


@dataclass(frozen=True)
class RunFiles:
    """The paths of a job's files, in the run's own `folder`."""

    folder: Path

    @property
    def job(self) -> Path:
        return self.folder / "job.pkl"

    @property
    def payload(self) -> Path:
        return self.folder / "payload.pkl"

    def of(self, rank: int, what: RankFile) -> Path:
        return self.folder / f"rank{rank}.{_SUFFIXES[what]}"


@dataclass(frozen=True)
class Job:
    """A job: everything that ranks need, as plain data.

    `dir` holds the payload, logs, results and traces. `dir` and `origin_s`, the moment of the launch on the machine's
    monotonic clock, are filled in when the job is executed.
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
    link: Link | Nodes | None = None
    framework: Framework = "torch"
    tasks: TensorFlowTasks | None = None
    sources: tuple[tuple[str, str], ...] = ()  # (file name, text) of notebook cells, for tracebacks
    wants_late_imports: bool = False  # whether the function seems to need torch's late imports
    asked_env: tuple[str, ...] = ()  # names in `env` that the launch call gave
    travelling_env: dict[str, str] = field(default_factory=dict)  # the part of `env` for other hosts
    trusted_network: bool = False  # whether everyone on the hosts' network may run code in the ranks
    hosts_label: str = ""  # such as "Slurm job 4711"
    world: str = ""  # for ranks that stay: the name to which orders refer
    unset: tuple[str, ...] = ()  # for ranks that stay: variables that the notebook no longer has
    shows: bool = False  # whether a notebook shows the pictures and tables of a function's ranks
    children: str | None = None  # how ranks' own children start in multiprocessing; None for the platform's usual way

    @property
    def files(self) -> RunFiles:
        return RunFiles(self.dir)

    @property
    def task_names(self) -> TaskNames:
        return self.tasks.names() if self.tasks else ()

    def native_log(self, rank: int) -> Path:
        """Return the file for output that libraries write past Python: a separate one for TensorFlow, which logs a lot."""
        return self.files.of(rank, "native_log") if self.tasks else self.files.of(rank, "log")


@dataclass(frozen=True)
class Use:
    """Orders ranks that stay to run the payload of `job`, on `ranks`.

    `job` has a new folder, and of environment, path and directory only what has changed in the notebook. `new_groups` names the
    groups to make anew first, because the last order was cut short. `packed` is a small payload, which needs no file.
    """

    job: Job
    ranks: tuple[int, ...]
    new_groups: NewGroups = ""
    packed: bytes = b""


@dataclass(frozen=True)
class Close:
    """Orders ranks that stay to end: no further job comes."""

    world: str


Order = Job | Use | Close  # a Job with a `world` opens ranks that stay


@dataclass(frozen=True)
class Setup:
    """The engine's choices for a job. `text` is one line such as "4 ranks · gloo on CPU · 1 thread each · fork server".

    `hosts` names each rank's host, () for this machine; `clock_error_s` bounds the error between their clocks. `network`
    is "own" for ranks with loopback alone, else "shared", for the reason in `why_shared` if that is known.
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
    """An event of a job, news of a running rank: new `report` rows, bytes so far, state. At most ten a second.

    `wait` is set for a rank "waiting" in the fabric, `collective` for one in a framework's call; `failure` if the state
    is "failed" or "not yet".
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
    """Requests a command for a rank's debugger: the debugger's output since its last prompt, and the prompt."""

    rank: int
    text: str
    prompt: str


@dataclass(frozen=True)
class Typed:
    """Answers a rank's `Prompt` with the typed text."""

    rank: int
    text: str
