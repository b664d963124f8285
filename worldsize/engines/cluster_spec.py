"""A TensorFlow cluster: the number of tasks of each type (`Cluster`), and a task's view of the launcher (`Task`).

`TF_CONFIG` defines the types. `tensorflow_session.py` has addresses and processes.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from worldsize.failures import TaskNames

MOST_TASKS = 32
_THIS_MACHINE = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}


@dataclass(frozen=True, repr=False)
class Cluster:
    """The tasks of a job: `Cluster(chief=1, worker=2, ps=1)`. Ranks go in the order chief, workers, ps, evaluator.

    Raises ValueError for an impossible number.
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

        if self.chief + self.worker == 0:
            raise ValueError(f"Cluster: expected a chief or a worker that computes something, got {self}")

    @override
    def __repr__(self) -> str:
        given = [f"{name}={count}" for name, count in self.counts().items() if count]
        return f"Cluster({', '.join(given)})"

    def counts(self) -> dict[str, int]:
        return dict(vars(self))

    def tasks(self) -> tuple[str, ...]:
        """Return the cluster's task names by rank, such as ("chief:0", "worker:0", "worker:1", "ps:0")."""
        names: list[str] = []
        for name, count in self.counts().items():
            names += [f"{name}:{index}" for index in range(count)]
        return tuple(names)

    def rank_of(self, type: str, index: int) -> int:
        """Return the rank of a cluster's task. Raises ValueError for a task that does not exist."""
        tasks = self.tasks()
        name = f"{type}:{index}"
        if name not in tasks:
            raise ValueError(f"expected one of the tasks {', '.join(tasks)}, got {name}")
        return tasks.index(name)

    def spec(self, addresses: Sequence[str]) -> dict[str, list[str]]:
        """Return addresses by type, for all tasks that talk to each other: an evaluator only reads checkpoints."""
        spec: dict[str, list[str]] = {}
        for task, address in zip(self.tasks(), addresses, strict=True):
            name = task.partition(":")[0]
            if name != "evaluator":
                spec.setdefault(name, []).append(address)
        return spec


@dataclass(frozen=True)
class TensorFlowTasks:
    """The processes of a run of TensorFlow: one with `logical_devices`, or each task of a cluster.

    `servers` are the types of tasks that run a server in place of the function.
    """

    cluster: Cluster | None = None
    servers: tuple[str, ...] = ()
    logical_devices: int = 1
    legacy_keras: bool = False

    def names(self) -> TaskNames:
        """Return the names of the tasks by rank; () for a single process without a cluster."""
        return self.cluster.tasks() if self.cluster else ()

    def serving_ranks(self) -> set[int]:
        """Return the cluster's ranks whose tasks are servers."""
        return {rank for rank, name in enumerate(self.names()) if name.partition(":")[0] in self.servers}


def fail_fast(cluster: Cluster, servers: Sequence[str]) -> dict[str, str]:
    """Return the environment that makes calls to a lost server fail at once, if a chief coordinates servers.

    TensorFlow's guide to fault tolerance requires it there. Elsewhere it is empty, because tasks must wait for others
    that start a moment later.
    """
    if cluster.chief and cluster.ps and {"worker", "ps"} <= set(servers):
        return {"GRPC_FAIL_FAST": "use_caller"}
    return {}


def tf_config(spec: dict[str, list[str]], task: str) -> str:
    """Return the text of `TF_CONFIG` for a task such as "worker:1", from the cluster's spec."""
    name, _, index = task.partition(":")
    return json.dumps({"cluster": spec, "task": {"type": name, "index": int(index)}})


def corrected_tf_config(text: str, own: str) -> str:
    """Return the `TF_CONFIG` to read where a function may have set `text`, and the launch had set `own`, "" for none.

    A text for as many tasks of each type as the launch has means the launch's tasks. Raises ValueError for a text that names more
    tasks on this machine, which nobody starts.
    """
    try:
        cluster = json.loads(text)["cluster"]
        counts = {name: len(addresses) for name, addresses in cluster.items()}
        hosts = {address.rpartition(":")[0].strip("[]") for addresses in cluster.values() for address in addresses}
    except (ValueError, KeyError, TypeError, AttributeError):
        return text  # TensorFlow reports it
    if text == own or sum(counts.values()) < 2 or not hosts <= _THIS_MACHINE:
        return text

    if own and counts == {name: len(addresses) for name, addresses in json.loads(own)["cluster"].items()}:
        return own
    tasks = ", ".join(f"{name}={count}" for name, count in counts.items())
    raise ValueError(
        f"TF_CONFIG was set in the function, for tasks that nobody starts ({tasks}). Leave it out: launch(…, "
        f"cluster=Cluster({tasks})) starts such tasks, and sets TF_CONFIG in each."
    )


def serving(cluster: Cluster | None, servers: Iterable[str] | None) -> tuple[str, ...]:
    """Return the types of a `Cluster` whose tasks are servers: `servers`, or the usual ones for such a cluster.

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
    """Split the CPU into logical devices and set the seed, before TensorFlow's runtime starts."""
    import tensorflow as tf

    if logical_devices > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        each = [tf.config.LogicalDeviceConfiguration() for _ in range(logical_devices)]
        tf.config.set_logical_device_configuration(cpu, each)

    tf.random.set_seed(seed)


def start_server() -> Any:
    """Start this cluster task's `tf.distribute.Server`, from `TF_CONFIG`. The server stops when its last reference is gone."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )


@dataclass(frozen=True)
class Task:
    """The object passed to a function of `worldsize.tf.launch` whose first parameter is named `task`.

    `attempt` counts the task's restarts, from 0; `cluster` maps a type to its addresses; `dir` is a folder shared by the
    tasks of this run, for checkpoints.
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
        """SIGKILL a task, and return when it is dead. The death is no failure of the run; the task returns nothing."""
        self._request("kill", self._rank_of("kill", type, index))

    def restart(self, type: str, index: int) -> None:
        """Start a cluster task's function or server again, in a fresh process at the same address; kill it first if it runs."""
        self._request("restart", self._rank_of("restart", type, index))

    def _rank_of(self, what: str, type: str, index: int) -> int:
        if self._counts is None:
            raise ValueError(f"task.{what}: this process was launched without a cluster")
        try:
            return self._counts.rank_of(type, index)
        except ValueError as error:
            raise ValueError(f'task.{what}("{type}", {index!r}): {error}') from None
