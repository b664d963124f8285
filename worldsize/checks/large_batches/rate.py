"""Check a learning rate for large batches: linear scaling, a gradual warm-up, a tenth after some epochs.

The function is asked for the rate of every step of a training. Other ways to count a warm-up's steps are in use; each is a
named mistake, because the lab defines the count.
P. Goyal et al., "Accurate, Large Minibatch SGD", arXiv:1706.02677, 2017, sections 2.1 and 2.2.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from typing_extensions import override

from worldsize.checks.arena import Arena
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit.error_advice import with_advice
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import first_slip, lone_number
from worldsize.checks.verdict import Complaint
from worldsize.units import count

SCALED = "the rate grows with the batch"
DROPPED = "a tenth after each of the drop epochs"
WARMED = "a gradual warm-up from the base rate"
EXACT = 1e-6  # float32 has 7 digits, and schedulers multiply step by step


@dataclass(frozen=True)
class RatePlan:
    """All arguments of `scaled_rate` except the step; `steps` numbers the steps of the training."""

    steps_per_epoch: int
    batch: int
    base_rate: float
    base_batch: int
    warmup_epochs: int
    drop_epochs: tuple[int, ...]
    epochs: int = 1

    @property
    def asked(self) -> tuple[Any, ...]:
        return self.steps_per_epoch, self.batch, self.base_rate, self.base_batch, self.warmup_epochs, self.drop_epochs

    @cached_property
    def steps(self) -> np.ndarray:
        return np.arange(self.epochs * self.steps_per_epoch)

    @property
    def scaled(self) -> float:
        return self.base_rate * self.batch / self.base_batch

    @property
    def warmup_steps(self) -> int:
        return self.warmup_epochs * self.steps_per_epoch

    def course(self, rise: Any = 1.0, late: Any = 0, top: float | None = None, start: float | None = None) -> np.ndarray:
        """Return the rate at each step: `rise` of the way from `start` to `top`, with drops that come `late` steps late."""
        top = self.scaled if top is None else top
        start = self.base_rate if start is None else start
        way = np.clip(rise, 0.0, 1.0)
        return (start + (top - start) * way) * 0.1 ** self.drops(late)

    def drops(self, late: Any = 0) -> np.ndarray:
        """Return the number of the rate's drops up to each step."""
        ends = np.array(self.drop_epochs, int) * self.steps_per_epoch + late
        return np.sum(self.steps[:, None] >= ends, axis=1)

    def rises(self) -> list[np.ndarray]:
        """Return the common ways to count the rate's warm-up steps, each as how far every step has risen; the lab's comes first.

        In the lab's, it is 0 at the first step and 1 at the first after the warm-up.
        """
        steps, length = self.steps, self.warmup_steps
        if not length:
            return [np.ones(len(steps))]
        return [steps / length, (steps + 1) / length, steps / (length - 1), (steps + 1) / (length + 1)]

    @override
    def __str__(self) -> str:
        base = f"base rate {self.base_rate:g} for {self.base_batch}"
        parts = [f"batch {self.batch:,}", base, f"{self.steps_per_epoch} steps an epoch"]
        if self.warmup_epochs:
            parts.append(f"{count(self.warmup_epochs, 'epoch')} of warm-up")
        if self.drop_epochs:
            parts.append(f"drops after {', '.join(map(str, self.drop_epochs))}")
        return ", ".join(parts)


@exercise({SCALED: 0.25, DROPPED: 0.25, WARMED: 0.5})
def scaled_rate(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check the learning rate for a large batch.

    `scaled_rate(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs)` returns a number.
    """
    draws = arena.draws
    # never 0.1 or 256, which mistakes take; 6 divides `base`, so the batches below are whole
    rate, base = round(draws.uniform(0.02, 0.09), 4), 6 * draws.randint(11, 30)
    even = RatePlan(4, 8 * base, rate, base, 0, ())
    warm = RatePlan(7, 8 * base, rate, base, 5, (), epochs=8)

    scaled = [replace(even, batch=batch) for batch in (8 * base, base, 5 * base // 2, base // 3)]
    dropping = [
        replace(even, drop_epochs=(2, 4, 5), steps_per_epoch=6, epochs=7),
        replace(even, drop_epochs=(3,), steps_per_epoch=1, epochs=5),
        replace(even, drop_epochs=(1, 3), steps_per_epoch=9, epochs=5),
    ]
    warming = [
        warm,
        replace(warm, batch=3 * base // 2, drop_epochs=(3, 6), warmup_epochs=2),
        replace(warm, batch=base, warmup_epochs=1, steps_per_epoch=3, drop_epochs=(2,)),
        # a batch below the base's: the warm-up falls
        replace(warm, batch=base // 3, warmup_epochs=2, steps_per_epoch=5, drop_epochs=(4,), epochs=6),
    ]

    for name, plans, tried in (
        ("no warm-up, no drops", scaled, SCALED), ("no warm-up", dropping, DROPPED), ("a warm-up", warming, WARMED),
    ):  # fmt: skip
        asked = []
        for plan in plans:
            asked += [(int(step), *plan.asked) for step in plan.steps]
        yield Case(
            name,
            lambda asked=asked: with_advice(arena.ranks(fn, [asked], driver=on_ranks.answers), _ADVICE),
            lambda ended, plans=plans, tried=tried: {tried: _first_wrong(ended.returned[0]["returned"], plans)},
        )


_ADVICE = {
    "Starting multiplicative factor": (
        "LinearLR takes a start_factor of 1 at most, and for a batch below base_batch the warm-up falls: begin at base_rate, and "
        "set its end with end_factor."
    )
}


def _first_wrong(returned: Sequence[Any], plans: list[RatePlan]) -> Complaint:
    rates = iter(returned)
    for plan in plans:
        complaint = _wrong(list(islice(rates, len(plan.steps))), plan)
        if complaint:
            return complaint
    return None


def _wrong(returned: list[Any], plan: RatePlan) -> Complaint:
    numbers = list(map(lone_number, returned))
    for step, got in enumerate(numbers):
        if isinstance(got, str):
            return f"{plan}: step {step}: expected the rate, one number, {got}"

    rates, right = np.array(numbers, float), plan.course(plan.rises()[0])
    apart = np.flatnonzero(~np.isclose(rates, right, rtol=EXACT, atol=0.0))
    if not apart.size:
        return None

    def gives_it(courses: list[np.ndarray]) -> bool:
        return any(np.allclose(rates, course, rtol=EXACT, atol=0.0) for course in courses)

    step = int(apart[0])
    named = first_slip(gives_it, _mistakes(plan))
    return f"{plan}: step {step}: expected {right[step]:.6g}, got {rates[step]:.6g}. {named}".rstrip()


def _mistakes(plan: RatePlan) -> Mapping[str, list[np.ndarray]]:
    """Return {words: the rates that the mistake gives}, for each way to count a warm-up."""
    rises = plan.rises()

    def courses(*more: Any, **ways: Any) -> list[np.ndarray]:
        return [plan.course(rise, *more, **ways) for rise in rises]

    mistakes = _wrong_scales(plan, courses) | _wrong_drops(plan, courses)
    if not plan.warmup_steps:
        return mistakes

    counted = {words: [plan.course(rise)] for words, rise in zip(_COUNTED, rises[1:], strict=True)}
    if plan.batch < plan.base_batch:
        counted |= {_STAYS: [plan.course(top=plan.base_rate)], _LEFT_OUT: [plan.course()]}
    return counted | mistakes | _wrong_warmups(plan)


_COUNTED = (
    "It is one increment ahead: step 0 has the base rate, and each step adds the same amount.",
    "The last step of the warm-up already has the scaled rate: the first step after the warm-up is the first at that rate.",
    "It has one increment more than the warm-up has steps: step 0 has the base rate, the first step after it the scaled rate.",
)
_STAYS = "The batch is smaller than base_batch, and the rate stays at base_rate: it falls in proportion to the batch."
_LEFT_OUT = "The batch is smaller than base_batch, and the warm-up is left out: it falls by the same amount at each step."


def _wrong_scales(plan: RatePlan, courses: Callable) -> dict[str, list[np.ndarray]]:
    rate, ratio = plan.base_rate, plan.batch / plan.base_batch
    return {
        "This is the base rate, whatever the batch: k times the batch takes k times the rate.": courses(top=rate),
        "It grows with the square root of the batch: Goyal's rule is linear.": courses(top=rate * ratio**0.5),
        "The batches are swapped: a larger batch takes a larger rate.": courses(top=rate / ratio),
        f"batch // base_batch cuts {ratio:.4g} to {int(ratio)}: divide with /.": courses(top=rate * int(ratio)),
        "The base batch is 256, whatever was given.": courses(top=rate * plan.batch / 256),
        "The base rate is 0.1, whatever was given.": courses(top=0.1 * ratio, start=0.1),
        "The base batch is missing: the rate is for base_batch examples.": courses(top=rate * plan.batch),
    }


def _wrong_drops(plan: RatePlan, courses: Callable) -> dict[str, list[np.ndarray]]:
    epoch, warmup = plan.steps_per_epoch, plan.warmup_steps
    behind, ends = plan.drops(), np.array(plan.drop_epochs, int)
    undropped = np.array(courses()) / 0.1**behind

    in_steps = np.sum(plan.steps[:, None] >= ends, axis=1)
    rounded, rounded_up = (np.sum(way(plan.steps / epoch)[:, None] >= ends, axis=1) for way in (np.rint, np.ceil))
    of_an_epoch = np.isin(plan.steps // epoch, ends)

    return {
        "The rate never drops.": [*undropped],
        "It drops one epoch late: after e epochs the next step has number e · steps_per_epoch.": courses(epoch),
        "It drops one epoch early: e epochs are over at step e · steps_per_epoch.": courses(-epoch),
        "It drops one step late: the first step has number 0, so step e · steps_per_epoch is after e epochs.": courses(1),
        "It drops one step early: step e · steps_per_epoch is the first after e epochs.": courses(-1),
        "It drops once and never again: each of the drop epochs counts.": [*undropped * 0.1 ** np.minimum(behind, 1)],
        "It drops only at the last of the drop epochs: each of them counts.": [*undropped * 0.1 ** (behind == len(ends))],
        "drop_epochs are taken for steps: e epochs are e · steps_per_epoch steps.": [*undropped * 0.1**in_steps],
        "The drops come later by the warm-up: epochs count from the first step of all.": courses(warmup),
        "The epoch is rounded, so a drop comes half an epoch early: e epochs are over at step e · steps_per_epoch.": [
            *undropped * 0.1**rounded
        ],
        "The epoch is rounded up, so a drop comes early: e epochs are over at step e · steps_per_epoch.": [
            *undropped * 0.1**rounded_up
        ],
        "It drops from the base rate: each drop takes a tenth of the scaled rate.": [
            np.where(behind > 0, plan.base_rate * 0.1**behind, course) for course in undropped
        ],
        "It drops for one epoch and is back afterwards: a drop lasts.": [*undropped * 0.1**of_an_epoch],
        "It is divided by 10 times the number of drops: each drop takes a tenth of the rate, so two take a hundredth.": [
            *undropped / np.maximum(1, 10 * behind)
        ],
        "The rate grows at the drop epochs: a tenth is 0.1 times.": [*undropped * 10.0**behind],
        "The rate is halved at the drop epochs: take a tenth of it.": [*undropped * 0.5**behind],
    }


def _wrong_warmups(plan: RatePlan) -> dict[str, list[np.ndarray]]:
    steps, length, epoch = plan.steps, plan.warmup_steps, plan.steps_per_epoch
    rises, over = plan.rises(), steps >= length
    ratio = plan.scaled / plan.base_rate
    whole, tenths = steps // epoch, 0.1 ** plan.drops()

    stairs = [whole / plan.warmup_epochs, (whole + 1) / plan.warmup_epochs]
    if plan.warmup_epochs > 1:
        stairs.append(whole / (plan.warmup_epochs - 1))

    def courses(ways: list[np.ndarray], **more: Any) -> list[np.ndarray]:
        return [plan.course(way, **more) for way in ways]

    return {
        "There is no warm-up: the first steps take the whole rate.": courses([np.ones(len(steps))]),
        "The base rate is held, and then it jumps: a gradual warm-up rises at every step.": courses([over]),
        "It rises from 0: the warm-up begins at the base rate.": courses(rises, start=0.0),
        "It rises once an epoch: a gradual warm-up rises at every step.": courses(stairs),
        "It rises by the same factor at every step: let it rise by the same amount.": [
            plan.base_rate * ratio ** np.clip(rise, 0, 1) * tenths for rise in rises
        ],
        "It rises along a cosine: let it rise by the same amount at every step.": courses(
            [(1 - np.cos(np.pi * np.clip(rise, 0, 1))) / 2 for rise in rises]
        ),
        "warmup_epochs are taken for steps: they are warmup_epochs · steps_per_epoch steps.": courses(
            [steps / plan.warmup_epochs, (steps + 1) / plan.warmup_epochs]
        ),
        "It never stops rising: after the warm-up the scaled rate holds.": [
            (plan.base_rate + (plan.scaled - plan.base_rate) * rise) * tenths for rise in rises
        ],
        "After the warm-up it is the base rate again: take the scaled rate from there on.": [
            np.where(over, plan.base_rate * tenths, course) for course in courses(rises)
        ],
        "It rises one epoch too long.": courses([steps / (length + epoch), (steps + 1) / (length + epoch)]),
        "It rises one epoch too short.": courses(
            [steps / (length - epoch), (steps + 1) / (length - epoch)] if length > epoch else []
        ),
        "It rises one step late: the first step has number 0.": courses([(steps - 1) / length]),
        "The warm-up lasts as many epochs as there are, whatever warmup_epochs says.": courses(
            [steps / len(steps), (steps + 1) / len(steps)]
        ),
    }
