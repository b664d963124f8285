"""Check lab 05's fair race: a training's time to the goal at its own best learning rate.

The trainings are scripted: `train(rate, seed)` reads a table. Each case has a rate that is best by the contract and another
that wins by a mistake: a lucky seed, diverged runs left out, a loss that only touched the goal, a grid that ends too early,
or times taken from the seeds that chose.
E. Capen, R. Clapp and W. Campbell, J. Petroleum Technology 23, 1971: the winner's curse, why seeds that choose must not
measure.
C. Shallue et al., JMLR 20, 2019: why a comparison of batch sizes needs a rate of its own for each.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.asynchronous.scripted_trainings import GOAL, RunShape, ScriptedTrainings, seconds_to_goal
from worldsize.checks.kit.error_advice import with_advice
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.kit.values import close, number, shown
from worldsize.checks.verdict import Complaint, Verdict

POINTS = {
    "the rate of the least median time, where every run counts": 0.5,
    "a run is at the goal only when it stays there": 0.5,
    "where the best rate is an end of the grid, it goes on": 0.25,
    "the times are those of fresh seeds": 0.25,
}
MEDIAN, STAYS, ENDS, FRESH = POINTS
GRID = 5
ADVICE = {
    "unexpected keyword argument": "Hand `train` its two values without names: train(rate, seed).",
    "not supported between instances of": "Is there a run without a time? A run that does not stay at the goal has math.inf.",
    "had not ended": "The ends move as the grid grows: compare the best rate with the current ends of the grid.",
}


def time_at_best_rate(arena: Arena, fn: Callable) -> Verdict:
    """Check a fair measurement: `time_at_best_rate(train, goal, rates, seeds, fresh)` returns (rate, times).

    Every case has a grid of 5 rates and a newly drawn best rate. Picking rates by chance is right in the twelve cases whose
    best is on the grid with probability 5**-12, which is 4e-9. No other mistake is left to chance: which seeds mislead does
    not depend on a draw, and the first or the last seeds alone mislead in some case.
    """
    return judge("time_at_best_rate", POINTS, _cases(arena, fn))


def _cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    yield _case(arena, fn, MEDIAN, "plain runs", _table(arena, 3))

    table = _table(arena, 3)
    table.decoy(*[[RunShape(0.4) if k == lucky else RunShape(2.5) for k in range(3)] for lucky in range(3)])
    yield _case(arena, fn, MEDIAN, "each seed is lucky with another rate", table)

    table = _table(arena)
    table.put(table.best, [RunShape(9.0), *[RunShape(1.0)] * 3, RunShape(0.5, "rises")])
    yield _case(arena, fn, MEDIAN, "at the best rate, one run is slow and one diverges", table)

    quick, wild = [RunShape(0.4)] * 2, [RunShape(0.4, "diverges")] * 3
    for ways in ([*quick, *wild], [*wild, *quick]):
        table = _table(arena)
        table.decoy(ways)
        yield _case(arena, fn, MEDIAN, "one rate diverges with most seeds", table)

    table = _table(arena)
    table.decoy([RunShape(2.0, step_s=4.0)] * 5)
    yield _case(arena, fn, MEDIAN, "steps differ in length", table)

    table = _table(arena, arena.draws.choice((4, 6)))
    more = (len(table.seeds) - 4) // 2
    rows = [  # rows with the least median, the least upper middle, the least lower middle
        arena.draws.sample([0.3] * more + [*middles] + [3.0] * more, len(table.seeds))
        for middles in ((0.5, 0.6, 1.3, 3.0), (1.1, 1.1, 1.1, 1.1), (0.3, 0.4, 2.2, 3.0))
    ]
    best, *decoys = [list(map(RunShape, row)) for row in rows]
    table.put(table.best, best)
    table.decoy(*decoys)
    yield _case(arena, fn, MEDIAN, "an even number", table)

    table = _table(arena)
    table.put(table.best, [RunShape(1.0, "rests")] * 5)
    yield _case(arena, fn, STAYS, "at the best rate, the loss ends exactly at the goal", table)

    table = _table(arena)
    table.decoy([RunShape(3.0, "dips")] * 5)
    yield _case(arena, fn, STAYS, "one rate touches the goal early, and returns to it late", table)

    for how in ("rises", "NaN"):
        table = _table(arena)
        table.decoy([RunShape(0.4, how)] * 5)
        what = {"rises": "over the goal", "NaN": "at NaN"}[how]
        yield _case(arena, fn, STAYS, f"one rate reaches the goal early and ends {what}", table)

    far = [arena.draws.randint(3, 4) for _ in range(2)]
    for beyond, end in ((2, "right"), (2, "left"), (1, "right"), (1, "left"), (far[0], "right"), (far[1], "left")):
        best = GRID - 1 + beyond if end == "right" else -beyond
        yield _case(arena, fn, ENDS, f"the best rate lies beyond the grid's {end} end", _table(arena, best=best))

    table = _table(arena)
    table.decoy([RunShape(1.6)] * 5, fresh=[RunShape(0.2)] * 5)
    table.put(table.best, fresh=[RunShape(1.2), RunShape(1.1), RunShape(0.6, "rises"), RunShape(1.4), RunShape(1.3)])
    yield _case(arena, fn, FRESH, "fresh seeds differ from those that choose", table)


def _table(arena: Arena, seeds: int = 5, best: int | None = None) -> ScriptedTrainings:
    """Return trainings whose best rate is drawn from the grid, unless `best` names another."""
    if best is None:
        best = arena.draws.randrange(GRID)
    return ScriptedTrainings(arena.draws, GRID, best, seeds)


def _case(arena: Arena, fn: Callable, what: str, name: str, table: ScriptedTrainings) -> Case:
    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        got = ended.returned[0]
        complaint = table.wrong_call or _wrong_pair(got) or _wrong_rate(got[0], table)
        if what is FRESH:
            complaint = complaint or _wrong_times(got[1], table)
        return {what: complaint}

    return Case(
        f"{len(table.seeds)} seeds, {name}",
        lambda: with_advice(
            arena.call(fn, table.train, GOAL, list(table.rates), list(table.seeds), list(table.fresh)), ADVICE
        ),
        examine,
    )


# ---- what came back --------------------------------------------------------------------------


def _wrong_pair(got: Any) -> Complaint:
    if isinstance(got, tuple) and len(got) == 2:
        return None
    return f"expected two values, the rate and the times of the fresh seeds, got {shown(got)}"


def _wrong_rate(got: Any, table: ScriptedTrainings) -> Complaint:
    found = number(got)
    if isinstance(found, str):
        return f"expected the rate first, one number, {found}"

    best = table.rate(table.best)
    if close(found, best):
        return None
    if not any(close(found, table.rate(k)) for k in table.places):
        return f"expected rate {best:.4g}, got {found:.4g}, which is neither in the grid nor an end halved or doubled."

    place = min(table.places, key=lambda k: abs(table.rate(k) - found))
    its, right = _median(table, place), _median(table, table.best)
    told = f"expected rate {best:.4g}, whose median is {right:.3g} s, got {found:.4g}, whose median is {_seconds(its)}"
    return told + _slip(place, table)


def _slip(place: int, table: ScriptedTrainings) -> str:
    """Return the first mistake that leads to this rate, as ". …"; empty where none does."""
    for words, value in MISTAKES.items():
        if min(range(GRID), key=lambda k: value(table, k)) == place:
            return f". {words}"
    if place not in range(GRID):
        return ". Beyond the grid each rate is half or twice its neighbor: go on one rate at a time, until an end is not best"
    return ""


def _wrong_times(got: Any, table: ScriptedTrainings) -> Complaint:
    try:
        times = [float(value) for value in got]
    except (TypeError, ValueError):
        return f"expected the seconds of each fresh seed as the second value, got {shown(got)}"

    right = [table.seconds(table.best, seed) for seed in table.fresh]
    if len(times) == len(right) and all(map(_same, times, right)):
        return None

    told = f"expected the times {_listed(right)}, got {_listed(times)}"
    chose = [table.seconds(table.best, seed) for seed in table.seeds]
    if len(times) == len(chose) and all(map(_same, times, chose)):
        return (
            f"{told}. These are the runs that chose the rate: the least of many times is partly luck. "
            "Measure with the seeds in `fresh`"
        )
    if len(times) == len(right) - 1:
        return f"{told}. Count a run that does not stay at the goal as math.inf"
    if len(times) == len(right):
        return f"{told}. One run ends over the goal: its time is math.inf"
    return told


def _same(one: float, other: float) -> bool:
    return one == other or close(one, other)


def _listed(times: list[float]) -> str:
    return f"[{', '.join(f'{t:.3g}' for t in times[:8])}]"


def _seconds(value: float) -> str:
    if math.isinf(value):
        return "inf: most of its runs do not stay at the goal"
    return f"{value:.3g} s"


# ---- mistakes --------------------------------------------------------------------------------


def _times(table: ScriptedTrainings, place: int) -> list[float]:
    return [table.seconds(place, seed) for seed in table.seeds]


def _median(table: ScriptedTrainings, place: int) -> float:
    return statistics.median(_times(table, place))


def _of_survivors(table: ScriptedTrainings, place: int) -> float:
    finite = list(filter(math.isfinite, _times(table, place)))
    return statistics.median(finite) if finite else math.inf


def _first_touch(table: ScriptedTrainings, place: int) -> float:
    rows = [table.points(place, seed) for seed in table.seeds]
    return statistics.median(next((s for _, s, loss in points if loss <= GOAL), math.inf) for points in rows)


def _blind_to_nan(table: ScriptedTrainings, place: int) -> float:
    rows = []
    for seed in table.seeds:
        points = [(v, s, 0.0 if math.isnan(loss) else loss) for v, s, loss in table.points(place, seed)]
        rows.append(seconds_to_goal(points))
    return statistics.median(rows)


def _below_alone(table: ScriptedTrainings, place: int) -> float:
    rows = [[(v, s, math.inf if loss == GOAL else loss) for v, s, loss in table.points(place, seed)] for seed in table.seeds]
    return statistics.median(map(seconds_to_goal, rows))


def _in_steps(table: ScriptedTrainings, place: int) -> float:
    rows = [[(v, float(v), loss) for v, _, loss in table.points(place, seed)] for seed in table.seeds]
    return statistics.median(map(seconds_to_goal, rows))


def _with_fresh(table: ScriptedTrainings, place: int) -> float:
    return statistics.median(table.seconds(place, seed) for seed in (*table.seeds, *table.fresh))


MISTAKES: dict[str, Callable[[ScriptedTrainings, int], float]] = {
    "It is the grid's end: go on halving or doubling until an end is not best": _median,
    "Its loss is NaN at the end, and NaN is not at the goal: write `loss <= goal`, because `loss > goal` is false for NaN": (
        _blind_to_nan
    ),
    "This leaves out the runs that never stay at the goal: count each as math.inf": _of_survivors,
    "Its loss touches the goal and rises over it again: count the time until the loss stays there": _first_touch,
    "A loss equal to the goal is at the goal, too: compare loss <= goal": _below_alone,
    "For an even number of seeds this takes the upper of the two middle values: the median is their mean": (
        lambda table, k: statistics.median_high(_times(table, k))
    ),
    "For an even number of seeds this takes the lower of the two middle values: the median is their mean": (
        lambda table, k: statistics.median_low(_times(table, k))
    ),
    "One lucky seed has the least time: take the median over the seeds": lambda table, k: min(_times(table, k)),
    "One slow seed moves the mean, and one that diverges makes it inf: take the median over the seeds": (
        lambda table, k: statistics.fmean(_times(table, k))
    ),
    "The slowest seed decides here: take the median over the seeds": lambda table, k: max(_times(table, k)),
    "This has the fewest steps, but its steps are long: compare seconds": _in_steps,
    "The fresh seeds helped to choose it: use them only to measure": _with_fresh,
    "This is the first seed's best: one seed is luck": lambda table, k: _times(table, k)[0],
    "This is the last seed's best: one seed is luck": lambda table, k: _times(table, k)[-1],
}
