"""Check of an audit: how many updates the optimizer's counter lost, and how many the weights.

The check plays the run, with the same gradient at every step. Lab 09 shows real losses and their cause.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import close, first_named, has_keys, number, shown
from worldsize.checks.verdict import UNEXAMINED, Complaint

COUNTER = "what the counter lost"
WEIGHTS = "what the weights lost"
NAMES = {"counter": COUNTER, "weights": WEIGHTS}
LABS_RATE = 0.1  # the notebook's global rate, unlike the argument
WHOLE = 1e-9  # tolerance for a whole number of updates
DRIFT = 1e-5  # error of many small float32 steps, as a share of the way; far above one rounding (6e-8)
_NO_NUMBER = ("cannot convert float NaN", "cannot convert float infinity")
UNROUNDED = 1e-3  # tolerance for a slip's number, which is float32 and perhaps unrounded


@dataclass(frozen=True)
class PlayedRun:
    """A played run with lost updates: the updates of each closure, the updates lost by counter and weights, and the gradient.

    `drift`: the share by which the weights went too far, so that rounding in one direction never gives the count by luck.
    """

    name: str
    made: list[int]
    counter: int
    weights: int
    gradient: np.ndarray
    rate: float
    before: np.ndarray
    drift: float = 0.0

    @property
    def divided_by_zero(self) -> str:
        """Return why an audit of this run divides by 0."""
        if not self.gradient.all():
            return "Where the gradient is 0 the weight does not move, and 0 / 0 is NaN: leave that element out."
        if (self.gradient < 0).all():
            return "All elements of the gradient are negative here: leave out only those that are 0."
        return "The gradient's elements add up to 0 here, so their mean is 0: divide element by element, then take the mean."

    @property
    def after(self) -> np.ndarray:
        landed = sum(self.made) - self.weights
        return (self.before - np.float32(self.rate * landed * (1 + self.drift)) * self.gradient).astype("float32")


@exercise({COUNTER: 0.25, WEIGHTS: 0.75})
def audit(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check an audit that finds lost updates on parameter servers.

    `audit(made, iterations, before, after, rate, gradient)` returns {"counter": lost there, "weights": lost there}.
    """
    cases = []
    for run in _runs(arena.draws.getrandbits(62)):
        args = (list(run.made), sum(run.made) - run.counter, run.before, run.after, run.rate, run.gradient)
        advice = dict.fromkeys(_NO_NUMBER, run.divided_by_zero)
        cases.append(Case(run.name, partial(arena.call, fn, *args), partial(_examine, run=run), advice))
    return cases


def _runs(seed: int) -> Iterator[PlayedRun]:
    generator = np.random.default_rng(seed)
    ones, zeros = np.ones((3, 1), "float32"), np.zeros((3, 1), "float32")
    steps = int(generator.integers(140, 180))

    plain = PlayedRun("nothing is lost", [1] * steps, counter=0, weights=0, gradient=ones, rate=0.125, before=zeros)
    yield plain
    counter, lost = int(generator.integers(61, 100)), int(generator.integers(20, 31))  # ranges in which no two mistakes agree
    yield replace(plain, name="the counter loses, and so do the weights", counter=counter, weights=lost, rate=0.5)

    uneven, signs = np.array([[[0.0], [2.0], [-3.0]], [[1.0], [1.0], [-1.0]]], "float32")
    # the gradient's signs keep every mean off 0; from 4 on, a start taken for 0 is more than one update off
    start = signs * generator.integers(4, 9, (3, 1)).astype("float32")
    lost = int(generator.integers(5, 19))  # few, so that no two mistakes give the same number
    name = "the weights lose, and the gradient has a 0"
    yield PlayedRun(name, [1] * steps, counter=3, weights=lost, gradient=uneven, rate=0.5, before=start, drift=-DRIFT)

    several = generator.integers(1, 6, 30).tolist()
    small, nothing = np.array([0.3, -0.7, 0.0], "float32"), np.zeros(3, "float32")
    name = "closures of several updates each"
    yield PlayedRun(name, several, counter=7, weights=4, gradient=small, rate=0.01, before=nothing, drift=DRIFT)

    many = generator.integers(150, 200, 300).tolist()
    start = generator.integers(-9, 9, 4).astype("float32")
    lost = int(generator.integers(300, 400))
    name = "tens of thousands of updates, and the gradient adds up to 0"
    cancelling = generator.permutation(np.array([1.0, -1.0, 2.0, -2.0], "float32"))
    yield PlayedRun(name, many, counter=0, weights=lost, gradient=cancelling, rate=0.001, before=start)

    negative = -generator.integers(2, 9, (2, 2)).astype("float32") / 2
    name = "the gradient is negative everywhere"
    yield PlayedRun(name, [1] * steps, counter=2, weights=9, gradient=negative, rate=0.25, before=start.reshape(2, 2))


def _examine(ended: ArenaResult, run: PlayedRun) -> dict[str, Complaint]:
    got = ended.returned[0]
    if not has_keys(got, *NAMES):
        return {COUNTER: f'expected a dict with "counter" and "weights", got {shown(got)}', WEIGHTS: UNEXAMINED}
    complaints = {held: _wrong(name, got[name], run) for name, held in NAMES.items()}
    complaints[WEIGHTS] = complaints[WEIGHTS] or _changed(ended.inputs, run)
    return complaints


def _changed(inputs: Sequence[Any], run: PlayedRun) -> Complaint:
    """Return the complaint about an audit that changed one of its arrays, or None."""
    made, _, before, after, _, gradient = inputs
    given = {"made": (made, run.made), "before": (before, run.before), "after": (after, run.after)}
    given["gradient"] = gradient, run.gradient
    return first_complaint(changed(left, handed_in, name) for name, (left, handed_in) in given.items())


def _wrong(name: str, got: object, run: PlayedRun) -> Complaint:
    value = number(got)
    if isinstance(value, str):
        return f'"{name}": expected the number of lost updates, {value}'

    lost, made = getattr(run, name), sum(run.made)
    if close(value, lost, WHOLE):
        return None

    complaint = f'"{name}": {made} updates were made and {made - lost} arrived, so {lost} are lost; got {value:g}'
    if not np.isfinite(value):
        return f"{complaint}. {run.divided_by_zero}"

    if abs(value - lost) < 0.5:
        return f"{complaint}. Updates are lost in whole numbers, and floats are a little off: round"
    return complaint + first_named(value, _mistakes(run, lost, name, value), UNROUNDED)


def _mistakes(run: PlayedRun, lost: int, name: str, value: float) -> dict[str, float]:
    """Return {complaint: the number of lost updates that the slip gives}."""
    made, closures = sum(run.made), len(run.made)
    (other,) = NAMES.keys() - {name}
    every = {
        "That is how many arrived, not how many are lost": made - lost,
        "Updates that were made and did not arrive are lost: turn the difference round": -lost,
        "A closure may make several updates: add up their updates, do not count closures": closures - (made - lost),
        f'That is what "{other}" lost': getattr(run, other),
    }
    if name == "counter":
        return every

    used = run.gradient != 0
    moved = (run.before - run.after).astype(float)
    update = run.rate * run.gradient[used]
    each = moved[used] / update

    start = -run.after[used] / update
    from_zero = [made - round(float(there)) for there in (start[0], start[-1], start.mean())]

    def nearest(slips: Iterable[float]) -> float:
        return min(slips, key=lambda slip: abs(slip - value))

    return every | {
        "Floats are a little off, and int cuts 41.999 down to 41: round": made - int(each.min()),
        "Floats are a little off, and ceil lifts 42.001 up to 43: round": made - int(np.ceil(each.max())),
        "One update moves a weight by rate times its gradient, and the gradient is not 1 here":
            nearest(made - round(float(way) / run.rate) for way in (moved.max(), moved.min(), moved[used][0], moved.flat[-1])),
        "One update moves a weight by rate times its gradient; the mean of all elements mixes their signs":
            made - round(moved.mean() / run.rate),
        "One update moves a weight by rate times its gradient; the rate was left out":
            made - round(moved[used][0] / run.gradient[used][0]),
        f"The rate is {run.rate:g} here, as it was handed in": made - round(each.mean() * run.rate / LABS_RATE),
        "Signs count: divide the way by the gradient, both with theirs":
            made - round((np.abs(each) * np.sign(update)).mean()),
        "Updates that were made and did not arrive are lost; `iterations` has its own losses":
            run.weights - run.counter,
        "The weights did not begin at 0: measure the way from before to after": nearest(from_zero),
        "Where the gradient is 0 the weight does not move: leave that element out": made - round(each.sum() / run.gradient.size),
        "A step goes against the gradient: before - after": made + made - lost,
    }  # fmt: skip
