"""Ranks that stay: they carry out one order after the other until they are closed, and keep their state.

`OpenSession` is one world of such ranks, `OpenWorlds` all worlds of a process. When an order fails, ranks still at work
are freed: each returns with its state within `FREED_S`, or is killed. Between orders the session keeps listening, because
a rank may end at any time. `ranks/open_rank.py` is the rank's side.
"""

import math
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from typing_extensions import override

from worldsize.engines.host import RankNews, Silence
from worldsize.engines.job import Close, Use
from worldsize.engines.session import EXIT_S, START_S, silent_failure
from worldsize.engines.torch_session import TorchSession
from worldsize.failures import Failure, GroupsUse, Outcome, Standing, Status, Wait

FREED_S = 5.0  # for a rank to abandon its order, which usually takes milliseconds


@dataclass(eq=False)
class OpenSession(TorchSession):
    """A world of ranks that stay, from opening to end. Raises EOFError if the kernel is gone."""

    asked: set[int] = field(default_factory=set)  # ranks of the current order
    freed: set[int] = field(default_factory=set)  # those that have abandoned it
    groups: dict[int, GroupsUse] = field(default_factory=dict)  # of ranks that have reported the order's end
    ended: dict[int, Failure] = field(default_factory=dict)  # all ranks that have ended so far
    idle: bool = False
    freeing: bool = False

    def open(self) -> bool:
        """Start the ranks that stay, and return whether all are ready. Send the kernel a Setup first and an Outcome last."""
        self.asked = set(range(self.job.world_size))
        if not self._set_up():
            return False

        status: Status = "failed"
        standings: tuple[Standing, ...] = ()
        try:
            for host in self._used_hosts():
                host.begin(self.job)
            self._start()

            status = self._all_ready()
            if status != "done":
                standings = self._ask_standings()
        finally:
            if status != "done":
                self.end()

        self.idle = True
        self._tell(status, (), standings, ())
        return status == "done"

    def _all_ready(self) -> Status:
        deadline_s = time.monotonic() + START_S
        while self.asked - self.entered_s.keys():
            self._listen(deadline_s - time.monotonic())

            if self.stopped:
                return "stopped"
            if self.failures or self.silent:
                self._settle()
                return "failed"
            if time.monotonic() >= deadline_s:
                return "timeout"
        return "done"

    def use(self, order: Use) -> None:
        """Carry out an order on the ranks that stay. Send the kernel the Setup first and an Outcome last."""
        self.job, self.asked, self.stopped = order.job, set(order.ranks), False
        for kept in (self.entered_s, self.returned, self.failures, self.silent, self.exit_codes, self.blocked):
            kept.clear()
        self.cause, self.awaited, self.look_s, self.looks, self.stalled_s = "", {}, math.inf, 0, -math.inf
        for ranks in (self.freed, self.held, self.groups):
            ranks.clear()

        self.kernel.send(self.setup)
        if self.asked & self.ended.keys():
            self._tell_of_the_gone()
            return

        self.idle = False
        for host in self._used_hosts():
            host.use(order)
        status, waits = self._follow()

        standings: tuple[Standing, ...] = ()
        killed: tuple[int, ...] = ()
        if status != "done":
            standings = self._ask_standings()
            killed = self._free()

        for host in self._used_hosts():
            host.bring_files()
        self.idle = True
        if status == "done":
            status = self._returned_well()
        self._tell(status, waits, standings, killed)

    def _tell_of_the_gone(self) -> None:
        """Report that staying ranks of the order had already ended, after waiting for their exit codes."""
        until_s = time.monotonic() + EXIT_S
        while any(failure.kind == "exit" and failure.code is None for failure in self.ended.values()):
            if not self._heard_before(until_s):
                break

        gone = tuple(self.ended[rank] for rank in sorted(self.asked & self.ended.keys()))
        self.kernel.send(Outcome(status="failed", failures=gone))

    def _tell(
        self, status: Status, waits: tuple[Wait, ...], standings: tuple[Standing, ...], killed: tuple[int, ...]
    ) -> None:
        outcome = self._outcome(status, waits, standings)
        self.kernel.send(replace(outcome, freed=tuple(sorted(self.freed)), killed=killed, groups=dict(self.groups)))

    @override
    def _awaited(self) -> set[int]:
        return self.asked

    @override
    def _live(self) -> set[int]:
        return (super()._live() & self.asked) - self.freed

    def _free(self) -> tuple[int, ...]:
        """Tell busy open ranks to abandon their order, and kill those that have not after `FREED_S`, or at a second stop."""
        self.stopped, self.freeing = False, True
        for rank in self._live():
            self.host_of(rank).tell(rank, "free")

        until_s = time.monotonic() + FREED_S
        while self._live() and not self.stopped and self._heard_before(until_s):
            pass
        self.freeing = False

        killed = tuple(sorted(self._live()))
        for rank in killed:
            self.host_of(rank).kill(rank)
            self._note_end(silent_failure(rank, Silence(time.monotonic()), -signal.SIGKILL))
        return killed

    def listened_to(self) -> dict[Any, Callable[[], None]]:
        """Return what a world of ranks waits for between two orders, each with the action to take when it is ready."""
        found = {}
        for host in self._used_hosts():
            found.update({item: lambda host=host, item=item: self.hear(host.hear(item)) for item in host.watched()})
        return found

    @override
    def _take(self, news: RankNews) -> None:
        rank = news.rank
        if news.kind == "silent":
            self._note_end(silent_failure(rank, news.content, None))
        elif news.kind == "exited" and rank in self.ended and self.ended[rank].kind != "lost":
            self._note_end(silent_failure(rank, Silence(self.ended[rank].at_s, self.ended[rank].frames), news.content))

        if not self.idle and news.kind in ("result", "failure"):
            self.groups[rank] = news.content.groups
        if self.freeing and news.kind in ("result", "failure"):
            self.freed.add(rank)
        elif not self.idle or news.kind in ("silent", "exited"):  # the rest belongs to a past order
            super()._take(news)

    def _note_end(self, failure: Failure) -> None:
        self.ended[failure.rank] = failure
        self.connected.discard(failure.rank)


@dataclass(eq=False)
class OpenWorlds:
    """The worlds that a process has open, by name."""

    sessions: dict[str, OpenSession] = field(default_factory=dict)

    def listened_to(self) -> dict[Any, Callable[[], None]]:
        """Return what open worlds wait for between two orders, each with the action to take when it is ready."""
        found: dict[Any, Callable[[], None]] = {}
        for session in self.sessions.values():
            found.update(session.listened_to())
        return found

    def open(self, session: OpenSession) -> None:
        """Open a world, and keep it if all ranks that stay are ready. Send the kernel a Setup first and an Outcome last."""
        if session.open():
            self.sessions[session.job.world] = session

    def do(self, order: Use | Close, kernel: Any) -> None:
        """Carry out an order for an open world. Send the kernel an Outcome last, also if the world is not open."""
        name = order.job.world if isinstance(order, Use) else order.world
        session = self.sessions.get(name)

        if isinstance(order, Close):
            if session is not None:
                self.sessions.pop(name).end()
            kernel.send(Outcome(status="done"))
        elif session is None:
            kernel.send(Outcome(status="refused", reason="these ranks are no longer open"))
        else:
            session.use(order)

    def hear(self, all_news: Iterable[RankNews]) -> None:
        """Handle an open world's news between two orders, for a process with at most one world."""
        for session in self.sessions.values():
            session.hear(all_news)

    def close(self) -> None:
        """End every rank of every open world."""
        while self.sessions:
            self.sessions.popitem()[1].end()
