"""A rank's channel to its agent: sends news, and answers questions from a thread of its own.

Ten times a second the channel reports the rank's `report` rows, bytes sent and received, and waits. The agent asks
"waits" (the wait-for state) or "where" (stack and record so far), says "bye" (leave), or closes the channel, which kills
the rank. A rank may `request` that another be killed or restarted. A rank that stays gets orders, and "free" to abandon
one.
"""

from __future__ import annotations

import linecache
import math
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from worldsize.engines.deadlock import Posts, RankMessages
from worldsize.engines.job import SMALL_BYTES, Job, Progress, ProgressState, Typed, Use
from worldsize.engines.ranks.last_seen import LastSeen, Rows
from worldsize.failures import Failure, Frame, Return, Standing, Wait
from worldsize.files import write_whole
from worldsize.report import ReportBuffer, gather
from worldsize.trace import END_S, KIND, SIZE_BYTES, START_S, Event, RankRecord, Span

if TYPE_CHECKING:  # these import torch, which a rank of TensorFlow does not need
    from worldsize.engines.ranks.flight_recorder import FlightRecorder
    from worldsize.engines.ranks.rank_posts import RankPosts
    from worldsize.fabric.interface import Fabric
    from worldsize.fabric.recording import Recorded
    from worldsize.pytorch.collective_log import CollectiveLog

Question = Literal["waits", "posts", "where", "granted", "free", "bye"]  # from the agent; "granted" answers a rank's request
News = Literal[
    "hello", "progress", "entered", "blocked", "stalled", "request", "waits", "posts", "where", "prompt", "result", "failure"
]

MAIN = (str(Path(__file__).with_name("rank.py")), "main")
_TICK_S = 0.05
_BLOCKED_AFTER_TICKS = 2
_PROGRESS_S = 0.1
_STALLED_AFTER_TICKS, _STALLED_EVERY_TICKS = 6, 20
_KEEP_UP_TICKS = 5  # between two questions whether the flight recorder is nearly full
_WAITS_AFTER_S = 0.3  # in a collective: healthy training's waits are shorter and would flood the kernel


@dataclass(frozen=True)
class Request:
    """A rank's request to the agent, to kill or restart another rank."""

    what: Literal["kill", "restart"]
    rank: int


@dataclass(frozen=True)
class Published:
    """A rank's place in the wait-for graph, told to the agent, and how often its wait has changed."""

    changes: int
    messages: RankMessages


class RankChannel:
    """This rank's channel to the agent."""

    def __init__(self, address: str, rank: int) -> None:
        self.rank = rank
        self.job: Job | None = None
        self.fabric: Fabric | None = None
        self.recorded: Recorded | None = None
        self.collectives: CollectiveLog | None = None
        self.recorder: FlightRecorder | None = None
        self.posts: RankPosts | None = None
        self.last_seen: LastSeen | None = None
        self.reports: ReportBuffer | None = None

        self.orders: queue.SimpleQueue[Use] = queue.SimpleQueue()
        self.orders_come = 0
        self.typed: queue.SimpleQueue[str] = queue.SimpleQueue()  # at this rank's debugger prompts
        self.free: Callable[[], None] = lambda: None  # makes the main thread abandon its order
        self.resting = False  # between two orders: no notes, no news
        self.own_env: frozenset[str] = frozenset()  # variables that say which rank this is

        self._over = False  # whether the function or order has ended
        self._progress = _ProgressTeller()
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._granted = threading.Semaphore(0)

        joint = socket.socket(socket.AF_UNIX)
        joint.connect(address)
        self._connection = Connection(joint.detach())
        self._pid = os.getpid()
        # the agent must notice this rank's end, also while a child lives on
        os.register_at_fork(after_in_child=self._connection.close)
        self.tell("hello", (rank, os.getpid()))

    def tell(self, kind: News, content: Any) -> None:
        with self._lock:
            self._connection.send((kind, content))

    def request(self, what: Literal["kill", "restart"], rank: int) -> None:
        """Ask the agent to kill or restart a rank, and return when that is done."""
        self.tell("request", Request(what, rank))
        self._granted.acquire()

    def watch(self) -> None:
        threading.Thread(target=self._watch, name="worldsize-channel", daemon=True).start()

    def begin(self, job: Job, below: tuple[str, str]) -> None:
        """Switch the channel's reports and records to `job`, the next order, which runs in callees of the function `below`."""
        reports = gather(job.origin_s)
        with self._lock:
            self.last_seen.move_to(job.files.of(self.rank, "last_seen"), below)
            self.job, self.reports, self._progress = job, reports, _ProgressTeller(brief=True)
            self._over = False

    def end_forked(self, error: BaseException | None = None) -> None:
        """End this process if it is a child that the function forked and that came out of it: the result is the rank's."""
        if os.getpid() == self._pid:
            return
        if error is not None and not isinstance(error, SystemExit):
            traceback.print_exception(error)
        sys.stdout.flush()
        os._exit(0 if error is None else 1)

    def finish(self, kind: Literal["result", "failure"], content: Return | Failure) -> None:
        """Report the rank's end and exit once the agent allows it, since a peer may still read; after 5 s if no job was read."""
        self.end(kind, content)
        self._released.wait(timeout=None if self.job else 5)
        os._exit(0)

    def end(self, kind: Literal["result", "failure"], content: Return | Failure) -> None:
        """Report to the agent how the function or order ended, after saving its record."""
        self._over = True
        sys.stdout.flush()
        sys.stderr.flush()

        stays = bool(self.job and self.job.world)
        try:
            record = self._record()
            if stays and isinstance(content, Return) and len(record) <= SMALL_BYTES:
                content = replace(content, record=record)
            else:
                self._save(record)
            self._tell_progress(ended=content)
        finally:
            self.resting = stays  # set before telling: the next order may come at once
            self.tell(kind, content)

    def _watch(self) -> None:
        quiet = changes = reported = 0
        state = None
        stall = _Stall()
        try:
            while True:
                if self._connection.poll(None if self.resting else _TICK_S):
                    asked = self._connection.recv()
                    self._answer(asked)
                    if isinstance(asked, Use):  # most orders end before the next tick
                        continue
                if self.resting:
                    continue

                with self._lock:
                    rows = self.last_seen.note()
                self._tell_progress()
                self._note_stall(stall, rows)

                before, state = state, self.recorded.state if self.recorded else None
                if state is not before:  # a new order has a new record
                    quiet = changes = reported = 0
                if state is None or state.doing is None:
                    continue

                quiet = quiet + 1 if state.changes == changes else 0
                changes = state.changes
                if quiet >= _BLOCKED_AFTER_TICKS and reported != changes:
                    reported = changes
                    self.tell("blocked", changes)
        except (EOFError, OSError):
            os.killpg(0, signal.SIGKILL)  # the agent is gone, and nothing else ends this rank

    def _note_stall(self, stall: _Stall, rows: Rows) -> None:
        """Tell the agent when this rank's thread has stood for a while where it may wait for other ranks."""
        if self.posts is None or self._over:
            return
        log = self.collectives
        if stall.lasts((rows, log.calls, len(log.messages), log.backwards)) and self.posts.may_wait(rows):
            self.tell("stalled", stall.new)
        if stall.ticks % _KEEP_UP_TICKS == 0:
            self.recorder.keep_up(self.reports.origin_s)

    def _tell_progress(self, ended: Return | Failure | None = None) -> None:
        if self.reports is None:
            return

        with self._lock:
            collective, peer_wait = "", None
            if self.collectives is not None:
                collective = self.collectives.waits_in(_WAITS_AFTER_S)

            waiting = self.reports.waiting
            if waiting is not None and not collective:
                collective = waiting[0]
            if self.collectives is not None and collective:
                peer_wait = self.collectives.peer_wait()

            news = self._progress.news(self.rank, self.reports, self.recorded, collective, peer_wait, ended)
            if news is not None:
                self._connection.send(("progress", news))

    def _answer(self, question: Question | Use | Typed) -> None:
        if isinstance(question, Use):
            self.resting = False
            self.orders_come += 1
            self.orders.put(question)
        elif isinstance(question, Typed):
            self.typed.put(question.text)
        elif question == "free":
            self.free()
        elif question == "granted":
            self._granted.release()
        elif question == "bye":
            self._released.set()
        elif question == "waits":
            self.tell("waits", self._published())
        elif question == "posts":
            self.tell("posts", self._posts())
        elif question == "where":
            self._save(self._record())
            self.tell("where", self._standing())

    def _published(self) -> Published | None:
        """Return this rank's wait-for state for its agent; None without a fabric."""
        if self.recorded is None:
            return None

        state = self.recorded.state
        wait = wait_of(self.rank, self.recorded)
        return Published(state.changes, RankMessages(wait, *state.messages()))

    def _posts(self) -> Posts | None:
        """Return for the agent what this rank has posted and waits for; None if it cannot tell."""
        if self.posts is None or self.job is None:
            return None

        fabric = None
        if self.recorded is not None:
            fabric = RankMessages(wait_of(self.rank, self.recorded), *self.recorded.state.messages())
        return self.posts.of(self.last_seen.seen(), fabric, not (self.resting or self._over), self.job.timeout_s)

    def _save(self, record: bytes) -> None:
        """Write the channel's record to its file, if it has bytes."""
        if record:
            write_whole(self.job.files.of(self.rank, "record"), record)

    def _record(self) -> bytes:
        """Return the channel's pickled record so far; b"" if nothing was recorded."""
        if self.job is None:
            return b""

        record = RankRecord(self.rank)
        if self.recorded is not None:
            record = self.recorded.record()

        if self.reports is not None:
            marked = [Span(self.rank, *row) for row in self.reports.spans]
            waiting = self.reports.waiting
            if waiting is not None:
                now_s = time.monotonic() - self.reports.origin_s
                marked.append(Span(self.rank, "wait", waiting[1], now_s, label=waiting[0], ended=False))
            record = replace(record, spans=record.spans + tuple(marked))

        if self.collectives is not None:
            spans = record.spans + self.collectives.waits()
            events = record.events + self.collectives.events()
            record = replace(record, spans=spans, events=events, collectives=self.collectives.rows())
        if self.recorder is not None and self.reports is not None:
            unseen = self.recorder.rows(self.reports.origin_s)
            lost, without = self.recorder.lost, self.recorder.missing()
            record = replace(record, collectives=record.collectives + unseen, lost=lost, without_recorder=without)

        return pickle.dumps(record) if record != RankRecord(self.rank) else b""

    def _standing(self) -> Standing:
        rows = self.last_seen.seen() if self.last_seen else ()
        frames = []
        for file, line, function in rows:
            frames.append(Frame(file, line, function, linecache.getline(file, line).strip()))

        wait, collective = wait_of(self.rank, self.recorded), ""
        if self.collectives is not None:
            if wait is None:
                wait = self.collectives.peer_wait()
            collective = self.collectives.waits_in(0)
        if self.posts is not None and wait is None:
            collective = self.posts.label(rows) or collective

        return Standing(
            rank=self.rank,
            wait=wait,
            frames=tuple(frames),
            last_message=_last_message(self.recorded),
            collective=collective,
        )


def wait_of(rank: int, recorded: Recorded | None) -> Wait | None:
    """Return what to tell the agent this rank waits for in the fabric, from its record; None if it does not wait."""
    if recorded is None:
        return None
    doing = recorded.state.doing
    return Wait(rank, *doing) if doing else None


def _last_message(recorded: Recorded | None) -> Event | None:
    """Return the last completed message to tell the agent of; one on its way has no end yet."""
    if recorded is None:
        return None
    for row in reversed(recorded.events):
        if row[END_S] > row[START_S]:
            return Event(*row)
    return None


class _Stall:
    """Counts for how many of the channel's looks in a row nothing has changed."""

    def __init__(self) -> None:
        self._seen: Any = None
        self._since = 0
        self.ticks = 0
        self.new = False  # whether the last look was the first of this stall to be told

    def lasts(self, seen: Any) -> bool:
        """Look once; return True if nothing has changed for a while, and from time to time as long as that lasts."""
        self.ticks += 1
        if seen != self._seen:
            self._seen, self._since = seen, self.ticks
        lasted = self.ticks - self._since - _STALLED_AFTER_TICKS
        self.new = lasted == 0
        return lasted >= 0 and lasted % _STALLED_EVERY_TICKS == 0


class _ProgressTeller:
    """Collects what is new for the agent since the last report, at most ten times a second and at the end.

    With `brief`, a result with no rows and no earlier report is not reported.
    """

    def __init__(self, brief: bool = False) -> None:
        self._brief = brief
        self._rows = self._events = 0  # counts already reported
        self._sent_bytes = self._received_bytes = 0
        self._told: tuple[ProgressState | None, Wait | None, str] = (None, None, "")
        self._next_s = 0.0

    def news(
        self,
        rank: int,
        reports: ReportBuffer,
        recorded: Recorded | None,
        collective: str,
        peer_wait: Wait | None,
        ended: Return | Failure | None,
    ) -> Progress | None:
        now_s = time.monotonic()
        if ended is not None:
            self._next_s = math.inf
        elif now_s < self._next_s:
            return None
        else:
            self._next_s = now_s + _PROGRESS_S

        rows = reports.rows[self._rows :]
        events = recorded.events[self._events :] if recorded else []
        state, wait = self._state(rank, recorded, ended)
        if state != "running":
            collective = ""
        elif collective:
            state, wait = "waiting", peer_wait
            collective = "" if peer_wait else collective

        if not rows and not events and (state, wait, collective) == self._told:
            return None
        if self._brief and state == "done" and not rows and self._told[0] is None:
            return None

        self._told = (state, wait, collective)
        self._rows += len(rows)
        self._events += len(events)
        for event in events:
            if event[KIND] == "send":
                self._sent_bytes += event[SIZE_BYTES]
            else:
                self._received_bytes += event[SIZE_BYTES]

        return Progress(
            rank=rank,
            at_s=now_s - reports.origin_s,
            reports=tuple(rows),
            sent_bytes=self._sent_bytes,
            received_bytes=self._received_bytes,
            state=state,
            wait=wait,
            failure=ended if isinstance(ended, Failure) else None,
            collective=collective,
        )

    def _state(
        self, rank: int, recorded: Recorded | None, ended: Return | Failure | None
    ) -> tuple[ProgressState, Wait | None]:
        if isinstance(ended, Failure):
            return ("not yet" if ended.not_yet else "failed"), None
        if ended is not None:
            return "done", None

        wait = wait_of(rank, recorded)
        if wait is not None and recorded.state.beside:  # only a background thread waits
            wait = None
        return ("running" if wait is None else "waiting"), wait
