"""A training that survives the kill of a rank and admits its successor; no other rank restarts.

`live_quorum` starts a supervisor, as `live_cluster` does. Between steps the supervisor names the quorum (the ranks of the next
step) and hands out new sockets if the quorum has changed. The idea is TorchFT's (pytorch.org/torchft): there each replica group
decides whether a step counts, here all members vote. Left out: heartbeats (a death shows at once as a closed socket), ranks that
hang, the death of the supervisor, and torch.
"""

import json
import math
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import socket
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from worldsize.pytorch.live_cluster import exactly, supervised

State = dict[str, Any]
_LOOK_S = 0.05  # at most, between two looks at the plan
_TELL_S = 0.25  # between two lines of news
_LENGTH = 8  # bytes of the length prefix before each message
_MOST_LINES = 64  # sockets that one message may bring
_ALONE = 75  # exit code of a rank whose supervisor is gone


@dataclass(frozen=True)
class QuorumPlan:
    """A quorum training's plan for `ranks` ranks during `run_s` seconds; `hour_s` seconds stand for one hour in their reports.

    `failures` are (second, rank). The successor of a killed rank starts `away_s` seconds after the kill.
    """

    ranks: int
    run_s: float
    hour_s: float
    away_s: float
    failures: tuple[tuple[float, int], ...] = ()


class Quorum:
    """A quorum's `members`, the ranks that take one step, as one of them sees them.

    The states of members in `behind` are out of date: each of these begins its step with `fetch()`.
    """

    def __init__(self, rank: int, control: socket.socket) -> None:
        self.rank, self._control = rank, control
        self.members: tuple[int, ...] = ()
        self.behind: tuple[int, ...] = ()
        self._root = 0
        self._lines: dict[int, socket.socket] = {}
        self._coming: tuple[Any, list[socket.socket]] | None = None  # the next quorum, once this step is decided
        self._last = False

    def fetch(self) -> State:
        """Return the state of the quorum's up-to-date member, received over a socket; {} if the connection was lost."""
        try:
            return _take(self._lines[self._root])
        except (OSError, EOFError):
            self._close()
            return {}

    def all_reduce(self, x: Any) -> Any | None:
        """Return the sum of the quorum members' x, or None if a member was lost on the way."""
        return self._through_root(x, sum)

    def all_gather(self, value: Any) -> list | None:
        """Return the quorum members' values, in member order, or None if a member was lost on the way."""
        return self._through_root(value, list)

    def all_finished(self, finished: bool) -> bool:
        """Return True if every member reports that it finished the step. A member killed before its report counts as unfinished.
        """
        return self._asked("voted", finished)

    def _through_root(self, value: Any, combined: Callable[[list], Any]) -> Any | None:
        """Combine all quorum members' values on the root, and return the result on every member."""
        try:
            if self.rank != self._root:
                _put(self._lines[self._root], value)
                return _take(self._lines[self._root])

            values = {rank: _take(line) for rank, line in self._lines.items()}
            values[self.rank] = value

            result = combined([values[rank] for rank in self.members])
            for line in self._lines.values():
                _put(line, result)
            return result
        except (OSError, EOFError):
            self._close()  # a member that waits for this rank sees the end of its socket
            return None

    def _asked(self, message: str, value: bool) -> bool:
        """Tell the supervisor, wait for the next quorum, and return True if the step that ends here counts."""
        try:
            _put(self._control, (message, value))
            # the sockets that `_put` sends along come with the length
            head, numbers, *_ = socket.recv_fds(self._control, _LENGTH, _MOST_LINES)
            if not head:
                raise EOFError

            counts, self._last, *coming = pickle.loads(exactly(self._control, int.from_bytes(head, "big")))
            self._coming = coming, [socket.socket(fileno=number) for number in numbers]
        except (OSError, EOFError):
            os._exit(_ALONE)  # the supervisor is gone
        return counts

    def _begin(self, state: State) -> None:
        """Take up the next quorum. If this rank is the root, send its state to the members behind."""
        if self._coming is None:
            raise RuntimeError("one_step returned without all_finished(…), so it is unknown whether this step counts")
        (self.behind, changed), ends = self._coming
        self._coming = None

        if changed:
            self._close()
            self.members, self._root = changed
            others = [self._root]
            if self.rank == self._root:
                others = [rank for rank in self.members if rank != self._root]
            self._lines = dict(zip(others, ends, strict=True))

        if self.rank == self._root:
            for rank in self.behind:
                try:
                    _put(self._lines[rank], state)
                except OSError:
                    self._close()

    def _close(self) -> None:
        for line in self._lines.values():
            line.close()


OneStep = Callable[[int, State, Quorum], None]


def live_quorum(plan: QuorumPlan, state: State, one_step: OneStep) -> dict[str, Any]:
    """Train with live ranks, some of which are killed. Each rank takes its steps by `one_step(rank, state, quorum)`.

    Every process begins with `state`; `one_step` changes it in place once all members have finished. Returns "steps": (second,
    number of members, True if it counts) for each step; "events": (second, "killed" or "joined", rank), in order; "states": the
    state of each rank in the last quorum; and, in seconds as in `live_day`, "work_s", "course", "step_s" (one step of all ranks)
    and, for each kill, "pause_s" (time without progress) and "away_s" (until the successor joined). Raises RuntimeError if the
    supervisor fails or all members are lost at once.
    """
    with tempfile.TemporaryDirectory(prefix="worldsize-quorum-") as folder:
        return supervised(folder, _QuorumSupervisor, plan, state, one_step)


@dataclass(eq=False)
class _Member:
    """A living process: the steps contained in its state, and a flag `asks` set while it asks for the next step."""

    process: BaseProcess
    control: socket.socket
    step: int = 0
    asks: bool = False


class _QuorumSupervisor:
    """The supervisor of the ranks: it tracks who is alive, who is in the quorum, and the votes on the current step."""

    def __init__(self, plan: QuorumPlan, state: State, one_step: OneStep) -> None:
        self.plan, self.state, self.one_step = plan, state, one_step
        self.alive: dict[int, _Member] = {}
        self.quorum: dict[int, _Member] = {}
        self.votes: dict[int, bool] = {}
        self.step = 0
        self.began_s = 0.0
        self.steps: list[tuple[float, int, bool]] = []
        self.events: list[tuple[float, str, int]] = []
        np.random.default_rng(0)  # loads NumPy's generators once, before the forks, not in every rank anew

    def run(self) -> dict[str, Any]:
        for rank in range(self.plan.ranks):
            self._start(rank)

        while not all(member.asks for member in self.alive.values()):
            self._hear(_LOOK_S)
        self.began_s = time.monotonic()
        self._name_quorum(counts=False)

        kills = list(self.plan.failures)
        starts: dict[int, float] = {}
        told_s = 0.0
        while (now_s := time.monotonic() - self.began_s) < self.plan.run_s:
            if kills and now_s >= kills[0][0]:
                rank = kills.pop(0)[1]
                starts[rank] = now_s + self.plan.away_s  # a second kill during the absence restarts the countdown
                self.events.append((now_s, "killed", rank))
                if rank in self.alive:
                    self.alive[rank].process.kill()

            for rank, at_s in list(starts.items()):
                if now_s >= at_s and rank not in self.alive:
                    del starts[rank]
                    self._start(rank)

            if now_s >= told_s:
                told_s = now_s + _TELL_S
                hour_s = self.plan.hour_s
                news = {"step": now_s / hour_s, "steps": self.plan.run_s / hour_s, "members": len(self.quorum)}
                print(json.dumps(news), flush=True)

            until_s = min([now_s + _LOOK_S, self.plan.run_s, *starts.values()])
            if kills:
                until_s = min(until_s, kills[0][0])
            self._hear(max(0.0, until_s - now_s))
            self._decide()

        steps, events = list(self.steps), list(self.events)
        while len(self.steps) == len(steps):  # the states are those after the current step
            self._hear(_LOOK_S)
            self._decide(last=True)
        states = {rank: _take(member.control) for rank, member in self.quorum.items() if member.step == self.step}
        return {"steps": steps, "events": events, "states": states, **_measured(self.plan, steps, events)}

    def _start(self, rank: int) -> None:
        control, own = socket.socketpair()
        fork = multiprocessing.get_context("fork")
        inherited = [control, *(member.control for member in self.alive.values())]
        process = fork.Process(target=_rank, args=(rank, own, inherited, self.state, self.one_step), daemon=True)
        process.start()
        own.close()  # so that `control` closes when the process ends
        self.alive[rank] = _Member(process, control)

    def _hear(self, at_most_s: float) -> None:
        """Handle the ranks' messages and deaths that arrive within `at_most_s` seconds."""
        rank_of = {member.control: rank for rank, member in self.alive.items()}
        for control in multiprocessing.connection.wait(list(rank_of), at_most_s):
            rank = rank_of[control]
            try:
                message, value = _take(control)
            except (OSError, EOFError):
                self._lost(rank)
                continue

            self.alive[rank].asks = True
            if message == "voted":
                self.votes[rank] = value

    def _lost(self, rank: int) -> None:
        member = self.alive.pop(rank)
        member.control.close()
        member.process.join()
        if member.process.exitcode != -signal.SIGKILL:
            code = member.process.exitcode
            raise RuntimeError(f"live_quorum: rank {rank} ended by itself, with code {code}; its error is above")
        if self.quorum.get(rank) is member:
            self.votes.setdefault(rank, False)

    def _decide(self, last: bool = False) -> None:
        """Decide whether the step counts, once every member of the quorum has voted or died, and name the next quorum."""
        if len(self.votes) < len(self.quorum):
            return

        counts = all(self.votes.values())
        self.steps.append((time.monotonic() - self.began_s, len(self.quorum), counts))
        if counts:
            self.step += 1
            for member in self.quorum.values():
                member.step = self.step
        self._name_quorum(counts, last)

    def _name_quorum(self, counts: bool, last: bool = False) -> None:
        """Name the quorum: tell every rank that asks for the next step whether the last one counts, and who takes the next."""
        before, self.votes = self.quorum, {}
        self.quorum = {rank: member for rank, member in sorted(self.alive.items()) if member.asks}
        newest, behind = [], []
        for rank, member in self.quorum.items():
            if member.step == self.step:
                newest.append(rank)
            else:
                behind.append(rank)
            if before and before.get(rank) is not member:
                self.events.append((time.monotonic() - self.began_s, "joined", rank))
        if not newest:
            raise RuntimeError("live_quorum: all members were lost at once; only a checkpoint can restore the state")

        root = min(newest)
        changed = None
        ends: dict[int, list[socket.socket]] = {rank: [] for rank in self.quorum}
        if list(self.quorum.values()) != list(before.values()):
            changed = tuple(self.quorum), root
            for rank in self.quorum:
                if rank != root:
                    for end, owner in zip(socket.socketpair(), (root, rank), strict=True):
                        ends[owner].append(end)

        for rank, member in self.quorum.items():
            member.asks = False
            with suppress(OSError):  # the rank was killed a moment ago; `_hear` notices next
                _put(member.control, (counts, last, tuple(behind), changed), ends[rank])
            for end in ends[rank]:
                end.close()  # so that a line closes when the process at its other end ends

    def end(self) -> None:
        for member in self.alive.values():
            member.process.kill()
        for member in self.alive.values():
            member.process.join()


def _measured(plan: QuorumPlan, steps: list[tuple[float, int, bool]], events: list[tuple[float, str, int]]) -> dict[str, Any]:
    full = [b[0] - a[0] for a, b in pairwise(steps) if a[1:] == b[1:] == (plan.ranks, True)]
    step_s = statistics.mean(full) if full else math.nan
    course, counted = [(0.0, 0.0)], 0
    for second, members, counts in steps:
        course.append((second, course[-1][1] + counts * step_s * members / plan.ranks))
        counted += counts

    killed: dict[int, float] = {}
    away_s, kills = [], 0
    for second, what, rank in events:
        if what == "killed":
            killed[rank] = second
            kills += 1
        elif rank in killed:
            away_s.append(second - killed.pop(rank))
    return {
        "work_s": course[-1][1], "course": course, "step_s": step_s, "kills": kills,
        "pause_s": max(0.0, steps[-1][0] - step_s * counted) / kills if kills else math.nan,
        "away_s": statistics.mean(away_s) if away_s else math.nan,
    }  # fmt: skip


def _rank(rank: int, control: socket.socket, inherited: list[socket.socket], state: State, one_step: OneStep) -> None:
    """Run a quorum's rank until it is killed, the run ends, or the supervisor is gone."""
    for line in inherited:  # a fork's open copies would hide the end of the other ranks' sockets
        line.close()
    try:
        quorum = Quorum(rank, control)
        quorum._asked("joins", True)
        while not quorum._last:
            quorum._begin(state)
            one_step(rank, state, quorum)
        _put(control, state)
    except Exception:
        traceback.print_exc()
        os._exit(1)


def _put(line: socket.socket, value: Any, ends: Sequence[socket.socket] = ()) -> None:
    """Send a quorum's value over a socket; the sockets `ends` travel along."""
    data = pickle.dumps(value)
    socket.send_fds(line, [len(data).to_bytes(_LENGTH, "big")], [end.fileno() for end in ends])
    line.sendall(data)


def _take(line: socket.socket) -> Any:
    """Return the quorum's next value from a socket; raise EOFError if its other end is gone."""
    return pickle.loads(exactly(line, int.from_bytes(exactly(line, _LENGTH), "big")))
