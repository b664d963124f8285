"""Check of a training step on the replicas of a mirrored model.

Replicas are logical CPUs under a real MirroredStrategy, in one process; their shares differ in length, and one is
empty. NumPy gives the right weights: softmax regression with an L2 penalty, on all examples at once. The rule for the
loss is from TensorFlow's guide "Custom training with tf.distribute.Strategy".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers.mirrored_strategy import trained
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, of_both
from worldsize.checks.kit.values import close, first_named, has_keys, number, same, size
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count as counted

EVEN = "equal shares: weights as on one device"
UNEVEN = "unequal shares: weights as on one device"
LOSS = "it returns the mean loss of the step"
FEATURES, CLASSES, RATE, L2 = 5, 3, 0.5, 0.25
# [case]: whether it runs in a tf.function, the model's penalty, and [step][replica] -> examples
CASES = (
    (False, L2, ((4, 4), (4, 4))),
    (True, L2, ((3, 3), (3, 3))),
    (False, 0.0, ((4, 3), (2, 1))),
    (True, L2, ((2, 1, 0), (2, 1, 0))),
    (False, L2, ((4,),)),
)
# TensorFlow's softmax sums are float32, and in another order than NumPy's float64
TOLERANCE = 1e-5
RETURNED = 1e-4  # the second step starts from weights that are slightly off
WEIGHTS = {"tolerance": 1e-4, "near_zero": 1e-5}


@exercise({EVEN: 0.5, UNEVEN: 1.0, LOSS: 0.5}, needs=needs.TENSORFLOW)
def mirrored_step(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check a training step on a mirrored model's replicas, which returns the mean loss with the penalties.

    `mirrored_step(strategy, model, optimizer, x, y)` is called once for all replicas.
    """
    generator = np.random.default_rng(arena.draws.getrandbits(64))
    cases = []
    for traced, penalty, steps in CASES:
        start = generator.normal(size=(FEATURES, CLASSES)).astype("float32")
        examples: list[list[tuple[np.ndarray, np.ndarray]]] = []
        for shares in steps:
            examples.append([])
            for count in shares:
                x = generator.normal(size=(count, FEATURES)).astype("float32")
                examples[-1].append((x, generator.integers(0, CLASSES, count)))
        cases.append({"start": start, "steps": examples, "traced": traced, "rate": RATE, "penalty": penalty})

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        complaints: dict[str, Complaint] = {EVEN: None, UNEVEN: None, LOSS: None}
        for case, (_, _, steps), got in zip(cases, CASES, ended.returned[0], strict=True):
            held = EVEN if all(len(set(shares)) == 1 for shares in steps) else UNEVEN
            weights, returned = _wrong_training(case, got)
            complaints[held] = complaints[held] or weights
            complaints[LOSS] = of_both(complaints[LOSS], returned)

        return complaints

    run = Case("training", lambda: arena.tensorflow(fn, [cases], logical_devices=3, driver=trained), examine)
    return [run]


@dataclass(frozen=True)
class OneDeviceStep:
    """A mirrored step as one device takes it, with the examples of all replicas.

    `slopes` and `losses` are sums over each replica's own examples.
    """

    before: np.ndarray
    l2: float
    counts: Sequence[int]
    slopes: Sequence[np.ndarray]
    losses: Sequence[float]

    @property
    def mean(self) -> np.ndarray:
        return sum(self.slopes) / sum(self.counts)

    @property
    def loss(self) -> float:
        return sum(self.losses) / sum(self.counts)


    @property
    def penalty(self) -> np.ndarray:
        """Return the gradient of the mirrored model's penalties."""
        return 2 * self.l2 * self.before

    @property
    def cost(self) -> float:
        """Return the mirrored model's penalties, which `loss` excludes."""
        return self.l2 * float((self.before**2).sum())

    @property
    def after(self) -> np.ndarray:
        return self.before - RATE * (self.mean + self.penalty)


def _on_one_device(weights: np.ndarray, shares: Sequence[tuple[np.ndarray, np.ndarray]], l2: float) -> OneDeviceStep:
    counts, slopes, losses = [], [], []
    for x, y in shares:
        logits = x.astype(float) @ weights
        logits -= logits.max(1, keepdims=True)
        chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        picked = chances[np.arange(len(y)), y]
        chances[np.arange(len(y)), y] -= 1

        counts.append(len(y))
        slopes.append(x.astype(float).T @ chances)
        losses.append(float(-np.log(picked).sum()))

    return OneDeviceStep(weights, l2, counts, slopes, losses)


def _wrong_training(case: dict, got: Any) -> tuple[Complaint, Complaint]:
    """Return the complaints about the weights and about the returned loss, up to the first step with wrong weights."""
    how = "in a tf.function" if case["traced"] else "eager"
    if has_keys(got, "raised"):
        return f"{_which(case)}, {how}: {got['raised']}{_special(case)}", UNEXAMINED

    weights = case["start"].astype(float)
    returned: Complaint = None
    for index, shares in enumerate(case["steps"]):
        step = _on_one_device(weights, shares, case["penalty"])
        complaint = _wrong_copies(got["weights"][index], step, got["applied"], len(case["steps"]))
        wrong = _wrong_return(got["losses"][index], step, _on_one_device(step.after, shares, case["penalty"]))
        applied, steps = got["applied"], len(case["steps"])
        if index == steps - 1 and applied != steps and not complaint:
            complaint = (
                f"the weights are right, but the optimizer counts {applied} steps, expected {steps}: let it apply the gradients"
            )
        name = f"{_which(case)} with {', '.join(map(str, step.counts))} examples, {how}, step {index}: "
        returned = returned or (wrong and name + wrong)
        if complaint:
            return name + complaint, returned

        weights = step.after

    return None, returned


def _which(case: dict) -> str:
    return counted(len(case["steps"][0]), "replica") + ", a model without penalties" * (not case["penalty"])


def _special(case: dict) -> str:
    """Say what an error in a case may come from that the usual models and numbers of replicas do not have."""
    if not case["penalty"]:
        return ". This model has no penalties, so its model.losses is an empty list: sum(model.losses, 0.0) is 0.0 then."
    if len(case["steps"][0]) == 1:
        return ". With one replica strategy.run returns a plain value: strategy.reduce takes it, too."
    return ""


def _wrong_copies(copies: Sequence[np.ndarray], step: OneDeviceStep, applied: int, steps: int) -> Complaint:
    expected = step.after
    for k, copy in enumerate(copies):
        if not same(copy, expected, **WEIGHTS):
            where = np.unravel_index(int(np.argmax(np.abs(copy - expected))), expected.shape)
            return (
                f"replica {k}, weight {tuple(map(int, where))}: expected {expected[where]:.6g}, as on one device, "
                f"got {copy[where]:.6g}. {_mistake(copy, step, applied, steps)}".rstrip()
            )

    return None


def _mistake(copy: np.ndarray, step: OneDeviceStep, applied: int, steps: int) -> str:
    if np.isnan(copy).any():
        return _EMPTY

    if applied > steps:
        return f"The optimizer counts {applied} steps in a training of {steps}: apply the gradients once in each."

    moved = (step.before - copy) / RATE
    n, total, mean, penalty = len(step.counts), sum(step.counts), step.mean, step.penalty
    means = sum(slope / max(1, count) for slope, count in zip(step.slopes, step.counts, strict=True))  # an empty share adds 0
    signatures = [
        (0 * mean, "The weights have not moved: are the gradients applied?"),
        (n * (mean + penalty), f"The step is {n} times the mean gradient: {_TIMES}"),
        (mean + n * penalty, "Each replica adds the whole penalty: divide it by the number of replicas."),
        (n * mean + penalty, f"The step is {n} times the mean gradient: {_TIMES}"),
        (means + n * penalty, f"The step is {n} times a mean: {_TIMES}"),
        (mean, "The model's own penalties, model.losses, are left out of the gradient: read them inside the tape."),
        (total * mean + penalty, "The gradients of all examples were added up, but not divided."),
        (total * mean + n * penalty, "The gradients of all examples were added up, but not divided."),
        ((mean + penalty) / n, "The step is too short: it was also divided by the number of replicas."),
        (mean / n + penalty, "The step is too short: it was also divided by the number of replicas."),
        (
            means / n + penalty,
            "This is the mean of the replicas' means. Shares differ: divide by the number of examples of all replicas in this "
            "step.",
        ),
        (means + penalty, f"The step is {n} times a mean: {_TIMES}"),
    ]

    for value, said in signatures:
        if n > 1 and same(moved, value, **WEIGHTS):
            return said

    if not applied:
        return "The optimizer counts no step: let it apply the gradients, by its own rule and rate."
    return ""


_EMPTY = "A replica without examples has a mean of 0/0: add up, and divide by the examples of all replicas."
_TIMES = (
    "either each replica takes the mean over its own examples, or gradients were added up before apply_gradients, which "
    "adds them up itself."
)


def _wrong_return(got: Any, step: OneDeviceStep, later: OneDeviceStep) -> Complaint:
    if isinstance(got, (tuple, list)) or size(got) > 1:
        return f"expected one number, got {size(got)}, a value for each replica: strategy.reduce adds them up"

    value = number(got)
    if isinstance(value, str):
        return f"expected the mean loss, {value}"

    n, expected = len(step.counts), step.loss + step.cost
    if close(value, expected, RETURNED):
        return None

    mistakes = {
        'This is divided by the replicas: reduce with "SUM", each loss is a share already': expected / n,
        "This adds up one mean for each replica": n * expected,
        "The model's own penalties are left out": step.loss,
        "This is the loss after the step, expected the loss before it": later.loss + later.cost,
    }
    for k, own in enumerate(step.losses):
        part = own / sum(step.counts) + step.cost / n
        mistakes[f"This is the share of replica {k} alone: strategy.reduce adds all up"] = part

    complaint = f"expected the loss {expected:.6g}, a mean over all examples with the penalties, got {value:.6g}"
    if np.isnan(value):
        return f"{complaint}. {_EMPTY}"
    return complaint + first_named(value, mistakes, RETURNED)
