"""Checks of lab 03's plain functions: the GPipe schedule, the 1F1B schedule, and balanced cuts.

A schedule is played on paper (`pipeline.play`) and judged by its dependencies, its length and the micro-batches in
flight, so any order with those properties passes. The schedules are from Y. Huang et al. ("GPipe", arXiv:1811.06965,
2019) and D. Narayanan et al. ("PipeDream", SOSP 2019; with a flush in "Memory-efficient pipeline-parallel DNN
training", ICML 2021, and Megatron-LM, SC 2021).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import accumulate, combinations, pairwise, product
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers.on_ranks import listed_answers
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import are_whole, shown
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.formulas import pipeline
from worldsize.formulas.pipeline import BACKWARD, FORWARD, Action, Stuck
from worldsize.units import count

STEPS = {FORWARD: 1, BACKWARD: -1}  # change in the number of micro-batches in flight
WAYS = tuple(STEPS)
FORWARD_S, BACKWARD_S = 1, 2  # on paper a backward takes twice as long, as it does for matrices
SIZES = ((2, 4), (3, 5), (4, 8), (4, 2), (2, 1), (1, 2), (5, 7))  # (stages, micro-batches)
# Ranges of stages and of micro-batches, up to those of real pipelines: a table of schedules earns nothing, and an answer's
# limit on sizes shows.
DRAWN = (((6, 9), (10, 40)), ((17, 33), (64, 130)), ((12, 33), (3, 9)))

COMPLETE = "every micro-batch goes forward and backward once, and no stage waits for ever"
FORWARDS_FIRST = "all forwards come first, and no stage waits longer than it must"
NO_NEEDLESS_WAIT = "no stage waits longer than it must"
FEW_HELD = "nor does it for holding at most p − s micro-batches on stage s"
IN_ORDER = "every layer is in one stage, in order"
BALANCED = "no other cuts have a faster slowest stage"

ROUNDING = 1e-9  # relative, for sums in another order
CUT_CASES = (  # (seconds by layer, stages); each defeats a shortcut
    ([3, 1, 1, 3], 2),
    ([4, 4, 4, 4, 4], 3),
    ([1, 1, 1, 1, 8], 3),  # fewer stages would do
    ([9, 1, 2, 6, 5, 1], 4),
    ([4, 17, 9, 1, 12, 6], 4),  # the least sum of squares: 21, not 18
    ([4, 3, 4, 12, 1], 3),  # the edges nearest to thirds of the sum; the least spread; filling up to the mean
    ([2, 12, 1, 2, 3, 3, 3], 3),  # moving one edge at a time
)


# The property that defines a schedule carries most points: GPipe's order is not 1F1B's, nor an even cut a balanced one.
@exercise({COMPLETE: 0.25, FORWARDS_FIRST: 0.75})
def gpipe(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check the schedule of a pipeline in GPipe's order.

    `gpipe(stage, stages, micro_batches)` returns the actions of one stage.
    """

    def examine(ended: ArenaResult, stages: int, micro_batches: int) -> dict[str, Complaint]:
        wrong = _unplayable(ended.returned, micro_batches)
        if wrong:
            return {COMPLETE: wrong, FORWARDS_FIRST: UNEXAMINED}
        return {COMPLETE: None, FORWARDS_FIRST: _mixed(ended.returned) or _slow(ended.returned, micro_batches)}

    return _cases(arena, fn, examine)


@exercise({COMPLETE: 0.2, NO_NEEDLESS_WAIT: 0.3, FEW_HELD: 1.0})
def one_forward_one_backward(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check the schedule of a pipeline in the order of PipeDream, 1F1B.

    `one_forward_one_backward(stage, stages, micro_batches)` returns the actions of one stage.
    """

    def examine(ended: ArenaResult, stages: int, micro_batches: int) -> dict[str, Complaint]:
        wrong = _unplayable(ended.returned, micro_batches)
        if wrong:
            return {COMPLETE: wrong, NO_NEEDLESS_WAIT: UNEXAMINED, FEW_HELD: UNEXAMINED}

        slow = _slow(ended.returned, micro_batches)
        held = UNEXAMINED if slow else _holds_too_many(ended.returned, micro_batches)  # holding few is easy for a slow schedule
        return {COMPLETE: None, NO_NEEDLESS_WAIT: slow, FEW_HELD: held}

    return _cases(arena, fn, examine)


def _cases(arena: Arena, fn: Callable, examine: Callable) -> Iterator[Case]:
    """Yield a schedule's fixed sizes, each asked in a process of its own, and then drawn ones, all asked in one process."""
    for size in SIZES:
        yield Case(_named(*size), partial(_asked, arena, fn, [size]), lambda ended, size=size: examine(ended, *size))

    drawn = [(arena.draws.randint(*stages), arena.draws.randint(*micros)) for stages, micros in DRAWN]
    in_one_process = cache(lambda: _asked(arena, fn, drawn))
    first = 0
    for size in drawn:
        own = slice(first, first := first + size[0])

        def run(own: slice = own) -> ArenaResult:
            ended = in_one_process()
            if ended.state != "done":
                return ended
            return replace(ended, returned=ended.returned[own])

        yield Case(_named(*size), run, lambda ended, size=size: examine(ended, *size))


def _named(stages: int, micro_batches: int) -> str:
    return f"{count(stages, 'stage')}, {micro_batches} micro-batch{'es' * (micro_batches > 1)}"


def _asked(arena: Arena, fn: Callable, sizes: Sequence[tuple[int, int]]) -> ArenaResult:
    """Call the schedule's function for each stage of each size, in one process; `returned` has all answers in a row."""
    asked = [(stage, *size) for size in sizes for stage in range(size[0])]
    ended = arena.ranks(fn, [asked], driver=listed_answers)
    if ended.state != "done":
        return ended
    return replace(ended, returned=tuple(ended.returned[0]))


def _unplayable(returned: Sequence[Any], micro_batches: int) -> Complaint:
    """Return a complaint if a schedule lacks an action, or never ends, or two stages order messages differently; else None."""
    for stage, actions in enumerate(returned):
        complaint = _wrong_actions(actions, micro_batches)
        if complaint:
            return f"stage {stage}: {complaint}"

    for stage, actions in enumerate(returned):
        before: set[int] = set()
        for way, k in actions:
            if way == FORWARD:
                before.add(k)
            elif k not in before:
                return f"stage {stage}: backward {k} comes before forward {k}. The list: {_short(actions)}"

    try:
        pipeline.play(returned, FORWARD_S, BACKWARD_S)
    except Stuck as stuck:
        return f"deadlock: {stuck}"

    for stage, (one, other) in enumerate(pairwise(returned)):
        for way in WAYS:
            first, second = _micros(one, way), _micros(other, way)
            if first != second:
                return (
                    f"stages {stage} and {stage + 1} go {way} in different orders, {first} and {second}: "
                    f"messages arrive in the order they were sent"
                )

    return None


def _wrong_actions(actions: Any, micro_batches: int) -> Complaint:
    if not isinstance(actions, tuple):
        return f"expected a list of actions, got {shown(actions, 40)}"

    for place, action in enumerate(actions):
        wrong = f'entry {place} is {action!r:.40}; expected ("forward", k) or ("backward", k)'
        if not isinstance(action, tuple) or len(action) != 2:
            return wrong
        way, micro = action
        if not isinstance(way, str) or way not in WAYS or not are_whole(micro):
            return wrong
        if not 0 <= micro < micro_batches:
            return f"{way} {micro} names no micro-batch: they are numbered from 0 to {micro_batches - 1}"

    done = Counter(actions)
    for way, k in product(WAYS, range(micro_batches)):
        found = done[way, k]
        if found != 1:
            times = f"{found} times" if found else "never"
            return f"micro-batch {k} goes {way} {times}; expected once. The list: {_short(actions)}"

    return None


def _micros(actions: Sequence[Action], way: str) -> list[int]:
    return [k for name, k in actions if name == way]


def _mixed(returned: Sequence[Sequence[Action]]) -> Complaint:
    for stage, actions in enumerate(returned):
        backward_seen = False
        for way, k in actions:
            if way == BACKWARD:
                backward_seen = True
            elif backward_seen:
                return f"stage {stage} goes forward with {k} after its first backward; GPipe runs all forwards first"

    return None


def _slow(returned: Sequence[Sequence[Action]], micro_batches: int) -> Complaint:
    """Return a complaint if the schedule takes longer than m + p − 1 times a forward and a backward, or None."""
    stages, each_s = len(returned), FORWARD_S + BACKWARD_S
    trace = pipeline.play(returned, FORWARD_S, BACKWARD_S)
    took, least = pipeline.makespan_s(trace) / each_s, micro_batches + stages - 1
    if took <= least:
        return None

    complaint = (
        f"the schedule takes {took:.3g} times a forward and a backward, where m + p − 1 = {least} are enough: "
        f"stages wait needlessly"
    )
    if took == stages * micro_batches:
        complaint += ". The pipeline holds only one micro-batch at a time"
    elif micro_batches > 1 and returned[-1][1][0] == FORWARD:
        complaint += ". The last stage could go backward straight after its first forward"
    return f"{complaint}. Stage 0: {_short(returned[0])}; stage {stages - 1}: {_short(returned[-1])}"


def _holds_too_many(returned: Sequence[Sequence[Action]], micro_batches: int) -> Complaint:
    stages = len(returned)
    for stage, actions in enumerate(returned):
        peak = max(accumulate(STEPS[way] for way, _ in actions))
        if peak > stages - stage:
            all_first = " All forwards first: that is GPipe." * (peak == micro_batches)
            return (
                f"stage {stage} holds {peak} micro-batches at once, gone forward and not yet backward; "
                f"expected at most {stages - stage}.{all_first} Its list: {_short(actions)}"
            )

    return None


def _short(actions: Sequence[Action]) -> str:
    """Return up to 12 actions of a schedule as text: "F0 F1 B0 …"."""
    if not actions:
        return "nothing"

    said = " ".join(f"{way[0].upper()}{k}" for way, k in actions[:12])
    return said + " …" * (len(actions) > 12)


@exercise({IN_ORDER: 0.25, BALANCED: 0.75})
def balanced_cuts(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check the cuts of a pipeline's layers into stages.

    `balanced_cuts(seconds, stages)` returns edges: stage s has layers edges[s] to edges[s + 1] − 1.
    """
    generator = np.random.default_rng(arena.draws.getrandbits(32))
    cases = list(CUT_CASES)
    for fewest, stages in ((6, 3), (8, 4), (9, 1)):
        cases.append((generator.integers(1, 20, fewest + generator.integers(6)).tolist(), stages))
    cases.append(((generator.integers(1, 20, 7) / 64).tolist(), 3))  # sums of 64ths are exact
    cases.append((generator.integers(1, 20, 4).tolist(), 4))  # a layer for each stage

    for seconds, stages in cases:
        yield Case(
            f"layers of {seconds} s, {count(stages, 'stage')}",
            partial(arena.call, fn, seconds, stages),
            partial(_examine_cuts, seconds=seconds, stages=stages),
        )


def _examine_cuts(ended: ArenaResult, seconds: list[float], stages: int) -> dict[str, Complaint]:
    got = ended.returned[0]
    if isinstance(got, np.ndarray) and got.ndim == 1:
        got = tuple(got.tolist())
    complaint = _no_cuts(got, len(seconds), stages)
    if complaint:
        return {IN_ORDER: complaint, BALANCED: UNEXAMINED}
    spoilt = changed(ended.inputs[0], seconds, "seconds")
    return {IN_ORDER: spoilt, BALANCED: _unbalanced(list(map(int, got)), seconds, stages)}


def _no_cuts(got: Any, layers: int, stages: int) -> Complaint:
    if not isinstance(got, tuple) or not are_whole(*got):
        return f"expected a list of {stages + 1} whole numbers, got {shown(got)}"

    edges = list(map(int, got))
    if len(edges) != stages + 1:
        return f"expected {stages + 1} edges for {count(stages, 'stage')}, including 0 and {layers}, got {edges}"
    if (edges[0], edges[-1]) != (0, layers):
        return f"expected the edges to begin with 0 and to end with {layers}, the number of layers, got {edges}"

    for stage, (start, stop) in enumerate(pairwise(edges)):
        if stop <= start:
            return f"stage {stage} has no layer: its edges are {start} and {stop} in {edges}"

    return None


def _unbalanced(edges: list[int], seconds: list[float], stages: int) -> Complaint:
    every_cut = ([0, *inner, len(seconds)] for inner in combinations(range(1, len(seconds)), stages - 1))
    every = [_sums(seconds, cuts) for cuts in every_cut]
    sums, least = _sums(seconds, edges), min(map(max, every))
    most = max(sums)
    if most <= least * (1 + ROUNDING):
        return None

    counts, why = np.diff(edges).tolist(), ""
    if most - min(sums) <= min(max(each) - min(each) for each in every) * (1 + ROUNDING):
        why = " The slowest and the fastest stage are as close as they can be, but only the slowest counts."
    elif max(counts) - min(counts) <= 1:
        why = " Every stage has the same number of layers, give or take one, but their seconds count."
    each = ", ".join(f"{s:.4g}" for s in sums)
    return (
        f"the edges {edges} give stages of [{each}] s; stage {sums.index(most)} is the slowest with "
        f"{most:.4g} s, but with other cuts the slowest stage takes only {least:.4g} s.{why}"
    )


def _sums(seconds: Sequence[float], edges: Sequence[int]) -> list[float]:
    """Return the seconds of each stage between a pipeline's cuts."""
    return [sum(seconds[start:stop]) for start, stop in pairwise(edges)]
