"""The course's pictures: pure functions from a trace or from numbers to a matplotlib Figure with alt text.

A run, a verdict or a trace may be passed; one that is "not yet" gives a picture that says so, and so does
a trace in which no message was sent. Left out: pyplot and any global state; live views; keeping numbers
(`lab`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from worldsize import bars, contents, descent, heatmap, pipelines, reported, schedules, spacetime, spread, stepper
from worldsize import curves as lines
from worldsize import grid as tables
from worldsize import histories as records
from worldsize import lanes as rows_of
from worldsize import moved as panels
from worldsize import overlap as steptimes
from worldsize import paths as ways
from worldsize import placement as places
from worldsize import residuals as leftovers
from worldsize import shares as dealt
from worldsize import stacks as piles
from worldsize import tallies as counters
from worldsize import timeline as gantt
from worldsize.bars import Timing
from worldsize.curves import Curve
from worldsize.descent import Descent
from worldsize.picture import Picture, not_yet, notice
from worldsize.residuals import Line
from worldsize.rounds import Notes
from worldsize.spread import Sample
from worldsize.stepper import Stepper

__all__ = [
    "Curve", "Descent", "Line", "Sample", "Timing", "contributions", "curves", "descents", "histories", "lanes",
    "links", "messages", "moved", "not_yet", "outcomes", "overlaps", "paths", "pipeline", "placement", "predicted",
    "race", "reports", "residuals", "route", "shares", "spreads", "stacks", "steps", "tallies", "timeline",
]  # fmt: skip


def messages(of: Any, in_steps: bool = False) -> Picture:
    """Space-time diagram of a run's messages: an arrow each, its size beside it where there is room.

    With `in_steps` time is a logical clock: what comes after what, not how long it took.
    """
    trace, instead = _trace(of)
    return instead or spacetime.diagram(trace, finding(trace), in_steps)


def steps(of: Any, layout: str = "ring", contents: Notes | None = None, hub: int | None = None) -> Stepper | Picture:
    """A run to step through with the arrow keys; `layout` is "ring", "star" or "tree" (round or below `hub`, else
    the busiest rank), or "pipeline".

    Each rank is seen to hold its chunks where every rank returned the notes of a `Watched` fabric:
    `contents=run.results`. Raises ValueError for another layout or for other contents.
    """
    trace, instead = _trace(of)
    return instead or stepper.stepper(trace, finding(trace), layout, contents, hub)


def links(of: Any) -> Picture:
    """Heat map of the bytes on each link: a row a sender, a column a receiver, the sums at the edges."""
    trace, instead = _trace(of)
    return instead or heatmap.links(trace, finding(trace))


def timeline(of: Any) -> Picture:
    """What every rank did when: its marked spans, sends, receives and the framework's collectives, as bars."""
    if _not_yet(of):
        return not_yet(_not_yet(of))
    trace = getattr(of, "trace", of)
    return gantt.timeline(trace) if trace and gantt.bars(trace) else notice("nothing was recorded")


def pipeline(of: Any, title: str = "") -> Picture:
    """A pipeline's stages in time, from the spans "forward k" and "backward k" that they marked, with their messages."""
    if _not_yet(of):
        return not_yet(_not_yet(of))
    trace = getattr(of, "trace", of)
    works = trace and schedules.works(trace)
    return pipelines.pipeline(trace, title) if works else notice("no forward and no backward was marked")


def overlaps(runs: Mapping[str, Any], works_a_step: int, title: str, rank: int = 0) -> Picture:
    """A step of one rank in each run or trace, one above the other: its declared work, so many spans, and its messages."""

    def row(of: Any) -> Any:
        return None if _not_yet(of) else steptimes.middle_step(getattr(of, "trace", of), rank, works_a_step)

    waiting = [_not_yet(of) for of in runs.values()]
    return not_yet(waiting[-1]) if all(waiting) else steptimes.overlaps({k: row(of) for k, of in runs.items()}, title)


def reports(of: Any) -> Picture:
    """The curves of what ranks told with `report(…)`, one line a rank."""
    if _not_yet(of):
        return not_yet(_not_yet(of))
    return reported.picture(of.reports, of.tasks) if reported.names(of.reports) else notice("nothing was reported")


def race(rows: Iterable[Timing], title: str = "") -> Picture:
    """A bar for each measured time with its prediction beside it, in groups of one world size."""
    return bars.race(tuple(rows), title)


def curves(rows: Iterable[Curve], title: str, x: str, y: str, log: bool = False) -> Picture:
    """Measured points on predicted curves; `x` and `y` name the axes, with "(bytes)" or "(s)" for such a unit."""
    return lines.curves(tuple(rows), title, x, y, log)


def descents(rows: Iterable[Descent], title: str, y: str) -> Picture:
    """Losses against steps and against seconds, side by side, on a logarithmic axis that `y` names."""
    return descent.descents(tuple(rows), title, y)


def spreads(rows: Iterable[Sample], title: str, x: str) -> Picture:
    """Distributions of whole numbers, a lane a sample, each with its mean; `x` names the axis of values."""
    return spread.spreads(tuple(rows), title, x)


def histories(
    rows: Mapping[str, Sequence[float] | None], title: str, y: str, x: str = "step", log: bool = False
) -> Picture:
    """A line for each run: its values after step 1, 2, …; None for an exercise not yet written. `y` names the axis."""
    return records.histories(rows, title, y, x, log)


def paths(
    rows: Mapping[str, Any], goals: Mapping[str, Any], loss: Callable[[float, float], float], title: str, x: str, y: str
) -> Picture:
    """How a model of two numbers learns: paths of (x, y) through the contours of `loss`, and stars at the goals."""
    return ways.paths(rows, goals, loss, title, x, y)


def stacks(
    groups: Mapping[str, Any], title: str, what: str = "memory", limit: tuple[str, float] | None = None
) -> Picture:
    """Stacked bars of bytes: `groups[name][rank]` is {part: bytes}; None for a group not yet measured.

    `limit=("one card", 80e9)` draws a line there. With `groups[name][label]` rows have other labels than their ranks.
    """
    return piles.stacks(groups, title, what, limit)


def placement(devices: Mapping[str, Any] | Any, title: str) -> Picture:
    """A row a TensorFlow device: the variables that it holds and the operations that it runs, from `graphs.placed`; or
    a run that is "not yet"."""
    return not_yet(_not_yet(devices)) if _not_yet(devices) else places.placement(devices, title)


def route(moves: Iterable[Any] | Any, title: str) -> Picture:
    """Lanes of TensorFlow devices, an arrow for each kind of tensor that crosses in a step, from `graphs.moves`; or a
    run that is "not yet"."""
    return not_yet(_not_yet(moves)) if _not_yet(moves) else places.route(moves, title)


def moved(steps: Mapping[str, Any], title: str) -> Picture:
    """What a step moves between devices, a panel each: what `crossings` gave, a run that returned it, or None."""

    def of(step: Any) -> Any:
        return None if step is None or _not_yet(step) else step[0] if hasattr(step, "results") else step

    return panels.moved({name: of(step) for name, step in steps.items()}, title)


def residuals(
    seconds: Mapping[float, float] | None,
    lines: Iterable[Line],
    title: str,
    left_out: Sequence[float] = (),
    marks: Mapping[float, str] = MappingProxyType({}),
    points: str = "measured",
) -> Picture:
    """Times by size with lines through them, and below how far each line is off; `marks` are words at some sizes.

    `points` says where the times come from, if they were not measured.
    """
    return leftovers.residuals(seconds or {}, tuple(lines), title, left_out, marks, points)


def shares(policies: Mapping[str, Any], title: str) -> Picture:
    """Which examples each worker takes in each step, a panel a policy: `policies[name][worker][step]`, or None."""
    return dealt.shares(policies, title)


def outcomes(
    rows: Sequence[str], columns: Sequence[str], cells: Mapping[tuple[str, str], str], title: str, small: str = ""
) -> Picture:
    """A table of outcomes, "works", "fails", "wrong", "loses updates" or a word of its own, by (row, column)."""
    return tables.grid(rows, columns, cells, title, small)


def lanes(rows: Mapping[str, Sequence[float]], events: Mapping[str, float], title: str, small: str = "") -> Picture:
    """A lane a worker, a tick for each second in `rows[worker]`; `events[what]` are marked across all lanes."""
    return rows_of.lanes(rows, events, title, small)


def tallies(runs: Mapping[str, Mapping[str, float]], expected: float, title: str, small: str = "") -> Picture:
    """Counters of several runs as bars, held against one number that each should have reached."""
    return counters.tallies(runs, expected, title, small)


def contributions(run: Any) -> Picture:
    """Whose numbers are in each chunk of each rank: `run[rank]` is a tensor of sums of 10**rank, a number a chunk."""
    if run.state == "not yet":
        return not_yet(run.not_yet or "this exercise")
    return contents.contents([[float(value) for value in row] for row in run.results])


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
    return _tree(trace, pairs) or _shares(trace, pairs)


def _tree(trace: Any, pairs: set[tuple[int, int]]) -> str:
    """Where every rank but one receives a single message, or every rank but one sends one; else empty."""
    everybody, receivers, senders = set(range(trace.world_size)), {dst for _, dst in pairs}, {src for src, _ in pairs}
    if len(everybody) < 3 or len(trace.transfers) != len(everybody) - 1:
        return ""
    if len(receivers) == len(trace.transfers):
        return "every rank but {0} receives one message, down a tree from rank {0}".format(*(everybody - receivers))
    if len(senders) == len(trace.transfers):
        return "every rank but {0} sends one message, up a tree to rank {0}".format(*(everybody - senders))
    return ""


def _shares(trace: Any, pairs: set[tuple[int, int]]) -> str:
    """Who sends how much, where the messages make no simple shape."""
    if len(pairs) == 1:
        return "rank {} sends to rank {}".format(*pairs.pop())
    sent = Counter({rank: 0 for rank in range(trace.world_size)})
    for t in trace.transfers:
        sent[t.src] += t.size_bytes
    (rank, most), least = sent.most_common(1)[0], min(sent.values())
    if least >= 0.999 * most:  # chunks that differ by an element are as good as equal
        to_all = " to every other one," if len(pairs) == trace.world_size * (trace.world_size - 1) > 2 else ""
        return f"every rank sends{to_all} the same number of bytes"
    share = round(100 * most / sum(sent.values()))
    return f"rank {rank} sends most, {share} % of all bytes"


def _not_yet(of: Any) -> str:
    """Which exercise a run or a verdict waits for; empty where none."""
    if getattr(of, "state", None) != "not yet":
        return ""
    return getattr(of, "not_yet", None) or getattr(of, "exercise", None) or "this exercise"


def _trace(of: Any) -> tuple[Any, Picture | None]:
    """The trace of a run, a verdict or a trace, and a picture to show instead where there is nothing to draw."""
    if _not_yet(of):
        return None, not_yet(_not_yet(of))
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
