"""Pipeline schedules: the order of each stage's actions, played on paper, and read back from a real run.

A schedule is a list of ("forward", k) and ("backward", k), k the micro-batch, for one stage. Play obeys the dependencies alone:
forward k follows the stage before, backward k the stage after and the stage's own forward. A run that marks its spans "forward k"
and "backward k" gives the same kind of trace, so both are drawn and measured alike.

Two extensions can be played. With split backwards, ("weights", k) makes the weights' gradients, and no stage waits for them.
With several chunks of layers per device, an action's third element is the chunk.

Left out: making schedules (`schedules.py`), and links on which messages queue. Pipelines of stages are Y. Huang et al.'s
("GPipe", arXiv:1811.06965, 2019); the question of their order is D. Narayanan et al.'s ("PipeDream", SOSP 2019).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from worldsize.trace import Span, Trace

FORWARD, BACKWARD, WEIGHTS = "forward", "backward", "weights"
WAYS = (FORWARD, BACKWARD, WEIGHTS)
Action = tuple[str, int]  # or (way, micro-batch, chunk)
Schedules = Sequence[Sequence[Action]]  # by stage
_OF_CHUNK = " of chunk "


@dataclass(frozen=True)
class StagePass:
    """A micro-batch's forward, backward or weights' gradients in one stage, or in one chunk of it."""

    stage: int
    way: str
    micro: int
    start_s: float
    end_s: float
    chunk: int = 0


class Stuck(ValueError):
    """No stage can go on. `waits[stage]` is (its next action, the stage and the action that it waits for)."""

    def __init__(self, waits: dict[int, tuple[Action, int, Action]]) -> None:
        self.waits = waits
        said = []
        for stage, (action, other, missing) in waits.items():
            said.append(f"stage {stage} can't do {_named(action)} before stage {other} has done {_named(missing)}")
        super().__init__("; ".join(said))


def play(
    schedules: Schedules, forward_s: float | Sequence[float], backward_s: float | Sequence[float], hop_s: float = 0.0,
    *, weights_s: float | Sequence[float] = 0.0, chunks: int = 1,
) -> Trace:
    """Play pipeline schedules on paper: return the trace if each action takes its stage's seconds.

    A message to a neighbor takes `hop_s`. `weights_s` is the time of ("weights", k), for schedules with split backwards. With
    `chunks`, device d of p holds the model's parts d, p + d, 2p + d …; an action is (way, micro-batch, chunk) and takes that
    share of the device's seconds. Raises Stuck if every unfinished stage waits for another.
    """  # fmt: skip
    devices = len(schedules)
    seconds = {}  # by way and stage
    for way, given in zip(WAYS, (forward_s, backward_s, weights_s), strict=True):
        seconds[way] = given if isinstance(given, Sequence) else [given] * devices

    place, free_s = [0] * devices, [0.0] * devices
    ended: dict[tuple[int, Action], float] = {}  # by part of the model
    spans = []

    while any(place[d] < len(actions) for d, actions in enumerate(schedules)):
        moved, waits = False, {}  # waits: of each device that cannot go on
        for device, actions in enumerate(schedules):
            while place[device] < len(actions):
                way, micro, *chunk = actions[place[device]]
                part, action = sum(chunk) * devices + device, (way, micro)
                needs = needed(part, action, devices * chunks)
                missing = [need for need in needs if need not in ended]
                if missing:
                    other, what = missing[0]
                    waits[device] = (action, other % devices, what)
                    break
                ready_s = (ended[other, what] + hop_s * (other % devices != device) for other, what in needs)
                start_s = max(free_s[device], *ready_s, 0.0)
                free_s[device] = ended[part, action] = start_s + seconds[way][device] / chunks
                label = _named(action)
                if chunks > 1:
                    label += f"{_OF_CHUNK}{part // devices}"
                spans.append(Span(device, "compute", start_s, free_s[device], label))
                place[device] += 1
                moved = True
        if not moved:
            raise Stuck(waits)

    return Trace(devices, spans=tuple(sorted(spans, key=lambda s: s.start_s)))


def needed(stage: int, action: Action, stages: int) -> list[tuple[int, Action]]:
    """Return (stage, action) for everything that must be over before `action` begins on `stage`."""
    way, micro = action
    if way == FORWARD:
        return [(stage - 1, action)] if stage > 0 else []
    if way == WEIGHTS:
        return [(stage, (BACKWARD, micro))]

    needs = [(stage, (FORWARD, micro))]
    if stage < stages - 1:
        needs.append((stage + 1, action))
    return needs


def works(trace: Trace) -> list[StagePass]:
    """Return the passes of a pipeline's stages, read back from a trace in order of their start.

    Other spans are ignored.
    """
    passes = []
    for span in trace.spans:
        action, _, chunk = span.label.partition(_OF_CHUNK)
        way, _, micro = action.partition(" ")
        if way in WAYS and micro.isdigit():
            passes.append(StagePass(span.rank, way, int(micro), span.start_s, span.end_s, int(chunk or 0)))

    return sorted(passes, key=lambda w: (w.start_s, w.stage))


def makespan_s(trace: Trace) -> float | None:
    """Return a pipeline's makespan: from the first pass's start to the last pass's end.

    None if no span is marked.
    """
    every = works(trace)
    if not every:
        return None
    return max(w.end_s for w in every) - min(w.start_s for w in every)


def utilisation(trace: Trace) -> float | None:
    """Return the share of the stages' time in which they worked.

    The time runs from the first start to the last end. None if no span is marked.
    """
    whole_s = makespan_s(trace)
    if not whole_s:
        return whole_s
    return sum(w.end_s - w.start_s for w in works(trace)) / (whole_s * trace.world_size)


def in_flight(trace: Trace) -> list[int]:
    """Return the most micro-batches that each stage holds at any one moment.

    A stage holds a micro-batch from the start of its forward to the end of its backward, or of its weights' gradients if these
    are made separately. A micro-batch in two chunks of a stage counts twice.
    """
    every = works(trace)
    last_way = BACKWARD
    if any(w.way == WEIGHTS for w in every):
        last_way = WEIGHTS

    changes: list[Counter[float]] = [Counter() for _ in range(trace.world_size)]  # by stage, at each moment
    for w in every:
        if w.way == FORWARD:
            changes[w.stage][w.start_s] += 1
        elif w.way == last_way:
            changes[w.stage][w.end_s] -= 1

    peaks = []
    for own in changes:
        held = accumulate((change for _, change in sorted(own.items())), initial=0)
        peaks.append(max(held))
    return peaks


def _named(action: Action) -> str:
    return f"{action[0]} {action[1]}"
