"""Trainings from a table: how the loss falls with each learning rate and each seed, for the check of a fair race.

A history is [(version, seconds, loss)], as lab 05 keeps them. Left out: which rate is to be found (`best_rate`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from worldsize.checks.kit.values import are_whole, number, shown
from worldsize.checks.verdict import Complaint

GOAL = 0.1
START = 1.0
STEPS = 10  # to the goal
AFTER = 8  # steps after it
WORSE = 1.5  # how many times as long a rate takes that is one place farther from the best
BEYOND = 12  # places on each side of the grid that are still in the table
LossHistory = list[tuple[int, float, float]]


@dataclass(frozen=True)
class RunShape:
    """How a run goes: it is at the goal after `times` what the best rate takes, and then stays, or does something else.

    "dips": it touches the goal once at an early step. "rests": it ends at just the goal. "rises" and "NaN": it does not stay
    there. "diverges": it never gets there. `step_s` is how many times as long each of its steps takes; it then makes as many
    fewer.
    """

    times: float
    then: Literal["stays", "dips", "rests", "rises", "NaN", "diverges"] = "stays"
    step_s: float = 1.0


class ScriptedTrainings:
    """A table of trainings: `best` is the place of the best rate, counted from the first of the grid's `count` rates.

    `seeds` choose and `fresh` ones measure; all of them are drawn. `train` is what the function is handed.
    """

    def __init__(self, draws: random.Random, count: int, best: int, seeds: int) -> None:
        drawn = draws.sample(range(10, 1000), 2 * seeds)
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
            self.put(k, [self._usual(k)] * seeds, [self._usual(k)] * seeds)

    @property
    def places(self) -> range:
        return range(-BEYOND, BEYOND + 5)

    def rate(self, place: int) -> float:
        return self.first * 2.0**place

    def _usual(self, place: int) -> RunShape:
        if place > self.best + 4:  # never all of the grid's: no rate would be the best of these
            return RunShape(1.0, "diverges")
        return RunShape(WORSE ** abs(place - self.best))

    def put(self, place: int, ways: Sequence[RunShape] = (), fresh: Sequence[RunShape] = ()) -> None:
        """Lets the runs of one rate go so, in the order of the seeds."""
        for seeds, given in ((self.seeds, ways), (self.fresh, fresh)):
            self._ways |= {(place, seed): way for seed, way in zip(seeds, given, strict=False)}

    def decoy(self, *rows: Sequence[RunShape], fresh: Sequence[RunShape] = ()) -> None:
        """Lets the runs of other rates of the grid than the best one go so, a row a rate."""
        others = [k for k in range(len(self.rates)) if k != self.best]
        for place, ways in zip(self._draws.sample(others, len(rows)), rows, strict=True):
            self.put(place, ways, fresh)

    def train(self, rate: Any, seed: Any) -> LossHistory:
        """A run's history. A call that the contract does not know is noted, and gets some other run."""
        if not are_whole(seed) or seed not in (*self.seeds, *self.fresh):
            self._note(f"train was asked for seed {shown(seed)}; expected one of seeds or of fresh")
            seed = self.seeds[0]

        place, exact = self._place(rate)
        if not exact:
            self._note(f"train was asked for rate {shown(rate)}; expected one of rates, or its end halved or doubled")
        return self.points(place, int(seed))

    def _place(self, rate: Any) -> tuple[int, bool]:
        """The place nearest to a rate, and whether the rate is just there."""
        found = number(rate)
        if isinstance(found, str) or not 0 < found < math.inf:
            return self.best, False

        exact = math.log2(found / self.first)
        place = min(self.places, key=lambda k: abs(k - exact))
        return place, abs(place - exact) < 1e-6

    def _note(self, complaint: str) -> None:
        self.wrong_call = self.wrong_call or complaint

    def points(self, place: int, seed: int) -> LossHistory:
        way = self._ways[place, seed]
        steps = max(2, round(STEPS * way.times / way.step_s))
        seconds = self._best_s * way.times * self._noise[place, seed] / steps
        losses = [START * (1.1 * GOAL / START) ** (k / (steps - 1)) for k in range(steps)]  # the last is just above
        if way.then == "dips":
            losses[max(1, steps // 8)] = 0.9 * GOAL
        if way.then == "diverges":
            losses = [max(loss, 2 * GOAL) for loss in losses] + [10.0**k for k in range(AFTER)]
        elif way.then == "rests":
            losses += [GOAL] * AFTER
        else:
            losses += [GOAL * (0.5 + 0.3 * math.sin(k)) for k in range(AFTER)]
        losses += {"rises": [2 * GOAL, 3 * GOAL], "NaN": [math.nan] * 2}.get(way.then, [])
        return [(version, version * seconds, loss) for version, loss in enumerate(losses)]

    def seconds(self, place: int, seed: int) -> float:
        return seconds_to_goal(self.points(place, seed))


def seconds_to_goal(points: LossHistory) -> float:
    """Seconds in a scripted training until its loss is at the goal and stays there; inf where it does not."""
    since = math.inf
    for _, seconds, loss in points:
        if not loss <= GOAL:
            since = math.inf
        elif math.isinf(since):
            since = seconds
    return since
