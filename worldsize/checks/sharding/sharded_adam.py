"""Check of `sharded_adam`: Adam whose state is split into one part per rank (ZeRO's first stage).

The weights must match Adam on one rank with the mean gradient, and a rank may return and hold only its own part of the state.
S. Rajbhandari et al., "ZeRO", SC 2020, section 5.1. D. Kingma and J. Ba, "Adam", arXiv:1412.6980, 2015.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import sharding
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, none_sent, ranks_in_words
from worldsize.checks.kit.values import has_keys
from worldsize.checks.sharding.parts import NEAR, cut, own_alone, part, what_came
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count, times

WEIGHTS = "the weights of Adam on one rank, on every rank, in place"
STATE = "each rank keeps the state of its own part alone"
MESSAGES = "a reduce-scatter and an all-gather a step, nothing else"
# ranks, weights, steps, dtype. At least two steps: Adam's first depends on the gradient's sign alone. Of 5 ranks two have no part
SIZES = (
    (2, 8, 2, "float64"), (3, 7, 3, "float64"), (4, 12, 9, "float64"), (1, 5, 2, "float64"), (5, 3, 2, "float64"),
    (3, 10, 3, "float32"),
)  # fmt: skip
ROUNDING = {"float64": NEAR, "float32": 1e-5}
BETAS, EPSILON = (0.9, 0.999), 1e-8
NAMES = ("mean", "square")
SUMMED = "It was made from the sum of the gradients: divide by the number of ranks."
TWICE = "The sum of the gradients was divided by the number of ranks twice: once makes it the mean."


@exercise({WEIGHTS: 0.25, STATE: 0.25, MESSAGES: 0.5}, seen={STATE: evidence.RETURNED_AND_TENSORS, MESSAGES: evidence.MESSAGES})
def sharded_adam(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check Adam whose state is sharded over the ranks.

    `sharded_adam(fabric, (weights, gradients), learning_rate)` returns this rank's state.

    weights has shape [count], with NaN in the other ranks' parts. gradients yields one gradient of that shape per step,
    computed from the current weights. The state is a dict with "mean" and "square", each of the shape of the rank's part.
    """
    cases = []
    for n, length, steps, dtype in SIZES:
        generator = np.random.default_rng(arena.draws.getrandbits(32))
        weights = generator.normal(size=length)
        gradients = []
        for rank in range(n):
            gradients.append([generator.normal(size=length) + 1 + rank for _ in range(steps)])
        rate, pull = float(generator.uniform(0.05, 0.2)), float(generator.uniform(0.5, 1.0))

        weights, gradients = weights.astype(dtype), [[g.astype(dtype) for g in of_rank] for of_rank in gradients]
        task = Replicas(weights, gradients, rate, pull)
        run = partial(arena.ranks, fn, task.inputs(), task.rate, driver=sharding.stepped)
        cases.append(Case(str(task), run, partial(_examine, task=task), _ADVICE))
    return cases


@dataclass(frozen=True)
class Replicas:
    """A training with Adam: the gradient on a rank in a step is gradients[rank][step] plus `pull` times the weights."""

    weights: np.ndarray
    gradients: list[list[np.ndarray]]
    rate: float
    pull: float

    @property
    def world_size(self) -> int:
        return len(self.gradients)

    @property
    def steps(self) -> int:
        return len(self.gradients[0])

    def inputs(self) -> list[dict[str, Any]]:
        weights = own_alone(self.weights, self.world_size)  # NaN elsewhere: a rank takes no step there
        given = []
        for own, of_rank in zip(weights, self.gradients, strict=True):
            given.append({"weights": own, "gradients": of_rank, "pull": self.pull})
        return given

    @override
    def __str__(self) -> str:
        name = f"{ranks_in_words(self.world_size)}, {len(self.weights)} weights, {count(self.steps, 'step')}"
        return name + ", float32" * (self.weights.dtype == "float32")


@dataclass(frozen=True)
class AdamSlip:
    """A known mistake in Adam; the defaults are no mistake. `gathers` says when the weights are gathered."""

    gathers: Literal["after", "before", "in the end", "never"] = "after"
    rebound: bool = False  # after the first step another tensor is gathered into, and stepped
    rate_divided: bool = False  # by the number of ranks
    gradient: Literal["mean", "sum", "own", "mean of means"] = "mean"
    anew: bool = False
    into_a_copy: bool = False
    gathers_first: bool = False  # also before the first step
    ahead: bool = False  # all gradients are computed before the first step


_ITERATOR = "`gradients` yields one gradient at a time, when you ask for it: write for gradient in gradients."
_ADVICE = {
    "'generator' has no len()": _ITERATOR,
    "'generator' object is not subscriptable": _ITERATOR,
    "must match the size of tensor": (
        "A rank's part is that of tensor_split: where the ranks do not divide the weights, the first ranks have one more."
    ),
}


def _examine(ended: ArenaResult, task: Replicas) -> dict[str, Complaint]:
    n, right = task.world_size, trained(task)
    states = [told["state"] for told in ended.returned]
    held = [given["weights"] for given in ended.inputs]
    wrong = _wrong_weights(held, right, task)

    too_large = _too_large(states, right)
    complaints = {
        WEIGHTS: wrong,
        STATE: too_large or _wrong_state(states, right, task) or _holds_more(ended.returned, right),
        # the right number of bytes earns nothing if the weights are wrong
        MESSAGES: UNEXAMINED if wrong else _wrong_messages(ended, n, task.steps, task.weights.nbytes),
    }
    if too_large:  # the cause first: keeping all state is what made the weights wrong
        return {STATE: complaints.pop(STATE), **complaints}
    return complaints


@dataclass(frozen=True)
class Trained:
    """A rank's final weights by Adam, [count], and the mean and square of its own part."""

    weights: np.ndarray
    mean: np.ndarray
    square: np.ndarray


def trained(task: Replicas, slip: AdamSlip = AdamSlip()) -> list[Trained]:  # noqa: B008, it is frozen
    """Return the result of Adam on ranks that each step their part. Kingma and Ba, 2015, algorithm 1."""
    n = task.world_size
    held = [task.weights] * n if slip.gathers_first else own_alone(task.weights, n)
    means = list(map(np.zeros_like, cut(task.weights, n)))
    squares = list(map(np.zeros_like, means))

    rate = task.rate / n if slip.rate_divided else task.rate
    for step in range(1, 2 if slip.rebound else task.steps + 1):
        at = own_alone(task.weights, n) if slip.ahead else held
        made = [task.gradients[r][step - 1] + task.pull * np.nan_to_num(at[r]) for r in range(n)]
        if slip.gathers == "before":
            held = [_gathered(held)] * n
        held = list(map(np.copy, held))

        for r in range(n):
            gradient = made[r] if slip.gradient == "own" else np.sum(made, axis=0)
            divisor = {"mean": n, "mean of means": n * n}.get(slip.gradient, 1)
            part = cut(gradient / divisor, n)[r]
            if slip.anew:
                means[r], squares[r] = np.zeros_like(part), np.zeros_like(part)
            means[r] = BETAS[0] * means[r] + (1 - BETAS[0]) * part
            squares[r] = BETAS[1] * squares[r] + (1 - BETAS[1]) * part**2
            number = 1 if slip.anew else step  # for the bias correction
            upright = np.sqrt(squares[r] / (1 - BETAS[1] ** number)) + EPSILON
            if not slip.into_a_copy:
                cut(held[r], n)[r][...] -= rate * means[r] / (1 - BETAS[0] ** number) / upright

        if slip.gathers == "after" or (slip.gathers == "in the end" and step == task.steps):
            held = [_gathered(held)] * n
    return list(map(Trained, held, means, squares))


def _gathered(held: list[np.ndarray]) -> np.ndarray:
    """Return Adam's whole weights, put together from each rank's own part."""
    return np.concatenate([cut(own, len(held))[r] for r, own in enumerate(held)])


def _wrong_weights(held: Sequence[Any], right: list[Trained], task: Replicas) -> Complaint:
    start = own_alone(task.weights, task.world_size)
    if all(np.array_equal(got, given, equal_nan=True) for got, given in zip(held, start, strict=True)):
        return "the weights have not changed on any rank: change them in place, by weights[…] -= … or through a view of them."

    slips = {}
    for slip, words in _SLIPS.items():
        by_rank = [one.weights for one in trained(task, slip)]
        slips[words] = [np.where(np.isnan(w), task.weights, w) for w in by_rank]
    return part("the weights", [one.weights for one in right], slips, True, ROUNDING[str(task.weights.dtype)]).wrong(held)


_SLIPS = {
    AdamSlip(gathers="never"): (
        "Only this rank's part has moved. The other ranks' parts are NaN when the check begins: after every step gather the "
        "weights of all parts, not their changes."
    ),
    AdamSlip(gathers="never", rebound=True): (
        "Only the first step is in `weights`: after it another tensor was gathered into and stepped. all_gather(fabric, weights) "
        "fills `weights` in place: give it no copy."
    ),
    AdamSlip(rate_divided=True): (
        "The learning rate was divided by the number of ranks. Only the gradients are averaged: the rate stays as it is."
    ),
    AdamSlip(gradient="sum", rate_divided=True): (
        "The gradients were added up, and the learning rate was divided by the number of ranks: Adam divides by the gradients' "
        "own size, so that is no mean. Divide the sum."
    ),
    AdamSlip(gathers_first=True): (
        "The weights were gathered before the first step, when the other ranks' parts are NaN and no rank needs them. Gather "
        "after each step."
    ),
    AdamSlip(gathers="before"): "The gather came before the step: the other ranks' parts have the values from before it.",
    AdamSlip(gathers="in the end"): (
        "The weights were gathered once, at the end: after every step each rank needs all of them for its next gradient, so "
        "gather in the loop."
    ),
    AdamSlip(ahead=True): (
        "All gradients were asked for before the first step: a gradient is computed from the weights at that moment. Take a "
        "step, and then ask for the next."
    ),
    AdamSlip(gradient="own"): "Each part was updated with the gradient of one rank alone, not with the mean over the ranks.",
    AdamSlip(gradient="own", gathers="never"): "It was updated with this rank's own gradient alone, and nothing was gathered.",
    AdamSlip(anew=True): "Every step began with a new state: keep the state from step to step.",
    AdamSlip(gradient="sum"): SUMMED,
    AdamSlip(gradient="mean of means"): TWICE,
    AdamSlip(into_a_copy=True): (
        "These are the initial weights, gathered: the steps changed a copy of the rank's part. Change a view instead, such as "
        "tensor_split returns."
    ),
}


def _wrong_state(states: Sequence[Any], right: list[Trained], task: Replicas) -> Complaint:
    for rank, got in enumerate(states):
        if not has_keys(got, *NAMES):
            return f'rank {rank}: expected its state, a dict with "mean" and "square", got {what_came(got)}'

    summed = trained(task, AdamSlip(gradient="sum"))
    for name in NAMES:
        expected = [getattr(one, name) for one in right]
        of_sums = [getattr(one, name) for one in summed]
        rounding = ROUNDING[str(task.weights.dtype)]
        wanted = part(f'"{name}" of its own part', expected, {SUMMED: of_sums}, True, rounding)
        complaint = wanted.wrong([got[name] for got in states])
        if complaint:
            return complaint

    return None


def _too_large(states: Sequence[Any], right: list[Trained]) -> Complaint:
    whole = 2 * len(right[0].weights)
    for rank, got in enumerate(states):
        own = 2 * len(right[rank].mean)
        values = got.values() if isinstance(got, dict) else ()
        # not scalars, such as a step count
        numbers = sum(value.size for value in values if isinstance(value, np.ndarray) and value.ndim)
        if numbers > own:
            everything = ", enough for all weights: nothing is saved" if numbers >= whole > own else ""
            return f"rank {rank}: its state holds {numbers} numbers{everything}; its own part needs {own}."

    return None


def _holds_more(returned: Sequence[dict[str, Any]], right: list[Trained]) -> Complaint:
    """Return a complaint if Adam's returned state is a slice of a larger one, or a larger one existed between steps.

    The function's own process measures both, so the result can only cost points.
    """
    whole = len(right[0].weights)
    for rank, report in enumerate(returned):
        own = right[rank].mean
        if len(own) == whole:
            continue
        stored = report["storage"] // own.itemsize
        if stored > 2 * len(own):
            return (
                f"rank {rank}: its state consists of slices of tensors of {stored} numbers, which stay in memory whole; its "
                f"own part needs {2 * len(own)}. Make the state for its own part alone."
            )
        most = max(report["held"])
        if most > 1:
            return (
                f"rank {rank}: between two steps it holds {most} tensors as large as all weights, besides the weights and the "
                f"gradient; expected none. Keep the state of its own part alone."
            )
    return None


def _wrong_messages(ended: ArenaResult, n: int, steps: int, size_bytes: int) -> Complaint:
    complaint = none_sent(ended.trace, "Use reduce_scatter and all_gather.")
    if complaint:
        return complaint

    half_bytes, got = (n - 1) * size_bytes * steps, ended.trace.total_bytes()
    if got == 2 * half_bytes:
        return None

    share = times(got / half_bytes * (n - 1))
    mismatch = (
        f"the weights are right, but all ranks together sent {share} x the weights' bytes a step, expected {2 * (n - 1)} x. "
    )
    if got == 3 * half_bytes:
        return mismatch + "An all-reduce is a reduce-scatter and an all-gather; a rank needs only its own part of the sum."
    if got < 2 * half_bytes:
        return mismatch + "After every step each rank needs all weights, for its next gradient."
    return mismatch + "Reduce-scatter the gradient, gather the weights, and send nothing else."
