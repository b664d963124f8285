"""The start of TensorFlow tasks (addresses, `TF_CONFIG`, fresh processes), and killing and restarting them.

`session.py` listens to the tasks, `host_ranks.py` keeps their addresses, `tensorflow_rank.py` runs in them.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata

from typing_extensions import override

from worldsize.engines import session
from worldsize.engines.cluster_spec import Cluster, fail_fast, tf_config
from worldsize.engines.host import place
from worldsize.engines.job import Setup
from worldsize.engines.ranks.rank_channel import Request


@dataclass(eq=False)
class TensorFlowSession(session.Session):
    """A job of TensorFlow. Tasks of the server types end when all others have."""

    spec: dict[str, list[str]] = field(default_factory=dict)  # the cluster's addresses by type, as in TF_CONFIG
    attempts: dict[int, int] = field(default_factory=dict)  # by rank

    @property
    def cluster(self) -> Cluster | None:
        return self.job.tasks.cluster

    @override
    def _choose(self) -> Setup:
        self.facts = tuple(host.facts(with_gpus=False) for host in self.hosts)
        self.ranks = place(self.job.world_size, [facts.cores for facts in self.facts])

        words, each, over = ["1 process"], "", ""
        if self.cluster:
            words = [f"{name} {count}" for name, count in self.cluster.counts().items() if count]
            each, over = " each", " · gRPC on loopback"
            if self._hosts_of_ranks():
                if not self.job.trusted_network:
                    raise ValueError(_UNTRUSTED)
                over = " · gRPC"

        n = self.job.tasks.logical_devices
        if n > 1:
            words.append(f"{n} logical CPUs{each}")
        keras = "tf_keras 2" if self.job.tasks.legacy_keras else "Keras 3"
        words.append(f"TensorFlow {_version()}, {keras}{over}")
        return self._setup_with(words)

    @override
    def _start(self) -> None:
        if self.cluster:
            addresses: list[str] = []
            for host, ranks in zip(self.hosts, self.ranks, strict=True):
                addresses += host.keep_addresses(len(ranks)) if ranks else []
            self.spec = self.cluster.spec(addresses)

        for rank in range(self.job.world_size):
            self._start_one(rank)

    def _start_one(self, rank: int) -> None:
        attempt = self.attempts.get(rank, -1) + 1
        self.attempts[rank] = attempt
        self.host_of(rank).start(rank, self._environment(rank), self._threads(self._node_of(rank)), attempt)

    def _environment(self, rank: int) -> dict[str, str]:
        threads = str(self._threads(self._node_of(rank)))
        env = {
            "KERAS_BACKEND": "tensorflow",
            "TF_USE_LEGACY_KERAS": "1" if self.job.tasks.legacy_keras else "0",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            "OMP_NUM_THREADS": threads,
            "TF_NUM_INTRAOP_THREADS": threads,
        }

        if self.cluster:
            env["TF_CONFIG"] = tf_config(self.spec, self.job.task_names[rank])
            env["no_grpc_proxy"] = ",".join(sorted({facts.address for facts in self.facts}))
            env |= fail_fast(self.cluster, self.job.tasks.servers)

        for name in _YIELDING:
            if name in env:
                env[name] = self.job.env.get(name, env[name])
        return env

    @override
    def _answer_request(self, rank: int, request: Request) -> None:
        """Kill or restart a TensorFlow task at the request of the task `rank`."""
        if not 0 <= request.rank < self.job.world_size:
            return

        other = request.rank
        self.killed.add(other)
        self.connected.discard(other)
        for known in (self.silent, self.exit_codes, self.blocked):
            known.pop(other, None)
        self.host_of(other).kill(other)

        if request.what == "restart":
            self.killed.discard(other)
            self.returned.pop(other, None)
            self.job.files.of(other, "result").unlink(missing_ok=True)
            self._start_one(other)
        self.host_of(rank).tell(rank, "granted")


_UNTRUSTED = (
    "launch: TensorFlow's tasks on several hosts talk over gRPC, which listens on every interface, asks for no password and "
    "runs any graph that it receives: anyone who reaches the hosts' ports can run code as you. If only people you trust can "
    "reach them, say so: hosts.open(…, trusted_network=True)."
)
# of these variables the caller's own values win
_YIELDING = ("TF_FORCE_GPU_ALLOW_GROWTH", "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "GRPC_FAIL_FAST", "no_grpc_proxy")


def _version() -> str:
    """Return TensorFlow's version, such as "2.21"."""
    for name in ("tensorflow", "tensorflow-cpu", "tensorflow_intel"):
        with suppress(metadata.PackageNotFoundError):
            return ".".join(metadata.version(name).split(".")[:2])
    return "of unknown version"
