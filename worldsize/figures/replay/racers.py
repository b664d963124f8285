"""The runs of a replay, each on a clock of its own that starts with its first message or marked work.

A run is over with its last message or marked work. Runs whose times differ by at most `TIE` are as fast as each other.
Left out: drawing (`still`, `player`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worldsize import units
from worldsize.figures.inputs import began_s, ended_s, waits_for
from worldsize.trace import Span, Transfer

TIE = 0.05


@dataclass(frozen=True)
class Racer:
    """A run on its own clock: `messages` and `works` in the order of their start, in seconds since the run's first.

    `over_s` is the end of the last one. A run that was stopped or failed is not `whole`.
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
        """How much it sends, in words."""
        if not self.messages:
            return "no messages"
        return f"{units.size(self.total_bytes)} in {units.count(len(self.messages), 'message')}"


@dataclass(frozen=True)
class Absentee:
    """A run that cannot be played, and why."""

    name: str
    why: str


def racers_of(runs: Mapping[str, Any]) -> tuple[list[Racer], list[Absentee]]:
    """The runs of a replay, in their order, and those with nothing to play."""
    racers, absent = [], []
    for name, of in runs.items():
        if waits_for(of):
            absent.append(Absentee(name, f"not yet: {waits_for(of)}"))
            continue

        racer = _racer(name, of)
        if racer is None:
            absent.append(Absentee(name, "no message and no work was recorded"))
        else:
            racers.append(racer)
    return racers, absent


def _racer(name: str, of: Any) -> Racer | None:
    trace = getattr(of, "trace", of)
    if trace is None:
        return None

    works = _outermost(span for span in trace.spans if span.kind == "compute")
    events = [*trace.transfers, *works]
    if not events:
        return None

    zero_s = began_s(events)
    return Racer(
        name=name,
        world_size=trace.world_size,
        messages=tuple(trace.transfers),
        works=works,
        zero_s=zero_s,
        over_s=ended_s(events) - zero_s,
        whole=getattr(of, "state", "done") == "done",
    )


def _outermost(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Without the pieces of work that lie within another one of the same rank, such as what it declared to take."""
    found: list[Span] = []
    until_s: dict[int, float] = {}
    for span in sorted(spans, key=lambda span: (span.start_s, -span.end_s)):
        if span.end_s > until_s.get(span.rank, -math.inf):
            found.append(span)
            until_s[span.rank] = span.end_s
    return tuple(found)


def times_the_first(racers: Sequence[Racer]) -> dict[str, float]:
    """For each run of a replay that came to its end: how many times as long as the fastest of them it took."""
    whole = [racer for racer in racers if racer.whole]
    first_s = min((racer.over_s for racer in whole), default=0.0)

    found = {}
    for racer in whole:
        found[racer.name] = racer.over_s / first_s if first_s else 1.0
    return found


def standing(racer: Racer, racers: Sequence[Racer]) -> str:
    """How a run of a replay ended, in words: "done at 35 ms, first", "done at 70 ms, 2 times as long as the first"."""
    at = units.seconds(racer.over_s)
    if not racer.whole:
        return f"stopped at {at}, not finished"

    ratios = times_the_first(racers)
    ratio = ratios[racer.name]
    if len(ratios) == 1:
        return f"done at {at}"
    if ratio > 1 + TIE:
        return f"done at {at}, {units.times(ratio)} times as long as the first"
    if _tied(ratios):
        return f"done at {at}, a tie"
    return f"done at {at}, first"


def finding(racers: Sequence[Racer]) -> str:
    """Who ends first in a replay and by what factor, in words; ties are ties."""
    ratios = times_the_first(racers)
    if not ratios:
        return "no run came to its end"

    first_s = min(racer.over_s for racer in racers if racer.whole)
    at = units.seconds(first_s)
    tied = [name for name, ratio in ratios.items() if ratio <= 1 + TIE]
    if len(ratios) == 1:
        said = [f"{tied[0]} takes {at}"]
    elif len(tied) == 1:
        said = [f"{tied[0]} ends first, after {at}"]
    else:
        first = "" if len(tied) == len(ratios) else " first"
        said = [f"{_and(tied)} end{first} together (within {TIE:.0%}), after {at}".replace("%", " %")]

    for name, ratio in sorted(ratios.items(), key=lambda item: item[1]):
        if name not in tied:
            said.append(f"{name} takes {units.times(ratio)} times as long")
    return "; ".join(said)


def _tied(ratios: Mapping[str, float]) -> bool:
    return sum(ratio <= 1 + TIE for ratio in ratios.values()) > 1


def _and(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
