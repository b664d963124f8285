"""Check of a learning rate that falls in stairs: plain numbers in, one number out.

The rule is the classic CIFAR-10 script's: a factor after every so many epochs, counted in steps that all towers take
together. Fixed cases tell mistakes apart, and drawn values (the start, the factor, one more plan) are never a
mistake's, so no verdict depends on luck. Steps so near a fall that rounding decides are left out.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.error_advice import HANG
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import close, lone_number
from worldsize.checks.verdict import Complaint
from worldsize.units import count

ONE = "one tower: falls in stairs, by the factor"
MORE = "more towers: an epoch has fewer steps"
IMPORTS = {HANG: "The first `import keras` takes seconds: run it in its own cell, before this one."}
EXACT = 1e-5  # Keras's own schedule is float32: its factor is off by 6e-8, its rate by 13 times that after 13 falls


@dataclass(frozen=True)
class DecayPlan:
    """A rate that begins at `start` and is multiplied by `factor` after every `epochs_per_decay` epochs."""

    examples: int
    batch: int
    towers: int
    epochs_per_decay: int = 350
    start: float = 0.1
    factor: float = 0.1

    @property
    def steps(self) -> float:
        """Return the length of a decayed rate's stair in steps."""
        return self.examples * self.epochs_per_decay / (self.batch * self.towers)

    def falls(self, step: int) -> int:
        return step * self.batch * self.towers // (self.examples * self.epochs_per_decay)

    def rate(self, falls: float) -> float:
        return self.start * self.factor**falls


@exercise({ONE: 0.25, MORE: 0.75})
def decayed_rate(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check a learning rate that decays with the steps of towers.

    `decayed_rate(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1)` returns a number.
    """
    draws = arena.draws
    start, factor = round(draws.uniform(0.15, 0.5), 3), round(draws.uniform(0.5, 0.8), 2)

    one_tower = DecayPlan(600, 6, towers=1, epochs_per_decay=2, start=start, factor=factor)
    for step in (0, 2650, 199, 200):  # 2650 is far on, where no two mistakes agree; 199 and 200 are the edge of a stair
        yield _case(arena, fn, step, one_tower, ONE)

    four_towers = replace(one_tower, examples=2400, towers=4, epochs_per_decay=3)
    for step in (0, 2500, 299, 300):
        yield _case(arena, fn, step, four_towers, MORE)

    broken = replace(one_tower, examples=1000, batch=30, towers=4, epochs_per_decay=3)  # 8.33 steps an epoch, 25 a stair
    for step in (245, 265):  # past 10 stairs of 24 (8 steps an epoch), and not yet 10 of 27 (9 steps)
        yield _case(arena, fn, step, broken, MORE)

    cut = replace(one_tower, examples=132, batch=30, towers=3, epochs_per_decay=15)  # 4.4 batches an epoch, 22 steps a stair
    for step in (62, 118):  # past 3 stairs of 20 (4 batches an epoch), and not yet 5 of 25 (5 batches)
        yield _case(arena, fn, step, cut, MORE)

    examples, batch, towers, epochs = (draws.randint(*span) for span in ((5000, 9000), (10, 50), (2, 8), (2, 9)))
    drawn = DecayPlan(examples, batch, towers, epochs, start=start, factor=factor)
    length = int(drawn.steps)
    yield _case(arena, fn, 3 * length + length // 2, drawn, MORE)
    yield _case(arena, fn, 100_000, DecayPlan(50_000, 125, towers=4), MORE)


def _case(arena: Arena, fn: Callable, step: int, plan: DecayPlan, kind: str) -> Case:
    given = (step, plan.examples, plan.batch, plan.towers)
    name = f"step {step:,}, {plan.examples:,} examples, batches of {plan.batch}, {count(plan.towers, 'tower')}"
    if plan != DecayPlan(plan.examples, plan.batch, plan.towers):
        given = (step, *astuple(plan))
        name += f", every {plan.epochs_per_decay} epochs, start {plan.start}, factor {plan.factor}"

    return Case(name, lambda: arena.call(fn, *given), lambda ended: {kind: _wrong(ended, step, plan)}, IMPORTS)


def _wrong(ended: ArenaResult, step: int, plan: DecayPlan) -> Complaint:
    got = lone_number(ended.returned[0])
    if isinstance(got, str):
        return f"expected the rate, one number, {got}"

    falls = plan.falls(step)
    wanted = plan.rate(falls)
    if close(got / wanted, 1.0, EXACT):
        return None

    # skip mistakes that give the right rate here
    found = {complaint: value / wanted for complaint, value in _mistakes(step, plan).items()}
    telling = {complaint: ratio for complaint, ratio in found.items() if not close(ratio, 1.0, EXACT)}
    named = next((f". {words}" for words, ratio in telling.items() if close(got / wanted, ratio, EXACT, near_zero=0.0)), "")

    return f"expected {wanted:.6g} ({count(falls, 'fall')} so far), got {got:.6g}{named}"


def _mistakes(step: int, plan: DecayPlan) -> dict[str, float]:
    at, length, falls = plan.rate, plan.steps, plan.falls(step)
    batch, towers, start, factor = plan.batch, plan.towers, plan.start, plan.factor
    epochs, batches = plan.epochs_per_decay, plan.examples / batch
    down, up = max(1, math.floor(length / epochs)), math.ceil(length / epochs)

    return {
        "It falls one step too late: the epochs are over once all their steps are taken.": at((step - 1) // length),
        "The rate falls too late, as if there were one tower: in a step every tower takes a batch.": at(
            step // (length * towers)
        ),
        "The number of towers counts the wrong way: with more of them an epoch has fewer steps.": at(
            step // (length * towers**2)
        ),
        "It falls one step too early: the first step is number 0.": at((step + 1) // length),
        f"{length / epochs:.4g} steps an epoch were cut to {down}: multiply by the epochs first, and cut last.": at(
            step // (down * epochs)
        ),
        f"{length / epochs:.4g} steps an epoch were rounded up to {up}: multiply by the epochs first, and cut last.": at(
            step // (up * epochs)
        ),
        f"{batches:.4g} batches an epoch were cut to {int(batches)}: an epoch is all examples.": at(
            step // (int(batches) * epochs / towers)
        ),
        f"{batches:.4g} batches an epoch were rounded up to {math.ceil(batches)}: an epoch is all examples.": at(
            step // (math.ceil(batches) * epochs / towers)
        ),
        "It slides down: in stairs, only epochs that are over count, so the exponent is a whole number.": at(step / length),
        "It falls after every epoch: epochs_per_decay of them must be over.": at(
            step // (length / epochs)
        ),
        "It falls every epochs_per_decay steps: count epochs.": at(step // epochs),
        "A batch counts as one example: an epoch has examples / (batch · towers) steps.": at(step // (length * batch)),
        "It falls one stair too early: at step 0 nothing is over yet.": at(falls + 1),
        "It falls once and never again: the factor counts for every time.": at(min(falls, 1)),
        "The factor was multiplied by the number of falls: use its power.": start * factor * falls,
        "The rate was divided by the factor: it grows.": at(-falls),
        "The start is missing: this is the factor's power alone.": factor**falls,
        "The rate never falls.": start,
        "The factor is 0.1, whatever was given.": start * 0.1**falls,
        "The start is 0.1, whatever was given.": 0.1 * factor**falls,
    }
