"""The runs of a replay, each on its own clock, from its first message or marked work to the end of the last.

Runs whose times tie count as equally fast.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from worldsize import units
from worldsize.figures.frame.findings import MOST_NAMED, TIE, both, leaders
from worldsize.figures.frame.inputs import began_s, ended_s, waits_for
from worldsize.trace import Span, Transfer


@dataclass(frozen=True)
class Racer:
    """A run of a replay: its recorded `messages`, and its outermost `works` in the order of their start.

    `zero_s` is when the first of them began, on the clock of the record; `over_s` is the time from then to the end of the
    last one. A run that was stopped or failed is not `whole`.
    """

    name: str
    world_size: int
    messages: tuple[Transfer, ...]
    works: tuple[Span, ...]
    zero_s: float
    over_s: float
    whole: bool = True

    @property
    def total_bytes(self) -> int:
        return sum(t.size_bytes for t in self.messages)

    @property
    def load(self) -> str:
        """Return how much the racing run sends, in words."""
        if not self.messages:
            return "no messages"
        return f"{units.size(self.total_bytes)} in {units.count(len(self.messages), 'message')}"


def racers_of(runs: Mapping[str, Any]) -> tuple[list[Racer], list[str]]:
    """Return the runs of a replay in their order, and for each run with nothing to play its name and the reason."""
    racers, absent = [], []
    for name, of in runs.items():
        if waits_for(of):
            absent.append(f"{name}: not yet: {waits_for(of)}")
            continue

        trace, works, events = getattr(of, "trace", of), (), []
        if trace is not None:
            works = _outermost(span for span in trace.spans if span.kind == "compute")
            events = [*trace.transfers, *works]
        if not events:
            absent.append(f"{name}: no message and no work was recorded")
            continue

        zero_s = began_s(events)
        racer = Racer(
            name=name,
            world_size=trace.world_size,
            messages=tuple(trace.transfers),
            works=works,
            zero_s=zero_s,
            over_s=ended_s(events) - zero_s,
            whole=getattr(of, "state", "done") == "done",
        )
        racers.append(racer)
    return racers, absent


def _outermost(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Drop a racer's work that lies within other work of the same rank, such as time that it declared to take."""
    outer_spans: list[Span] = []
    until_s: dict[int, float] = {}
    for span in sorted(spans, key=lambda span: (span.start_s, -span.end_s)):  # the outer one of two first
        if span.end_s > until_s.get(span.rank, -math.inf):
            outer_spans.append(span)
            until_s[span.rank] = span.end_s
    return tuple(outer_spans)


def lasted(racers: Sequence[Racer]) -> dict[str, float]:
    """Return the seconds of each racing run that came to its end."""
    return {racer.name: racer.over_s for racer in racers if racer.whole}


def standing(racer: Racer, racers: Sequence[Racer]) -> str:
    """Return how a racing run ended, in words: "done at 35 ms, first", "done at 70 ms, 2 times as long as the first"."""
    at = units.seconds(racer.over_s)
    if not racer.whole:
        return f"stopped at {at}, not finished"

    seconds = lasted(racers)
    first = leaders(seconds, largest=False)
    if len(seconds) == 1:
        return f"done at {at}"
    if racer.name not in first:
        return f"done at {at}, {units.times(racer.over_s / min(seconds.values()))} times as long as the first"
    if len(first) > 1:
        return f"done at {at}, a tie"
    return f"done at {at}, first"


def finding(racers: Sequence[Racer]) -> str:
    """Say which racer ends first and by what factor the others are slower; ties are ties."""
    seconds = lasted(racers)
    if not seconds:
        return "no run came to its end"

    first = leaders(seconds, largest=False)
    best_s = min(seconds.values())
    clauses = [_first(first, len(seconds), units.seconds(best_s))]
    for name, run_s in sorted(seconds.items(), key=itemgetter(1)):
        if name not in first:
            clauses.append(f"{name} takes {units.times(run_s / best_s)} times as long")
    return "; ".join(clauses)


def winner(racers: Sequence[Racer]) -> str:
    """Say which racer ends first, which is known as soon as it does; nothing if no run came to its end, or one alone."""
    seconds = lasted(racers)
    if len(seconds) < 2:
        return ""
    return _first(leaders(seconds, largest=False), len(seconds), units.seconds(min(seconds.values())))


def _first(names: Sequence[str], runs: int, at: str) -> str:
    """Say which `names` of so many racing runs end first, and at what time."""
    if runs == 1:
        return f"{names[0]} takes {at}"
    if len(names) == 1:
        return f"{names[0]} ends first, after {at}"
    if len(names) == runs:
        return f"{both(names)} end together (within {100 * TIE:g} %), after {at}"
    if len(names) > MOST_NAMED:
        return f"{len(names)} of them end first together (within {100 * TIE:g} %), after {at}"
    return f"{both(names)} end first together (within {100 * TIE:g} %), after {at}"
