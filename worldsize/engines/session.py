"""One job in the agent: start its ranks on their hosts, listen to all of them at once, decide how it ended, leave
nothing behind. One host is the usual case, and no other than many.

Left out: how the ranks of a framework start (`torch_session.py`, `tensorflow_session.py`), and what a host does for
them (`host_ranks.py`).
"""

from __future__ import annotations

import math
import multiprocessing.connection as mpc
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from worldsize import units
from worldsize.engines.deadlock import deadlock
from worldsize.engines.host import Host, HostFacts, RankNews, Silence, place
from worldsize.engines.job import Job, Setup, StartMethod, Typed
from worldsize.engines.own_network import Network
from worldsize.engines.ranks.rank_channel import Published, Question, Request
from worldsize.failures import Failure, Outcome, Return, Standing, Status, Wait

START_S = 120.0  # at most, for all ranks to enter their function: a slow import is not the function's time
_SETTLE_S = 0.15  # after a failure: time for the others' news, so that the first one can be told from its echoes
_ECHO_S = 0.5  # when all that is known are echoes: time for the cause to show
_ANSWER_S = 1.0  # for a rank to say where it stands: one that can does so in milliseconds, on a busy machine later
_MOST_S = 1e6  # that one wait may be told to take
EXIT_S = 2.0  # for a process to end whose channel has closed


@dataclass(eq=False)
class Session:
    """A job from start to outcome. One thread; everything is a file descriptor in one wait.

    A framework's own session says what was chosen (`_choose`) and starts the ranks (`_start`). One whose ranks may be
    servers, or be killed on request, also says whose results end the run (`_awaited`), who still runs (`_live`), what
    becomes of a rank's request (`_answer_request`), and who leaves when (`_serving`).
    """

    job: Job
    kernel: mpc.Connection
    watched: list  # the kernel's ends: its pipe, and where there is one its pidfd
    hosts: tuple[Host, ...]
    start_method: StartMethod
    network: Network = "shared"  # in which this process and its ranks are
    why_shared: str = ""

    facts: tuple[HostFacts, ...] = ()  # of the hosts, in their order
    ranks: list[range] = field(default_factory=list)  # of each host, in their order

    # by rank
    connected: set[int] = field(default_factory=set)
    entered_s: dict[int, float] = field(default_factory=dict)
    returned: dict[int, Return] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    silent: dict[int, Silence] = field(default_factory=dict)
    exit_codes: dict[int, int | None] = field(default_factory=dict)  # of those that were silent
    blocked: dict[int, int] = field(default_factory=dict)  # how often its wait had changed when it said so
    published: dict[int, Published | None] = field(default_factory=dict)  # answers to the last "waits"
    standings: dict[int, Standing] = field(default_factory=dict)  # answers to the last "where"
    held: set[int] = field(default_factory=set)  # whose debugger waits for a command
    stopped: bool = False

    # Whether the kernel hears of a run that is done while its processes, which have returned, still end
    tells_early: ClassVar[bool] = False

    def run(self) -> None:
        """Start, follow, end. The kernel gets a Setup first and an Outcome last."""
        try:
            setup = replace(self._choose(), network=self.network, why_shared=self.why_shared)
        except ValueError as error:
            self.kernel.send(Outcome(status="refused", reason=str(error)))
            return
        self.kernel.send(setup)

        status: Status = "failed"
        waits: tuple[Wait, ...] = ()
        standings: tuple[Standing, ...] = ()
        try:
            for host in self._used_hosts():
                host.begin(self.job)
            self._start(setup)

            status, waits = self._follow()
            if status != "done":
                standings = self._ask_standings()
            else:
                self._let_leave()
                status = self._returned_well()
                if status == "done" and self.tells_early:
                    self._tell_outcome(status)
        finally:
            self._end()

        if status != "done" or not self.tells_early:
            self._tell_outcome(status, waits, standings)

    def _tell_outcome(self, status: Status, waits: tuple[Wait, ...] = (), standings: tuple[Standing, ...] = ()) -> None:
        self.kernel.send(self._outcome(status, waits, standings))

    def _outcome(self, status: Status, waits: tuple[Wait, ...], standings: tuple[Standing, ...]) -> Outcome:
        return Outcome(
            status=status,
            failures=tuple(sorted(self.failures.values(), key=lambda f: f.at_s)),
            standings=standings,
            entered_s=self.entered_s,
            returned=self.returned,
            waits=waits,
        )

    def _choose(self) -> Setup:
        """What the ranks get, and where they are placed. Raises ValueError for what these hosts cannot do."""
        raise NotImplementedError

    def _start(self, setup: Setup) -> None:
        """Start every rank on its host."""
        raise NotImplementedError

    def _place(self, capacities: Iterable[int]) -> None:
        self.ranks = place(self.job.world_size, list(capacities))

    def _hosts_in_words(self) -> list[str]:
        """ "2 hosts (n1, n2), Slurm job 4711", as a part of the setup's line; [] for this machine alone."""
        names = [facts.name for facts, ranks in zip(self.facts, self.ranks, strict=True) if ranks and facts.name]
        if not names:
            return []
        counted = f"{units.count(len(names), 'host')} ({', '.join(names)})"
        return [", ".join(filter(None, (counted, self.job.hosts_label)))]

    def _hosts_of_ranks(self) -> tuple[str, ...]:
        names = [self.facts[self._node_of(rank)].name for rank in range(self.job.world_size)]
        return tuple(names) if any(names) else ()

    def _clock_error_s(self) -> float:
        """How far apart two moments on different hosts may really be that seem to be one."""
        errors = sorted(host.clock_error_s() for host in self._used_hosts())
        return sum(errors[-2:])

    def _used_hosts(self) -> list[Host]:
        return [host for host, ranks in zip(self.hosts, self.ranks, strict=True) if ranks]

    def _node_of(self, rank: int) -> int:
        """The place of this rank's host among the hosts."""
        return next(node for node, ranks in enumerate(self.ranks) if rank in ranks)

    def host_of(self, rank: int) -> Host:
        return self.hosts[self._node_of(rank)]

    def _awaited(self) -> set[int]:
        """The ranks whose results end the run."""
        return set(range(self.job.world_size))

    def _serving(self) -> set[int]:
        """The ranks that leave only when all others have."""
        return set()

    # ---- listening -------------------------------------------------------------------------------

    def _follow(self) -> tuple[Status, tuple[Wait, ...]]:
        """Listen until the run is decided: (status, who waits for whom).

        The job's time limit is that of its function: it begins when every rank that is left has entered it.
        """
        deadline_s = time.monotonic() + START_S + self.job.timeout_s
        all_entered = False
        while self._awaited() - set(self.returned):
            listened_s = time.monotonic()
            held = bool(self.held)
            self._listen(math.inf if held else deadline_s - listened_s)
            if held:  # no limit runs while somebody looks at a rank
                deadline_s += time.monotonic() - listened_s

            if not all_entered and self._live() <= self.entered_s.keys():
                all_entered = True
                deadline_s = time.monotonic() + self.job.timeout_s

            if self.stopped:
                return "stopped", ()

            if self.failures or self.silent:
                self._settle()
                return "failed", ()

            if self.blocked and set(self.blocked) >= self._live():
                waits = self._deadlocked()
                if waits:
                    return "deadlock", waits

            if time.monotonic() >= deadline_s:
                return "timeout", ()
        return "done", ()

    def _live(self) -> set[int]:
        ended = self.returned.keys() | self.failures.keys() | self.silent.keys()
        return set(range(self.job.world_size)) - ended

    def _listen(self, timeout_s: float) -> None:
        """Wait for news of anyone, at most `timeout_s`, and take it in."""
        hosts: dict[Any, Host] = {}
        for host in self._used_hosts():
            for news in host.heard_before():
                timeout_s = 0.0
                self._take(news)
            hosts.update(dict.fromkeys(host.watched(), host))

        for item in mpc.wait([*self.watched, *hosts], min(max(0.0, timeout_s), _MOST_S)):
            if item is self.kernel:
                self._told(self.kernel.recv())  # an EOFError ends the agent, which ends the ranks
            elif item not in hosts:
                raise EOFError  # the kernel's pidfd
            else:
                for news in hosts[item].hear(item):
                    self._take(news)

    def _told(self, word: Literal["stop"] | Typed) -> None:
        """The kernel tells this session to stop, or a rank what was typed at its prompt."""
        if isinstance(word, Typed):
            self.held.discard(word.rank)
            self.host_of(word.rank).tell(word.rank, word)
        else:
            self.stopped = True

    def _take(self, news: RankNews) -> None:
        rank, content = news.rank, news.content
        if news.kind == "progress":
            self.kernel.send(content)
        elif news.kind == "hello":
            self.connected.add(rank)
        elif news.kind == "entered":
            self.entered_s[rank] = content
        elif news.kind == "result":
            self.returned[rank] = content
        elif news.kind == "failure":
            self.failures[rank] = content
        elif news.kind == "silent":
            self.connected.discard(rank)
            self.silent[rank] = content
        elif news.kind == "exited":
            self.exit_codes[rank] = content
        elif news.kind == "blocked":
            self.blocked[rank] = content
        elif news.kind == "request":
            self._answer_request(rank, content)
        elif news.kind == "prompt":
            self.held.add(rank)
            self.kernel.send(content)
        elif news.kind == "waits":
            self.published[rank] = content
        elif news.kind == "where":
            self.standings[rank] = content
        else:
            raise ValueError(f"rank {rank} told {news.kind!r}, which is no kind of news")

    def _answer_request(self, rank: int, request: Request) -> None:
        """The rank asks for another one to be killed or started again."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Hear the other ranks out for a moment, then give every silent death its exit code."""
        settled_s = time.monotonic() + _SETTLE_S
        while self._heard_before(settled_s):
            pass

        patience_s = time.monotonic() + _ECHO_S
        while self._only_echoes() and self._heard_before(patience_s):
            pass

        patience_s = time.monotonic() + EXIT_S
        while self.silent.keys() - self.exit_codes.keys() and self._heard_before(patience_s):
            pass
        for rank, silence in self.silent.items():
            self.failures[rank] = silent_failure(rank, silence, self.exit_codes.get(rank))

    def _only_echoes(self) -> bool:
        return not self.silent and all(failure.lost_a_peer for failure in self.failures.values())

    def _heard_before(self, moment_s: float) -> bool:
        """Listen once, for news of anyone until that moment; False where it has passed."""
        left_s = moment_s - time.monotonic()
        if left_s <= 0:
            return False
        self._listen(left_s)
        return True

    def _deadlocked(self) -> tuple[Wait, ...]:
        """Ask every rank what it waits for; a deadlock is one in which nothing can match, twice the same."""
        first = self._ask_waits()
        waits = deadlock({rank: said.messages for rank, said in first.items()}, self._live())
        if waits and first == self._ask_waits():
            return waits

        for rank in list(self.blocked):  # those that went on will report again when they block again
            if rank not in first or first[rank].changes != self.blocked[rank]:
                del self.blocked[rank]
        return ()

    def _ask_waits(self) -> dict[int, Published]:
        """What the ranks publish that have a fabric and answer in time."""
        self.published = {}
        self._ask("waits", set(range(self.job.world_size)), self.published)
        return {rank: said for rank, said in self.published.items() if said is not None}

    def _ask(self, question: Question, ranks: set[int], answers: dict[int, Any]) -> None:
        """Put a question to `ranks`, and listen until all that can have answered, or the time is up."""
        asked = ranks & self.connected
        for rank in asked:
            self.host_of(rank).tell(rank, question)

        patience_s = time.monotonic() + _ANSWER_S
        while not asked <= answers.keys() | self.silent.keys() and self._heard_before(patience_s):
            pass

    def _ask_standings(self) -> tuple[Standing, ...]:
        self.standings = {}
        asked = self._live() & self._awaited()
        self._ask("where", asked, self.standings)

        found: list[Standing] = []
        for rank in sorted(self._live() & asked):
            if rank in self.standings:
                found.append(self.standings[rank])
            else:
                found.append(self.host_of(rank).seen_last(rank))
        return tuple(found)

    def _let_leave(self) -> None:
        """All that were awaited have returned: let them go, and have what they wrote where the run's folder is."""
        for host in self._used_hosts():
            host.let_leave(self._awaited(), self._serving())
        for host in self._used_hosts():
            host.wait_written()

    def _end(self) -> None:
        """End what is left of the ranks, with all their children, and reap them."""
        for host in self._used_hosts():
            host.end()
        for host in self._used_hosts():
            host.wait_ended()

    def _returned_well(self) -> Status:
        """A host may be lost after its ranks said that they are done, and what they returned with it."""
        for host in self._used_hosts():
            for news in host.heard_before():
                self._take(news)
        lost = self.silent.keys() & self._awaited()
        for rank in lost:
            self.returned.pop(rank, None)
            self.failures[rank] = silent_failure(rank, self.silent[rank], None)
        return "failed" if lost else "done"


def silent_failure(rank: int, silence: Silence, code: int | None) -> Failure:
    """Of a rank whose channel closed with nothing said. What has become of one whose exit nobody saw, nobody knows."""
    if silence.lost_host:
        return Failure(rank=rank, kind="lost", at_s=silence.at_s, host=silence.lost_host)
    if code is not None and code < 0:
        return Failure(rank=rank, kind="signal", at_s=silence.at_s, frames=silence.frames, code=-code)
    return Failure(rank=rank, kind="exit", at_s=silence.at_s, frames=silence.frames, code=code)


def way_of(start_method: StartMethod) -> str:
    """How ranks start, as a set-up line says it."""
    return "fork server" if start_method == "forkserver" else start_method
