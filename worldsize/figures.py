"""The course's pictures: pure functions from a trace or from numbers to a matplotlib Figure with alt text.

A run, a verdict or a trace may be passed; one that is "not yet" gives a picture that says so, and so does
a trace in which no message was sent. Left out: pyplot and any global state; live views; keeping numbers
(`lab`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from worldsize import bars, heatmap, spacetime
from worldsize.bars import Timing
from worldsize.picture import Picture, not_yet, notice

__all__ = ["Timing", "links", "messages", "not_yet", "predicted", "race"]


def messages(of: Any) -> Picture:
    """Space-time diagram of a run's messages: an arrow each, its size beside it where there is room."""
    trace, instead = _trace(of)
    return instead or spacetime.diagram(trace, finding(trace))


def links(of: Any) -> Picture:
    """Heat map of the bytes on each link: a row a sender, a column a receiver, the sums at the edges."""
    trace, instead = _trace(of)
    return instead or heatmap.links(trace, finding(trace))


def race(rows: Iterable[Timing], title: str = "") -> Picture:
    """A bar for each measured time with its prediction beside it, in groups of one world size."""
    return bars.race(tuple(rows), title)


def predicted(lab: Any, ids: Iterable[str] | None = None) -> Picture:
    """A lab's predictions beside its measurements; `ids` chooses some. ValueError for an id that wasn't asked."""
    rows = {row.id: row for row in lab.rows()}
    ids = list(rows if ids is None else ids)
    unknown = [id for id in ids if id not in rows]
    if unknown:
        known = ", ".join(map(repr, rows)) or "none so far"
        raise ValueError(
            f"figures.predicted: the lab has no prediction and no measurement {unknown[0]!r}; expected one of: "
            f"{known}. Run the cell that asks it first."
        )
    return bars.predictions([rows[id] for id in ids]) if ids else notice("no predictions yet")


def finding(trace: Any) -> str:
    """What a trace's messages do, in words: a ring, one hub, or their busiest rank."""
    n = trace.world_size
    pairs = {(t.src, t.dst) for t in trace.transfers}
    for step, neighbour in ((1, "next one (rank + 1)"), (-1, "previous one (rank − 1)")):
        if n > 2 and all(dst == (src + step) % n for src, dst in pairs):
            return f"every message goes from a rank to the {neighbour}, round a ring"
    hubs = set.intersection(*({src, dst} for src, dst in pairs))
    if n > 2 and len(pairs) > 1 and len(hubs) == 1:
        return f"every message goes to or comes from rank {hubs.pop()}"
    return _shares(trace, pairs)


def _shares(trace: Any, pairs: set[tuple[int, int]]) -> str:
    """Who sends how much, where the messages make no simple shape."""
    if len(pairs) == 1:
        return "rank {} sends to rank {}".format(*pairs.pop())
    sent = Counter({rank: 0 for rank in range(trace.world_size)})
    for t in trace.transfers:
        sent[t.src] += t.size_bytes
    (rank, most), least = sent.most_common(1)[0], min(sent.values())
    if most == least:
        to_all = " to every other one," if len(pairs) == trace.world_size * (trace.world_size - 1) > 2 else ""
        return f"every rank sends{to_all} the same number of bytes"
    share = round(100 * most / sum(sent.values()))
    return f"rank {rank} sends most, {share} % of all bytes"


def _trace(of: Any) -> tuple[Any, Picture | None]:
    """The trace of a run, a verdict or a trace, and a picture to show instead where there is nothing to draw."""
    if getattr(of, "state", None) == "not yet":
        return None, not_yet(getattr(of, "not_yet", None) or getattr(of, "exercise", None) or "this exercise")
    trace = getattr(of, "trace", of)
    if trace is None or not trace.transfers:
        return trace, notice(_no_messages(trace))
    return trace, None


def _no_messages(trace: Any) -> str:
    collectives = getattr(trace, "collectives", ())
    if not collectives:
        return "no messages were sent"
    ops = Counter(c.op for c in collectives if c.rank == min(c.rank for c in collectives))
    named = ", ".join(f"{count}\u00a0×\u00a0{op}" for op, count in ops.items())
    return f"no messages over the fabric; the framework's own collectives on each rank: {named}"
