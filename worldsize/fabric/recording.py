"""A wire that records every message of the wire it wraps, and publishes its rank's current wait.

The record is a rank's side of each message, from which `trace.merge` makes transfers. `engines.rank_channel` reads the record and
the wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import get_ident
from typing import TYPE_CHECKING

from worldsize.fabric.wire import Arrival, Pending, Wire
from worldsize.trace import END_S, PEER, TAG, WAIT_START_S, EventRow, MessageKind, RankRecord, Span, SpanRow, record

if TYPE_CHECKING:
    import torch


class WaitState:
    """A rank's current wait, published for the deadlock detector. `doing` is (op, peer or None, tag) or None.

    A wait is `beside` if another thread waits while the rank itself goes on. Messages are counted when the detector asks, not
    when they are sent, so that recording costs little per message.
    """

    __slots__ = ("_counted", "_events", "_posted", "_taken", "beside", "changes", "doing", "since_s")

    def __init__(self, events: list[EventRow]) -> None:
        self.doing: tuple[MessageKind, int | None, int] | None = None  # a plain attribute, because it is set at every message
        self.beside = False
        self.changes = 0
        self.since_s = 0.0
        self._events = events
        self._counted = 0
        self._posted: Counter = Counter()
        self._taken: Counter = Counter()

    def messages(self) -> tuple[Counter, Counter]:
        """Count the messages recorded so far: {(to, tag): messages sent}, and {(from, tag): messages received}."""
        for kind, peer, tag, *_ in self._events[self._counted :]:
            counter = self._posted if kind == "send" else self._taken
            counter[peer, tag] += 1
            self._counted += 1
        return self._posted, self._taken


@dataclass(eq=False, slots=True)
class _RecordedPending:
    inner: Pending
    event: EventRow
    state: WaitState
    now: Callable[[], float]
    thread: int  # the rank's own

    def wait(self) -> None:
        event, state = self.event, self.state
        state.since_s, state.beside = self.now(), get_ident() != self.thread
        if not state.beside:
            event[WAIT_START_S] = state.since_s
        state.doing = ("send", event[PEER], event[TAG])
        state.changes += 1

        self.inner.wait()

        state.doing = None
        state.changes += 1
        event[END_S] = self.now()


class Recorded:
    """A wire that records every message of the wire it wraps, and publishes this rank's current wait."""

    def __init__(self, inner: Wire, origin_s: float = 0.0) -> None:
        self.rank = inner.rank
        self.world_size = inner.world_size
        self.now = inner.now
        self._thread = get_ident()  # the rank's own
        self.events: list[EventRow] = []
        self.spans: list[SpanRow] = []
        self.state = WaitState(self.events)
        self._inner = inner
        self._origin_s = origin_s

    def post(self, x: torch.Tensor, to: int, tag: int, stamp_s: float) -> Pending:
        pending = self._inner.post(x, to, tag, stamp_s)
        event = ["send", to, tag, x.nbytes, stamp_s, stamp_s, None]  # noted now, so that an aborted run shows it
        self.events.append(event)
        return _RecordedPending(pending, event, self.state, self.now, self._thread)

    def take(self, out: torch.Tensor, frm: int | None, tag: int) -> Arrival:
        start_s, state = self.now(), self.state
        beside = get_ident() != self._thread
        state.since_s, state.beside, state.doing = start_s, beside, ("recv", frm, tag)
        state.changes += 1

        arrival = self._inner.take(out, frm, tag)

        wait_start_s = None if beside else start_s
        self.events.append(["recv", arrival.source, tag, arrival.size_bytes, start_s, self.now(), wait_start_s])
        state.doing = None
        state.changes += 1
        return arrival

    def compute(self, seconds: float, x: torch.Tensor | None = None) -> torch.Tensor | None:
        start_s = self.now()
        made = self._inner.compute(seconds, x)
        self.spans.append(("compute", start_s, self.now(), f"{seconds:g} s declared"))
        return made

    def record(self) -> RankRecord:
        """Return everything that this wire has recorded so far, on the launch's clock."""
        closed = record(self.rank, list(self.events), self.spans, self._origin_s)
        doing = self.state.doing
        if doing is None:
            return closed

        # this rank waits now: in an aborted run that tells who was missing
        op, peer, _ = doing
        way, whom = "from" if op == "recv" else "to", "anyone" if peer is None else f"rank {peer}"
        start_s, end_s = self.state.since_s - self._origin_s, self.now() - self._origin_s
        wait = Span(self.rank, "wait", start_s, end_s, label=f"{op} {way} {whom}", ended=False, beside=self.state.beside)
        return replace(closed, spans=(*closed.spans, wait))
