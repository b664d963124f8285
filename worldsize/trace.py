"""The events of a run on one clock: messages, spans and collectives.

Drawings, checks, grades and the cost model all read this list. The file format for ui.perfetto.dev is Chrome's Trace Event
Format.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

MessageKind = Literal["send", "recv"]


@dataclass(frozen=True, order=True)
class Transfer:
    """A message from `src` to `dst`: posted at `start_s`, wholly received at `end_s` (seconds since the launch).

    `size_bytes` is the tensor alone, without the fabric's header. `recv_start_s` is when the receiver began to wait for the
    message, None if not recorded.
    """

    src: int
    dst: int
    size_bytes: int
    start_s: float
    end_s: float
    tag: int = 0
    recv_start_s: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Span:
    """An activity of one rank from `start_s` to `end_s`. `declared` work took its time from the fabric's `compute`.

    A wait that had not `ended` when the run was stopped is recorded up to that moment. For a send, `wait_start_s` is when the
    rank began to wait: at once in `send`, in the handle's `wait()` after `isend`, None if it never waited. `beside`: in another
    thread than the rank's own, which went on meanwhile.
    """

    rank: int
    kind: Literal["compute", "wait"] | MessageKind
    start_s: float
    end_s: float
    label: str = ""
    declared: bool = False
    ended: bool = True
    wait_start_s: float | None = None
    beside: bool = False


@dataclass(frozen=True)
class Collective:
    """A rank's part in a framework's collective, whose messages do not pass through the fabric.

    A collective that had not `ended` when the run was stopped is recorded up to that moment. A call that returns at once
    (`async_op=True`) is not `blocking`: the rank goes on, and a separate wait span shows when it waited. `ranks` are the members
    of the process group that the call named: () if it named none.
    """

    op: str
    size_bytes: int
    rank: int
    start_s: float
    end_s: float
    ended: bool = True
    blocking: bool = True
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Event:
    """A rank's side of a message, as its recorder wrote it; `merge` joins two sides into a transfer.

    `wait_start_s` is when the rank began to wait for the message: None if it did not, or if another thread waited. `group` is ""
    for the fabric's messages, else a process group of `torch.distributed`.
    """

    kind: MessageKind
    peer: int
    tag: int
    size_bytes: int
    start_s: float
    end_s: float
    wait_start_s: float | None = None
    group: str = ""


# A message as a recorder keeps it during the run: an `Event`'s fields in a list, the cheapest form per message. A send on its way
# has its end equal to its start.
EventRow = list
KIND, PEER, TAG, SIZE_BYTES, START_S, END_S, WAIT_START_S = range(7)
SpanRow = tuple[str, float, float, str]  # kind, start, end, label


@dataclass(frozen=True)
class RankRecord:
    """Everything that one rank recorded for the trace."""

    rank: int
    events: tuple[Event, ...] = ()
    spans: tuple[Span, ...] = ()
    collectives: tuple[Collective, ...] = ()
    lost: int = 0  # collectives of torch's own that its recorder had dropped before they were read
    without_recorder: bool = False  # collectives that its torch called from C++ are missing


def record(rank: int, rows: Iterable[EventRow], spans: Iterable[SpanRow], origin_s: float) -> RankRecord:
    """Return a rank's record for the trace on a clock that starts at `origin_s`, from its messages and spans.

    Every "compute" span is marked as declared, because a fabric sees no other work.
    """
    events = []
    for kind, peer, tag, size_bytes, start_s, end_s, wait_s in rows:
        wait_s = None if wait_s is None else wait_s - origin_s
        events.append(Event(kind, peer, tag, size_bytes, start_s - origin_s, end_s - origin_s, wait_s))

    moved = []
    for kind, start_s, end_s, label in spans:
        declared = kind == "compute"
        moved.append(Span(rank, kind, start_s - origin_s, end_s - origin_s, label=label, declared=declared))
    return RankRecord(rank, tuple(events), tuple(moved))


@dataclass(frozen=True)
class Trace:
    """The events of all ranks of a run, in order of their start.

    `lost` counts collectives of torch's own that its recorder had dropped before they were read; `without_recorder` says that a
    rank's torch had no flight recorder, so that collectives that it called from C++ are missing.
    """

    world_size: int
    transfers: tuple[Transfer, ...] = ()
    spans: tuple[Span, ...] = ()
    collectives: tuple[Collective, ...] = ()
    lost: int = 0
    without_recorder: bool = False

    @property
    def unseen(self) -> str:
        """The gaps of this trace, as a clause; "" without any that is known."""
        clauses = []
        if self.without_recorder:
            clauses.append("this torch has no flight recorder: collectives that it calls from C++ are missing")
        if self.lost:
            clauses.append(f"{self.lost:,} of torch's own collectives were not recorded")
        return "; ".join(clauses)

    def sent_bytes(self, rank: int) -> int:
        return sum(t.size_bytes for t in self.transfers if t.src == rank)

    def received_bytes(self, rank: int) -> int:
        return sum(t.size_bytes for t in self.transfers if t.dst == rank)

    def total_bytes(self) -> int:
        return sum(t.size_bytes for t in self.transfers)

    def bytes_by_link(self) -> dict[tuple[int, int], int]:
        """Return the trace's {(src, dst): bytes} for the links that carried something."""
        found: dict[tuple[int, int], int] = defaultdict(int)
        for t in self.transfers:
            found[t.src, t.dst] += t.size_bytes
        return dict(found)

    def between(self, start_s: float, end_s: float) -> Trace:
        """Return the part of the trace that begins in [start_s, end_s)."""

        def keep(events: tuple) -> tuple:
            return tuple(e for e in events if start_s <= e.start_s < end_s)

        return Trace(self.world_size, keep(self.transfers), keep(self.spans), keep(self.collectives))

    def save_chrome(self, path: str | Path, more: Iterable[dict] = ()) -> Path:
        """Write a file for ui.perfetto.dev and chrome://tracing, with `more` rows of that format. Returns the path."""
        path = Path(path)
        path.write_text(self.chrome_json(more))
        return path

    def chrome_json(self, more: Iterable[dict] = ()) -> str:
        """Return the text of the file that `save_chrome` writes."""
        return json.dumps({"traceEvents": [*chrome_events(self), *more], "displayTimeUnit": "ms"})


def merge(records: Iterable[RankRecord], world_size: int) -> Trace:
    """Merge all ranks' records into one trace: each message's send and receive become one transfer.

    The k-th send from a to b under a tag of a group matches the k-th receive of b from a under that tag of that group.
    """
    records = list(records)
    sends: dict[tuple, list[Event]] = defaultdict(list)
    for record in records:
        for event in record.events:
            if event.kind == "send":
                sends[record.rank, event.peer, event.tag, event.group].append(event)

    transfers: list[Transfer] = []
    spans: list[Span] = []
    collectives: list[Collective] = []
    for record in records:
        spans += record.spans
        collectives += record.collectives

        for event in record.events:
            span = record.rank, event.kind, event.start_s, event.end_s
            if event.kind == "send":
                spans.append(Span(*span, f"to rank {event.peer}", wait_start_s=event.wait_start_s))
            else:
                spans.append(Span(*span, f"from rank {event.peer}", beside=event.wait_start_s is None))
                queue = sends.get((event.peer, record.rank, event.tag, event.group))
                sent = queue.pop(0) if queue else event  # the sender's side is lost if the sender was killed
                transfers.append(
                    Transfer(
                        src=event.peer, dst=record.rank, size_bytes=event.size_bytes, start_s=sent.start_s, end_s=event.end_s,
                        tag=event.tag, recv_start_s=event.start_s,
                    )
                )  # fmt: skip

    return Trace(
        world_size=world_size,
        transfers=tuple(sorted(transfers, key=lambda t: (t.start_s, t.end_s))),
        spans=tuple(sorted(spans, key=lambda s: s.start_s)),
        collectives=tuple(sorted(collectives, key=lambda c: c.start_s)),
        lost=sum(record.lost for record in records),
        without_recorder=any(record.without_recorder for record in records),
    )


def chrome_events(trace: Trace) -> list[dict]:
    """Return the trace in Chrome's Trace Event Format: a row per rank, an arrow per message.

    Times in microseconds.
    """
    rows: list[dict] = []
    for rank in range(trace.world_size):
        rows.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
    for s in trace.spans:
        rows.append(_slice(s, 0, f"{s.kind} {s.label}".strip(), {}))
    for c in trace.collectives:
        rows.append(_slice(c, 1, c.op, {"size_bytes": c.size_bytes}))

    for number, t in enumerate(trace.transfers):
        common = {"name": "message", "cat": "message", "id": number, "tid": 0}
        rows.append({**common, "ph": "s", "pid": t.src, "ts": t.start_s * 1e6})
        rows.append({**common, "ph": "f", "bp": "e", "pid": t.dst, "ts": t.end_s * 1e6})
    return rows


def _slice(done: Span | Collective, row: int, name: str, args: dict) -> dict:
    start_us, duration_us = done.start_s * 1e6, (done.end_s - done.start_s) * 1e6
    name += "" if done.ended else ", never ended"
    return {
        "ph": "X", "pid": done.rank, "tid": row, "name": name, "ts": start_us, "dur": duration_us, "args": args,
    }  # fmt: skip


def in_steps(transfers: Iterable[Transfer]) -> list[list[Transfer]]:
    """Return a trace's transfers in steps; in each step a rank sends at most one message and receives at most one.

    One network card per rank could carry a step. Every message comes after the messages that its sender had sent or received
    before it began: L. Lamport's "happened before" (CACM 21, 1978). Within a step, messages are in order of their senders.
    """
    ends: dict[int, list[float]] = defaultdict(list)  # by rank: when its messages ended
    latest: dict[int, list[int]] = defaultdict(list)  # and the latest step of these and all earlier messages
    received: dict[int, int] = {}
    sending: set[tuple[int, int]] = set()
    steps: list[list[Transfer]] = []

    for t in sorted(transfers, key=lambda t: (t.end_s, t.start_s, t.src, t.dst)):
        over = bisect_right(ends[t.src], t.start_s)
        before = latest[t.src][over - 1] if over else -1
        number = 1 + max(received.get(t.dst, -1), before)
        while (t.src, number) in sending:
            number += 1

        while len(steps) <= number:
            steps.append([])
        steps[number].append(t)

        received[t.dst] = number
        sending.add((t.src, number))
        for rank in {t.src, t.dst}:
            ends[rank].append(t.end_s)
            latest[rank].append(max([number, *latest[rank][-1:]]))

    return [sorted(messages, key=lambda t: t.src) for messages in steps]


def on_logical_clock(trace: Trace) -> Trace:
    """Return the trace with its transfers on a logical clock, which counts the steps of `in_steps`.

    Two runs of one algorithm then look alike, however busy the machine was. Each message takes one step; spans are left out.
    """
    found: list[Transfer] = []
    for number, messages in enumerate(in_steps(trace.transfers)):
        found += [replace(t, start_s=number, end_s=number + 1, recv_start_s=None) for t in messages]
    return Trace(trace.world_size, tuple(found))


def stray(trace: Trace, allowed: Iterable[tuple[int, int]]) -> list[Transfer]:
    """Return a trace's transfers between pairs of ranks that are not in `allowed`."""
    links = set(allowed)
    return [t for t in trace.transfers if (t.src, t.dst) not in links]


def ring_links(world_size: int, step: int = 1) -> set[tuple[int, int]]:
    """Return a ring's links, for `stray`, as pairs (rank, rank + step), modulo the world size."""
    return {(r, (r + step) % world_size) for r in range(world_size)}


def joined(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Sort a trace's intervals (start, end) and merge those that touch or overlap."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def waits(trace: Trace) -> list[list[tuple[float, float]]]:
    """Return each rank's waits for others in a trace: intervals (start, end) in order, in seconds, none overlapping.

    Live views, drawings and their captions all use this definition. A rank waits in a receive, in the wait for a send, in a
    blocking collective, and in a recorded "wait" span (a framework's handle, a rendezvous, a stretch that the rank's function
    marked). Activity of another thread beside the rank is no wait.
    """
    by_rank: list[list[tuple[float, float]]] = [[] for _ in range(trace.world_size)]
    for span in trace.spans:
        if span.kind in ("recv", "wait") and not span.beside:
            by_rank[span.rank].append((span.start_s, span.end_s))
        elif span.kind == "send" and span.wait_start_s is not None:
            by_rank[span.rank].append((span.wait_start_s, max(span.wait_start_s, span.end_s)))

    for collective in trace.collectives:
        if collective.blocking:
            by_rank[collective.rank].append((collective.start_s, collective.end_s))
    return [joined(intervals) for intervals in by_rank]


@dataclass(frozen=True)
class Note:
    """A call of send, isend or recv. `held` has a number of each chunk just before the call, and at the end in the last note.

    `chunks` are the first and the last chunk in a sent message, None if the message is no part of the tensor, or the tensor is
    one chunk.
    """

    op: MessageKind | Literal["end"]
    peer: int
    tag: int
    held: tuple[float, ...]
    chunks: tuple[int, int] | None = None
