"""The checks of lab 03's plain functions: the GPipe schedule, the 1F1B schedule, and balanced cuts.

A schedule is played on paper (`schedules.play`): every property is one of its dependencies, of its length, or of the
micro-batches in flight, so that any order with those properties passes. Left out: real ranks (`run_stage`). The schedules
are Y. Huang et al.'s ("GPipe", arXiv:1811.06965, 2019) and D. Narayanan et al.'s ("PipeDream", SOSP 2019; with a flush
in "Memory-efficient pipeline-parallel DNN training", ICML 2021, and Megatron-LM, SC 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.verdict import Verdict
from worldsize.formulas import pipeline
from worldsize.formulas.pipeline import BACKWARD, FORWARD, Stuck
from worldsize.units import count

WAYS = (FORWARD, BACKWARD)
FORWARD_S, BACKWARD_S = 1, 2  # on paper a backward takes twice as long, as it does for matrices
SIZES = ((2, 4), (3, 5), (4, 8), (4, 2), (2, 1), (1, 2))  # (stages, micro-batches)

GPIPE = {
    "every micro-batch goes forward and backward once, and no stage waits for ever": 0.5,
    "all forwards come first, and no stage waits longer than it must": 0.5,
}
ONE_F_ONE_B = {
    "every micro-batch goes forward and backward once, and no stage waits for ever": 0.5,
    "no stage waits longer than it must": 0.5,
    "stage s holds at most p − s micro-batches": 0.5,
}
CUTS = {"every layer is in one stage, in order": 0.5, "no other cuts have a faster slowest stage": 0.5}


def gpipe(arena: Arena, fn: Callable) -> Verdict:
    """Check of the schedule of a pipeline in GPipe's order.

    `gpipe(stage, stages, micro_batches)` returns the actions of one stage.
    """
    complete, filled = GPIPE

    def examine(ended: ArenaResult, stages: int, micro_batches: int) -> dict[str, str | None]:
        wrong = _incomplete(ended.returned, micro_batches) or _stuck(ended.returned)
        if wrong:
            return {complete: wrong}
        return {complete: None, filled: _mixed(ended.returned) or _slow(ended.returned, micro_batches)}

    return judge("gpipe", GPIPE, _cases(arena, fn, examine))


def one_forward_one_backward(arena: Arena, fn: Callable) -> Verdict:
    """Check of the schedule of a pipeline in the order of PipeDream, 1F1B.

    `one_forward_one_backward(stage, stages, micro_batches)` returns the actions of one stage.
    """
    complete, filled, held = ONE_F_ONE_B

    def examine(ended: ArenaResult, stages: int, micro_batches: int) -> dict[str, str | None]:
        wrong = _incomplete(ended.returned, micro_batches) or _stuck(ended.returned)
        if wrong:
            return {complete: wrong}
        return {
            complete: None,
            filled: _slow(ended.returned, micro_batches),
            held: _holds_too_many(ended.returned, micro_batches),
        }

    return judge("one_forward_one_backward", ONE_F_ONE_B, _cases(arena, fn, examine))


def _cases(arena: Arena, fn: Callable, examine: Callable) -> Iterator[Case]:
    for stages, micro_batches in SIZES:
        yield Case(
            f"{count(stages, 'stage')}, {micro_batches} micro-batch{'es' * (micro_batches > 1)}",
            lambda stages=stages, m=micro_batches: _called(arena, fn, [(s, stages, m) for s in range(stages)]),
            lambda ended, stages=stages, m=micro_batches: examine(ended, stages, m),
        )


def _called(arena: Arena, fn: Callable, calls: Sequence[tuple]) -> ArenaResult:
    """One call for each stage; the first that does not end well stands for all."""
    returned = []
    for args in calls:
        ended = arena.call(fn, *args)
        if ended.state != "done":
            return ended
        returned += ended.returned
    return ArenaResult("done", returned=tuple(returned))


# ---- a schedule ------------------------------------------------------------------------------


def _incomplete(returned: Sequence[Any], micro_batches: int) -> str | None:
    for stage, actions in enumerate(returned):
        complaint = _no_actions(actions, micro_batches) or _no_once(actions, micro_batches)
        if complaint:
            return f"stage {stage}: {complaint}"
    return None


def _no_actions(actions: Any, micro_batches: int) -> str | None:
    if not isinstance(actions, tuple):
        got = "None (does the function return it?)" if actions is None else f"{actions!r:.40}"
        return f"expected a list of actions, got {got}"
    for place, action in enumerate(actions):
        if not (isinstance(action, tuple) and len(action) == 2 and action[0] in WAYS and _whole(action[1])):
            return f'entry {place} is {action!r:.40}; expected ("forward", k) or ("backward", k)'
        if not 0 <= action[1] < micro_batches:
            return f"{action[0]} {action[1]} is no micro-batch: they are numbered from 0 to {micro_batches - 1}"
    return None


def _no_once(actions: Sequence[tuple], micro_batches: int) -> str | None:
    for way in WAYS:
        micros = [int(k) for name, k in actions if name == way]
        for k in range(micro_batches):
            if micros.count(k) != 1:
                times = "never" if k not in micros else f"{micros.count(k)} times"
                return f"micro-batch {k} goes {way} {times}; expected once. The list: {_short(actions)}"
    return None


def _stuck(returned: Sequence[Sequence[tuple]]) -> str | None:
    """Words for a wait that never ends, or for two stages that take the same messages in different orders."""
    for stage, actions in enumerate(returned):
        before: set[int] = set()
        for way, k in actions:
            if way == BACKWARD and k not in before:
                return f"stage {stage}: backward {k} stands before forward {k}. The list: {_short(actions)}"
            before |= {k} if way == FORWARD else set()
    try:
        pipeline.play(returned, FORWARD_S, BACKWARD_S)
    except Stuck as stuck:
        return f"deadlock: {stuck}"
    for stage, (one, other) in enumerate(pairwise(returned)):
        for way in WAYS:
            orders = [[k for name, k in actions if name == way] for actions in (one, other)]
            if orders[0] != orders[1]:
                return (
                    f"stages {stage} and {stage + 1} go {way} in different orders, {orders[0]} and {orders[1]}: "
                    f"messages arrive in the order in which they were sent"
                )
    return None


def _mixed(returned: Sequence[Sequence[tuple]]) -> str | None:
    for stage, actions in enumerate(returned):
        ways = [way for way, _ in actions]
        if FORWARD in ways[ways.index(BACKWARD) :]:
            k = next(k for way, k in actions[ways.index(BACKWARD) :] if way == FORWARD)
            return f"stage {stage} goes forward with {k} after its first backward; GPipe goes forward with all first"
    return None


def _slow(returned: Sequence[Sequence[tuple]], micro_batches: int) -> str | None:
    """Words where it takes longer than m + p − 1 times a forward and a backward."""
    stages, each_s = len(returned), FORWARD_S + BACKWARD_S
    trace = pipeline.play(returned, FORWARD_S, BACKWARD_S)
    took, least = pipeline.makespan_s(trace) / each_s, micro_batches + stages - 1
    if took <= least:
        return None
    complaint = f"takes {took:.3g} times a forward and a backward, where m + p − 1 = {least} are enough: stages wait needlessly"
    if took == stages * micro_batches:
        complaint += ". One micro-batch at a time is in the whole pipeline"
    elif micro_batches > 1 and returned[-1][1][0] == FORWARD:
        complaint += ". The last stage could go backward straight after its first forward"
    return f"{complaint}. Stage 0: {_short(returned[0])}; stage {stages - 1}: {_short(returned[-1])}"


def _holds_too_many(returned: Sequence[Sequence[tuple]], micro_batches: int) -> str | None:
    stages = len(returned)
    for stage, actions in enumerate(returned):
        peak = held = 0
        for way, _ in actions:
            held += 1 if way == FORWARD else -1
            peak = max(peak, held)
        if peak > stages - stage:
            all_first = " All forwards first: that is GPipe." if peak == micro_batches else ""
            return (
                f"stage {stage} holds {peak} micro-batches at once, gone forward and not yet backward; "
                f"expected at most {stages - stage}.{all_first} Its list: {_short(actions)}"
            )
    return None


def _short(actions: Sequence[tuple]) -> str:
    """F0 F1 B0 …"""
    said = " ".join(f"{way[0].upper()}{k}" for way, k in actions[:12])
    return said + " …" * (len(actions) > 12) or "nothing"


# ---- cuts ------------------------------------------------------------------------------------


def balanced_cuts(arena: Arena, fn: Callable) -> Verdict:
    """Check, beside the schedules of a pipeline, of where its layers are cut into stages.

    `balanced_cuts(seconds, stages)` returns edges: stage s has layers edges[s] to edges[s + 1].
    """
    return judge("balanced_cuts", CUTS, _cut_cases(arena, fn))


def _cut_cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    generator = np.random.default_rng(arena.draws.getrandbits(32))
    seconds = [[3, 1, 1, 3], [4, 4, 4, 4, 4], [1, 1, 1, 1, 8], [9, 1, 2, 6, 5, 1]]
    seconds += [generator.integers(1, 20, layers).tolist() for layers in (6, 8, 9)]
    for layers, stages in zip(seconds, (2, 3, 3, 4, 3, 4, 1), strict=True):
        yield Case(
            f"layers of {layers} ms, {count(stages, 'stage')}",
            lambda layers=layers, stages=stages: arena.call(fn, layers, stages),
            lambda ended, layers=layers, stages=stages: _examine_cuts(ended.returned[0], layers, stages),
        )


def _examine_cuts(got: Any, layers: list[int], stages: int) -> dict[str, str | None]:
    covered, fast = CUTS
    complaint = _no_cuts(got, len(layers), stages)
    return {covered: complaint} if complaint else {covered: None, fast: _unbalanced(got, layers, stages)}


def _no_cuts(got: Any, layers: int, stages: int) -> str | None:
    if not isinstance(got, tuple) or not all(_whole(edge) for edge in got):
        shown = "None (does the function return it?)" if got is None else f"{got!r:.60}"
        return f"expected a list of {stages + 1} whole numbers, got {shown}"
    edges = list(map(int, got))
    if len(edges) != stages + 1:
        return f"expected {stages + 1} edges for {count(stages, 'stage')}, 0 and {layers} among them, got {edges}"
    if edges[0] != 0 or edges[-1] != layers:
        return f"expected the edges to begin with 0 and to end with {layers}, the number of layers, got {edges}"
    for stage, (start, stop) in enumerate(pairwise(edges)):
        if stop <= start:
            return f"stage {stage} has no layer: its edges are {start} and {stop} in {edges}"
    return None


def _unbalanced(edges: Sequence[int], layers: list[int], stages: int) -> str | None:
    sums = [sum(layers[start:stop]) for start, stop in pairwise(edges)]
    slowest = max(range(stages), key=sums.__getitem__)
    if _stages_within(layers, sums[slowest] - 1) > stages:
        return None
    by_count = ""
    if max(stop - start for start, stop in pairwise(edges)) - min(stop - start for start, stop in pairwise(edges)) <= 1:
        by_count = " Every stage has as many layers: it is their seconds that count."
    return (
        f"the stages {list(map(int, edges))} take {sums} ms; stage {slowest} is the slowest with {sums[slowest]} ms, "
        f"and there are cuts whose slowest stage takes less.{by_count}"
    )


def _stages_within(layers: Sequence[int], limit: int) -> float:
    """How many stages are needed if none may take more than `limit`; infinite where one layer does."""
    needed, filled = 1, 0
    for layer in layers:
        if layer > limit:
            return float("inf")
        needed, filled = (needed, filled + layer) if filled + layer <= limit else (needed + 1, layer)
    return needed


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
