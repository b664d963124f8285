"""Complaints about wrong averages: weights at the start, gradients, and the weights after each training step.

Each mistake leaves a signature: a sum is n means, a mean of means weighs ranks instead of examples, and replicas with
different starts stay equally far apart. `replicas.py` runs the cases and judges the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit.judge import ranks_in_words
from worldsize.checks.kit.values import TOLERANCE, differing, kind_in_words, same
from worldsize.checks.verdict import Complaint
from worldsize.units import number

Arrays = Sequence[np.ndarray]
# weights are copied, and all else is float64: sums in another order differ by less
NEAR_ZERO = 1e-9
EXACT = {"tolerance": 1e-11, "near_zero": NEAR_ZERO}
CUT = 1.0  # a mean written into an integer tensor loses its fraction


# ---- the start -------------------------------------------------------------------------------


def wrong_start(held: Sequence[Any], noted: Sequence[Any], inputs: Sequence[Arrays]) -> Complaint:
    """Return a complaint if replicas do not start with rank 0's weights, or None.

    The complaint names the first tensor in the lists `held[rank]` that differs from rank 0's, or else the first whose
    memory differs. `noted[rank]` is the record of `on_ranks.in_memory`.
    """
    returned = [of_rank["returned"] for of_rank in noted]
    found = _first_wrong(held, inputs[0])
    if not found:
        return _not_in_place(noted, inputs[0])

    rank, k, got = found
    where = _element(rank, k, got, inputs[0][k])
    if not isinstance(got, np.ndarray):
        return where
    return f"{where}. {_start_mistake(got, returned[rank], inputs, rank, k)}"


def _start_mistake(got: np.ndarray, given: Any, inputs: Sequence[Arrays], rank: int, k: int) -> str:
    every = [x[k] for x in inputs]
    if same(got, np.sum(every, axis=0), **EXACT):
        return "This is the sum of all ranks' weights: copy rank 0's weights."
    if same(got, np.mean(every, axis=0), tolerance=0.0, near_zero=CUT):
        return "This is the mean of all ranks' weights: copy rank 0's weights."
    if same(got, inputs[0][k], TOLERANCE):
        return "Rank 0's numbers lost digits on the way: send and receive each tensor in its own dtype."
    if rank == 0:
        return "Rank 0's own weights have changed: rank 0 keeps them, and the others copy them."
    if same(got, inputs[rank][k], **EXACT):
        return _own_start(given, inputs[0], rank, k)

    for owner in range(1, len(inputs)):
        if same(got, inputs[owner][k], **EXACT):
            return f"These are rank {owner}'s weights: all ranks must hold rank 0's."

    return ""


def _own_start(given: Any, expected: Arrays, rank: int, k: int) -> str:
    if same(_tensor(given, k), expected[k], **EXACT):
        return "The function returned rank 0's weights, but the tensor itself is unchanged: receive into it, or copy_ into it."
    if k:
        return f"Tensor {k - 1} did arrive: send all tensors of the list."
    return f"These are still rank {rank}'s own weights."


# ---- the mean --------------------------------------------------------------------------------


def wrong_mean(held: Any, noted: Sequence[Any], inputs: Sequence[Arrays], counts: Sequence[int]) -> Complaint:
    """Return a complaint if a gradient is not the mean over all examples, or None.

    The complaint names the first wrong tensor in the lists `held[rank]`, or else in memory (`noted`, from
    `on_ranks.in_memory`). `inputs[rank]` holds the means over that rank's own examples.
    """
    returned = [of_rank["returned"] for of_rank in noted]
    means = _combine(inputs, np.divide(counts, sum(counts)))
    found = _first_wrong(held, means)
    if not found:
        return _not_in_place(noted, means)

    rank, k, got = found
    where = _element(rank, k, got, means[k])
    if not isinstance(got, np.ndarray) or got.shape != means[k].shape:
        return where
    if np.any(np.isnan(means[k]) & ~np.isnan(got)):
        faulty = next(r for r, own in enumerate(inputs) if counts[r] and np.isnan(own[k]).any())
        return (
            f"{where}. Rank {faulty} has {counts[faulty]} examples with a NaN gradient: that is a fault, and the mean must "
            f"show it. Leave out only a rank whose count is 0."
        )
    return f"{where}. {_mean_mistake(got, _tensor(returned[rank], k), inputs, counts, rank, k)}"


def _mean_mistake(got: Any, given: Any, inputs: Sequence[Arrays], counts: Sequence[int], rank: int, k: int) -> str:
    n, total = len(counts), sum(counts)
    shares = np.divide(counts, total)  # of all examples, by rank
    if np.isnan(got).any() and 0 in counts:
        empty = counts.index(0)
        if rank and not counts[rank]:  # `_first_wrong` takes ranks in order, so earlier ones are right
            return (
                f"Other ranks hold the mean, but rank {rank}, which has no examples, still holds its NaN. gradient = … makes a "
                f"new tensor: zero this one in place (zero_), and the sum arrives in it."
            )
        return f"Rank {empty} has no examples, so its gradient is NaN; NaN times 0 is NaN: leave this gradient out."
    if same(given, _combine(inputs, shares)[k], **EXACT):
        return "The function returned the mean, but the gradient itself is unchanged: work in place."

    mistakes = {
        "This is the sum of the gradients, n times the mean: divide.": [1] * n,
        "This is the mean of the ranks' means: a rank with fewer examples counts as much as one with more. "
        "Weigh each rank by its count.": [1 / n] * n,
        "This is the sum over all examples: divide by their number.": list(counts),
        "The ranks' means were added up and divided by the number of examples: they are means already. "
        "Weigh each rank by its count first.": [1 / total] * n,
        "Weighed by the counts, but divided by the number of ranks, not of examples.": np.divide(counts, n),
        "Divided twice.": shares / n,
    }
    for complaint, weights in mistakes.items():
        if n > 1 and same(got, _combine(inputs, weights)[k], **EXACT):
            return complaint

    if same(got, inputs[rank][k], **EXACT):
        return f"This is still rank {rank}'s own gradient."
    if same(got, _combine(inputs, shares)[k], TOLERANCE):
        return "These are the right numbers with half of their digits: the gradients are float64, so use float64 throughout."
    scaled = _times_the_mean(got, _combine(inputs, shares)[k])
    return f"{scaled}Rank {rank}'s gradient is the mean over {counts[rank]} of {total} examples."


def _times_the_mean(got: np.ndarray, mean: np.ndarray) -> str:
    times = float(np.median(got / mean))
    if not same(got, times * mean, **EXACT):
        return ""
    return f"This is {number(times)} times the mean: weigh each rank by its count over the sum of all counts. "


def _combine(inputs: Sequence[Arrays], weights: Sequence[float]) -> list[np.ndarray]:
    """Return the weighted sum over the ranks, by tensor; skip ranks without examples, whose first tensor is all NaN."""
    total = [np.zeros_like(x) for x in inputs[0]]
    for own, weight in zip(inputs, weights, strict=True):
        if not np.isnan(own[0]).all():
            total = [so_far + weight * x for so_far, x in zip(total, own, strict=True)]
    return total


# ---- in place --------------------------------------------------------------------------------


def _not_in_place(noted: Sequence[Any], expected: Arrays) -> Complaint:
    """Return a complaint if the list is right but the memory of the tensors handed in is not, or None."""
    found = _first_wrong([of_rank["memory"] for of_rank in noted], expected)
    if not found:
        return None

    rank, k, _ = found
    replaced = "the tensor got other memory (by .data = …, or set_)"
    if not noted[rank]["same"][k]:
        replaced = "another tensor took its place in the list"
    return (
        f"rank {rank}, tensor {k} of the list: the numbers are right, but {replaced}: the model, which holds the "
        f"old tensor, still sees the old numbers. Write into that tensor: receive into it, copy_, mul_, +=."
    )


# ---- a training ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingRun:
    """A training in which `world_size` ranks fit a line to `count` examples, in batches of `batch_size`."""

    seed: int
    world_size: int
    count: int
    batch_size: int
    epochs: int = 2
    learning_rate: float = 0.05

    @property
    def steps(self) -> int:
        return self.epochs * -(-self.count // self.batch_size)

    @property
    def sizes(self) -> list[int]:
        """Return the number of examples in each step's batch."""
        of_epoch = [min(self.batch_size, self.count - first) for first in range(0, self.count, self.batch_size)]
        return of_epoch * self.epochs

    def examples(self) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng([self.seed, self.count])
        x = generator.normal(size=self.count)
        return x, 3 * x - 2 + generator.normal(size=self.count)

    def starts(self) -> list[list[np.ndarray]]:
        """Return every rank's [slope] and [intercept]."""
        generator = np.random.default_rng([self.seed, 1])
        return [[generator.normal(size=1) + rank, generator.normal(size=1) - rank] for rank in range(self.world_size)]

    def run(self, arena: Arena, fn: Callable, world_size: int) -> ArenaResult:
        plan = (*self.examples(), self.batch_size, self.epochs, self.learning_rate)
        shift, scale = 0.0, 1.0
        return arena.ranks(fn, self.starts()[:world_size], *plan, shift, scale, driver=on_ranks.with_parts)

    def descent(self, factor: float = 1.0, begins: np.ndarray | None = None) -> np.ndarray:
        """Return the weights after every full-batch step, at `factor` times the learning rate. Shape [epochs, 2].

        `begins` replaces the weights after the first step.
        """
        x, y = self.examples()
        history = [] if begins is None else [begins]
        line = np.concatenate(self.starts()[0]) if begins is None else begins

        while len(history) < self.epochs:
            error = line[0] * x + line[1] - y
            line = line - factor * self.learning_rate * 2 * np.array([(error * x).mean(), error.mean()])
            history.append(line)

        return np.array(history)

    def __str__(self) -> str:
        batches = f"batches of {self.batch_size}"
        if self.batch_size == self.count:
            batches = "one batch"
        return f"{ranks_in_words(self.world_size)}, {self.count} examples in {batches}"


def wrong_history(returned: Sequence[Any], lesson: TrainingRun, expected: np.ndarray | None) -> Complaint:
    """Return a complaint about the first step at which a rank's line differs from the expected one, or None.

    `expected` has shape [steps, 2]. If it is None, only the shape of rank 0's history is checked.
    """
    for rank, got in enumerate(returned):
        complaint = no_history(got, lesson, rank)
        if complaint or expected is None:
            return complaint

    for rank, got in enumerate(returned):
        where = differing(got, expected, **EXACT)
        if where.size:
            step = int(where[0]) // expected.shape[1]
            lead = f"rank {rank}, after step {step}: expected {_line(expected[step])}, got {_line(got[step])}. "
            if same(got, expected, TOLERANCE, near_zero=TOLERANCE):
                return f"{lead}The numbers are right, with half of their digits: keep all in float64, the result too."
            return lead + _training_mistake(returned, lesson, step)

    return None


class HasSteps(Protocol):
    """A training with a known number of steps."""

    @property
    def steps(self) -> int: ...


def no_history(got: Any, lesson: HasSteps, rank: int) -> Complaint:
    """Return a complaint if `got` is not a float tensor of shape [steps, 2], or None."""
    shape = [lesson.steps, 2]
    came = kind_in_words(got)
    if isinstance(got, np.ndarray):
        came = f"shape {list(got.shape)}"
        if list(got.shape) == shape and got.dtype.kind == "f":
            return None

    return f"rank {rank}: expected the weights after each of {lesson.steps} steps as a tensor of shape {shape}, got {came}"


def not_trained(held: Sequence[Any], noted: Sequence[Any], history: Sequence[np.ndarray]) -> Complaint:
    """Return a complaint if the weights handed in, or their memory, do not hold the last step's weights; else None.

    `held[rank]` is the list afterwards, `noted[rank]` the record of `on_ranks.with_parts`, `history` the right weights.
    """
    last = [history[-1][:1], history[-1][1:]]
    found = _first_wrong(held, last)
    if not found:
        return _not_in_place(noted, last)
    return (
        f"rank {found[0]}: the result is right, but the weights passed in are not the weights after the last step: "
        f"train them in place (weight -= …), not a copy."
    )


def _training_mistake(returned: Sequence[np.ndarray], lesson: TrainingRun, step: int) -> str:
    """Name the mistake that all ranks' histories show together."""
    if any(np.isnan(got).any() for got in returned):
        return "A rank that takes no example in a step has a NaN gradient, which has spread."

    n, first = len(returned), returned[0]
    gaps = [got - first for got in returned[1:]]
    if any(differing(gap, np.zeros_like(gap), **EXACT).size for gap in gaps):
        if all(same(gap, np.repeat(gap[:1], lesson.steps, axis=0), near_zero=NEAR_ZERO) for gap in gaps):
            return "The ranks take the same steps from different starts: they stay as far apart as they began."
        return "The ranks hold different weights, and their gap changes from step to step: are gradients averaged?"

    if same(first, np.repeat(first[-1:], lesson.steps, axis=0), **EXACT):
        return "All rows are equal: keep a copy of the weights after every step, they change in place."
    if lesson.batch_size == lesson.count:
        complaint = _wrong_descent(first, lesson, n)
        if complaint:
            return complaint
    if n == 1:
        return f"A step subtracts {number(lesson.learning_rate)} times the gradient of the mean squared error from the weights."
    return _shares_words(lesson, step)


def _wrong_descent(first: np.ndarray, lesson: TrainingRun, n: int) -> Complaint:
    """Name the mistake in a full-batch training, where each step follows from the one before, or None."""
    expected, start = lesson.descent(), np.concatenate(lesson.starts()[0])
    if same(first, np.stack([start, *expected[:-1]]), **EXACT):
        return "These are the weights before each step: record them after it."
    if n > 1 and same(first, lesson.descent(n), **EXACT):
        return (
            f"Every step is {n} times as long as it should be: were gradients added up, or is the rate multiplied by {n}? "
            f"average gives the mean over all examples, and the rate stays as it is."
        )
    if n > 1 and not same(first[0], expected[0], **EXACT) and same(first, lesson.descent(begins=first[0]), **EXACT):
        return (
            "Only the first step is wrong, and each later one follows from the step before: was the first gradient computed "
            "before begin? Until then each rank has weights of its own."
        )
    return None


def _shares_words(lesson: TrainingRun, step: int) -> str:
    begun = step % (lesson.steps // lesson.epochs) * lesson.batch_size  # examples of the epoch's earlier steps
    size = min(lesson.batch_size, lesson.count - begun)

    together = "The ranks agree with each other, but not with one process. "
    if size % lesson.world_size:
        return together + (
            f"{size} examples do not divide evenly by {lesson.world_size}: is each rank's gradient weighed by its count?"
        )
    return together + (
        "Are gradients averaged at every step, each over its rank's share, and do all ranks draw the same order, from the "
        "same seed?"
    )


def _line(weights: np.ndarray) -> str:
    return f"slope {weights[0]:.6g} and intercept {weights[1]:.6g}"


# ---- shared ----------------------------------------------------------------------------------


def alike(got: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE, near_zero: float = 0.0) -> bool:
    """Return whether two arrays agree within rounding. NaN, the mean over no examples, equals NaN."""
    apart = differing(got, expected, tolerance, near_zero)
    both_nan = np.isnan(got) & np.isnan(expected)
    return bool(both_nan.reshape(-1)[apart].all())


def _first_wrong(held: Sequence[Any], expected: Arrays) -> tuple[int, int, Any] | None:
    """Return the first wrong tensor of the first rank that has one, as (rank, index in the list, value), or None."""
    for rank, tensors in enumerate(held):
        for k, right in enumerate(expected):
            got = _tensor(tensors, k)
            if not isinstance(got, np.ndarray) or got.shape != right.shape or not alike(got, right, **EXACT):
                return rank, k, got

    return None


def _element(rank: int, k: int, got: Any, expected: np.ndarray) -> str:
    where = f"rank {rank}, tensor {k} of the list"
    if got is None:
        return f"{where} is gone: leave the list as it is, and write into its tensors"
    if not isinstance(got, np.ndarray):
        return f"{where}: expected shape {list(expected.shape)}, got {type(got).__name__}"
    if got.shape != expected.shape:
        return f"{where}: expected shape {list(expected.shape)}, got {list(got.shape)}"

    far = differing(got, expected, **EXACT)  # NaN differs from NaN here: skip elements where both are
    i = int(next(place for place in far if not np.isnan(got.reshape(-1)[place]) or not np.isnan(expected.reshape(-1)[place])))
    return f"{where}, element {i}: expected {expected.reshape(-1)[i]:.10g}, got {got.reshape(-1)[i]:.10g}"


def _tensor(returned: Any, k: int) -> Any:
    """Return the k-th tensor of a list, or None if `returned` is no list or too short."""
    if isinstance(returned, tuple) and len(returned) > k:  # `arrays.plain` turns lists into tuples
        return returned[k]
    return None
