"""The broker: the fabric of graded ranks. It matches their messages, shapes them to a link, and keeps the only record.

A `send` is a rendezvous, as on every fabric. All frames are read by one thread, so who waits for whom is known exactly,
and a deadlock at once. A rank can lie only about what it sends: who it is, to whom a message goes, how large it is and
when it was taken are seen here. Left out: the ranks' processes (`boxes`), and what a run was for (`arena`).
The matching rules are MPI's (MPI 4.1, section 3.5).
"""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, NamedTuple

from worldsize.engines.deadlock import RankMessages, deadlock
from worldsize.engines.plain_values import BadFrame, sides
from worldsize.failures import Wait
from worldsize.grade.frames import FabricOp
from worldsize.grade.host.peer import Peer
from worldsize.grade.isolation.limits import Meter
from worldsize.links import Link, LinkClock
from worldsize.trace import END_S, KIND, PEER, TAG, EventRow, Trace, merge, record

ITEM_BYTES = (4, 8, 2, 2, 8, 4, 2, 1, 1, 1, 8, 16, 1, 1)  # of gloo.DTYPES, which would need torch
_MOST_MESSAGES = 50_000
_QUIET_S = 1.0  # so long a rank with several threads may be silent before it counts as waiting


class TensorKind(NamedTuple):
    """What a message is made of: the number of its dtype, and its shape."""

    dtype: int
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return ITEM_BYTES[self.dtype] * math.prod(self.shape)


@dataclass
class PostedMessage:
    """A message on its way: from whom, its number there, what it is, and its row in the sender's record.

    Its first byte leaves at `leaves_s`, its last one has left at `left_s`.
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


@dataclass
class PendingRequest:
    """A request that a rank waits for: "send" (its message `number` is taken) or "recv"."""

    op: Literal["send", "recv"]
    peer: int | None
    tag: int
    ask: int
    began_s: float
    kind: TensorKind | None = None  # that fits; of a "recv"
    message: PostedMessage | None = None
    matched: bool = False

    def takes(self, src: int, tag: int) -> bool:
        """Whether it is still open for a message of this tag from rank `src`."""
        if self.op != "recv" or self.matched:
            return False
        return self.tag == tag and self.peer in (None, src)


@dataclass
class RankState:
    """What the broker knows of one rank."""

    events: list[EventRow] = field(default_factory=list)
    spans: list[tuple] = field(default_factory=list)
    waiting: dict[int, PendingRequest] = field(default_factory=dict)
    posted: dict[int, PostedMessage] = field(default_factory=dict)
    computes_since_s: float | None = None
    alone: bool = True
    heard_s: float = 0.0
    done: bool = False


class DueAct(NamedTuple):
    """What is to happen at a moment, in the order of a heap."""

    moment_s: float
    order: int
    act: Callable[[], None]


class Broker:
    """The messages of one run of `peers`, one for each rank."""

    def __init__(self, peers: list[Peer], meter: Meter, link: Link | None = None) -> None:
        self._peers = peers
        self._meter = meter
        self.rank_states = [RankState() for _ in peers]
        self._queues: dict[tuple[int, int, int], list[PostedMessage]] = defaultdict(list)  # (from, to, tag)
        self._orders = count()
        self._due: list[DueAct] = []
        self._held_bytes = 0
        self._clocks = [LinkClock(link) for _ in peers]
        self._origin_s = time.monotonic()

    # ---- frames --------------------------------------------------------------------------------

    def take_in(self, rank: int, frame: dict, blob: bytes) -> bool:
        """Act on a frame of the fabric; False where it is another kind of frame. Raises BadFrame."""
        acts: dict[FabricOp, Callable[[int, RankState, dict, bytes], None]] = {
            "post": self._post, "wait": self._wait, "take": self._take,
            "compute": self._compute, "computed": self._computed,
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
        if len(blob) != kind.size_bytes or type(number) is not int or number in state.posted:
            raise BadFrame("expected a message as large as its kind")
        if len(state.posted) >= _MOST_MESSAGES:
            raise BadFrame(f"rank {rank} sent more than {_MOST_MESSAGES} messages")

        self._held_bytes += len(blob)
        if self._held_bytes > self._meter.limits.held_bytes:
            raise BadFrame(f"more than {self._meter.limits.held_bytes / 1e6:g} MB are on their way and nobody takes them")

        leaves_s, left_s = self._clocks[rank].leave(len(blob), state.heard_s)
        event = ["send", to, tag, len(blob), state.heard_s, state.heard_s]
        message = PostedMessage(
            src=rank, number=number, order=next(self._orders), kind=kind, blob=blob,
            leaves_s=leaves_s, left_s=left_s, event=event,
        )  # fmt: skip
        state.events.append(event)
        state.posted[number] = message
        self._queues[rank, to, tag].append(message)

        for request in list(self.rank_states[to].waiting.values()):
            if request.takes(rank, tag):
                self._match(to, request)
                break

    def _wait(self, rank: int, state: RankState, frame: dict, blob: bytes) -> None:
        number = frame.get("post")
        message = state.posted.get(number) if type(number) is int else None
        if message is None:
            raise BadFrame("expected a message that was posted")

        request = PendingRequest(
            op="send", peer=message.event[PEER], tag=message.event[TAG],
            ask=_ask(frame), began_s=state.heard_s, message=message,
        )  # fmt: skip
        state.waiting[request.ask] = request

        if message.taken_s is not None:
            self._sent(rank, request)

    def _take(self, rank: int, state: RankState, frame: dict, blob: bytes) -> None:
        frm = frame.get("from")
        peer = None if frm is None else self._peer_of(rank, frm)
        request = PendingRequest(
            op="recv", peer=peer, tag=_tag(frame), ask=_ask(frame), began_s=state.heard_s, kind=_kind(frame)
        )
        state.waiting[request.ask] = request
        self._match(rank, request)

    def _compute(self, rank: int, state: RankState, frame: dict, blob: bytes) -> None:
        state.computes_since_s = state.heard_s

    def _computed(self, rank: int, state: RankState, frame: dict, blob: bytes) -> None:
        if state.computes_since_s is not None:
            state.spans.append(("compute", state.computes_since_s, state.heard_s, "declared"))
        state.computes_since_s = None

    def _peer_of(self, rank: int, peer: Any) -> int:
        if type(peer) is not int or not 0 <= peer < len(self._peers) or peer == rank:
            raise BadFrame("expected another rank")
        return peer

    # ---- matching ------------------------------------------------------------------------------

    def _match(self, rank: int, request: PendingRequest) -> None:
        sources = range(len(self._peers)) if request.peer is None else [request.peer]
        queues = [self._queues.get((src, rank, request.tag)) for src in sources]
        oldest = min(filter(None, queues), key=lambda queue: queue[0].order, default=None)
        if oldest is not None:
            self._hand_over(rank, request, oldest.pop(0))

    def _hand_over(self, rank: int, request: PendingRequest, message: PostedMessage) -> None:
        size_bytes = len(message.blob)
        request.matched = True
        self._held_bytes -= size_bytes
        message.taken_s = time.monotonic()
        there_s = self._clocks[rank].arrive(size_bytes, message.leaves_s)

        def arrive() -> None:
            answer = {"to": request.ask, "source": message.src}
            taken, message.blob = message.blob, b""
            state = self.rank_states[rank]
            if message.kind == request.kind:
                row = ["recv", message.src, request.tag, size_bytes, request.began_s, time.monotonic()]
                state.events.append(row)
            else:
                answer |= {"dtype": message.kind.dtype, "shape": list(message.kind.shape)}
                taken = b""

            state.waiting.pop(request.ask, None)
            self._peers[rank].answer(answer, taken)

        self._when(there_s, arrive)

        for waiting in list(self.rank_states[message.src].waiting.values()):
            if waiting.message is message:
                self._sent(message.src, waiting)

    def _sent(self, rank: int, request: PendingRequest) -> None:
        message = request.message

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
        """Do what is due; the seconds until the next thing is, or infinity."""
        while self._due:
            left_s = self._due[0].moment_s - time.monotonic()
            if left_s > 0:
                return left_s
            heapq.heappop(self._due).act()
        return math.inf

    # ---- what is known ---------------------------------------------------------------------------

    def deadlock(self) -> tuple[Wait, ...]:
        """What each rank waits for where no rank can ever go on; else ()."""
        live = {rank for rank, state in enumerate(self.rank_states) if not state.done}
        if self._due or not all(self._waits(self.rank_states[rank]) for rank in live):
            return ()

        return deadlock({rank: self._messages(rank) for rank in range(len(self.rank_states))}, live)

    def waiting(self, rank: int) -> bool:
        return bool(self.rank_states[rank].waiting)

    def _waits(self, state: RankState) -> bool:
        if not state.waiting:
            return False
        return state.alone or time.monotonic() - state.heard_s > _QUIET_S

    def _messages(self, rank: int) -> RankMessages:
        counts: dict[str, Counter] = {"send": Counter(), "recv": Counter()}
        for event in self.rank_states[rank].events:
            counts[event[KIND]][event[PEER], event[TAG]] += 1

        return RankMessages(wait=self.wait(rank), posted=counts["send"], taken=counts["recv"])

    def wait(self, rank: int) -> Wait | None:
        """What an unfinished rank waits for; the last request, where it waits in several threads."""
        state = self.rank_states[rank]
        if state.done or not state.waiting:
            return None

        last = next(reversed(state.waiting.values()))
        return Wait(rank=rank, op=last.op, peer=last.peer, tag=last.tag)

    def trace(self) -> Trace:
        """The record so far, on a clock that starts with the run."""
        records = [record(rank, s.events, s.spans, self._origin_s) for rank, s in enumerate(self.rank_states)]
        return merge(records, len(self.rank_states))


def _kind(frame: dict) -> TensorKind:
    dtype, shape = frame.get("dtype"), frame.get("shape")
    if type(dtype) is not int or not 0 <= dtype < len(ITEM_BYTES) or not sides(shape):
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
        raise BadFrame("expected a number to answer to")
    return number
