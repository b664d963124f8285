"""The rank that holds others up: for each moment in which a rank waits, the rank at the end of its chain of waits.

A rank that waits for a message not yet sent waits for its sender; if that one waits too, for whom it waits for, and so on
to a rank that works. F. Wolf and B. Mohr call the first link a late sender ("Automatic performance analysis of hybrid
MPI/OpenMP applications", J. Systems Architecture 49, 2003). A message on its way is nobody's delay.
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Literal

from worldsize.trace import Collective

SAMPLES = 200  # moments of a run, evenly apart
LEAST = 0.05  # of the time: less is not worth a title
MOSTLY = 0.5  # of all waiting
CLEARLY = 1.5  # times the next

ON_ITS_WAY = "messages"
UNKNOWN = "unknown"
Cause = int | Literal["messages", "unknown"]

_PEER = re.compile(r"(?:to|from) rank (\d+)")


@dataclass(frozen=True)
class Blocked:
    """A wait of one rank from `start_s` to `end_s`: for a `peer`, or at a meeting, the `number`-th collective of each rank.

    `sent_s` is when the message was sent that ends the wait.
    """

    start_s: float
    end_s: float
    op: Literal["send", "recv", "meeting", "marked"]
    peer: int = -1
    sent_s: float = 0.0
    number: int = 0


@dataclass
class Holdups:
    """Of the moments in which ranks waited, how many each cause explains; `moments` counts all, of every rank."""

    moments: int = 0
    by_cause: Counter[Cause] = field(default_factory=Counter)

    @property
    def waiting(self) -> int:
        return sum(self.by_cause.values())


def holdups(trace: Any) -> Holdups:
    """Sample a trace's waits and count their causes: a rank, messages on their way, or what the trace does not say."""
    blocked, meetings = _blocked(trace)
    every = [*trace.spans, *trace.transfers, *trace.collectives]
    counted = Holdups()
    if not every:
        return counted

    start_s = min(event.start_s for event in every)
    whole_s = max(event.end_s for event in every) - start_s
    begins = [[wait.start_s for wait in waits] for waits in blocked]
    for number in range(SAMPLES):
        at_s = start_s + (number + 0.5) / SAMPLES * whole_s
        now: dict[int, Blocked] = {}
        for rank, waits in enumerate(blocked):
            place = bisect_right(begins[rank], at_s) - 1
            if place >= 0 and at_s < waits[place].end_s:
                now[rank] = waits[place]

        roots: dict[int, Cause] = {}
        for rank in now:
            counted.by_cause[_root(rank, at_s, now, meetings, roots)] += 1
    counted.moments = SAMPLES * trace.world_size
    return counted


def sentence(trace: Any) -> str:
    """Say which rank holds the others up, or that messages do; empty where ranks hardly wait, or for no one cause above all."""
    counted = holdups(trace)
    if trace.world_size < 2 or counted.waiting < LEAST * counted.moments:
        return ""

    (cause, most), *others = counted.by_cause.most_common(2)
    if most < MOSTLY * counted.waiting or (others and most < CLEARLY * others[0][1]) or cause == UNKNOWN:
        return ""
    if cause == ON_ITS_WAY:
        return f"ranks wait {_percent(counted.waiting / counted.moments)} of the time, mostly for messages on their way"

    whom = f"rank {1 - int(cause)}" if trace.world_size == 2 else "the others"
    share = most / (SAMPLES * (trace.world_size - 1))
    return f"rank {cause} holds {whom} up {_percent(share)} of the time"


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"


def _blocked(trace: Any) -> tuple[list[list[Blocked]], list[list[float]]]:
    """Return each rank's waits in order, and by meeting when each rank came to it."""
    sent_s = {(t.dst, t.end_s, t.src): t.start_s for t in trace.transfers}
    waits: list[list[Blocked]] = [[] for _ in range(trace.world_size)]
    for span in trace.spans:
        peer = _PEER.fullmatch(span.label)
        if span.kind == "wait":
            waits[span.rank].append(Blocked(span.start_s, span.end_s, "marked"))
        elif peer and span.kind == "recv" and not span.beside:
            sent = sent_s.get((span.rank, span.end_s, int(peer[1])), span.end_s)
            waits[span.rank].append(Blocked(span.start_s, span.end_s, "recv", int(peer[1]), sent))
        elif peer and span.kind == "send" and span.wait_start_s is not None:
            waits[span.rank].append(Blocked(span.wait_start_s, span.end_s, "send", int(peer[1])))

    calls: dict[int, list[Collective]] = defaultdict(list)
    for collective in trace.collectives:
        calls[collective.rank].append(collective)
    alike = len(calls) == trace.world_size and len({tuple(c.op for c in called) for called in calls.values()}) == 1
    meetings = []
    if alike:
        meetings = [[calls[rank][number].start_s for rank in sorted(calls)] for number in range(len(calls[0]))]
    for rank, called in calls.items():
        for number, collective in enumerate(called):
            if collective.blocking:
                op = "meeting" if alike else "marked"
                waits[rank].append(Blocked(collective.start_s, collective.end_s, op, number=number))
    lasting = [[wait for wait in each if wait.end_s > wait.start_s] for each in waits]  # one of no time hides none beside it
    return [sorted(each, key=lambda wait: wait.start_s) for each in lasting], meetings


def _root(
    rank: int, at_s: float, now: dict[int, Blocked], meetings: list[list[float]], roots: dict[int, Cause]
) -> Cause:
    """Follow a rank's wait at a moment to the rank that holds it up; `roots` keeps what is known of this moment."""
    chain: list[int] = []
    cause: Cause = ON_ITS_WAY  # also where ranks wait in a cycle, which only messages on their way can end
    while rank not in chain:
        if rank in roots:
            cause = roots[rank]
            break
        wait = now.get(rank)
        if wait is None:
            cause = rank
            break
        chain.append(rank)
        if wait.op == "marked":
            cause = UNKNOWN
            break
        if wait.op == "recv" and wait.sent_s <= at_s:
            break
        if wait.op == "send" and now.get(wait.peer, wait).op == "recv" and now[wait.peer].peer == rank:
            break
        if wait.op == "meeting":
            came_s = meetings[wait.number]
            last = max(range(len(came_s)), key=came_s.__getitem__)
            if came_s[last] <= at_s:
                break
            rank = last
        else:
            rank = wait.peer
    roots |= dict.fromkeys(chain, cause)
    return cause
