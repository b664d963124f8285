"""The ranks of a job on another host, as the head sees them: a `Host` that works over a line.

Files that ranks write on their host are copied into the run's folder here. `host_agent.py` is the host's own side.
"""

import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from typing_extensions import override

from worldsize.engines.host import Host, HostFacts, RankNews, Silence
from worldsize.engines.job import Job, Typed, Use
from worldsize.engines.ranks.rank_channel import Question
from worldsize.engines.remote import host_messages
from worldsize.engines.remote.host_messages import MAX_CHUNK_BYTES, Answered, BadMessage, Chunk, Command, FromHost, Told
from worldsize.engines.remote.line import HostLine
from worldsize.failures import Standing
from worldsize.files import write_whole

_ECHOES = 20


@dataclass(frozen=True)
class ClockOffset:
    """The remote host's clock is this machine's plus `seconds`, give or take `error_s`."""

    seconds: float = 0.0
    error_s: float = 0.0


def measured(echo: Callable[[], float], echoes: int = _ECHOES) -> ClockOffset:
    """Return another host's `ClockOffset` from `echoes` questions; each `echo` returns the host's clock in seconds.

    Cristian's method (Probabilistic clock synchronization, 1989, doi 10.1007/BF01784024): of several echoes the one with the
    shortest round trip is the most exact, because the host answered within it. Drift within a run is ignored: quartz clocks
    drift apart by some 20 µs a second at most, and a launch renews a measurement older than 10 s.
    """
    best: ClockOffset | None = None
    for _ in range(echoes):
        asked_s = time.monotonic()
        theirs_s = echo()
        round_trip_s = time.monotonic() - asked_s

        if best is None or round_trip_s / 2 < best.error_s:
            best = ClockOffset(seconds=theirs_s - (asked_s + round_trip_s / 2), error_s=round_trip_s / 2)
    return best or ClockOffset()


_ANSWER_S = 10.0  # during a run
_WARM_S = 180.0  # for a host that may still import its framework: a lost host is noticed sooner
_END_S = 30.0  # for the next chunk of the ranks' files, or for the ranks to end
_MOST_BYTES = 4_000_000_000  # of one rank's files in a run, so that no host fills this machine's disk


class HostLost(OSError):
    """The line to a remote host has ended; the message says why."""


@dataclass(eq=False)
class RemoteRanks(Host):
    """The ranks of one framework on one host, for one job at a time."""

    name: str
    line: HostLine
    offset: ClockOffset = ClockOffset()
    lost: str = ""  # why the host is lost
    warm: bool = False  # whether a rank can be forked there at once

    job: Job | None = None
    ranks: set[int] = field(default_factory=set)  # started on this host
    live: set[int] = field(default_factory=set)  # started, and not known to have ended
    before: list[RankNews] = field(default_factory=list)  # arrived while an answer was awaited
    written: dict[int, int] = field(default_factory=dict)  # bytes of each rank's files
    records: dict[int, bytearray] = field(default_factory=dict)  # received so far
    _facts: dict[bool, HostFacts] = field(default_factory=dict)

    # ---- the interface of a Host -----------------------------------------------------------------

    @override
    def facts(self, with_gpus: bool) -> HostFacts:
        if with_gpus not in self._facts:
            self._facts[with_gpus] = replace(self.call("facts", with_gpus), name=self.name)
        return self._facts[with_gpus]

    @override
    def clock_error_s(self) -> float:
        return self.offset.error_s

    def warm_up(self) -> None:
        """Tell the remote host to import its framework; its answer sets `warm`."""
        self._send("warm")

    @override
    def begin(self, job: Job) -> None:
        self.job = job
        for kept in (self.ranks, self.live, self.before, self.written, self.records):
            kept.clear()

        travelling = self._send_ahead(job)
        self._send("begin", travelling, self.offset.seconds)

    def _send_ahead(self, job: Job) -> Job:
        """Send the payload, and return the job as the host gets it: without local environment and paths, on its clock."""
        if job.files.payload.exists():  # ranks that stay open without a payload
            payload = job.files.payload.read_bytes()
            for start in range(0, len(payload), MAX_CHUNK_BYTES):
                self._send("payload", payload[start : start + MAX_CHUNK_BYTES])
        return replace(job, env=job.travelling_env, unset=(), sys_path=(), cwd="", origin_s=job.origin_s + self.offset.seconds)

    @override
    def use(self, order: Use) -> None:
        self.job = order.job
        for kept in (self.written, self.records):
            kept.clear()

        travelling = self._send_ahead(order.job)
        self._send("use", replace(order, job=travelling), self.offset.seconds)

    @override
    def bring_files(self) -> None:
        with suppress(HostLost):
            self._send("bring")
            self._answer_to("bring", _END_S, renewed=True)
        self._write_records()

    @override
    def open_store(self) -> int:
        return self.call("open_store")

    @override
    def keep_addresses(self, count: int) -> list[str]:
        return self.call("keep_addresses", count)

    @override
    def start(self, rank: int, env: dict[str, str], threads: int, attempt: int = 0) -> None:
        self.ranks.add(rank)
        self.live.add(rank)
        self._send("start", rank, env, threads, attempt)

    @override
    def watched(self) -> list:
        return [] if self.lost else [self.line]

    @override
    def hear(self, ready: Any) -> Iterable[RankNews]:
        with suppress(HostLost):
            self.before += self._news(self._receive())
        return self.heard_before()

    @override
    def heard_before(self) -> Iterable[RankNews]:
        heard, self.before = self.before, []
        return heard

    @override
    def tell(self, rank: int, word: Question | Typed) -> None:
        self._send("tell", rank, word)

    @override
    def kill(self, rank: int) -> None:
        self.live.discard(rank)
        with suppress(HostLost):
            self.call("kill", rank, at_most_s=_ANSWER_S)
        self.before = [news for news in self.before if news.rank != rank]

    @override
    def seen_last(self, rank: int) -> Standing:
        try:
            return self.call("seen_last", rank, at_most_s=_ANSWER_S)
        except HostLost:
            return Standing(rank=rank, answered=False)

    @override
    def let_leave(self, leaving: set[int], serving: set[int]) -> None:
        self._send("let_leave", leaving, serving)

    @override
    def wait_written(self) -> None:
        with suppress(HostLost):
            self._answer_to("let_leave", _END_S, renewed=True)

        self._write_records()
        if self.lost:  # the ranks' results may be incomplete
            lost = Silence(time.monotonic(), lost_host=self.name)
            self.before = [RankNews(rank, "silent", lost) for rank in sorted(self.ranks)]

    @override
    def end(self) -> None:
        self._send("end")

    @override
    def wait_ended(self) -> None:
        with suppress(HostLost):
            self._answer_to("end", _END_S, renewed=True)

        self._write_records()
        self.ranks.clear()
        self.live.clear()

    def _write_records(self) -> None:
        for rank, record in self.records.items():
            write_whole(self.job.files.of(rank, "record"), bytes(record))
        self.records.clear()

    # ---- asking ----------------------------------------------------------------------------------

    def measure_clock(self) -> None:
        """Compare the remote host's clock with this machine's now. Raises HostLost."""
        self.offset = measured(lambda: self.call("echo"))

    def call(self, command: Command, *arguments: Any, at_most_s: float = _WARM_S) -> Any:
        """Send the other host a command and return its answer. Raises HostLost, and ValueError with the host's error."""
        self._send(command, *arguments)
        return self._answer_to(command, at_most_s)

    def _send(self, command: Command, *arguments: Any) -> None:
        """Send the other host a command. A lost host is ignored here and noticed when its line is read."""
        with suppress(OSError):
            self.line.send(pickle.dumps((command, *arguments)))

    def _answer_to(self, command: Command, at_most_s: float, renewed: bool = False) -> Any:
        """Wait at most `at_most_s` for a remote answer to a command; with `renewed`, every message restarts the wait."""
        until_s = time.monotonic() + at_most_s
        while self.lost or self.line.poll(max(0.0, until_s - time.monotonic())):
            message = self._receive()
            if not isinstance(message, Answered) or message.command != command:
                self.before += self._news(message)
                if renewed:
                    until_s = time.monotonic() + at_most_s
                continue

            if message.error:
                raise ValueError(f"{self.name}: {message.error[:1000]!a}")
            try:
                return host_messages.body(message.body, host_messages.ANSWER_TYPES[command])
            except BadMessage as error:
                self._lose(f"it sent an invalid answer: {error}")

        self._lose(f"it did not answer within {at_most_s:g} s")

    def _receive(self) -> FromHost:
        if self.lost:
            raise HostLost(f"{self.name}: {self.lost}")
        try:
            return host_messages.decode(self.line.receive())
        except BadMessage as error:
            self._lose(f"it sent an invalid message: {error}")
        except OSError as error:
            self._lose(str(error))

    def _lose(self, why: str) -> NoReturn:
        """Give up this host: close its line, and report its live ranks as lost at this moment. Raises HostLost."""
        if not self.lost:
            self.lost = why
            self.line.close()
            self.records.clear()  # they may be cut off, and a trace reads whole records
            for rank in sorted(self.live):
                self.before.append(RankNews(rank, "silent", Silence(time.monotonic(), lost_host=self.name)))
                self.before.append(RankNews(rank, "exited"))
            self.live.clear()
        raise HostLost(f"{self.name}: {self.lost}")

    # ---- the host's messages ---------------------------------------------------------------------

    def _news(self, message: FromHost) -> Iterator[RankNews]:
        if isinstance(message, Answered) and message.command == "warm":
            if message.error:
                self._lose(message.error)
            self.warm = True
        elif isinstance(message, Chunk):
            self._keep(message)
        elif isinstance(message, Told):
            yield self._told(message)

    def _told(self, message: Told) -> RankNews:
        self._demand_own(message.rank)
        try:
            content = host_messages.body(message.body, host_messages.NEWS_TYPES[message.kind])
        except BadMessage as error:
            self._lose(f"it sent invalid news: {error}")

        if message.kind == "silent" or (message.kind in ("result", "failure") and not self.job.world):
            self.live.discard(message.rank)
        return RankNews(message.rank, message.kind, content)

    def _demand_own(self, rank: int) -> None:
        if rank not in self.ranks:
            self._lose("it spoke for a rank that does not run there")

    def _keep(self, chunk: Chunk) -> None:
        """Append a chunk to the rank's file in the run's folder here; keep records in memory."""
        rank = chunk.rank
        self._demand_own(rank)

        self.written[rank] = self.written.get(rank, 0) + len(chunk.data)
        if self.written[rank] > _MOST_BYTES:
            self._lose(f"it wrote more than {_MOST_BYTES / 1e9:g} GB of logs and results for rank {rank}")

        if chunk.kind == "record":
            self.records.setdefault(rank, bytearray()).extend(chunk.data)
            return

        try:
            with open(self.job.files.of(rank, chunk.kind), "ab") as file:
                file.write(chunk.data)
        except OSError as error:
            self._lose(f"its files cannot be written here: {error}")
