"""The check of `sharded_adam`: Adam whose state is cut into one part a rank, ZeRO's first stage.

The weights must be those of Adam on one rank with the mean of the gradients, after every step's worth of messages;
what a rank returns as its state must be that of its own part, no larger. A rank is given NaN in the other ranks' parts of
the weights: it has no step to take there, and no state for one.
S. Rajbhandari et al., "ZeRO", SC 2020, section 5.1. D. Kingma and J. Ba, "Adam", arXiv:1412.6980, 2015.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge, none_sent, ranks_in_words
from worldsize.checks.kit.values import has_keys
from worldsize.checks.sharding.parts import Part, cut, own_alone, what_came, wrong_part
from worldsize.checks.verdict import Complaint, Verdict
from worldsize.units import count, times

POINTS = {
    "the weights of Adam on one rank, on every rank, in place": 0.25,
    "each rank keeps the state of its own part alone": 0.25,
    "a reduce-scatter and an all-gather a step, nothing else": 0.5,
}
WEIGHTS, STATE, MESSAGES = POINTS
# ranks, weights, steps; never one step alone: Adam's first goes by the gradient's sign
SIZES = ((2, 8, 2), (3, 7, 3), (4, 12, 2), (1, 5, 2))
BETAS, EPSILON = (0.9, 0.999), 1e-8
NAMES = ("mean", "square")
SUMMED = "It was made from the sum of the gradients: divide by the number of ranks."

History = tuple[np.ndarray, np.ndarray, np.ndarray]


def sharded_adam(arena: Arena, fn: Callable) -> Verdict:
    """Check of Adam whose state is sharded over the ranks.

    `sharded_adam(fabric, (weights, gradients), learning_rate)` returns this rank's state.

    weights has shape [count], with NaN in the parts of other ranks; gradients are so many of the same shape as there are
    steps; the state is a dict with "mean" and "square", each of the shape of the rank's part.
    """
    return judge("sharded_adam", POINTS, _cases(arena, fn))


def _cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    for n, length, steps in SIZES:
        generator = np.random.default_rng(arena.draws.getrandbits(32))
        weights = generator.normal(size=length)
        gradients = [[generator.normal(size=length) + 1 + r for _ in range(steps)] for r in range(n)]
        rate = float(generator.uniform(0.05, 0.2))
        name = f"{ranks_in_words(n)}, {length} weights, {count(steps, 'step')}"
        yield _case(name, arena, fn, weights, gradients, rate)


def _case(name: str, arena: Arena, fn: Callable, weights: np.ndarray, gradients: list, rate: float) -> Case:
    """`gradients[rank][step]`."""
    inputs = list(zip(own_alone(weights, len(gradients)), gradients, strict=True))
    return Case(name, lambda: arena.ranks(fn, inputs, rate), lambda ended: _examine(ended, weights, gradients, rate))


def _examine(ended: ArenaResult, weights: np.ndarray, gradients: list, rate: float) -> dict[str, Complaint]:
    n, steps = len(gradients), len(gradients[0])
    averages = [np.mean(step, axis=0) for step in zip(*gradients, strict=True)]
    right = adam(weights, averages, rate)

    held = [given[0] for given in ended.inputs]
    part = Part("the weights", [right[0]] * n, _slips(weights, gradients, averages, rate))
    wrong = _still_the_start(held, weights) or wrong_part(held, part, blanked=True)

    found = {
        WEIGHTS: wrong,
        STATE: _wrong_state(ended.returned, right, n),
        MESSAGES: wrong or _wrong_messages(ended, n, steps, weights.nbytes),  # the right bytes with wrong weights are none
    }
    if _too_large(ended.returned, right, n):  # who keeps it all need not hear first what that did to the weights
        return {STATE: found.pop(STATE), **found}
    return found


def adam(weights: np.ndarray, gradients: Sequence[np.ndarray], rate: float) -> History:
    """Adam without sharding, with which the sharded one is compared.

    (weights, mean, square) after a step for each gradient. Kingma and Ba, 2015, algorithm 1.
    """
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step, gradient in enumerate(gradients, 1):
        mean = BETAS[0] * mean + (1 - BETAS[0]) * gradient
        square = BETAS[1] * square + (1 - BETAS[1]) * gradient**2
        upright = np.sqrt(square / (1 - BETAS[1] ** step)) + EPSILON
        weights = weights - rate * mean / (1 - BETAS[0] ** step) / upright

    return weights, mean, square


# ---- weights ---------------------------------------------------------------------------------


def _still_the_start(held: Sequence[Any], weights: np.ndarray) -> Complaint:
    n = len(held)
    if all(np.array_equal(got, start, equal_nan=True) for got, start in zip(held, own_alone(weights, n), strict=True)):
        return "on every rank the weights are as they were: change them in place, weights[…] -= … or a view of them."
    return None


def _slips(weights: np.ndarray, gradients: list, averages: list, rate: float) -> dict[str, list[np.ndarray]]:
    n = len(gradients)
    right = adam(weights, averages, rate)[0]
    local = [adam(weights, own, rate)[0] for own in gradients]
    pieced = np.concatenate([cut(own, n)[r] for r, own in enumerate(local)])

    anew = weights
    for average in averages:
        anew = adam(anew, [average], rate)[0]

    def ungathered(moved: list[np.ndarray]) -> list[np.ndarray]:
        """The weights at the start, but for each rank's own part, which is that of what it moved to."""
        held = []
        for r in range(n):
            parts = cut(weights, n)
            parts[r] = cut(moved[r], n)[r]
            held.append(np.concatenate(parts))

        return held

    before = adam(weights, averages[:-1], rate)[0]
    stale = []
    for r in range(n):
        parts = cut(before, n)
        parts[r] = cut(right, n)[r]
        stale.append(np.concatenate(parts))

    return {
        "Only this rank's part has moved. The other ranks' parts are NaN when the check begins: after every step gather the "
        "weights of all parts, not what changed in them.": ungathered([right] * n),
        "The gather came before the step: of the other ranks' parts these are the values before it.": stale,
        "Each part was updated with the gradient of one rank alone, not with the mean over the ranks.": [pieced] * n,
        "It was updated with this rank's own gradient alone, and nothing was gathered.": ungathered(local),
        "Every rank took a step with its own gradient: the gradients have to be averaged first.": local,
        "Every step began with a new state: the state has to last from step to step.": [anew] * n,
        SUMMED: [adam(weights, [n * average for average in averages], rate)[0]] * n,
        "These are the weights of the start, gathered: the steps went into a copy of the rank's part. Take them in a view, "
        "such as tensor_split gives.": [weights] * n,
    }  # fmt: skip


# ---- state -----------------------------------------------------------------------------------


def _wrong_state(returned: Sequence[Any], right: History, n: int) -> Complaint:
    for rank, got in enumerate(returned):
        if not has_keys(got, *NAMES):
            return f'rank {rank}: expected its state, a dict with "mean" and "square", got {what_came(got)}'

    complaint = _too_large(returned, right, n)
    if complaint:
        return complaint

    for k, name in enumerate(NAMES, 1):
        summed = {SUMMED: cut(right[k] * n**k, n)}
        part = Part(f'"{name}" of its own part', cut(right[k], n), summed)
        complaint = wrong_part([got[name] for got in returned], part, blanked=True)
        if complaint:
            return complaint

    return None


def _too_large(returned: Sequence[Any], right: History, n: int) -> Complaint:
    whole = 2 * len(right[0])
    for rank, got in enumerate(returned):
        own = 2 * len(cut(right[0], n)[rank])
        numbers = _numbers_held(got) if isinstance(got, dict) else 0
        if numbers > own:
            everything = ""
            if numbers >= whole > own:
                everything = ", as large as for all weights: nothing is saved"
            return f"rank {rank}: its state holds {numbers} numbers{everything}; its own part needs {own}."

    return None


def _numbers_held(state: dict) -> int:
    """How many numbers the tensors of a state hold; one with no dimension, as a count of steps, is left out."""
    tensors = [value for value in state.values() if isinstance(value, np.ndarray)]
    return sum(tensor.size for tensor in tensors if tensor.ndim)


# ---- messages --------------------------------------------------------------------------------


def _wrong_messages(ended: ArenaResult, n: int, steps: int, size_bytes: int) -> Complaint:
    complaint = none_sent(ended.trace, "Use reduce_scatter and all_gather.")
    if complaint:
        return complaint

    one, got = (n - 1) * size_bytes * steps, ended.trace.total_bytes()
    if got == 2 * one:
        return None

    share = times(got / one * (n - 1))
    told = f"the weights are right, but all ranks together sent {share} x the weights' bytes a step, expected {2 * (n - 1)} x. "
    return told + _message_slip(got, one, steps)


def _message_slip(got: int, one: int, steps: int) -> str:
    if got == 3 * one:
        return "An all-reduce is a reduce-scatter and an all-gather; of the sum a rank needs its own part alone."
    if got < 2 * one:
        missing = "After every step each rank needs all weights, for its next gradient"
        if steps > 1:
            return f"{missing}: gather in the loop."
        return f"{missing}."
    return "Reduce-scatter the gradient, gather the weights, and send nothing else."
