"""The input of a picture: a run, a verdict or a trace, and a notice where there is nothing to draw."""

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from worldsize.figures.base import Picture, not_yet, notice


def waits_for(of: Any) -> str:
    """Return the exercise that a run or a verdict still waits for; empty where it waits for none."""
    if getattr(of, "state", None) != "not yet":
        return ""
    return getattr(of, "not_yet", None) or getattr(of, "exercise", None) or "this exercise"


def trace_of(of: Any) -> tuple[Any, Picture | None]:
    """Return the trace of a run, a verdict or a trace, and a picture to show instead.

    The picture is None where the trace has messages.
    """
    if waits_for(of):
        return None, not_yet(waits_for(of))

    trace = getattr(of, "trace", of)
    if trace is not None and trace.transfers:
        return trace, None

    reason, collectives = "no messages were sent", getattr(trace, "collectives", ())
    if collectives:
        first_rank = min(c.rank for c in collectives)  # its calls stand for every rank's
        ops = Counter(c.op for c in collectives if c.rank == first_rank)
        named = [f"{count}\u00a0×\u00a0{op}" for op, count in ops.items()]
        reason = f"no messages between two ranks; the framework's own collectives on each rank: {', '.join(named)}"
    if getattr(trace, "unseen", ""):
        reason += f"; {trace.unseen}"
    return trace, notice(reason)


def began_s(events: Iterable[Any]) -> float:
    """Return when a picture's input, its first message or span, began; 0 where there are none."""
    return min(map(attrgetter("start_s"), events), default=0.0)


def ended_s(events: Iterable[Any]) -> float:
    """Return when a picture's input, its last message or span, ended; 0 where there are none."""
    return max(map(attrgetter("end_s"), events), default=0.0)


def marked(trace: Any) -> list[Any]:
    """Return the input's spans in which a rank computed or waited, without its sends and receives."""
    return [span for span in trace.spans if span.kind in ("compute", "wait")]
