"""A training that goes on when a rank is killed, and that takes its successor in: no rank starts again because of another.

`live_quorum` starts a supervisor, as `live_cluster` does. At every step's border it names the quorum, the ranks that take the
next step, and hands out new sockets where the quorum has changed. The idea is TorchFT's (pytorch.org/torchft), whose
lighthouse names the quorum; there each replica group decides for itself whether a step counts, here all vote. Left out:
heartbeats (a death is seen at once, as a socket that ends), ranks that hang, a supervisor that dies, and torch.
"""

from __future__ import annotations

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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from worldsize.pytorch.live_cluster import supervised

State = dict[str, Any]
_LOOK_S = 0.05
_TELL_S = 0.25
_LENGTH = 8  # bytes before a message: how long it is
_MOST_LINES = 64
_ALONE = 75  # the exit code of a rank whose supervisor is gone


@dataclass(frozen=True)
class QuorumPlan:
    """`run_s` seconds of `ranks` ranks; `hour_s` seconds are an hour of their reports.

    `failures` are (second, rank). Who takes a killed rank's place starts `away_s` seconds after the kill.
    """

    ranks: int
    run_s: float
    hour_s: float
    away_s: float
    failures: tuple[tuple[float, int], ...] = ()


class Quorum:
    """The ranks that take one step, the `members`, as one of them sees them.

    The states of those `behind` are not the newest: each of them begins its step with `fetch()`.
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
        """The state of a member that has done every step, sent by it over a socket; nothing where it was lost on the way."""
        try:
            return _take(self._lines[self._root])
        except (OSError, EOFError):
            self._close()
            return {}

    def all_reduce(self, x: Any) -> Any | None:
        """The sum of the members' x; None where a member was lost on the way."""
        return self._through_root(x, sum)

    def all_gather(self, value: Any) -> list | None:
        """The values of the members, in their order; None where a member was lost on the way."""
        return self._through_root(value, list)

    def all_finished(self, finished: bool) -> bool:
        """Whether every member says that it has finished the step; a member that is killed before it says so has not."""
        return self._asked("voted", finished)

    def _through_root(self, value: Any, combined: Callable[[list], Any]) -> Any | None:
        """What is made of all members' values, on every member."""
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
            self._close()  # who waits for this rank sees the end of its socket
            return None

    def _asked(self, said: str, value: bool) -> bool:
        """Tell the supervisor, and wait for the next quorum; returns whether the step that ends here counts."""
        try:
            _put(self._control, (said, value))
            (counts, self._last, *coming), ends = _take_with_sockets(self._control)
        except (OSError, EOFError):
            os._exit(_ALONE)  # the supervisor is gone
        self._coming = coming, ends
        return counts

    def _begin(self, state: State) -> None:
        """Take up the next quorum; send the state to members behind where this rank is the one they take it from."""
        if self._coming is None:
            raise RuntimeError("one_step returned without all_finished(…): nobody knows whether this step counts")
        (self.behind, changed), ends = self._coming
        self._coming = None
        if changed:
            self._close()
            self.members, self._root = changed
            others = [rank for rank in self.members if rank != self._root] if self.rank == self._root else [self._root]
            self._lines = dict(zip(others, ends, strict=True))

        for rank in self.behind if self.rank == self._root else ():
            try:
                _put(self._lines[rank], state)
            except OSError:
                self._close()

    def _close(self) -> None:
        for line in self._lines.values():
            line.close()


OneStep = Callable[[int, State, Quorum], None]


def live_quorum(plan: QuorumPlan, state: State, one_step: OneStep) -> dict[str, Any]:
    """A training of live ranks, some of which are killed. Each takes its steps by `one_step(rank, state, quorum)`.

    Every process begins with `state`; `one_step` changes it in place, where all have finished. Returns "steps", of every
    step (second, number of members, whether it counts); "events", in order (second, "killed" or "joined", rank); "states",
    of every rank in the last quorum; and in seconds, as `live_day` does, "work_s", the "course", "step_s" of a step of all
    ranks, and for a kill "pause_s", in which no step came to its end, and "away_s" until its successor joined. Raises
    RuntimeError where the supervisor failed, and where all members were lost at once.
    """
    with tempfile.TemporaryDirectory(prefix="worldsize-quorum-") as folder:
        return supervised(folder, __name__, (plan, state, one_step))


# ---- the supervisor ------------------------------------------------------------------------------------


def supervise(folder: str) -> None:
    """Run the plan in `folder` in the supervisor's process; the result goes there, lines of news to stdout."""
    plan, state, one_step = pickle.loads((Path(folder) / "plan").read_bytes())
    supervisor = _QuorumSupervisor(plan, state, one_step)
    try:
        result = supervisor.run()
    finally:
        supervisor.end()
    (Path(folder) / "result").write_bytes(pickle.dumps(result))


@dataclass(eq=False)
class _Member:
    """A living process: the steps that its state holds, and whether it asks for the next one."""

    process: BaseProcess
    control: socket.socket
    step: int = 0
    asks: bool = False


class _QuorumSupervisor:
    """The ranks, who of them is in the quorum, and what has become of its step."""

    def __init__(self, plan: QuorumPlan, state: State, one_step: OneStep) -> None:
        self.plan, self.state, self.one_step = plan, state, one_step
        self.alive: dict[int, _Member] = {}
        self.quorum: dict[int, _Member] = {}
        self.votes: dict[int, bool] = {}
        self.step = 0
        self.began_s = 0.0
        self.steps: list[tuple[float, int, bool]] = []
        self.events: list[tuple[float, str, int]] = []
        np.random.default_rng(0)  # NumPy loads its generators at the first call: once here, or in every rank anew

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
        while (now_s := self._now_s()) < self.plan.run_s:
            if kills and now_s >= kills[0][0]:
                rank = kills.pop(0)[1]
                starts[rank] = now_s + self.plan.away_s  # one that is away already is away anew
                self.events.append((now_s, "killed", rank))
                if rank in self.alive:
                    self.alive[rank].process.kill()
            for rank in [rank for rank, at_s in starts.items() if now_s >= at_s and rank not in self.alive]:
                del starts[rank]
                self._start(rank)
            if now_s >= told_s:
                told_s = now_s + _TELL_S
                self._tell(now_s)

            until_s = min([now_s + _LOOK_S, self.plan.run_s, *starts.values(), *(second for second, _ in kills[:1])])
            self._hear(max(0.0, until_s - now_s))
            self._decide()
        steps, events = list(self.steps), list(self.events)
        return {"steps": steps, "events": events, "states": self._states(), **_measured(self.plan, steps, events)}

    def _states(self) -> dict[int, State]:
        """The states of the members, once the step that they are in is over."""
        before = len(self.steps)
        while len(self.steps) == before:
            self._hear(_LOOK_S)
            self._decide(last=True)
        return {rank: _take(member.control) for rank, member in self.quorum.items() if member.step == self.step}

    def _now_s(self) -> float:
        return time.monotonic() - self.began_s

    def _tell(self, now_s: float) -> None:
        news = {"step": now_s / self.plan.hour_s, "steps": self.plan.run_s / self.plan.hour_s, "members": len(self.quorum)}
        print(json.dumps(news), flush=True)

    def _start(self, rank: int) -> None:
        control, own = socket.socketpair()
        fork = multiprocessing.get_context("fork")
        inherited = [control, *(member.control for member in self.alive.values())]
        process = fork.Process(target=_rank, args=(rank, own, inherited, self.state, self.one_step), daemon=True)
        process.start()
        own.close()  # so that `control` ends with the process
        self.alive[rank] = _Member(process, control)

    def _hear(self, at_most_s: float) -> None:
        """Take in what ranks say within so many seconds, and who has died."""
        rank_of = {member.control: rank for rank, member in self.alive.items()}
        for control in multiprocessing.connection.wait(list(rank_of), at_most_s):
            rank = rank_of[control]
            try:
                said, value = _take(control)
            except (OSError, EOFError):
                self._lost(rank)
                continue
            self.alive[rank].asks = True
            if said == "voted":
                self.votes[rank] = value

    def _lost(self, rank: int) -> None:
        member = self.alive.pop(rank)
        member.control.close()
        member.process.join()
        if member.process.exitcode != -signal.SIGKILL:
            code = member.process.exitcode
            raise RuntimeError(f"live_quorum: rank {rank} ended by itself, with code {code}; its error stands above")
        if self.quorum.get(rank) is member:
            self.votes.setdefault(rank, False)

    def _decide(self, last: bool = False) -> None:
        """Where every member of the quorum has voted or died: whether its step counts, and who takes the next one."""
        if len(self.votes) < len(self.quorum):
            return
        counts = all(self.votes.values())
        self.steps.append((self._now_s(), len(self.quorum), counts))
        if counts:
            self.step += 1
            for member in self.quorum.values():
                member.step = self.step
        self._name_quorum(counts, last)

    def _name_quorum(self, counts: bool, last: bool = False) -> None:
        """Tell all who ask for the next step whether the last one counts, and who takes the next."""
        before, self.votes = self.quorum, {}
        newest = [rank for rank, member in self.alive.items() if member.asks and member.step == self.step]
        if not newest:
            raise RuntimeError("live_quorum: all members were lost at once; only a checkpoint would help")
        self.quorum = {rank: member for rank, member in sorted(self.alive.items()) if member.asks}
        behind = tuple(rank for rank in self.quorum if rank not in newest)
        if before:
            joined = [rank for rank, member in self.quorum.items() if before.get(rank) is not member]
            self.events += [(self._now_s(), "joined", rank) for rank in joined]

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
            with suppress(OSError):  # it was killed a moment ago: the next look says so
                _put_with_sockets(member.control, (counts, last, behind, changed), ends[rank])
            for end in ends[rank]:
                end.close()  # so that a line ends with the process at its other end

    def end(self) -> None:
        for member in self.alive.values():
            member.process.kill()
        for member in self.alive.values():
            member.process.join()


def _measured(plan: QuorumPlan, steps: list[tuple[float, int, bool]], events: list[tuple[float, str, int]]) -> dict[str, Any]:
    full = [b[0] - a[0] for a, b in pairwise(steps) if a[1:] == b[1:] == (plan.ranks, True)]
    step_s = statistics.mean(full) if full else math.nan
    course = [(0.0, 0.0)]
    for second, members, counts in steps:
        course.append((second, course[-1][1] + counts * step_s * members / plan.ranks))

    killed: dict[int, float] = {}
    away_s = []
    for second, what, rank in events:
        if what == "killed":
            killed[rank] = second
        elif rank in killed:
            away_s.append(second - killed.pop(rank))
    kills = sum(what == "killed" for _, what, _ in events)
    counted_s = step_s * sum(counts for _, _, counts in steps)
    return {
        "work_s": course[-1][1], "course": course, "step_s": step_s, "kills": kills,
        "pause_s": max(0.0, steps[-1][0] - counted_s) / kills if kills else math.nan,
        "away_s": statistics.mean(away_s) if away_s else math.nan,
    }  # fmt: skip


# ---- a rank ----------------------------------------------------------------------------------------------


def _rank(rank: int, control: socket.socket, inherited: list[socket.socket], state: State, one_step: OneStep) -> None:
    """What a rank does until it is killed, or until the supervisor is gone."""
    for line in inherited:
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


# ---- messages --------------------------------------------------------------------------------------------


def _put(line: socket.socket, value: Any) -> None:
    data = pickle.dumps(value)
    line.sendall(len(data).to_bytes(_LENGTH, "big") + data)


def _take(line: socket.socket) -> Any:
    """The next value from a socket; EOFError where its other end is gone."""
    return pickle.loads(_exactly(line, int.from_bytes(_exactly(line, _LENGTH), "big")))


def _exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = line.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _put_with_sockets(line: socket.socket, value: Any, ends: list[socket.socket]) -> None:
    data = pickle.dumps(value)
    socket.send_fds(line, [len(data).to_bytes(_LENGTH, "big")], [end.fileno() for end in ends])
    line.sendall(data)


def _take_with_sockets(line: socket.socket) -> tuple[Any, list[socket.socket]]:
    head, numbers, *_ = socket.recv_fds(line, _LENGTH, _MOST_LINES)
    if not head:
        raise EOFError
    value = pickle.loads(_exactly(line, int.from_bytes(head, "big")))
    return value, [socket.socket(fileno=number) for number in numbers]
