"""Check lab 05's fair race: a training's time to the goal at its own best learning rate.

The trainings are scripted: `train(rate, seed)` reads a table. Each case has a rate that is best by the contract and another
that wins by a mistake: a lucky seed, diverged runs left out, a loss that only touched the goal, a grid that ends too early,
or times taken from the seeds that chose.
E. Capen, R. Clapp and W. Campbell, J. Petroleum Technology 23, 1971: the winner's curse, why seeds that choose must not
measure.
C. Shallue et al., JMLR 20, 2019: why a comparison of batch sizes needs a rate of its own for each.
"""

import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.asynchronous.scripted_trainings import GOAL, RunShape, ScriptedTrainings, seconds_to_goal
from worldsize.checks.kit import evidence
from worldsize.checks.kit.error_advice import with_advice
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import close, number, shown
from worldsize.checks.verdict import Complaint

MEDIAN = "the rate of the least median time, where every run counts"
STAYS = "a run is at the goal only when it stays there"
ENDS = "where the best rate is an end of the grid, it goes on"
FRESH = "the times are those of fresh seeds"
GRID = 5
ADVICE = {
    "unexpected keyword argument": "Hand `train` its two values without names: train(rate, seed).",
    "not supported between instances of": "Is there a run without a time? A run that does not stay at the goal has math.inf.",
    "had not ended": "The ends move as the grid grows: compare the best rate with the current ends of the grid.",
}


@exercise({MEDIAN: 0.5, STAYS: 0.5, ENDS: 0.25, FRESH: 0.25}, seen={ENDS: evidence.CALLS, FRESH: evidence.CALLS})
def time_at_best_rate(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check a fair measurement: `time_at_best_rate(train, goal, rates, seeds, fresh)` returns (rate, times).

    Every case has a grid of 5 rates and a newly drawn best rate. Picking rates by chance is right in the twelve cases whose
    best is on the grid with probability 5**-12, which is 4e-9. No other mistake is left to chance: which seeds mislead does
    not depend on a draw, and the first or the last seeds alone mislead in some case.
    """
    for what, name, table in _tables(arena):
        given = (table.train, GOAL, list(table.rates), list(table.seeds), list(table.fresh))
        yield Case(
            f"{len(table.seeds)} seeds, {name}",
            lambda given=given: with_advice(arena.call(fn, *given), ADVICE),
            lambda ended, what=what, table=table: {what: _changed(ended, table) or _wrong(ended.returned[0], what, table)},
        )


def _tables(arena: Arena) -> Iterator[tuple[str, str, ScriptedTrainings]]:
    """Yield (property, name of the case, trainings) for a fair race at the best rate."""
    yield MEDIAN, "plain runs", _table(arena, 3)

    table = _table(arena, 3)
    slow = [RunShape(2.5)] * 2
    table.decoy([RunShape(0.4), *slow], [slow[0], RunShape(0.4), slow[1]], [*slow, RunShape(0.4)])
    yield MEDIAN, "each seed is lucky with another rate", table

    table = _table(arena)
    table.put(table.best, [RunShape(9.0), *[RunShape(1.0)] * 3, RunShape(0.5, "rises")])
    yield MEDIAN, "at the best rate, one run is slow and one diverges", table

    quick, wild = [RunShape(0.4)] * 2, [RunShape(0.4, "diverges")] * 3
    for ways in ([*quick, *wild], [*wild, *quick]):
        table = _table(arena)
        table.decoy(ways)
        yield MEDIAN, "one rate diverges with most seeds", table

    table = _table(arena)
    table.decoy([RunShape(2.0, step_s=4.0)] * 5)
    yield MEDIAN, "steps differ in length", table

    table = _table(arena, arena.draws.choice((4, 6)))
    more = (len(table.seeds) - 4) // 2
    rows = [  # rows with the least median, the least upper middle, the least lower middle
        arena.draws.sample([0.3] * more + [*middles] + [3.0] * more, len(table.seeds))
        for middles in ((0.5, 0.6, 1.3, 3.0), (1.1, 1.1, 1.1, 1.1), (0.3, 0.4, 2.2, 3.0))
    ]
    best, *decoys = [list(map(RunShape, row)) for row in rows]
    table.put(table.best, best)
    table.decoy(*decoys)
    yield MEDIAN, "an even number", table

    table = _table(arena)
    table.put(table.best, [RunShape(1.0, "rests")] * 5)
    yield STAYS, "at the best rate, the loss ends exactly at the goal", table

    table = _table(arena)
    table.decoy([RunShape(3.0, "dips")] * 5)
    yield STAYS, "one rate touches the goal early, and returns to it late", table

    table = _table(arena)
    table.put(table.best, [RunShape(1.0, "arrives")] * 5)
    yield STAYS, "at the best rate, the last row alone is at the goal", table

    for how in ("rises", "NaN", "leaves"):
        table = _table(arena)
        table.decoy([RunShape(0.4, how)] * 5)
        what = {"rises": "over the goal", "NaN": "at NaN", "leaves": "over the goal in its last row alone"}[how]
        yield STAYS, f"one rate reaches the goal early and ends {what}", table

    far = [arena.draws.randint(3, 4) for _ in range(2)]
    for beyond, end in ((2, "right"), (2, "left"), (1, "right"), (1, "left"), (far[0], "right"), (far[1], "left")):
        best = GRID - 1 + beyond if end == "right" else -beyond
        yield ENDS, f"the best rate lies beyond the grid's {end} end", _table(arena, best=best)

    table = _table(arena)
    table.decoy([RunShape(1.6)] * 5, fresh=[RunShape(0.2)] * len(table.fresh))
    table.put(table.best, fresh=[RunShape(1.2), RunShape(1.1), RunShape(0.6, "rises"), RunShape(1.4), RunShape(1.3)])
    yield FRESH, "fresh seeds differ from those that choose", table


def _table(arena: Arena, seeds: int = 5, best: int | None = None) -> ScriptedTrainings:
    """Return trainings whose best rate is drawn from the grid, unless `best` names another."""
    if best is None:
        best = arena.draws.randrange(GRID)
    return ScriptedTrainings(arena.draws, GRID, best, seeds)


def _changed(ended: ArenaResult, table: ScriptedTrainings) -> Complaint:
    """Return the complaint about a fair race that changed one of its lists, or None."""
    given = {"rates": table.rates, "seeds": table.seeds, "fresh": table.fresh}
    complaints = [changed(after, list(given[name]), name) for name, after in zip(given, ended.inputs[2:], strict=True)]
    return first_complaint(complaints)


def _wrong(got: Any, what: str, table: ScriptedTrainings) -> Complaint:
    if table.wrong_call:
        return table.wrong_call
    if not isinstance(got, tuple) or len(got) != 2:
        return f"expected two values, the rate and the times of the fresh seeds, got {shown(got)}"

    complaint = _wrong_rate(got[0], table)
    if complaint or what != FRESH:
        return complaint
    return _wrong_times(got[1], table)


def _wrong_rate(got: Any, table: ScriptedTrainings) -> Complaint:
    rate = number(got)
    if isinstance(rate, str):
        return f"expected the rate first, one number, {rate}"

    best = table.rate(table.best)
    if close(rate, best):
        return None
    if not any(close(rate, table.rate(k)) for k in table.places):
        return f"expected rate {best:.4g}, got {rate:.4g}, which is neither in the grid nor an end halved or doubled."

    place = min(table.places, key=lambda k: abs(table.rate(k) - rate))
    medians = []
    for k in (place, table.best):
        medians.append(statistics.median(table.seconds(k, seed) for seed in table.seeds))
    its, right = medians
    median = f"{its:.3g} s" if math.isfinite(its) else "inf: most of its runs do not stay at the goal"
    complaint = f"expected rate {best:.4g}, whose median is {right:.3g} s, got {rate:.4g}, whose median is {median}"

    mistaken = [_mistaken(table, k) for k in range(GRID)]
    for words in mistaken[0]:
        if min(range(GRID), key=lambda k: mistaken[k][words]) == place:
            return f"{complaint}. {words}"
    if place not in range(GRID):
        return (
            f"{complaint}. Beyond the grid each rate is half or twice its neighbor: go on one rate at a time, until an end is "
            "not best"
        )
    return complaint


def _wrong_times(got: Any, table: ScriptedTrainings) -> Complaint:
    try:
        times = list(map(float, got))
    except (TypeError, ValueError):
        return f"expected the seconds of each fresh seed as the second value, got {shown(got)}"

    right = [table.seconds(table.best, seed) for seed in table.fresh]
    if len(times) == len(right) and all(map(close, times, right)):
        return None

    complaint = f"expected the times {_listed(right)}, got {_listed(times)}"
    chose = [table.seconds(table.best, seed) for seed in table.seeds]
    if len(times) == len(chose) and all(map(close, times, chose)):
        return (
            f"{complaint}. These are the runs that chose the rate: the least of many times is partly luck. "
            "Measure with the seeds in `fresh`"
        )
    if len(times) == len(right) - 1 and all(map(math.isfinite, times)):
        return f"{complaint}. Count a run that does not stay at the goal as math.inf"
    if len(times) != len(right):
        return f"{complaint}. Measure with each seed in `fresh` once"
    if all(map(close, sorted(times), sorted(right))):
        return f"{complaint}. The times are right, in another order: time k is that of seed k in `fresh`"
    if any(math.isinf(time) != math.isinf(wanted) for time, wanted in zip(times, right, strict=True)):
        return f"{complaint}. One run ends over the goal: its time is math.inf"
    if all(map(close, times, [table.seconds_before(table.best, seed) for seed in table.fresh])):
        return f"{complaint}. These are the last times over the goal: take the first point at it"
    if all(abs(time - wanted) < 0.5 for time, wanted in zip(times, right, strict=True) if math.isfinite(wanted)):
        return f"{complaint}. Each is off by less than half a second: do not round"
    return complaint


def _listed(times: list[float]) -> str:
    return f"[{', '.join(f'{t:.3g}' for t in times[:8])}]"


def _mistaken(table: ScriptedTrainings, place: int) -> dict[str, float]:
    """Return {words for a mistake: its value of a rate}; the mistake chooses the rate of the least value."""
    times = [table.seconds(place, seed) for seed in table.seeds]
    finite = list(filter(math.isfinite, times))

    touched, blind, below, in_steps = [], [], [], []  # by seed
    for seed in table.seeds:
        points = table.points(place, seed)
        touched.append(next((s for _, s, loss in points if loss <= GOAL), math.inf))
        blind.append(seconds_to_goal([(v, s, 0.0 if math.isnan(loss) else loss) for v, s, loss in points]))
        below.append(seconds_to_goal([(v, s, math.inf if loss == GOAL else loss) for v, s, loss in points]))
        in_steps.append(seconds_to_goal([(v, float(v), loss) for v, _, loss in points]))

    return {
        "It is the grid's end: go on halving or doubling until an end is not best": statistics.median(times),
        "Its loss is NaN at the end, and NaN is not at the goal: write `loss <= goal`, because `loss > goal` is false for NaN":
            statistics.median(blind),
        "This leaves out the runs that never stay at the goal: count each as math.inf":
            statistics.median(finite) if finite else math.inf,
        "Its loss touches the goal and rises over it again: count the time until the loss stays there":
            statistics.median(touched),
        "A loss equal to the goal is at the goal, too: compare loss <= goal": statistics.median(below),
        "For an even number of seeds this takes the upper of the two middle values: the median is their mean":
            statistics.median_high(times),
        "For an even number of seeds this takes the lower of the two middle values: the median is their mean":
            statistics.median_low(times),
        "One lucky seed has the least time: take the median over the seeds": min(times),
        "One slow seed moves the mean, and one that diverges makes it inf: take the median over the seeds":
            statistics.fmean(times),
        "The slowest seed decides here: take the median over the seeds": max(times),
        "This has the fewest steps, but its steps are long: compare seconds": statistics.median(in_steps),
        "The fresh seeds helped to choose it: use them only to measure":
            statistics.median([*times, *(table.seconds(place, seed) for seed in table.fresh)]),
        "This is the first seed's best: one seed is luck": times[0],
        "This is the last seed's best: one seed is luck": times[-1],
    }  # fmt: skip
