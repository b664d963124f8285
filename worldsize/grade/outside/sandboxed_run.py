"""A run of a submission's function: start ranks, serve frames, and end as soon as the outcome is known.

A thread checks the limits ten times a second, however busy the broker is. The ranks that a check plays are threads of
the grader, on the same broker.
"""

import select
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from worldsize.checks.arena import ArenaState
from worldsize.checks.weighed_work import WeighedWork
from worldsize.failures import (
    Failure,
    Frame,
    Standing,
    TaskNames,
    Wait,
    deadlock_line,
    failed_text,
    first_failure,
    is_library,
    unfinished_line,
)
from worldsize.grade.frames import BadFrame, RankOp, decode, encode
from worldsize.grade.isolation.bubblewrap import Framework
from worldsize.grade.isolation.limits import LimitsWatch, Meter, usage
from worldsize.grade.isolation.shared_time import SharedTime
from worldsize.grade.outside.boxes import Sandbox
from worldsize.grade.outside.broker import Broker
from worldsize.grade.outside.peer import Peer
from worldsize.grade.pipes import PipeEnds, pipe_line
from worldsize.links import Link
from worldsize.trace import Trace
from worldsize.units import text_of

_MOST_STACK_FRAMES = 12
_MOST_CHANGED = 5


def changed_of(frame: dict) -> set[str]:
    """Return the names of package objects that a rank reports as changed in its process."""
    told = frame.get("changed")
    if not isinstance(told, list):
        return set()
    return {text_of(name, 120) for name in told[:_MOST_CHANGED]} - {""}


def failure_of(rank: int, frame: dict) -> Failure:
    """Return a rank's report of its own failure, taken as text for a person and nothing more."""
    rows = frame.get("frames")
    if not isinstance(rows, list):
        rows = []

    code = frame.get("code")
    return Failure(
        rank=rank,
        kind="exit" if frame.get("kind") == "exit" else "raised",
        at_s=time.monotonic(),
        type=text_of(frame.get("type"), 100),
        message=text_of(frame.get("message")),
        frames=tuple(filter(None, map(_stack_frame, rows[:_MOST_STACK_FRAMES]))),
        code=code if type(code) is int else 1,
        not_yet=frame.get("not_yet") is True,
        cause=text_of(frame.get("cause"), 300),
    )


def _stack_frame(row: Any) -> Frame | None:
    """Return one line of a sandboxed rank's traceback as reported, None if it is malformed.

    A file that is neither a library's nor a cell gets angle brackets, a cell's form, so that the grader reads no file
    because a rank names it.
    """
    if not isinstance(row, list) or len(row) != 4:
        return None

    file, line, function, text = row
    if type(line) is not int:
        return None
    frame = Frame(file=text_of(file, 200), line=line, function=text_of(function, 100), text=text_of(text, 300))
    if is_library(frame) or (frame.file.startswith("<") and frame.file.endswith(">")):
        return frame
    return replace(frame, file=f"<{frame.file}>")


_LOOK_S, _SETTLE_S, _LEAVE_S = 0.1, 0.2, 1.0  # between looks; for other failures; for an exit code
_MOST_FRAMES = 200_000
_SIGNALS = 128  # an exit code above it is 128 + a signal
_TOLD = ("returned", "input", "errors", "played")  # fields of a finished rank's report
_SLOW = 2.0  # times the limit: TensorFlow's processes find each other slowly

RankJob = tuple[dict[str, Any], bytes]
Incident = Literal["", "timeout", "crashed"]


@dataclass(frozen=True)
class RunResult:
    """The end of a run: `values` by rank, `waits` of a deadlock, package objects `changed` in a rank's process."""

    state: ArenaState
    message: str = ""
    values: tuple[dict[str, Any], ...] = ()
    trace: Trace = field(default_factory=lambda: Trace(0))
    incident: Incident = ""
    cells_begun: int = 0
    waits: tuple[Wait, ...] = ()
    failure: Failure | None = None
    unwaited: tuple[int, ...] = ()
    work: tuple[tuple[WeighedWork, ...], ...] = ()
    changed: tuple[str, ...] = ()


@dataclass
class GradedRun:
    """The sandboxed ranks of one run: `jobs[rank]`, or `played[rank](line)` for a rank that the check plays.

    `alone` names the one process if it is not a rank.
    """

    sandbox: Sandbox
    meter: Meter
    jobs: list[RankJob]
    link: Link | None = None
    played: Mapping[int, Callable[[PipeEnds], None]] = field(default_factory=dict)
    together: bool = False
    framework: Framework = "torch"
    tasks: TaskNames = ()  # the ranks' names, if they have any
    alone: str = ""
    answer_call: Callable[[int, list], Any] | None = None
    secret: str = ""  # unknown to every rank
    watched: bool = False

    def __post_init__(self) -> None:
        self._codes: dict[int, int] = {}
        self._lost_s: dict[int, float] = {}
        self._failed_s = 0.0
        self._frames_read = 0
        self._cells_begun = 0
        self._result_bytes = 0
        self._changed: set[str] = set()

    def go(self) -> RunResult:
        """Run the ranks until the outcome is known. Raises SandboxLost if a sandbox ends by itself."""
        message = self.meter.too_much(self.sandbox.processes())
        if message:  # every later run of this submission ends here too
            return RunResult("timeout", message, trace=Trace(len(self.jobs)), incident="timeout")

        with self.meter.paused():
            self._peers = self._start()
        self._broker = Broker(self._peers, self.meter, self.link, self.secret)
        self.sandbox.cgroup.ran_out_of_memory()  # forget earlier kills

        try:
            with LimitsWatch(self.meter, self.sandbox.processes) as self._watch:
                for peer, job in zip(self._peers, self.jobs, strict=True):
                    if peer.number is not None:
                        peer.answer(*job)
                result = self._follow()
            if result.state != "done" and self.sandbox.cgroup.ran_out_of_memory():
                return self._over_limit(self.meter.too_much_memory())
            return result
        finally:
            self._end()

    def _start(self) -> list[Peer]:
        if self.together:
            number, lines = self.sandbox.spawn(len(self.jobs), self.framework, together=True)
            return [Peer(rank, line, number) for rank, line in enumerate(lines)]

        peers = []
        for rank in range(len(self.jobs)):
            if rank in self.played:
                ours, theirs = pipe_line()
                threading.Thread(target=self.played[rank], args=(theirs,), daemon=True).start()
                peers.append(Peer(rank, ours, None))
            else:
                number, (line,) = self.sandbox.spawn(watched=self.watched)
                peers.append(Peer(rank, line, number))
        return peers

    def _end(self) -> None:
        if self.together:  # they end with their first process, and their times are not reported
            self.meter.cpu_s += usage(self.sandbox.processes()).cpu_s
        numbers = set()
        for peer in self._peers:
            peer.close()
            if peer.number is not None:
                numbers.add(peer.number)

        over = all(peer.over for peer in self._peers)
        for ended in self.sandbox.end(numbers, wait=not over):
            self.meter.cpu_s += ended.cpu_s

    # ---- until it ends ---------------------------------------------------------------------------

    def _follow(self) -> RunResult:
        case_s = self.meter.limits.case_s
        if self.framework == "tensorflow":
            case_s *= _SLOW
        shared = SharedTime()
        self.meter.lost_now = lambda: shared.lost_s(self.sandbox.processes())
        deadline_s = time.monotonic() + case_s

        try:
            while True:
                next_s = self._broker.act_on_time()
                now_s = time.monotonic()
                shared.look(self.sandbox.processes(), now_s)
                if self._watch.message:
                    return self._over_limit(self._watch.message)

                result = self._known(now_s)
                if result is not None:
                    return result
                if now_s >= deadline_s:
                    deadline_s = shared.deadline_s(case_s, self.sandbox.processes())
                    if now_s >= deadline_s:
                        return self._too_late(case_s)

                self._serve(min(next_s, _LOOK_S, deadline_s - now_s))
        finally:
            self.meter.lost_s += self.meter.lost_now()
            self.meter.lost_now = lambda: 0.0

    def _known(self, now_s: float) -> RunResult | None:
        """Return the run's result once it is known, else None."""
        states = self._broker.rank_states
        misfits = {rank: state.misfit for rank, state in enumerate(states) if state.misfit}
        if misfits or any(peer.failure for peer in self._peers):
            if not self._failed_s:
                self._failed_s = now_s
            if now_s < self._failed_s + _SETTLE_S:
                for peer in self._peers:
                    if not (peer.over or states[peer.rank].waiting):  # it may be about to fail too
                        return None
            return self._failed(misfits)

        if all(peer.over for peer in self._peers):
            values, work = [], []
            for peer, state in zip(self._peers, states, strict=True):
                values.append(peer.result)
                work.append(tuple(state.work))
            unwaited = self._broker.unwaited()
            return self._result("done", values=tuple(values), unwaited=unwaited, work=tuple(work))

        waits = self._broker.deadlock()
        if waits:
            return self._result("deadlock", deadlock_line(waits), waits=waits)
        return None

    def _serve(self, wait_s: float) -> None:
        reads, writes = {}, {}
        for peer in self._peers:
            if not peer.open:
                continue
            if not peer.over:
                reads[peer.line.reads] = peer
            if peer.unsent:
                writes[peer.line.writes] = peer

        servers = self.sandbox.channels()
        ready, free, _ = select.select([*reads, *servers], writes, [], max(0.0, wait_s))

        for descriptor in free:
            writes[descriptor].write()

        for descriptor in ready:
            if descriptor in servers:
                ended = self.sandbox.heard(servers[descriptor])
                self.meter.cpu_s += ended.cpu_s
                self._codes[ended.number] = ended.code
            else:
                self._read(reads[descriptor])
        self._look_for_lost()

    def _read(self, peer: Peer) -> None:
        before = peer.read_bytes
        try:
            peer.read()
            self.meter.carried_bytes += peer.read_bytes - before
            while not peer.over and (frame := peer.reader.next()):
                self._frames_read += 1
                if self._frames_read > _MOST_FRAMES:
                    raise BadFrame(f"more than {_MOST_FRAMES} frames in one run")
                self._take_in(peer, *frame)

            on_their_way = self._broker.held_bytes + sum(one.kept_bytes for one in self._peers)
            most_bytes = self.meter.limits.held_bytes
            if on_their_way > most_bytes:
                raise BadFrame(f"more than {most_bytes / 1e6:g} MB are in transit and not yet received")
        except (BadFrame, RecursionError) as error:
            peer.result = None
            peer.failure = _raised(peer.rank, "ProtocolError", text_of(str(error), 300))
        self._broker.rank_states[peer.rank].done = peer.over

    def _take_in(self, peer: Peer, frame: dict, blob: bytes) -> None:
        if self._broker.take_in(peer.rank, frame, blob):
            return

        op: RankOp | Any = frame.get("op")
        self._changed |= changed_of(frame)
        if op == "done":
            self._result_bytes += peer.reader.frame_bytes
            most_bytes = self.meter.limits.result_bytes
            if self._result_bytes > most_bytes:
                raise BadFrame(f"the results of all ranks take more than {most_bytes / 1e6:g} MB")
            peer.result = {name: decode(frame[name], blob) for name in _TOLD if name in frame}
        elif op == "failed":
            peer.failure = failure_of(peer.rank, frame)
        elif op == "cell":
            self._cells_begun += 1
        elif op == "call" and self.answer_call is not None:
            peer.answer(*self._called(self.answer_call, frame, blob))
        else:
            raise BadFrame("expected a kind of frame that the grader knows")

    def _called(self, answer_call: Callable[[int, list], Any], frame: dict, blob: bytes) -> tuple[dict, bytearray]:
        """Return, in a run, the check's answer to a call, or the error that it raised."""
        args = decode(frame.get("args"), blob)
        number = frame.get("number")
        if not isinstance(args, list) or type(number) is not int:
            raise BadFrame("expected a call's number and arguments")

        answer = {"to": frame.get("ask")}
        try:
            out = bytearray()
            value = encode(answer_call(number, args), out)
            return answer | {"value": value}, out
        except Exception as error:
            return answer | {"error": [type(error).__name__, str(error)[:300]]}, bytearray()

    def _look_for_lost(self) -> None:
        """Fail each rank that closed its line without a report, once its exit code is known or overdue.

        Ranks that run together have no exit codes.
        """
        now_s = time.monotonic()
        wait_s = _SETTLE_S if self.together else _LEAVE_S
        for peer in self._peers:
            if peer.open or peer.over:
                continue

            lost_s = self._lost_s.setdefault(peer.rank, now_s)
            code = None if self.together else self._codes.get(peer.number)
            if code is None and now_s <= lost_s + wait_s:
                continue
            if code is not None and code > _SIGNALS:
                peer.failure = Failure(rank=peer.rank, kind="signal", at_s=now_s, code=code - _SIGNALS)
            else:
                peer.failure = Failure(rank=peer.rank, kind="exit", at_s=now_s, code=code)
            self._broker.rank_states[peer.rank].done = True

    # ---- how it ended -----------------------------------------------------------------------------

    def _result(self, state: ArenaState, message: str = "", incident: Incident = "", **more: Any) -> RunResult:
        about = {"trace": self._broker.trace(), "incident": incident, "cells_begun": self._cells_begun}
        about["changed"] = tuple(sorted(self._changed))
        return RunResult(state=state, message=message, **about, **more)

    def _over_limit(self, message: str) -> RunResult:
        if self.meter.left_s <= 0:
            return self._result("timeout", message, "timeout")
        return self._result("raised", message, "crashed")

    def _too_late(self, limit_s: float) -> RunResult:
        standings = []
        for peer in self._peers:
            if not peer.over:
                standings.append(Standing(rank=peer.rank, wait=self._broker.wait(peer.rank)))
        message = unfinished_line(limit_s, len(self._peers), standings, self.tasks, self.alone)
        return self._result("timeout", message, "timeout")

    def _failed(self, misfits: dict[int, str]) -> RunResult:
        """Return the result of failed ranks; a misfit, a message that did not fit, overrides a rank's own report."""
        failures = {peer.rank: peer.failure for peer in self._peers if peer.failure}
        for rank, message in misfits.items():
            frames = failures[rank].frames if rank in failures else ()
            failures[rank] = replace(_raised(rank, "ValueError", message), frames=frames, at_s=self._failed_s)

        first = first_failure(list(failures.values()))
        if first.not_yet:
            return self._result("not yet", first.message)
        message = failed_text(list(failures.values()), len(self._peers), self.tasks, self.alone)
        incident: Incident = "" if first.kind == "raised" else "crashed"
        return self._result("raised", message, incident, failure=first)


def _raised(rank: int, type: str, message: str) -> Failure:
    return Failure(rank=rank, kind="raised", at_s=time.monotonic(), type=type, message=message)


def play(fn: Callable, rank: int, world_size: int, args: list, line: PipeEnds) -> None:
    """Do the work of a rank that the check itself plays, in a thread of the grader: call `fn(fabric, *args)` as that rank."""
    from worldsize.grade.inside.broker_channel import BrokerChannel
    from worldsize.grade.inside.sandboxed_rank import play_rank, tell_end

    broker = BrokerChannel(line, lambda: True)
    try:
        with suppress(OSError):
            tell_end(broker, rank, lambda: play_rank(broker, rank, world_size, fn, args))
    finally:
        line.close()
