"""Where ranks start. The seam is one method: `engine.start(job) -> Ranks`.

`agent_client` has the engine of this machine: an agent for each framework, over a fork server (or spawn). Left out: what a job
means to the one who launched it (`launch/`, `tf/`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from worldsize.engines.cluster import Cluster
from worldsize.failures import Outcome
from worldsize.links import Link


@dataclass(frozen=True)
class TensorFlowTasks:
    """What a job of TensorFlow has beside ranks: its cluster, and which types of tasks are servers."""

    cluster: Cluster | None = None
    servers: tuple[str, ...] = ()
    logical_devices: int = 1
    legacy_keras: bool = False


@dataclass(frozen=True)
class Job:
    """All that ranks need, as plain data. `dir` holds the payload, the logs, the results and the traces."""

    world_size: int
    dir: Path
    env: dict[str, str]
    sys_path: tuple[str, ...]
    cwd: str
    seed: int
    timeout_s: float
    origin_s: float
    device: str = "auto"
    link: Link | None = None
    framework: str = "torch"
    tasks: TensorFlowTasks | None = None
    sources: tuple[tuple[str, str], ...] = ()  # (file name, text) of notebook cells, for tracebacks

    def payload_path(self) -> Path:
        return self.dir / "payload.pkl"

    def log_path(self, rank: int) -> Path:
        return self.dir / f"rank{rank}.log"

    def native_log_path(self, rank: int) -> Path:
        """Where what a rank's libraries write past Python goes. Only TensorFlow's has a file of its own: it is chatty."""
        return self.dir / f"rank{rank}.native.log" if self.tasks else self.log_path(rank)

    def result_path(self, rank: int) -> Path:
        return self.dir / f"rank{rank}.result.pkl"

    def last_seen_path(self, rank: int) -> Path:
        return self.dir / f"rank{rank}.last_seen.pkl"

    def stack_path(self, rank: int) -> Path:
        return self.dir / f"rank{rank}.stack"

    def record_path(self, rank: int) -> Path:
        return self.dir / f"rank{rank}.record.pkl"


@dataclass(frozen=True)
class Setup:
    """What the engine chose: one line such as "4 ranks · gloo on CPU · 1 thread each · fork server"."""

    text: str
    backend: str
    devices: tuple[str, ...]
    threads: int
    start_method: str


@dataclass(frozen=True)
class Progress:
    """News of one rank while it runs: new `report` rows, bytes so far, and what it does in words. At most 10 a second."""

    rank: int
    at_s: float
    reports: tuple[dict, ...] = ()
    sent_bytes: int = 0
    received_bytes: int = 0
    doing: str = "running"


class Ranks(Protocol):
    """A running job."""

    def next_event(self, timeout_s: float) -> Setup | Progress | Outcome | None:
        """The next event, or None when `timeout_s` passed without one. `Outcome` is the last."""

    def stop(self) -> None:
        """End every rank now; the `Outcome` that follows says where each one stood."""


class Engine(Protocol):
    def start(self, job: Job) -> Ranks: ...
