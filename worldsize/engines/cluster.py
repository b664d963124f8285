"""A TensorFlow cluster: how many tasks of which type (`Cluster`), and what one of them can ask of the launcher (`Task`).

The types are those of TensorFlow's `TF_CONFIG`. Left out: addresses and processes (`engines/tensorflow_session.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

MOST_TASKS = 32


@dataclass(frozen=True, repr=False)
class Cluster:
    """`Cluster(chief=1, worker=2, ps=1)`. Ranks are numbered chief, workers, parameter servers, evaluator.

    Raises ValueError for a number that cannot be.
    """

    chief: int = 0
    worker: int = 0
    ps: int = 0
    evaluator: int = 0

    def __post_init__(self) -> None:
        for name, count in self.counts().items():
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                raise ValueError(f"Cluster: expected {name} as a whole number of 0 or more, got {name}={count!r}")
            if name in ("chief", "evaluator") and count > 1:
                raise ValueError(f"Cluster: a cluster has at most one {name}, got {name}={count}. Add workers instead.")

        total = sum(self.counts().values())
        if not 1 <= total <= MOST_TASKS:
            raise ValueError(
                f"Cluster: expected from 1 to {MOST_TASKS} tasks in all, got {total}. "
                f"Write for example Cluster(worker=2), or Cluster(chief=1, worker=2, ps=1)."
            )
        if not self.chief and not self.worker:
            raise ValueError(f"Cluster: expected a chief or a worker that computes something, got {self}")

    def __repr__(self) -> str:
        given = [f"{name}={count}" for name, count in self.counts().items() if count]
        return f"Cluster({', '.join(given)})"

    def counts(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def tasks(self) -> tuple[str, ...]:
        """("chief:0", "worker:0", "worker:1", "ps:0"), by rank."""
        names: list[str] = []
        for name, count in self.counts().items():
            names += [f"{name}:{index}" for index in range(count)]
        return tuple(names)

    def rank_of(self, type: str, index: int) -> int:
        """Raises ValueError for a task that is not there."""
        tasks = self.tasks()
        name = f"{type}:{index}"
        if name not in tasks:
            raise ValueError(f"expected one of the tasks {', '.join(tasks)}, got {name}")
        return tasks.index(name)

    def spec(self, addresses: Sequence[str]) -> dict[str, list[str]]:
        """type -> addresses, of those who talk to each other: an evaluator only reads checkpoints."""
        spec: dict[str, list[str]] = {}
        for task, address in zip(self.tasks(), addresses, strict=True):
            name = task.partition(":")[0]
            if name != "evaluator":
                spec.setdefault(name, []).append(address)
        return spec


def fail_fast(cluster: Cluster, servers: Sequence[str]) -> dict[str, str]:
    """Environment of a TensorFlow `Cluster` whose chief coordinates servers, so that a lost one is not waited for.

    TensorFlow's guide to fault tolerance asks for it there. Elsewhere it is empty, since a task has to wait for
    those that start a moment later.
    """
    if cluster.chief and cluster.ps and {"worker", "ps"} <= set(servers):
        return {"GRPC_FAIL_FAST": "use_caller"}
    return {}


def tf_config(spec: dict[str, list[str]], task: str) -> str:
    """The engine's text of `TF_CONFIG` for one task of a `Cluster`, such as "worker:1", from the cluster's spec."""
    name, _, index = task.partition(":")
    return json.dumps({"cluster": spec, "task": {"type": name, "index": int(index)}})


def serving(cluster: Cluster | None, servers: Iterable[str] | None) -> tuple[str, ...]:
    """Types of a TensorFlow `Cluster` whose tasks are servers: `servers`, or what is usual for such a cluster.

    Raises ValueError.
    """
    if cluster is None:
        if servers:
            raise ValueError(f"launch: expected a cluster with servers={servers!r}, got none")
        return ()

    if servers is None:
        return ("worker", "ps") if cluster.chief and cluster.ps else ("ps",)

    named = (servers,) if isinstance(servers, str) else tuple(servers)
    counts = cluster.counts()
    for name in named:
        if name not in counts:
            raise ValueError(f"launch: expected servers from {', '.join(counts)}, got {name!r}")
    if all(name in named for name, count in counts.items() if count):
        raise ValueError(f"launch: with servers={named} no task of {cluster} would run the function")
    return named


def prepare_tensorflow(logical_devices: int, seed: int) -> None:
    """What a process of TensorFlow needs before its runtime starts: into how many devices its CPU is split, and a seed."""
    import tensorflow as tf

    if logical_devices > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        each = [tf.config.LogicalDeviceConfiguration() for _ in range(logical_devices)]
        tf.config.set_logical_device_configuration(cpu, each)

    tf.random.set_seed(seed)


def start_server() -> Any:
    """Start the `tf.distribute.Server` of this task, as `TF_CONFIG` says. It stops when nobody refers to it any more."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )


@dataclass(frozen=True)
class Task:
    """What a function launched with `worldsize.tf.launch` gets as its first parameter, where it names that `task`.

    `attempt` is 0, and one more after each restart; `cluster` maps a type to its addresses; `dir` is a folder that the
    tasks of this run share, for checkpoints.
    """

    type: str
    index: int
    rank: int
    attempt: int
    cluster: dict[str, list[str]]
    dir: Path
    _counts: Cluster | None
    _request: Callable[[str, int], None]

    def kill(self, type: str, index: int) -> None:
        """SIGKILL a task; return when it is dead. Its death is no failure of the run, and it returns nothing."""
        self._request("kill", self._rank_of("kill", type, index))

    def restart(self, type: str, index: int) -> None:
        """Start a task's function or server again, in a fresh process at the same address; one that runs is killed."""
        self._request("restart", self._rank_of("restart", type, index))

    def _rank_of(self, what: str, type: str, index: int) -> int:
        if self._counts is None:
            raise ValueError(f"task.{what}: this process was launched without a cluster")
        try:
            return self._counts.rank_of(type, index)
        except ValueError as error:
            raise ValueError(f'task.{what}("{type}", {index!r}): {error}') from None
