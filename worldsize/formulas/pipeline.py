"""Schedules of a pipeline: what each stage does in which order, played on paper, and read back from a real run.

A schedule is a list of ("forward", k) and ("backward", k), k the micro-batch, for one stage. Playing obeys the
dependencies alone: forward k follows the stage before, backward k the stage after and the stage's own forward. A run
that marks its spans "forward k" and "backward k" gives the same kind of trace, so both are drawn and measured alike.
Left out: making schedules, links on which messages queue. Pipelines of stages are Y. Huang et al.'s ("GPipe",
arXiv:1811.06965, 2019); the order is D. Narayanan et al.'s question ("PipeDream", SOSP 2019).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from worldsize.trace import Span, Trace

FORWARD, BACKWARD = "forward", "backward"
Action = tuple[str, int]
Schedules = Sequence[Sequence[Action]]  # by stage


@dataclass(frozen=True)
class StagePass:
    """One micro-batch going forward or backward through one stage."""

    stage: int
    way: str
    micro: int
    start_s: float
    end_s: float


class Stuck(ValueError):
    """No stage can go on. `waits[stage]` is (its next action, the stage and the action that it waits for)."""

    def __init__(self, waits: dict[int, tuple[Action, int, Action]]) -> None:
        self.waits = waits
        said = []
        for stage, (action, other, missing) in waits.items():
            said.append(f"stage {stage} can't do {_named(action)} before stage {other} has done {_named(missing)}")
        super().__init__("; ".join(said))


def play(
    schedules: Schedules, forward_s: float | Sequence[float], backward_s: float | Sequence[float], hop_s: float = 0.0
) -> Trace:
    """Play schedules of a pipeline on paper: the trace if each action takes its stage's seconds.

    A message to a neighbour takes `hop_s`. Raises Stuck where every stage that isn't done waits for another.
    """
    seconds = {FORWARD: _by_stage(forward_s, schedules), BACKWARD: _by_stage(backward_s, schedules)}
    place, free_s = [0] * len(schedules), [0.0] * len(schedules)
    ended: dict[tuple[int, Action], float] = {}
    spans = []

    while any(place[s] < len(actions) for s, actions in enumerate(schedules)):
        moved = False
        for stage, actions in enumerate(schedules):
            while place[stage] < len(actions):
                way, micro = action = tuple(actions[place[stage]])
                needs = needed(stage, action, len(schedules))
                if any(need not in ended for need in needs):
                    break
                ready_s = (ended[other, what] + hop_s * (other != stage) for other, what in needs)
                start_s = max(free_s[stage], *ready_s, 0.0)
                free_s[stage] = ended[stage, action] = start_s + seconds[way][stage]
                spans.append(Span(stage, "compute", start_s, free_s[stage], _named(action)))
                place[stage] += 1
                moved = True
        if not moved:
            raise Stuck(_waits(schedules, place, ended))

    return Trace(len(schedules), spans=tuple(sorted(spans, key=lambda s: s.start_s)))


def needed(stage: int, action: Action, stages: int) -> list[tuple[int, Action]]:
    """To play a pipeline's schedule on paper: (stage, action) of all that must be over before `action` begins on `stage`."""
    way, micro = action
    if way == FORWARD:
        return [(stage - 1, action)] if stage > 0 else []

    needs = [(stage, (FORWARD, micro))]
    if stage < stages - 1:
        needs.append((stage + 1, action))
    return needs


def works(trace: Trace) -> list[StagePass]:
    """For formulas on a pipeline, what its stages did, read back from a trace in the order of its start.

    Other spans are passed over.
    """
    found = []
    for span in trace.spans:
        way, _, micro = span.label.partition(" ")
        if way in (FORWARD, BACKWARD) and micro.isdigit():
            found.append(StagePass(span.rank, way, int(micro), span.start_s, span.end_s))

    return sorted(found, key=lambda w: (w.start_s, w.stage))


def makespan_s(trace: Trace) -> float | None:
    """Formula for a pipeline's makespan by its trace: from the first forward's start to the last backward's end.

    None where nothing was marked.
    """
    every = works(trace)
    if not every:
        return None
    return max(w.end_s for w in every) - min(w.start_s for w in every)


def utilisation(trace: Trace) -> float | None:
    """Formula for a pipeline's utilisation by its trace: the part of the stages' time in which they worked.

    The time is that from the first start to the last end.
    """
    whole_s = makespan_s(trace)
    if not whole_s:
        return whole_s
    return sum(w.end_s - w.start_s for w in works(trace)) / (whole_s * trace.world_size)


def in_flight(trace: Trace) -> list[int]:
    """Formula for micro-batches in flight by a pipeline's trace: the most that each stage holds at any one moment.

    By stage: those that had begun forward and had not ended backward.
    """
    changes: list[Counter[float]] = [Counter() for _ in range(trace.world_size)]  # by stage, at each moment
    for w in works(trace):
        if w.way == FORWARD:
            changes[w.stage][w.start_s] += 1
        else:
            changes[w.stage][w.end_s] -= 1

    peaks = []
    for own in changes:
        held = accumulate((change for _, change in sorted(own.items())), initial=0)
        peaks.append(max(held))
    return peaks


def _by_stage(seconds: float | Sequence[float], schedules: Schedules) -> list[float]:
    return list(seconds) if isinstance(seconds, Sequence) else [seconds] * len(schedules)


def _waits(schedules: Schedules, place: Sequence[int], ended: dict) -> dict[int, tuple[Action, int, Action]]:
    waits = {}
    for stage, actions in enumerate(schedules):
        if place[stage] < len(actions):
            action = tuple(actions[place[stage]])
            other, missing = next(need for need in needed(stage, action, len(schedules)) if need not in ended)
            waits[stage] = (action, other, missing)

    return waits


def _named(action: Action) -> str:
    return f"{action[0]} {action[1]}"
