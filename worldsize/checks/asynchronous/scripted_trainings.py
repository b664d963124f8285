"""Trainings from a table, for the check of a fair race: how the loss falls with each learning rate and each seed.

A history is [(version, seconds, loss)], as lab 05 keeps them.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from worldsize.checks.kit.values import are_whole, number, shown
from worldsize.checks.verdict import Complaint

GOAL = 0.1
START = 1.0
STEPS = 10  # of the best rate to the goal
AFTER = 8  # steps after the goal
WORSE = 1.5  # times as long for each place farther from the best rate
BEYOND = 12  # places in the table on each side of the grid
LossHistory = list[tuple[int, float, float]]


@dataclass(frozen=True)
class RunShape:
    """The shape of a scripted training's run: at the goal after `times` the seconds of the best rate, and `then` what follows.

    "dips" touches the goal once at an early step, "rests" ends at just the goal, "rises", "NaN" and "leaves", in its last row, do
    not stay there, "arrives" is there in its last row alone, "diverges" never gets there. Each step takes `step_s` times as long,
    and the run has as many times fewer steps.
    """

    times: float
    then: Literal["stays", "dips", "rests", "rises", "NaN", "leaves", "arrives", "diverges"] = "stays"
    step_s: float = 1.0


class ScriptedTrainings:
    """A table of scripted trainings: `best` is the place of the best rate, counted from the first of the grid's `count` rates.

    `seeds` choose and `fresh` seeds, one more of them, measure; all are drawn. The student's function is given `train`.
    """

    places = range(-BEYOND, BEYOND + 5)

    def __init__(self, draws: random.Random, count: int, best: int, seeds: int) -> None:
        drawn = draws.sample(range(10, 1000), 2 * seeds + 1)
        self.seeds, self.fresh = drawn[:seeds], drawn[seeds:]
        self.best = best
        self.first = draws.uniform(0.01, 0.1)
        self.rates = [self.rate(k) for k in range(count)]
        self.wrong_call: Complaint = None
        self._draws = draws
        self._best_s = draws.uniform(2.0, 5.0)
        self._ways: dict[tuple[int, int], RunShape] = {}
        self._noise = {(k, seed): draws.uniform(0.95, 1.05) for k in self.places for seed in drawn}
        for k in self.places:
            usual = RunShape(WORSE ** abs(k - best))
            if k > best + 4:  # never all rates of the grid: one of them has to be best
                usual = RunShape(1.0, "diverges")
            self.put(k, [usual] * len(self.seeds), [usual] * len(self.fresh))

    def rate(self, place: int) -> float:
        return self.first * 2.0**place

    def put(self, place: int, ways: Sequence[RunShape] = (), fresh: Sequence[RunShape] = ()) -> None:
        """Script the shapes of a rate's training runs, in the order of the seeds."""
        for seeds, given in ((self.seeds, ways), (self.fresh, fresh)):
            for seed, way in zip(seeds, given, strict=False):
                self._ways[place, seed] = way

    def decoy(self, *rows: Sequence[RunShape], fresh: Sequence[RunShape] = ()) -> None:
        """Script the shapes of the runs of drawn rates of the grid other than the best, a row a rate."""
        others = [k for k in range(len(self.rates)) if k != self.best]
        for place, ways in zip(self._draws.sample(others, len(rows)), rows, strict=True):
            self.put(place, ways, fresh)

    def train(self, rate: Any, seed: Any) -> LossHistory:
        """Return a scripted run's history. Note a call that breaks the contract, and answer with some other run."""
        if not are_whole(seed) or seed not in (*self.seeds, *self.fresh):
            self._note(f"train was called with seed {shown(seed)}; expected a seed of seeds or of fresh")
            seed = self.seeds[0]

        found, place, off = number(rate), self.best, math.inf
        if not isinstance(found, str) and 0 < found < math.inf:
            exact = math.log2(found / self.first)
            place = min(self.places, key=lambda k: abs(k - exact))
            off = abs(place - exact)
        if off >= 1e-6:
            self._note(f"train was called with rate {shown(rate)}; expected one of rates, or an end halved or doubled")
        return self.points(place, int(seed))

    def _note(self, complaint: str) -> None:
        self.wrong_call = self.wrong_call or complaint

    def points(self, place: int, seed: int) -> LossHistory:
        way = self._ways[place, seed]
        steps = max(2, round(STEPS * way.times / way.step_s))
        seconds = self._best_s * way.times * self._noise[place, seed] / steps
        losses = [START * (1.1 * GOAL / START) ** (k / (steps - 1)) for k in range(steps)]  # the last is just above the goal
        if way.then == "dips":
            losses[max(1, steps // 8)] = 0.9 * GOAL
        if way.then == "diverges":
            losses = [max(loss, 2 * GOAL) for loss in losses] + [10.0**k for k in range(AFTER)]
        elif way.then == "rests":
            losses += [GOAL] * AFTER
        elif way.then == "arrives":
            losses.append(0.9 * GOAL)
        else:
            losses += [GOAL * (0.5 + 0.3 * math.sin(k)) for k in range(AFTER)]
        losses += {"rises": [2 * GOAL, 3 * GOAL], "NaN": [math.nan] * 2, "leaves": [2 * GOAL]}.get(way.then, [])
        return [(version, version * seconds, loss) for version, loss in enumerate(losses)]

    def seconds(self, place: int, seed: int) -> float:
        return seconds_to_goal(self.points(place, seed))

    def seconds_before(self, place: int, seed: int) -> float:
        """Return the seconds of the last step over the goal, one step too early; inf for a run that does not stay there."""
        seconds = self.seconds(place, seed)
        earlier = [at for _, at, _ in self.points(place, seed) if at < seconds]
        return max(earlier) if math.isfinite(seconds) else math.inf


def seconds_to_goal(points: LossHistory) -> float:
    """Return the seconds until a scripted training's loss is at the goal and stays there; inf where it does not."""
    since = math.inf
    for _, seconds, loss in points:
        if not loss <= GOAL:
            since = math.inf
        elif math.isinf(since):
            since = seconds
    return since
