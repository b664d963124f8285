"""The ranks of a job on this host: starts, hears, kills and reaps them. All decisions are the session's.

Each rank is a process from a warm fork server (or a fresh interpreter), with a channel to this process. `rank.py` runs in
that process; `session.py` interprets the news.
"""

import functools
import multiprocessing
import multiprocessing.connection as mpc
import os
import pickle
import signal
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any

from typing_extensions import override

from worldsize import machine
from worldsize.engines.host import Host, HostFacts, RankNews, Silence
from worldsize.engines.job import Job, StartMethod, Typed, Use
from worldsize.engines.ranks.last_seen import last_seen, stack_of
from worldsize.engines.ranks.rank import main as rank_main
from worldsize.engines.ranks.rank_channel import MAIN, Question
from worldsize.engines.torch_services import TorchServices
from worldsize.failures import Standing

_HELLO_S = 1.0  # for a connected rank to say who it is
_LEAVE_S = 2.0  # for a rank to leave after its result
_SERVER_LEAVES_S = 0.5  # for a server to leave after SIGTERM
_REAP_S = 5.0  # for a killed process to be gone


@dataclass(eq=False)
class HostRanks(Host):
    """The ranks of one job on this host. Ranks connect to `listener`. `end` returns when all have ended."""

    listener: socket.socket
    start_method: StartMethod
    services: TorchServices
    name: str = ""
    address: str = "127.0.0.1"

    job: Job | None = None
    processes: dict[int, BaseProcess] = field(default_factory=dict)  # by rank
    channels: dict[int, mpc.Connection] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)  # ended without a report; the exit is awaited
    over: set[int] = field(default_factory=set)  # reported their end, went silent, or were killed
    leaving: set[int] = field(default_factory=set)  # allowed to leave
    serving: set[int] = field(default_factory=set)  # leave after those
    store_port: int | None = None  # None if the store is on another host, or not needed
    kept: ExitStack = field(default_factory=ExitStack)  # sockets that reserve ports for tasks

    @override
    def facts(self, with_gpus: bool) -> HostFacts:
        gpus, nccl = self.services.gpus() if with_gpus else ((), False)
        return HostFacts(self.name, self.address, cores(), gpus, nccl, _interface_of(self.address))

    @override
    def begin(self, job: Job) -> None:
        self.job = job
        job.files.job.write_bytes(pickle.dumps(job))

    @override
    def open_store(self) -> int:
        self.store_port = self.services.open_store(self.address)
        return self.store_port

    @override
    def keep_addresses(self, count: int) -> list[str]:
        """Reserve this host's ports for a run: bind each with SO_REUSEADDR and never listen, so that nobody else gets it.

        A task's server, which also sets SO_REUSEADDR, can bind the port and listen (Linux allows that).
        """
        addresses = []
        for _ in range(count):
            bound = self.kept.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("", 0))
            addresses.append(f"{self.address}:{bound.getsockname()[1]}")
        return addresses

    @override
    def start(self, rank: int, env: dict[str, str], threads: int, attempt: int = 0) -> None:
        self.over.discard(rank)
        arguments = (rank, self.listener.getsockname(), str(self.job.files.job), env, threads, attempt)
        context = multiprocessing.get_context(self.start_method)
        process = context.Process(target=rank_main, args=arguments)  # type: ignore[attr-defined]  # every context has it
        process.start()
        self.processes[rank] = process

    @override
    def use(self, order: Use) -> None:
        self.job = order.job
        pickled = pickle.dumps(order)
        for rank in order.ranks:
            self._send(rank, pickled)

    # ---- listening -------------------------------------------------------------------------------

    @override
    def watched(self) -> list:
        exits = []
        for rank, process in self.processes.items():
            coming = rank not in self.channels and rank not in self.over
            if coming or rank in self.silent:
                exits.append(process.sentinel)
        return [self.listener, *self.channels.values(), *exits]

    @override
    def hear(self, ready: Any) -> Iterable[RankNews]:
        if ready is self.listener:
            return self._welcome()
        if isinstance(ready, int):
            return self._exited(ready)
        return self._told(ready)

    def _welcome(self) -> Iterator[RankNews]:
        accepted, _ = self.listener.accept()
        channel = mpc.Connection(accepted.detach())
        if not channel.poll(_HELLO_S):
            channel.close()
            return

        with suppress(EOFError, OSError):
            _, (rank, pid) = channel.recv()
            if rank in self.processes and self.processes[rank].pid == pid:  # else it is left from an earlier run
                self.channels[rank] = channel
                yield RankNews(rank, "hello")
                return
        channel.close()

    def _told(self, channel: mpc.Connection) -> Iterator[RankNews]:
        rank = next((r for r, known in self.channels.items() if known is channel), None)
        if rank is None:  # closed by news heard a moment before
            return

        try:
            kind, content = channel.recv()
        except (EOFError, OSError):
            self.channels.pop(rank).close()
            if rank not in self.over:
                yield self._silence(rank)
            return

        if kind in ("result", "failure") and not self.job.world:  # a rank that stays may still end at any time
            self.over.add(rank)
        yield RankNews(rank, kind, content)

    def _silence(self, rank: int) -> RankNews:
        self.over.add(rank)
        self.silent.add(rank)
        return RankNews(rank, "silent", Silence(time.monotonic(), last_seen(self.job.files.of(rank, "last_seen"))))

    def _exited(self, sentinel: int) -> Iterator[RankNews]:
        """Report the exit of a rank of this host that sent nothing more, perhaps before its hello."""
        rank = next(r for r, process in self.processes.items() if process.sentinel == sentinel)
        if rank not in self.silent:
            yield self._silence(rank)
        self.silent.discard(rank)
        yield RankNews(rank, "exited", self.processes[rank].exitcode)

    @override
    def tell(self, rank: int, word: Question | Typed) -> None:
        self._send(rank, pickle.dumps(word))

    def _send(self, rank: int, pickled: bytes) -> None:
        with suppress(KeyError, OSError):  # it has ended
            self.channels[rank].send_bytes(pickled)

    @override
    def seen_last(self, rank: int) -> Standing:
        """Return a silent rank's stack, by a signal, or else from its file.

        The usual case is a call that holds Python's lock while it waits for a peer.
        """
        frames = stack_of(self.processes[rank].pid, self.job.files.of(rank, "stack"), MAIN)
        return Standing(rank=rank, frames=frames or last_seen(self.job.files.of(rank, "last_seen")), answered=False)

    # ---- the end ---------------------------------------------------------------------------------

    @override
    def kill(self, rank: int) -> None:
        self.over.add(rank)
        self.silent.discard(rank)
        channel = self.channels.pop(rank, None)
        if channel is not None:
            channel.close()

        self._signal(rank, signal.SIGKILL)
        self.processes[rank].join(_REAP_S)

    def _signal(self, rank: int, number: int) -> None:
        """Signal a rank and its children, such as data loaders; also the rank alone, which may not lead its group yet."""
        process = self.processes[rank]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

        if process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    @override
    def let_leave(self, leaving: set[int], serving: set[int]) -> None:
        self.leaving, self.serving = leaving, serving
        for rank in list(self.channels):
            self.tell(rank, "bye")

    @override
    def end(self) -> None:
        self._join(self.leaving, _LEAVE_S)
        for rank in self.serving & set(self.processes):
            self._signal(rank, signal.SIGTERM)
        self._join(self.serving, _SERVER_LEAVES_S)

        for rank in self.processes:
            self._signal(rank, signal.SIGKILL)
        self._join(set(self.processes), _REAP_S)

        for channel in self.channels.values():
            channel.close()
        self.kept.close()
        if self.store_port is not None:
            self.services.close_store(self.store_port)

    def _join(self, ranks: set[int], at_most_s: float) -> None:
        until_s = time.monotonic() + at_most_s
        for rank in ranks & set(self.processes):
            self.processes[rank].join(max(0.0, until_s - time.monotonic()))


def cores() -> int:
    """Return how many whole cores the ranks of this host may use, within the limits of a container or a hub."""
    return max(1, int(machine.usable_cores()))


@functools.cache
def _interface_of(address: str) -> str:
    """Return this host's network interface with this address, such as "lo" or "eth0"; "" if none is found."""
    import psutil  # here, because the agent starts without it

    for name, rows in psutil.net_if_addrs().items():
        if any(row.address == address for row in rows):
            return name
    return ""
