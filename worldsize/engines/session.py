"""One job in the agent: start its ranks, listen to all of them at once, decide how it ended, leave nothing behind.

Left out: how the ranks of a framework start (`torch_session.py`, `tensorflow_session.py`).
"""

from __future__ import annotations

import multiprocessing.connection as mpc
import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any

from worldsize.engines.deadlock import deadlock
from worldsize.engines.job import Job, Setup, StartMethod
from worldsize.engines.last_seen import last_seen
from worldsize.engines.rank_channel import Published, Question, Request
from worldsize.failures import Failure, Outcome, Return, Standing, Status, Wait

_SETTLE_S = 0.15  # after a failure: time for the others' news, so that the first one can be told from its echoes
_ECHO_S = 0.5  # when all that is known are echoes: time for the cause to show
_HELLO_S = 1.0  # for a rank that has connected to say who it is
_ANSWER_S = 0.3  # for a rank to say where it stands
_LEAVE_S = 2.0  # for a rank to leave after its result


@dataclass(eq=False)
class Session:
    """A job from start to outcome. One thread; everything is a file descriptor in one wait.

    A framework's own session says what was chosen (`_choose`), starts the processes (`_start`) and reaps them (`_reap`).
    One whose ranks may be servers, or be killed on request, also says whose results end the run (`_awaited`), who still
    runs (`_live`), where a rank stands that does not answer (`_mute`), what becomes of a rank's request
    (`_answer_request`), and how ranks leave (`_let_leave`).
    """

    job: Job
    kernel: mpc.Connection
    watched: list  # the kernel's ends: its pipe, and where there is one its pidfd
    listener: socket.socket
    start_method: StartMethod

    # by rank
    processes: dict[int, BaseProcess] = field(default_factory=dict)
    channels: dict[int, mpc.Connection] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    entered_s: dict[int, float] = field(default_factory=dict)
    returned: dict[int, Return] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    silent: dict[int, float] = field(default_factory=dict)  # when its channel closed with nothing said
    blocked: dict[int, int] = field(default_factory=dict)  # how often its wait had changed when it said so
    published: dict[int, Published | None] = field(default_factory=dict)  # answers to the last "waits"
    standings: dict[int, Standing] = field(default_factory=dict)  # answers to the last "where"
    stopped: bool = False

    def run(self) -> None:
        """Start, follow, end. The kernel gets a Setup first and an Outcome last."""
        deadline_s = time.monotonic() + self.job.timeout_s
        try:
            setup = self._choose()
        except ValueError as error:
            self.kernel.send(Outcome(status="refused", reason=str(error)))
            return
        self.kernel.send(setup)

        status: Status = "failed"
        waits: tuple[Wait, ...] = ()
        standings: tuple[Standing, ...] = ()
        try:
            self._start(setup)
            status, waits = self._follow(deadline_s)
            if status != "done":
                standings = self._ask_standings()
        finally:
            self._end(status == "done")

        outcome = Outcome(
            status=status,
            failures=tuple(sorted(self.failures.values(), key=lambda f: f.at_s)),
            standings=standings,
            entered_s=self.entered_s,
            returned=self.returned,
            waits=waits,
        )
        self.kernel.send(outcome)

    @property
    def address(self) -> str:
        """Where ranks say hello."""
        return self.listener.getsockname()

    def _choose(self) -> Setup:
        """What the ranks get. Raises ValueError for what this machine cannot do."""
        raise NotImplementedError

    def _start(self, setup: Setup) -> None:
        """Start every rank, into `pids` and `processes`."""
        raise NotImplementedError

    def _reap(self) -> None:
        """Every rank has been killed: wait until all of them are gone."""
        raise NotImplementedError

    def _awaited(self) -> set[int]:
        """The ranks whose results end the run."""
        return set(range(self.job.world_size))

    def _follow(self, deadline_s: float) -> tuple[Status, tuple[Wait, ...]]:
        """Listen until the run is decided: (status, who waits for whom)."""
        while self._awaited() - set(self.returned):
            self._listen(deadline_s - time.monotonic())

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
        ends = {self.processes[r].sentinel: r for r in self._live() - set(self.channels) if r in self.processes}
        ready = mpc.wait([*self.watched, self.listener, *self.channels.values(), *ends], max(0.0, timeout_s))
        for item in ready:
            if item is self.kernel:
                self.kernel.recv()  # "stop"; an EOFError ends the agent, which ends the ranks
                self.stopped = True
            elif item is self.listener:
                self._welcome()
            elif item in ends:
                self.silent[ends[item]] = time.monotonic()  # it died before it said hello
            elif isinstance(item, int):
                raise EOFError  # the kernel's pidfd
            else:
                self._hear(item)

    def _welcome(self) -> None:
        accepted, _ = self.listener.accept()
        channel = mpc.Connection(accepted.detach())
        if not channel.poll(_HELLO_S):
            channel.close()
            return

        with suppress(EOFError, OSError):
            _, (rank, pid) = channel.recv()
            if self.pids.get(rank) == pid:  # not a rank of an earlier run that was slow to die
                self.channels[rank] = channel
                return
        channel.close()

    def _hear(self, channel: mpc.Connection) -> None:
        rank = next(r for r, known in self.channels.items() if known is channel)
        try:
            kind, content = channel.recv()
        except (EOFError, OSError):
            self.channels.pop(rank).close()
            if rank in self._live():
                self.silent[rank] = time.monotonic()
            return

        if kind == "progress":
            self.kernel.send(content)
        elif kind == "entered":
            self.entered_s[rank] = content
        elif kind == "result":
            self.returned[rank] = content
        elif kind == "failure":
            self.failures[rank] = content
        elif kind == "blocked":
            self.blocked[rank] = content
        elif kind == "request":
            self._answer_request(rank, content)
        elif kind == "waits":
            self.published[rank] = content
        elif kind == "where":
            self.standings[rank] = content
        else:
            raise ValueError(f"rank {rank} told {kind!r}, which is no kind of news")

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

        for rank, at_s in self.silent.items():
            self.failures[rank] = self._silent_failure(rank, at_s)

    def _only_echoes(self) -> bool:
        return not self.silent and all(failure.lost_a_peer for failure in self.failures.values())

    def _heard_before(self, moment_s: float) -> bool:
        """Listen once, for news of anyone until that moment; False where it has passed."""
        left_s = moment_s - time.monotonic()
        if left_s <= 0:
            return False
        self._listen(left_s)
        return True

    def _silent_failure(self, rank: int, at_s: float) -> Failure:
        """Of a rank whose channel closed with nothing said. Its process may need a moment more to end; what has become
        of one that does not, or that was never ours, nobody knows."""
        process = self.processes.get(rank)
        code = None
        if process is not None:
            process.join(_LEAVE_S)
            code = process.exitcode

        frames = last_seen(self.job.files.last_seen(rank))
        if code is not None and code < 0:
            return Failure(rank=rank, kind="signal", at_s=at_s, frames=frames, code=-code)
        return Failure(rank=rank, kind="exit", at_s=at_s, frames=frames, code=code)

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
        asked = ranks & set(self.channels)
        for rank in asked:
            self._send(rank, question)

        patience_s = time.monotonic() + _ANSWER_S
        while not asked <= answers.keys() | self.silent.keys() and self._heard_before(patience_s):
            pass

    def _send(self, rank: int, word: Question) -> None:
        with suppress(OSError):  # it has ended
            self.channels[rank].send(word)

    def _ask_standings(self) -> tuple[Standing, ...]:
        self.standings = {}
        asked = self._live() & self._awaited()
        self._ask("where", asked, self.standings)
        still = sorted(self._live() & asked)
        return tuple(self.standings[rank] if rank in self.standings else self._mute(rank) for rank in still)

    def _mute(self, rank: int) -> Standing:
        """A rank that does not answer: where it was seen last."""
        return Standing(rank=rank, frames=last_seen(self.job.files.last_seen(rank)), answered=False)

    def _end(self, done: bool) -> None:
        """Let the ranks that are done leave, end the others with all their children, and reap them."""
        for rank in self.channels:
            self._send(rank, "bye")
        if done:
            self._let_leave(self._awaited())

        for pid in self.pids.values():  # with the children that a rank left behind, such as data loaders
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self._reap()

        for channel in self.channels.values():
            channel.close()

    def _let_leave(self, ranks: set[int]) -> None:
        moment_s = time.monotonic() + _LEAVE_S
        for rank in ranks & set(self.processes):
            self.processes[rank].join(max(0.0, moment_s - time.monotonic()))


def way_of(start_method: StartMethod) -> str:
    """How ranks start, as a set-up line says it."""
    return "fork server" if start_method == "forkserver" else start_method
