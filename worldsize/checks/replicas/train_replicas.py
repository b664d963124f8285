"""Check of a training by replicas: after every step, all ranks hold the weights that one process would have.

The model is a line, so NumPy gives the right weights of whole batches; smaller batches, in any order, are compared with the
same function on one rank alone. `shares_taken` shows which rank took which example. Each mistake leaves a signature:
replicas with different starts, for example, stay equally far apart.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint, ranks_in_words
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import TOLERANCE, differing, same
from worldsize.checks.replicas.in_place import EXACT, NEAR_ZERO, first_wrong, not_in_place
from worldsize.checks.replicas.shards import resets
from worldsize.checks.replicas.shares_taken import SharesTaken, no_history
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import number, times

DESCENT = "one rank: gradient descent on all examples, in place"
TOGETHER = "more ranks: each takes its share, and the weights are those of one rank, after every step"
PARTS = "begin once, average at every step, and nothing else travels"
ORDERS = "every epoch has an order of its own"

MORE_RANKS = (5, 8)  # range of the drawn world size
LINE = "slope {:.6g} and intercept {:.6g}"
LINE_BYTES = 16  # slope and intercept in float64, or their gradients


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
        return len(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """Return the number of examples in each step's batch, over all replicas."""
        of_epoch = [min(self.batch_size, self.count - first) for first in range(0, self.count, self.batch_size)]
        return of_epoch * self.epochs

    def examples(self) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng([self.seed, self.count])
        x = generator.normal(size=self.count)
        return x, 3 * x - 2 + generator.normal(size=self.count)

    def starts(self) -> list[list[np.ndarray]]:
        """Return every replica's first [slope] and [intercept]."""
        generator = np.random.default_rng([self.seed, 1])
        return [[generator.normal(size=1) + rank, generator.normal(size=1) - rank] for rank in range(self.world_size)]

    def run(self, arena: Arena, fn: Callable, world_size: int) -> ArenaResult:
        plan = (*self.examples(), self.batch_size, self.epochs, self.learning_rate)
        shift, scale = 0.0, 1.0
        return arena.ranks(fn, self.starts()[:world_size], *plan, shift, scale, driver=on_ranks.with_parts)

    def descent(self, factor: float = 1.0, begins: np.ndarray | None = None) -> np.ndarray:
        """Return replicas' weights after every full-batch step, at `factor` times the learning rate. Shape [epochs, 2].

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

    @override
    def __str__(self) -> str:
        batches = f"batches of {self.batch_size}"
        if self.batch_size == self.count:
            batches = "one batch"
        return f"{ranks_in_words(self.world_size)}, {self.count} examples in {batches}"


@exercise({DESCENT: 0.25, TOGETHER: 0.75, PARTS: 0.25, ORDERS: 0.25}, seen={PARTS: evidence.MESSAGES})
def train_replicas(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check that replicas train as one process does.

    `train_replicas(fabric, weights, x, y, batch_size, epochs, learning_rate, begin, average)` returns the weights after
    each step. The model is a line: `weights` are [slope] and [intercept], which differ by rank at the start. The loss
    is the mean squared error. x and y have shape [examples]; in one case y differs by rank. The check supplies `begin`
    and `average`.
    """
    draws = arena.draws
    seed = draws.getrandbits(32)

    def whole_batches(lesson: TrainingRun) -> Case:
        return Case(str(lesson), partial(lesson.run, arena, fn, lesson.world_size), partial(_examine, lesson=lesson))

    taken = SharesTaken.drawn(draws)
    cases = [  # whole batches have a known result; `taken` shows each rank's examples
        whole_batches(TrainingRun(seed, world_size=1, count=12, batch_size=12)),
        whole_batches(TrainingRun(seed, world_size=3, count=12, batch_size=12)),
        Case(str(taken), partial(taken.run, arena, fn), partial(_examine_shares, lesson=taken)),
        whole_batches(TrainingRun(seed, world_size=2, count=11, batch_size=11)),
    ]

    for count, batch_size in ((21, 8), (18, 16)):
        cases.append(_beside_one_alone(arena, fn, TrainingRun(seed, world_size=4, count=count, batch_size=batch_size)))
    # more ranks; if a batch has fewer examples than ranks, some ranks take none
    count, batch_size = draws.randint(20, 30), draws.randint(3, 9)
    drawn = TrainingRun(seed, draws.randint(*MORE_RANKS), count, batch_size, epochs=3, learning_rate=draws.uniform(0.01, 0.1))
    cases.append(_beside_one_alone(arena, fn, drawn))
    return cases


def _examine(ended: ArenaResult, lesson: TrainingRun) -> dict[str, Complaint]:
    """Examine a training by replicas on whole batches."""
    wrong = _wrong_history(_histories(ended), lesson, lesson.descent())
    if lesson.world_size == 1:
        return {DESCENT: wrong}

    wrong = _with_counts(wrong, ended, lesson.sizes)
    sent = _wrong_bytes(ended, lesson.steps)
    parts = UNEXAMINED if wrong else sent
    if ended.trace.total_bytes() < _expected_bytes(lesson.world_size, lesson.steps):
        wrong = wrong or sent  # too little to average gradients: each rank trained on all examples by itself
    return {TOGETHER: wrong, PARTS: parts}


def _examine_shares(ended: ArenaResult, lesson: SharesTaken) -> dict[str, Complaint]:
    """Examine replicas with each rank's own y, in which only the check's `begin` and `average` give the right weights."""
    complaints = lesson.found(_histories(ended))
    together = _with_counts(complaints.together, ended, lesson.sizes)
    used = complaints.parts or _wrong_bytes(ended, lesson.steps)
    if together:
        return {TOGETHER: together, PARTS: UNEXAMINED, ORDERS: UNEXAMINED}
    return {TOGETHER: None, PARTS: used, ORDERS: complaints.orders}


def _beside_one_alone(arena: Arena, fn: Callable, lesson: TrainingRun) -> Case:
    """Return a case that trains one replica alone, then all; if the first run fails, it stands for both."""
    alone: list[ArenaResult] = []

    def run() -> ArenaResult:
        alone[:] = [lesson.run(arena, fn, 1)]
        if alone[0].state != "done":
            return alone[0]
        return lesson.run(arena, fn, lesson.world_size)

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        (expected,) = _histories(alone[0])
        wrong = no_history(expected, lesson.steps, 0) or _wrong_history(_histories(ended), lesson, expected)
        wrong = _with_counts(wrong, ended, lesson.sizes)
        runs = alone if wrong else [*alone, ended]  # alone it leaves weights of its own behind, after however many steps
        steps = len(expected) if isinstance(expected, np.ndarray) and expected.ndim else 0
        readable = steps and not no_history(expected, steps, 0)
        return {
            TOGETHER: wrong,
            PARTS: UNEXAMINED if wrong else _wrong_bytes(ended, lesson.steps),
            DESCENT: _left_behind(runs, lesson, expected) if readable else UNEXAMINED,
            ORDERS: resets("train_replicas", alone[0].returned[0]["drawn"]),
        }

    return Case(str(lesson), run, examine)


def _left_behind(runs: Sequence[ArenaResult], lesson: TrainingRun, history: np.ndarray) -> Complaint:
    """Return a complaint if replicas did not leave the last weights in their arguments, or changed x or y; else None."""
    last = [history[-1][:1], history[-1][1:]]
    for ended in runs:
        wrong = first_wrong(ended.inputs, last)
        if wrong:
            return (
                f"the result is right, but the weights passed in are not the weights after the last step: train them in place "
                f"(weight -= …), not a copy. The first that differs: {wrong}"
            )
        complaint = not_in_place(ended.returned, last)
        if complaint:
            return complaint

    x, y = lesson.examples()
    for ended in runs:
        for rank, noted in enumerate(ended.returned):
            complaint = changed(noted["more"][0], x, "x", rank) or changed(noted["more"][1], y, "y", rank)
            if complaint:
                return complaint
    return None


def _histories(ended: ArenaResult) -> list:
    return [of_rank["returned"] for of_rank in ended.returned]


def _with_counts(complaint: Complaint, ended: ArenaResult, sizes: Sequence[int]) -> Complaint:
    """Extend a complaint about replicas' weights if `average` got counts that do not add up to the batch."""
    if complaint is None:
        return None

    for rank, noted in enumerate(ended.returned):
        if len(noted["counts"]) != len(sizes):
            continue
        for step, (counts, size) in enumerate(zip(noted["counts"], sizes, strict=True)):
            if sum(counts) != size:
                given = ", ".join(map(str, counts))
                return (
                    f"{complaint} In step {step} rank {rank} passed average the counts {given}; pass each rank's "
                    f"share of the batch's {size} examples."
                )

    return complaint


def _expected_bytes(world_size: int, steps: int) -> int:
    """Return the bytes that `begin` and `average` send for replicas."""
    return LINE_BYTES * (world_size - 1) * (1 + 2 * steps)  # a broadcast, then an all-reduce at every step


def _wrong_bytes(ended: ArenaResult, steps: int) -> Complaint:
    expected = _expected_bytes(ended.trace.world_size, steps)
    got = ended.trace.total_bytes()
    if got == expected:
        return None

    begun, averaged = ended.returned[0]["begun"], len(ended.returned[0]["counts"])
    complaint = (
        f"the weights are right, but the ranks sent {got} bytes; begin once and average in {steps} steps send {expected}. "
    )
    if begun != 1:
        return complaint + f"begin was called {times(begun)} times: the weights travel once, before the first step."
    if not averaged:
        return complaint + "average was never called: gradients travel through it, at every step."
    return complaint + "Examples and weights stay where they are: only gradients travel, once in every step."


def _wrong_history(returned: Sequence[Any], lesson: TrainingRun, expected: np.ndarray) -> Complaint:
    """Return a complaint about the first step at which a replica's line differs from the expected one, or None.

    `expected` has shape [steps, 2].
    """
    complaint = first_complaint(no_history(got, lesson.steps, rank) for rank, got in enumerate(returned))
    if complaint:
        return complaint

    for rank, got in enumerate(returned):
        where = differing(got, expected, **EXACT)
        if where.size:
            step = int(where[0]) // expected.shape[1]
            lead = f"rank {rank}, after step {step}: expected {LINE.format(*expected[step])}, got {LINE.format(*got[step])}. "
            if same(got, expected, TOLERANCE, near_zero=TOLERANCE):
                return f"{lead}The numbers are right, with half of their digits: keep all in float64, the result too."
            return lead + _training_mistake(returned, lesson, step)

    return None


def _training_mistake(returned: Sequence[np.ndarray], lesson: TrainingRun, step: int) -> str:
    """Name the mistake that all replicas' histories show together."""
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
    return (
        f"The ranks agree with each other, but not with one process. So what they averaged in step {step} is not the mean "
        f"gradient of the batch's {lesson.sizes[step]} examples, each in one rank's share."
    )


def _wrong_descent(first: np.ndarray, lesson: TrainingRun, n: int) -> Complaint:
    """Name the mistake in replicas' full-batch training, where each step follows from the one before, or None."""
    expected, start = lesson.descent(), np.concatenate(lesson.starts()[0])
    if same(first, np.stack([start, *expected[:-1]]), **EXACT):
        return "These are the weights before each step: record them after it."
    if n > 1 and same(first, lesson.descent(n), **EXACT):
        return (
            f"Every step is {n} times as long as it should be: were gradients added up, or is the rate multiplied by {n}? "
            f"average gives the mean over all examples, and the rate stays as it is."
        )
    factor = float(np.median((first[0] - start) / (expected[0] - start)))
    if factor > 0 and not same(first[0], expected[0], **EXACT) and same(first, lesson.descent(factor), **EXACT):
        return f"Every step is {number(factor)} times as long as learning_rate times the mean gradient."
    if n > 1 and not same(first[0], expected[0], **EXACT) and same(first, lesson.descent(begins=first[0]), **EXACT):
        return (
            "Only the first step is wrong, and each later one follows from the step before: was the first gradient computed "
            "before begin? Until then each rank has weights of its own."
        )
    return None
