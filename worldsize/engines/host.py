"""The interface of a host: its facts, the session's requests, and the news of its ranks.

A run has one `Host` for each machine that has ranks of it. `session.py` decides; `host_ranks.py` implements this
machine's host, `remote/remote_ranks.py` another's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from worldsize.engines.job import Job, Typed, Use
from worldsize.engines.ranks.rank_channel import Question
from worldsize.failures import Frame, Standing

NewsKind = Literal[
    "hello", "entered", "progress", "blocked", "stalled", "request", "waits", "posts", "where", "prompt", "result", "failure",
    "silent", "exited",
]


@dataclass(frozen=True)
class HostFacts:
    """A host's resources for ranks: cores and GPUs (by name), and the address at which other hosts reach it.

    `interface` is the network interface of that address, "" if unknown; `nccl`: whether torch has NCCL there.
    """

    name: str
    address: str
    cores: int
    gpus: tuple[str, ...] = ()
    nccl: bool = False
    interface: str = ""


@dataclass(frozen=True)
class RankNews:
    """A host's news from or about one rank: "silent" brings a `Silence`, "exited" the exit code."""

    rank: int
    kind: NewsKind
    content: Any = None


@dataclass(frozen=True)
class Silence:
    """A host's word on a rank that ended without a report: when that was noticed, and the rank's last known stack.

    `lost_host` names its host if that was lost too.
    """

    at_s: float
    frames: tuple[Frame, ...] = ()
    lost_host: str = ""


class Host(Protocol):
    """The ranks of one job on one host. The defaults suit this machine, where ranks write into the run's folder themselves.

    Calls to a lost host do nothing; `facts`, `open_store` and `keep_addresses` raise OSError.
    """

    def facts(self, with_gpus: bool) -> HostFacts:
        """Return the host's resources; look for GPUs only if a job may use them."""

    def clock_error_s(self) -> float:
        """Return the largest error of the host's clock offset."""
        return 0.0

    def begin(self, job: Job) -> None:
        """Prepare this host for the ranks of this job."""

    def open_store(self) -> int:
        """Open on this host the ranks' rendezvous, a TCPStore that lives as long as the run, and return its port."""

    def keep_addresses(self, count: int) -> list[str]:
        """Reserve `count` addresses, each "host:port", for tasks of this run."""

    def start(self, rank: int, env: dict[str, str], threads: int, attempt: int = 0) -> None:
        """Start a rank in a fresh process on this host."""

    def use(self, order: Use) -> None:
        """Let the order's ranks on this host, which stay and are ready, carry it out."""

    def bring_files(self) -> None:
        """Return when the files that this host's ranks wrote for their order are in the run's folder."""
        return None

    def watched(self) -> list:
        """Return the host's objects to wait for: when one is ready, `hear` has news."""

    def hear(self, ready: Any) -> Iterable[RankNews]:
        """Return the host's news from a ready object of `watched`."""

    def heard_before(self) -> Iterable[RankNews]:
        """Return the host's news that came while the host was asked for something else."""
        return ()

    def tell(self, rank: int, word: Question | Typed) -> None:
        """Ask or tell a rank of this host something, if it still runs."""

    def kill(self, rank: int) -> None:
        """SIGKILL a rank of this host with its children; no further news of it comes."""

    def seen_last(self, rank: int) -> Standing:
        """Return the last known stack of a rank of this host that does not answer."""

    def let_leave(self, leaving: set[int], serving: set[int]) -> None:
        """Let this host's ranks in `leaving`, which have returned, leave by themselves, and those in `serving` after them."""

    def wait_written(self) -> None:
        """Return when the files of this host's leaving ranks are in the run's folder."""
        return None

    def end(self) -> None:
        """Begin to kill this host's remaining ranks with their children; `wait_ended` finishes."""

    def wait_ended(self) -> None:
        """Return when, on this host, no rank of the job is left, and their files are in the run's folder."""
        return None


def place(world_size: int, capacities: Sequence[int]) -> list[range]:
    """Return the ranks of each host, numbered host by host, given the hosts' `capacities` (cores, or GPUs).

    Each host first gets one rank, as far as they go; each further rank goes where the load is then lowest (the highest
    averages method of D'Hondt), so that no host is overloaded while another has room. A host of capacity 0 gets none.
    """
    counts = [0] * len(capacities)
    usable = [node for node, capacity in enumerate(capacities) if capacity > 0]

    for _ in range(world_size):
        # a host without ranks first, then the lowest load
        chosen = min(usable, key=lambda node: (counts[node] > 0, (counts[node] + 1) / capacities[node]))
        counts[chosen] += 1

    ranks: list[range] = []
    start = 0
    for count in counts:
        ranks.append(range(start, start + count))
        start += count
    return ranks
