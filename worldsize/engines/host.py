"""A host as the one that decides sees it: what it has, what it is asked for, and what its ranks tell.

A run has one `Host` for each machine that has ranks of it; a run of this machine has one in all. Left out: what is
decided (`session.py`), how a host does it (`host_ranks.py`), and what a rank finds there (`torch_session.py`,
`tensorflow_session.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from worldsize.engines.job import Job, Typed, Use
from worldsize.engines.ranks.rank_channel import Question
from worldsize.failures import Frame, Standing

NewsKind = Literal[
    "hello", "entered", "progress", "blocked", "request", "waits", "where", "prompt", "result", "failure", "silent", "exited"
]


@dataclass(frozen=True)
class HostFacts:
    """What a host has for ranks: cores and GPUs (by name), and the address at which other hosts reach it.

    `interface` is the network interface of that address, "" where it is not known; `nccl`: whether torch has NCCL there.
    """

    name: str
    address: str
    cores: int
    gpus: tuple[str, ...] = ()
    nccl: bool = False
    interface: str = ""


@dataclass(frozen=True)
class RankNews:
    """What one rank told, or what became of it: "silent" brings a `Silence`, "exited" its exit code."""

    rank: int
    kind: NewsKind
    content: Any = None


@dataclass(frozen=True)
class Silence:
    """The end of a rank that said nothing: when that was noticed, and where it had been seen last.

    `lost_host` names its host where that was lost with it.
    """

    at_s: float
    frames: tuple[Frame, ...] = ()
    lost_host: str = ""


class Host(Protocol):
    """The ranks of one job on one host. What is asked of a host that is lost does nothing."""

    def facts(self, with_gpus: bool) -> HostFacts:
        """What the host has. Its GPUs are looked for only where a job may use them."""

    def clock_error_s(self) -> float:
        """How well its clock is known on this machine's."""

    def begin(self, job: Job) -> None:
        """Make ready for the ranks of this job."""

    def open_store(self) -> int:
        """Listen for the ranks' rendezvous, a TCPStore that lives as long as the run; returns its port."""

    def keep_addresses(self, count: int) -> list[str]:
        """Addresses that are kept for tasks of this run, each "host:port"."""

    def start(self, rank: int, env: dict[str, str], threads: int, attempt: int = 0) -> None:
        """Start a rank in a fresh process."""

    def use(self, order: Use) -> None:
        """Let those of the order's ranks that are here do it. They stay, and have said that they are ready."""

    def bring_files(self) -> None:
        """Return when what the ranks that stay have written for their order is in the run's folder."""

    def watched(self) -> list:
        """What to wait for: when one of these is ready, `hear` has news."""

    def hear(self, ready: Any) -> Iterable[RankNews]:
        """The news that one of the `watched` brings."""

    def heard_before(self) -> Iterable[RankNews]:
        """News that came while the host was asked for something else."""

    def tell(self, rank: int, word: Question | Typed) -> None:
        """Ask or tell a rank, if it is still there."""

    def kill(self, rank: int) -> None:
        """SIGKILL a rank with its children; no further news of it comes."""

    def seen_last(self, rank: int) -> Standing:
        """Where a rank that does not answer was seen last."""

    def let_leave(self, leaving: set[int], serving: set[int]) -> None:
        """Let the ranks in `leaving`, which have returned, leave by themselves, and those in `serving` after them."""

    def wait_written(self) -> None:
        """Return when what those who were let go have written is in the run's folder."""

    def end(self) -> None:
        """Kill what is left of the ranks, with their children. It may go on until `wait_ended` returns."""

    def wait_ended(self) -> None:
        """Return when no rank of the job is left, and what they have written is in the run's folder."""


def place(world_size: int, capacities: Sequence[int]) -> list[range]:
    """The ranks of each host, in the hosts' order, for a placement by their `capacities` (cores, or GPUs).

    First each host gets one, as far as the ranks go; each next one goes where the load is then the least (the highest
    averages method of D'Hondt), so that no host has more than it carries while another carries less. The ranks are
    numbered host by host. A host of capacity 0 gets none.
    """
    counts = [0] * len(capacities)
    usable = [node for node, capacity in enumerate(capacities) if capacity > 0]
    for _ in range(world_size):
        chosen = min(usable, key=lambda node: (counts[node] > 0, (counts[node] + 1) / capacities[node]))
        counts[chosen] += 1

    ranks: list[range] = []
    start = 0
    for count in counts:
        ranks.append(range(start, start + count))
        start += count
    return ranks
