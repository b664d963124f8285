"""The broker: the fabric of graded ranks. It matches their messages, shapes them to a link, and keeps the only record.

One thread reads all frames, so it knows exactly which rank waits for which, and a deadlock at once. A rank can lie only
about what it sends: the sender, receiver, size and time of a message are observed here. A `send` is a rendezvous, as on
every fabric; the matching rules are MPI's (MPI 4.1, section 3.5).
"""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, NamedTuple

import numpy as np

from worldsize.checks.weighed_work import WeighedWork
from worldsize.engines.deadlock import RankMessages, deadlock
from worldsize.fabric.tensor_kinds import DTYPE_NAMES, TensorKind, kind_mismatch
from worldsize.failures import Wait
from worldsize.grade.frames import BadFrame, FabricOp, sides
from worldsize.grade.isolation.limits import Meter
from worldsize.grade.outside.peer import Peer
from worldsize.links import Link, LinkClock
from worldsize.trace import END_S, PEER, TAG, WAIT_START_S, EventRow, Trace, merge, record

_MOST_MESSAGES = 50_000
_WEIGHTS = 0.6, 1.4  # range of the weights on the columns of declared work
_QUIET_S = 1.0  # silence after which a rank with several threads counts as waiting


@dataclass
class PostedMessage:
    """A message on its way at the broker: its sender, its number there, its kind, and its row in the sender's record.

    The first byte leaves at `leaves_s`, the last byte at `left_s`.
    """

    src: int
    number: int
    order: int
    kind: TensorKind
    blob: bytes
    leaves_s: float
    left_s: float
    event: EventRow
    taken_s: float | None = None
    waited: bool = False
    waiters: list[PendingRequest] = field(default_factory=list)  # until the message is taken


@dataclass
class PendingRequest:
    """A request to the broker that a rank waits for: "send", until its message is taken, or "recv"."""

    op: Literal["send", "recv"]
    peer: int | None
    tag: int
    ask: int
    order: int
    began_s: float
    kind: TensorKind | None = None  # expected, of a "recv"


@dataclass
class RankState:
    """The broker's record of a rank."""

    events: list[EventRow] = field(default_factory=list)
    spans: list[tuple] = field(default_factory=list)
    work: list[WeighedWork] = field(default_factory=list)
    waiting: dict[int, PendingRequest] = field(default_factory=dict)
    takers: dict[tuple[int | None, int], deque[PendingRequest]] = field(default_factory=dict)  # by (from, tag)
    posted: dict[int, PostedMessage] = field(default_factory=dict)
    counts: dict[str, Counter] = field(default_factory=lambda: {"send": Counter(), "recv": Counter()})
    computes_until_s: float = 0.0
    misfit: str = ""  # in words, the first message taken that did not fit
    alone: bool = True
    heard_s: float = 0.0
    done: bool = False


class DueAct(NamedTuple):
    """An act of the broker that is due at a moment, in the order of a heap."""

    moment_s: float
    order: int
    act: Callable[[], None]


class Broker:
    """The broker of the messages of one run of `peers`, one per rank. `secret` decides the weights on the results of work."""

    def __init__(self, peers: list[Peer], meter: Meter, link: Link | None = None, secret: str = "") -> None:
        self._peers = peers
        self._meter = meter
        self.rank_states = [RankState() for _ in peers]
        self._queues: dict[tuple[int, int, int], deque[PostedMessage]] = {}  # (from, to, tag)
        self._orders = count()
        self._due: list[DueAct] = []
        self.held_bytes = 0
        self._weights = [np.random.default_rng([*secret.encode(), rank]) for rank, _ in enumerate(peers)]
        self._clocks = [LinkClock(link) for _ in peers]
        self._origin_s = time.monotonic()

    # ---- frames --------------------------------------------------------------------------------

    def take_in(self, rank: int, frame: dict, blob: bytes) -> bool:
        """Act, as broker, on a frame of the fabric; return False for another kind of frame. Raises BadFrame."""
        acts: dict[FabricOp, Callable[[int, RankState, dict, bytes], None]] = {
            "post": self._post, "wait": self._wait, "take": self._take, "compute": self._compute,
        }  # fmt: skip
        op = frame.get("op")
        act = acts.get(op) if isinstance(op, str) else None
        if act is None:
            return False

        state = self.rank_states[rank]
        state.heard_s = time.monotonic()
        if "alone" in frame:
            state.alone = frame["alone"] is True
        act(rank, state, frame, blob)
        return True

    def _post(self, rank: int, state: RankState, frame: dict, blob: bytes) -> None:
        to = self._peer_of(rank, frame.get("to"))
        tag = _tag(frame)
        kind = _kind(frame)
        number = frame.get("post")
        if len(blob) != kind.size_bytes:
            raise BadFrame("expected a message of the size that its dtype and shape give")
        if type(number) is not int or number in state.posted:
            raise BadFrame("expected a message number that no other message has")
        if len(state.posted) >= _MOST_MESSAGES:
            raise BadFrame(f"rank {rank} sent more than {_MOST_MESSAGES} messages")

        self.held_bytes += len(blob)
        leaves_s, left_s = self._clocks[rank].leave(len(blob), state.heard_s)
        message = PostedMessage(
            src=rank, number=number, order=next(self._orders), kind=kind, blob=blob, leaves_s=leaves_s, left_s=left_s,
            event=["send", to, tag, len(blob), state.heard_s, state.heard_s, None],
        )  # fmt: skip
        state.events.append(message.event)
        state.counts["send"][to, tag] += 1
        state.posted[number] = message

        takers = self.rank_states[to].takers
        request = _pop_oldest([takers.get((rank, tag)), takers.get((None, tag))])
        if request is None:
            self._queues.setdefault((rank, to, tag), deque()).append(message)
        else:
            self._hand_over(to, request, message)

    def _wait(self, rank: int, state: RankState, frame: dict, blob: bytes) -> None:
        number = frame.get("post")
        message = state.posted.get(number) if type(number) is int else None
        if message is None:
            raise BadFrame("expected a message that was posted")

        message.waited = True
        message.event[WAIT_START_S] = state.heard_s
        request = self._asked(state, frame, "send", message.event[PEER], message.event[TAG])
        if message.taken_s is None:
            message.waiters.append(request)
        else:
            self._sent(rank, request, message)

    def _take(self, rank: int, state: RankState, frame: dict, blob: bytes) -> None:
        frm = frame.get("from")
        peer = None if frm is None else self._peer_of(rank, frm)
        request = self._asked(state, frame, "recv", peer, _tag(frame), _kind(frame))

        sources = range(len(self._peers)) if peer is None else [peer]
        message = _pop_oldest(self._queues.get((source, rank, request.tag)) for source in sources)
        if message is None:
            state.takers.setdefault((peer, request.tag), deque()).append(request)
        else:
            self._hand_over(rank, request, message)

    def _asked(
        self, state: RankState, frame: dict, op: Literal["send", "recv"], peer: int | None, tag: int,
        kind: TensorKind | None = None,
    ) -> PendingRequest:  # fmt: skip
        """Return a rank's new request to the broker, which waits from now on."""
        ask = _ask(frame)
        if ask in state.waiting or len(state.waiting) >= _MOST_MESSAGES:
            raise BadFrame("expected a request number that no other request has")

        request = PendingRequest(op, peer, tag, ask, next(self._orders), state.heard_s, kind)
        state.waiting[ask] = request
        return request

    def _compute(self, rank: int, state: RankState, frame: dict, blob: bytes) -> None:
        """Start at the broker declared work now, or after the work declared before: a rank has one device.

        The frame brings the array that the work is on; when the work is over, the rank gets the weights on its columns.
        """
        seconds = frame.get("seconds")
        if type(seconds) not in (int, float) or not 0 <= seconds <= self._meter.limits.wall_s:
            raise BadFrame("expected the seconds of declared work")

        ask = _ask(frame)
        start_s = max(state.heard_s, state.computes_until_s)
        state.computes_until_s = start_s + seconds
        state.spans.append(("compute", start_s, state.computes_until_s, f"{seconds:g} s declared"))

        given, weights = None, np.empty(0)
        if "dtype" in frame:
            kind = _kind(frame)
            name = DTYPE_NAMES[kind.dtype].removeprefix("torch.")
            if name not in ("float32", "float64") or len(blob) != kind.size_bytes or not kind.shape:
                raise BadFrame("expected declared work on an array of the size that its dtype and shape give")
            given = np.frombuffer(blob, name).reshape(kind.shape)
            self.held_bytes += len(blob)
            weights = self._weights[rank].uniform(*_WEIGHTS, given.shape[-1:])
        state.work.append(WeighedWork(seconds, given, weights))
        self._when(state.computes_until_s, lambda: self._peers[rank].answer({"to": ask}, weights.tobytes()))

    def _peer_of(self, rank: int, peer: Any) -> int:
        if type(peer) is not int or not 0 <= peer < len(self._peers) or peer == rank:
            raise BadFrame("expected the number of another rank")
        return peer

    # ---- delivery ------------------------------------------------------------------------------

    def _hand_over(self, rank: int, request: PendingRequest, message: PostedMessage) -> None:
        state = self.rank_states[rank]
        message.taken_s = time.monotonic()
        there_s = self._clocks[rank].arrive(len(message.blob), message.leaves_s)
        began_s, arrives_s = request.began_s, max(there_s, message.taken_s)
        # the record has the message whether or not it fits
        row = ["recv", message.src, request.tag, len(message.blob), began_s, arrives_s, began_s]
        state.events.append(row)
        state.counts["recv"][message.src, request.tag] += 1

        answer = {"to": request.ask, "source": message.src}
        if message.kind != request.kind:
            answer |= {"dtype": message.kind.dtype, "shape": list(message.kind.shape)}
            if not state.misfit:
                state.misfit = kind_mismatch(rank, message.src, request.tag, str(request.kind), str(message.kind))

        def arrive() -> None:
            taken, message.blob = message.blob, b""
            self.held_bytes -= len(taken)
            row[END_S] = time.monotonic()
            state.waiting.pop(request.ask, None)
            self._peers[rank].answer(answer, b"" if message.kind != request.kind else taken)

        self._when(there_s, arrive)

        waiters, message.waiters = message.waiters, []
        for waiter in waiters:
            self._sent(message.src, waiter, message)

    def _sent(self, rank: int, request: PendingRequest, message: PostedMessage) -> None:
        def leave() -> None:
            message.event[END_S] = time.monotonic()
            self.rank_states[rank].waiting.pop(request.ask, None)
            self._peers[rank].answer({"to": request.ask})

        self._when(max(message.taken_s, message.left_s), leave)

    def _when(self, moment_s: float, act: Callable[[], None]) -> None:
        if moment_s <= time.monotonic():
            act()
        else:
            heapq.heappush(self._due, DueAct(moment_s, next(self._orders), act))

    def act_on_time(self) -> float:
        """Do what is due in the fabric; return the seconds until the next act, or infinity."""
        while self._due:
            left_s = self._due[0].moment_s - time.monotonic()
            if left_s > 0:
                return left_s
            heapq.heappop(self._due).act()
        return math.inf

    # ---- state of the run ------------------------------------------------------------------------

    def deadlock(self) -> tuple[Wait, ...]:
        """Return each rank's wait if no graded rank can ever go on, else ()."""
        if self._due:
            return ()

        live = set()
        for rank, state in enumerate(self.rank_states):
            if state.done:
                continue
            live.add(rank)
            if not state.waiting:
                return ()
            if not state.alone and time.monotonic() - state.heard_s <= _QUIET_S:  # another thread may send
                return ()

        messages = {}
        for rank, state in enumerate(self.rank_states):
            messages[rank] = RankMessages(wait=self.wait(rank), posted=state.counts["send"], taken=state.counts["recv"])
        return deadlock(messages, live)

    def unwaited(self) -> tuple[int, ...]:
        """Return the graded ranks that sent a message and never waited for it."""
        ranks = []
        for rank, state in enumerate(self.rank_states):
            if not all(message.waited for message in state.posted.values()):
                ranks.append(rank)
        return tuple(ranks)

    def wait(self, rank: int) -> Wait | None:
        """Return what an unfinished rank waits for at the broker: the last request, if several threads wait."""
        state = self.rank_states[rank]
        if state.done or not state.waiting:
            return None

        last = next(reversed(state.waiting.values()))
        return Wait(rank=rank, op=last.op, peer=last.peer, tag=last.tag)

    def trace(self) -> Trace:
        """Return the broker's record so far, on a clock that starts with the run."""
        records = [record(rank, s.events, s.spans, self._origin_s) for rank, s in enumerate(self.rank_states)]
        return merge(records, len(self.rank_states))


def _pop_oldest(queues: Iterable[deque | None]) -> Any:
    """Remove and return the oldest of the messages or requests in the broker's queues, None if there is none."""
    oldest = min(filter(None, queues), key=lambda queue: queue[0].order, default=None)
    return None if oldest is None else oldest.popleft()


def _kind(frame: dict) -> TensorKind:
    dtype, shape = frame.get("dtype"), frame.get("shape")
    if type(dtype) is not int or not 0 <= dtype < len(DTYPE_NAMES) or not sides(shape):
        raise BadFrame("expected a message's dtype and shape")
    return TensorKind(dtype, tuple(shape))


def _tag(frame: dict) -> int:
    tag = frame.get("tag")
    if type(tag) is not int or not 0 <= tag < 2**31:
        raise BadFrame("expected a tag")
    return tag


def _ask(frame: dict) -> int:
    number = frame.get("ask")
    if type(number) is not int:
        raise BadFrame("expected a request number")
    return number
