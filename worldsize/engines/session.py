"""A job in the agent: start its ranks on their hosts, listen to all of them, decide how the job ended, and clean up.

A single host is no special case. `torch_session.py` and `tensorflow_session.py` start a framework's ranks;
`host_ranks.py` does a host's part.
"""

import math
import multiprocessing.connection as mpc
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from worldsize import units
from worldsize.engines.deadlock import Posts, cause, deadlock, disagreement, stuck
from worldsize.engines.host import Host, HostFacts, RankNews, Silence
from worldsize.engines.job import Job, Setup, StartMethod, Typed
from worldsize.engines.own_network import Network
from worldsize.engines.ranks.rank_channel import Published, Question, Request
from worldsize.failures import Failure, Outcome, Return, Standing, Status, Wait
from worldsize.links import Link

START_S = 120.0  # for all ranks to enter their function: a slow import does not count as the function's time
_SETTLE_S = 0.15  # after a failure, for other ranks' news: the first failure must be told from its echoes
_ECHO_S = 0.5  # more, while only echoes are known, for the cause to show
_ANSWER_S = 1.0  # for a rank to say where it stands: usually milliseconds, longer on a busy machine
_STALL_S = 2.0  # the age of a rank's word that it stands, after which another rank's end is no reason to look
_LOOKS, _LOOK_LATER_S = 3, 0.2  # after a rank began to stand, or another ended: a thread may be about to sleep
_LOOK_AGAIN_S = 0.1  # between the two looks that prove a deadlock in torch's own communication
_QUIET_CPU_S = 1e-3  # of a rank's other threads between the two looks, at most, if nothing is under way
_MOST_S = 1e6  # the longest single wait: the system's call does not take infinity
EXIT_S = 2.0  # for a process to end after its channel closed


@dataclass(eq=False)
class Session:
    """A job from start to outcome. A single thread waits on file descriptors for everything.

    A framework's session implements `_choose` (devices, placement) and `_start`, and if ranks may be killed on request,
    `_answer_request`.
    """

    job: Job
    kernel: mpc.Connection
    watched: list  # the kernel's pipe, and its pidfd where the system has one
    hosts: tuple[Host, ...]
    start_method: StartMethod
    network: Network = "shared"  # of this process and its ranks
    why_shared: str = ""

    facts: tuple[HostFacts, ...] = ()  # by host
    ranks: list[range] = field(default_factory=list)  # by host
    setup: Setup = field(default_factory=lambda: Setup("", 1))

    # by rank
    connected: set[int] = field(default_factory=set)
    entered_s: dict[int, float] = field(default_factory=dict)
    returned: dict[int, Return] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    silent: dict[int, Silence] = field(default_factory=dict)
    exit_codes: dict[int, int | None] = field(default_factory=dict)  # of silent ranks
    blocked: dict[int, int] = field(default_factory=dict)  # its count of wait changes when it reported itself blocked
    published: dict[int, Published | None] = field(default_factory=dict)  # answers to the last "waits"
    posts: dict[int, Posts | None] = field(default_factory=dict)  # answers to the last "posts"
    standings: dict[int, Standing] = field(default_factory=dict)  # answers to the last "where"
    look_s: float = math.inf  # when to look next whether ranks wait for ever in torch's own communication
    looks: int = 0  # to come, unless a rank reports more
    stalled_s: float = -math.inf  # when a rank last said that it stands where it may wait
    cause: str = ""  # of a deadlock in torch's own communication
    awaited: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by rank of such a deadlock: whom it waits for
    held: set[int] = field(default_factory=set)  # ranks whose debugger waits for a command
    killed: set[int] = field(default_factory=set)  # on another rank's request
    stopped: bool = False

    # whether to report success before the processes, which have returned, have ended
    tells_early: ClassVar[bool] = False

    def run(self) -> None:
        """Start the job's ranks, follow them, end them. Send the kernel a Setup first and an Outcome last."""
        if not self._set_up():
            return

        status: Status = "failed"
        waits: tuple[Wait, ...] = ()
        standings: tuple[Standing, ...] = ()
        try:
            for host in self._used_hosts():
                host.begin(self.job)
            self._start()

            status, waits = self._follow()
            if status != "done":
                standings = self._ask_standings()
            else:
                for host in self._used_hosts():
                    host.let_leave(self._awaited(), self._serving())
                for host in self._used_hosts():
                    host.wait_written()
                status = self._returned_well()
                if status == "done" and self.tells_early:
                    self.kernel.send(self._outcome(status, (), ()))
        finally:
            self.end()

        if status != "done" or not self.tells_early:
            self.kernel.send(self._outcome(status, waits, standings))

    def _set_up(self) -> bool:
        """Send the kernel the Setup, or an Outcome and return False if these hosts cannot run the job."""
        try:
            self.setup = self._choose()
        except ValueError as error:
            self.kernel.send(Outcome(status="refused", reason=str(error)))
            return False
        self.kernel.send(self.setup)
        return True

    def _outcome(self, status: Status, waits: tuple[Wait, ...], standings: tuple[Standing, ...]) -> Outcome:
        return Outcome(
            status=status,
            failures=tuple(sorted(self.failures.values(), key=lambda f: f.at_s)),
            standings=standings,
            entered_s=self.entered_s,
            returned=self.returned,
            waits=waits,
            cause=self.cause,
        )

    def _choose(self) -> Setup:
        """Choose the job's devices and placement. Raises ValueError for a job that these hosts cannot run."""
        raise NotImplementedError

    def _start(self) -> None:
        """Start every rank of the job on its host."""
        raise NotImplementedError

    def _setup_with(self, words: list[str], on_gpus: bool = False) -> Setup:
        """Return the job's Setup. Its line begins with `words`; "2 hosts (n1, n2), Slurm job 4711", how ranks start, and the
        links follow.
        """
        line = list(words)
        names = [facts.name for facts, ranks in zip(self.facts, self.ranks, strict=True) if ranks and facts.name]
        if names:  # none on this machine alone
            counted = f"{units.count(len(names), 'host')} ({', '.join(names)})"
            line.append(", ".join(filter(None, (counted, self.job.hosts_label))))

        line.append("fork server" if self.start_method == "forkserver" else self.start_method)
        if self.job.link:
            line.append(f"links {self.job.link}" if isinstance(self.job.link, Link) else str(self.job.link))

        clock_errors_s = sorted(host.clock_error_s() for host in self._used_hosts())
        return Setup(
            text=" · ".join(line),
            threads=self._threads(0),
            on_gpus=on_gpus,
            hosts=self._hosts_of_ranks(),
            clock_error_s=sum(clock_errors_s[-2:]),  # at most, when moments of two hosts are compared
            network=self.network,
            why_shared=self.why_shared,
        )

    def _hosts_of_ranks(self) -> tuple[str, ...]:
        names = [self.facts[self._node_of(rank)].name for rank in range(self.job.world_size)]
        return tuple(names) if any(names) else ()

    def _threads(self, node: int) -> int:
        """Return the threads of each rank on this host: as OMP_NUM_THREADS says, at most its cores; or else its cores, divided
        among the ranks that run the function.
        """
        cores = self.facts[node].cores
        wanted = {**self.job.env, **self.job.travelling_env}.get("OMP_NUM_THREADS", "")
        if wanted.isdigit() and int(wanted) > 0:
            return min(int(wanted), cores)
        running = self._awaited() & set(self.ranks[node])
        return max(1, cores // max(1, len(running)))

    def _used_hosts(self) -> list[Host]:
        return [host for host, ranks in zip(self.hosts, self.ranks, strict=True) if ranks]

    def _node_of(self, rank: int) -> int:
        """Return the index, in the job, of this rank's host."""
        return next(node for node, ranks in enumerate(self.ranks) if rank in ranks)

    def host_of(self, rank: int) -> Host:
        return self.hosts[self._node_of(rank)]

    def _awaited(self) -> set[int]:
        """Return the ranks whose results end the job."""
        return set(range(self.job.world_size)) - self._serving() - self.killed

    def _serving(self) -> set[int]:
        """Return the ranks that leave only after all others have: a job's servers."""
        return self.job.tasks.serving_ranks() if self.job.tasks else set()

    # ---- listening -------------------------------------------------------------------------------

    def _follow(self) -> tuple[Status, tuple[Wait, ...]]:
        """Listen to the job's hosts until it is decided; return (status, who waits for whom).

        The job's time limit covers its function only: the limit starts when every live rank has entered it.
        """
        deadline_s = time.monotonic() + START_S + self.job.timeout_s
        all_entered = False
        while self._awaited() - set(self.returned):
            listened_s = time.monotonic()
            held = bool(self.held)
            self._listen(math.inf if held else min(deadline_s, self.look_s) - listened_s)
            if held:  # the clock stops while a person debugs a rank
                deadline_s += time.monotonic() - listened_s

            if not all_entered and self._live() <= self.entered_s.keys():
                all_entered = True
                deadline_s = time.monotonic() + self.job.timeout_s

            if self.stopped:
                return "stopped", ()

            if self.failures or self.silent:
                self._settle()
                if any((each.kind, each.code) == ("signal", signal.SIGABRT) for each in self.failures.values()):
                    self.cause = disagreement(self._ask_posts())
                return "failed", ()

            if self.blocked and set(self.blocked) >= self._live():
                waits = self._deadlocked()
                if waits:
                    return "deadlock", waits

            if time.monotonic() >= self.look_s and self._stuck_in_torch():
                return "deadlock", ()

            if time.monotonic() >= deadline_s:
                return "timeout", ()
        return "done", ()

    def _live(self) -> set[int]:
        ended = self.returned.keys() | self.failures.keys() | self.silent.keys() | self.killed
        return set(range(self.job.world_size)) - ended

    def _listen(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for news from any host of the job or from the kernel, and handle it."""
        hosts: dict[Any, Host] = {}
        for host in self._used_hosts():
            for news in host.heard_before():
                timeout_s = 0.0
                self._take(news)
            hosts.update(dict.fromkeys(host.watched(), host))

        for item in mpc.wait([*self.watched, *hosts], min(max(0.0, timeout_s), _MOST_S)):
            if item is self.kernel:
                word = self.kernel.recv()  # an EOFError ends the agent, which ends the ranks
                if isinstance(word, Typed):  # at a rank's prompt
                    self.held.discard(word.rank)
                    self.host_of(word.rank).tell(word.rank, word)
                else:
                    self.stopped = True
            elif item not in hosts:
                raise EOFError  # the kernel's pidfd
            else:
                self.hear(hosts[item].hear(item))

    def hear(self, all_news: Iterable[RankNews]) -> None:
        """Handle a host's news of the job."""
        for news in all_news:
            self._take(news)

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
            if time.monotonic() - self.stalled_s < _STALL_S:
                self.look_s, self.looks = 0.0, _LOOKS
        elif news.kind == "stalled":
            self.look_s = self.stalled_s = time.monotonic()
            self.looks = max(self.looks, _LOOKS if content else 1)
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
        elif news.kind == "posts":
            self.posts[rank] = content
        elif news.kind == "where":
            self.standings[rank] = content
        else:
            raise ValueError(f"rank {rank} sent {news.kind!r}, which is not a kind of news")

    def _answer_request(self, rank: int, request: Request) -> None:
        """Handle a request of the job's rank to kill or restart another rank."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Listen to the job's other ranks for a moment, then record a failure with exit code for each rank that died silently."""
        settled_s = time.monotonic() + _SETTLE_S
        while self._heard_before(settled_s):
            pass

        patience_s = time.monotonic() + _ECHO_S
        while not self.silent and all(failure.lost_a_peer for failure in self.failures.values()):  # only echoes
            if not self._heard_before(patience_s):
                break

        patience_s = time.monotonic() + EXIT_S
        while self.silent.keys() - self.exit_codes.keys() and self._heard_before(patience_s):
            pass

        for rank, silence in self.silent.items():
            self.failures[rank] = silent_failure(rank, silence, self.exit_codes.get(rank))

    def _heard_before(self, moment_s: float) -> bool:
        """Listen once, at most until `moment_s`; return False if that moment has passed."""
        left_s = moment_s - time.monotonic()
        if left_s <= 0:
            return False
        self._listen(left_s)
        return True

    def _deadlocked(self) -> tuple[Wait, ...]:
        """Ask every rank of the job what it waits for, twice: a deadlock has no message that can match, and equal answers."""
        first = self._ask_waits()
        waits = deadlock({rank: said.messages for rank, said in first.items()}, self._live())
        if waits and first == self._ask_waits():
            return waits

        for rank in list(self.blocked):  # a rank that went on reports again when it blocks again
            if rank not in first or first[rank].changes != self.blocked[rank]:
                del self.blocked[rank]
        return ()

    def _ask_waits(self) -> dict[int, Published]:
        """Return the wait-for state of the job's ranks that have a fabric and answer in time."""
        self.published = {}
        self._ask("waits", set(range(self.job.world_size)), self.published)
        return {rank: said for rank, said in self.published.items() if said is not None}

    def _stuck_in_torch(self) -> bool:
        """Ask every rank what it has posted, twice: ranks wait for ever if no post can match, and their answers are equal."""
        self.looks -= 1
        self.look_s = time.monotonic() + _LOOK_LATER_S if self.looks else math.inf
        first = self._ask_posts()
        stuck_ranks = stuck(first, quiet=True)
        if not stuck_ranks:
            return False

        second_s = time.monotonic() + _LOOK_AGAIN_S
        while self._heard_before(second_s):
            if self.failures or self.silent or self.stopped:
                return False
        second = self._ask_posts()
        same = stuck_ranks.keys() <= second.keys()
        quiet = same and all(second[rank].other_cpu_s - first[rank].other_cpu_s < _QUIET_CPU_S for rank in stuck_ranks)
        if same and stuck(second, quiet) == stuck_ranks:
            same = all(replace(first[rank], other_cpu_s=0.0) == replace(second[rank], other_cpu_s=0.0) for rank in stuck_ranks)
            if same and not (self.failures or self.silent or self.stopped):
                self.cause = cause(stuck_ranks, second, set(self.returned))
                self.awaited, self.posts = stuck_ranks, {**second}
                return True

        self.look_s, self.looks = time.monotonic() + _LOOK_AGAIN_S, max(1, self.looks)
        return False

    def _ask_posts(self) -> dict[int, Posts]:
        """Return what the job's ranks that answer in time have posted."""
        self.posts = {}
        self._ask("posts", set(range(self.job.world_size)), self.posts)
        return {rank: said for rank, said in self.posts.items() if said is not None}

    def _ask(self, question: Question, ranks: set[int], answers: dict[int, Any]) -> None:
        """Ask the job's `ranks` a question, and listen until every rank that can answer has, or until `_ANSWER_S` has passed."""
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

        answers: list[Standing] = []
        for rank in sorted(self._live() & asked):
            if rank in self.standings:
                standing = self.standings[rank]
                if rank in self.awaited:
                    where = "" if standing.wait else self.posts[rank].where
                    standing = replace(standing, awaits=self.awaited[rank], collective=where or standing.collective)
                answers.append(standing)
            else:
                answers.append(self.host_of(rank).seen_last(rank))
        return tuple(answers)

    def end(self) -> None:
        """Kill the job's remaining ranks with all their children, and reap them."""
        for host in self._used_hosts():
            host.end()
        for host in self._used_hosts():
            host.wait_ended()

    def _returned_well(self) -> Status:
        """Return "failed" if a host was lost after its ranks returned, because their files may be lost too; else "done"."""
        for host in self._used_hosts():
            self.hear(host.heard_before())

        lost = self.silent.keys() & self._awaited()
        for rank in lost:
            self.returned.pop(rank, None)
            self.failures[rank] = silent_failure(rank, self.silent[rank], None)
        return "failed" if lost else "done"


def silent_failure(rank: int, silence: Silence, code: int | None) -> Failure:
    """Return the failure of a job's rank whose channel closed without a report. If its exit was not observed (`code` None), its
    fate is unknown.
    """
    if silence.lost_host:
        return Failure(rank=rank, kind="lost", at_s=silence.at_s, host=silence.lost_host)
    if code is not None and code < 0:
        return Failure(rank=rank, kind="signal", at_s=silence.at_s, frames=silence.frames, code=-code)
    return Failure(rank=rank, kind="exit", at_s=silence.at_s, frames=silence.frames, code=code)
