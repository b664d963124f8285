"""How tasks of TensorFlow start: an address each, `TF_CONFIG`, fresh processes; and how they are killed and restarted.

A port has no race: the agent binds it with SO_REUSEADDR and never listens, so that nobody else is given it, and the
task's own gRPC server, which sets SO_REUSEADDR too, binds and listens on the same (Linux allows it). Left out:
listening to the tasks (`session.py`), and what a task does (`rank.py`, `tensorflow_rank.py`).
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from importlib import metadata

from worldsize.engines import session
from worldsize.engines.cluster import Cluster, fail_fast, tf_config
from worldsize.engines.job import Setup
from worldsize.engines.last_seen import stack_of
from worldsize.engines.rank import main as rank_main
from worldsize.engines.rank_channel import MAIN, Request
from worldsize.failures import Standing

_SERVER_LEAVES_S = 0.5
_REAP_S = 5.0


@dataclass(eq=False)
class TensorFlowSession(session.Session):
    """A job of TensorFlow. Tasks whose type is among the servers end when all others have."""

    spec: dict[str, list[str]] = field(default_factory=dict)  # the cluster's addresses by type, as in TF_CONFIG
    ports: ExitStack = field(default_factory=ExitStack)  # where those addresses are kept
    threads: int = 1
    attempts: dict[int, int] = field(default_factory=dict)  # by rank
    killed: set[int] = field(default_factory=set)

    @property
    def cluster(self) -> Cluster | None:
        return self.job.tasks.cluster

    def _choose(self) -> Setup:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        threads = max(1, cores // len(self._awaited()))
        return Setup(f"{self._who()} · {self._versions()} · {session.way_of(self.start_method)}", threads)

    def _who(self) -> str:
        if self.cluster:
            rows = [f"{name} {count}" for name, count in self.cluster.counts().items() if count]
        else:
            rows = ["1 process"]

        n = self.job.tasks.logical_devices
        if n > 1:
            rows.append(f"{n} logical CPUs{' each' if self.cluster else ''}")
        return " · ".join(rows)

    def _versions(self) -> str:
        keras = "tf_keras 2" if self.job.tasks.legacy_keras else "Keras 3"
        over = " · gRPC on loopback" if self.cluster else ""
        return f"TensorFlow {_version()}, {keras}{over}"

    def _start(self, setup: Setup) -> None:
        if self.cluster:
            addresses = [_address(self.ports) for _ in self.job.task_names]
            self.spec = self.cluster.spec(addresses)

        self.threads = setup.threads
        self.job.files.job.write_bytes(pickle.dumps(self.job))
        for rank in range(self.job.world_size):
            self._start_one(rank)

    def _start_one(self, rank: int) -> None:
        attempt = self.attempts.get(rank, -1) + 1
        arguments = (rank, self.address, str(self.job.files.job), self._environment(rank), self.threads, attempt)
        process = multiprocessing.get_context(self.start_method).Process(target=rank_main, args=arguments)
        process.start()

        self.attempts[rank] = attempt
        self.pids[rank] = process.pid
        self.processes[rank] = process

    def _environment(self, rank: int) -> dict[str, str]:
        env = {
            "KERAS_BACKEND": "tensorflow",
            "TF_USE_LEGACY_KERAS": "1" if self.job.tasks.legacy_keras else "0",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            "OMP_NUM_THREADS": str(self.threads),
            "TF_NUM_INTRAOP_THREADS": str(self.threads),
        }
        if self.cluster:
            env["TF_CONFIG"] = tf_config(self.spec, self.job.task_names[rank])
            env["no_grpc_proxy"] = "127.0.0.1"
            env |= fail_fast(self.cluster, self.job.tasks.servers)

        theirs = {name: value for name, value in self.job.env.items() if name in _YIELDING and name in env}
        return env | theirs

    # ---- who is waited for -----------------------------------------------------------------------

    def _awaited(self) -> set[int]:
        return set(range(self.job.world_size)) - self.job.tasks.serving_ranks() - self.killed

    def _live(self) -> set[int]:
        return super()._live() - self.killed

    def _mute(self, rank: int) -> Standing:
        """A task that does not answer: most likely in a call that holds Python's lock while it waits for a peer."""
        seen_last = super()._mute(rank)
        frames = stack_of(self.pids[rank], self.job.files.stack(rank), MAIN)
        return replace(seen_last, frames=frames or seen_last.frames)

    # ---- on request ------------------------------------------------------------------------------

    def _answer_request(self, rank: int, request: Request) -> None:
        """Kill or restart a task, as the task `rank` asked."""
        self._kill(request.rank)
        if request.what == "restart":
            self._restart(request.rank)
        if rank in self.channels:
            self._send(rank, "granted")

    def _restart(self, rank: int) -> None:
        self.killed.discard(rank)
        self.returned.pop(rank, None)
        self.job.files.result(rank).unlink(missing_ok=True)
        self._start_one(rank)

    def _kill(self, rank: int) -> None:
        self.killed.add(rank)
        self.silent.pop(rank, None)
        self.blocked.pop(rank, None)
        channel = self.channels.pop(rank, None)
        if channel is not None:
            channel.close()

        self._signal(rank, signal.SIGKILL)
        self.processes[rank].join(_REAP_S)

    def _signal(self, rank: int, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pids[rank], number)  # it may not lead its group yet
        with suppress(ProcessLookupError):
            os.killpg(self.pids[rank], number)

    # ---- the end ---------------------------------------------------------------------------------

    def _let_leave(self, ranks: set[int]) -> None:
        super()._let_leave(ranks)
        servers = self.job.tasks.serving_ranks() & set(self.processes)
        for rank in servers:
            self._signal(rank, signal.SIGTERM)
        for rank in servers:
            self.processes[rank].join(_SERVER_LEAVES_S)

    def _reap(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.join(_REAP_S)
        self.ports.close()


_YIELDING = (
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "OMP_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "GRPC_FAIL_FAST",
    "no_grpc_proxy",
)


def _address(kept: ExitStack) -> str:
    """An address on loopback that is this cluster's until `kept` closes."""
    bound = kept.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("", 0))
    return f"127.0.0.1:{bound.getsockname()[1]}"


def _version() -> str:
    """ "2.21"."""
    for name in ("tensorflow", "tensorflow-cpu", "tensorflow_intel"):
        with suppress(metadata.PackageNotFoundError):
            return ".".join(metadata.version(name).split(".")[:2])
    return "of unknown version"
