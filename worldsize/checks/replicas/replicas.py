"""The checks of replicas: the same start, the average of gradients, and a training that equals one process.

Values must be those of one process with the whole batch, on every rank; the messages may take any route, but no more
bytes than they need. The words for gradients and for trainings are in `replica_mistakes`. Left out: speed.
Gradient averaging and its pitfalls: P. Goyal et al., arXiv:1706.02677, 2017; S. Li et al., "PyTorch Distributed",
VLDB 2020, for the broadcast at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge, none_sent, ranks_in_words
from worldsize.checks.replicas import replica_mistakes
from worldsize.checks.replicas.replica_mistakes import TrainingRun
from worldsize.checks.verdict import Verdict
from worldsize.units import times

Arrays = list[np.ndarray]

START = {"every rank holds rank 0's weights, in place": 0.5, "they travel once to every other rank": 0.5}
AVERAGE = {
    "the mean over all examples, on every rank": 0.5,
    "also where the ranks have unequal counts, or none": 0.5,
    "the bytes of one all-reduce": 0.5,
}
TRAIN = {
    "one rank: gradient descent on all examples": 0.5,
    "more ranks: the weights of one rank, after every step": 1.0,
    "what travels does not grow with the examples": 0.5,
}

COUNTS = ((4, 4, 4), (2, 1, 1, 1), (5, 3), (1, 1, 1, 0), (7,))  # examples by rank
START_SIZES = (3, 4, 2, 1)
SHAPES = (((2, 3), "float32"), ((3,), "float32"), ((), "int64"))  # the last, as BatchNorm's counter of batches
GRADIENT_SHAPES = ((3, 2), (5,))
COUNT_BYTES = 8  # what a number that travels along with each tensor may take


def same_start(arena: Arena, fn: Callable) -> Verdict:
    """Check that replicas start alike: `same_start(fabric, weights)` puts rank 0's weights on all ranks, in place.

    `weights` is a list of tensors, of any shapes and dtypes.
    """
    values, messages = START

    def examine(ended: ArenaResult, inputs: list[Arrays]) -> dict[str, str | None]:
        complaint = replica_mistakes.wrong_start(ended.inputs, ended.returned, inputs)
        received = none_sent(ended.trace) or _received_once(ended, inputs)
        return {values: complaint, messages: received and (received if complaint else f"the values are right, but {received}")}

    def cases() -> Iterator[Case]:
        for n in START_SIZES:
            inputs = _weights(n, arena.draws.getrandbits(32))
            yield Case(
                ranks_in_words(n),
                lambda inputs=inputs: arena.ranks(fn, inputs),
                lambda ended, inputs=inputs: examine(ended, inputs),
            )

    return judge("same_start", START, cases())


def average_gradients(arena: Arena, fn: Callable) -> Verdict:
    """Check of replicas, their gradients: every rank is to hold the mean over the ranks' examples.

    `average_gradients(fabric, gradients, counts)` leaves the mean over all examples, in place; `counts` are the examples by rank.
    """
    values, uneven, messages = AVERAGE

    def examine(ended: ArenaResult, inputs: list[Arrays], counts: Sequence[int]) -> dict[str, str | None]:
        complaint = replica_mistakes.wrong_mean(ended.inputs, ended.returned, inputs, counts)
        sent = none_sent(ended.trace) or _more_than_an_all_reduce(ended, inputs[0])
        held = {values if len(set(counts)) == 1 else uneven: complaint}
        return {**held, messages: sent and (sent if complaint else f"the values are right, but {sent}")}

    def cases() -> Iterator[Case]:
        for counts in COUNTS:
            inputs = _gradients(counts, arena.draws.getrandbits(32))
            yield Case(
                f"{ranks_in_words(len(counts))} with {', '.join(map(str, counts))} examples",
                lambda inputs=inputs, counts=counts: arena.ranks(fn, inputs, list(counts)),
                lambda ended, inputs=inputs, counts=counts: examine(ended, inputs, counts),
            )

    return judge("average_gradients", AVERAGE, cases())


def train_replicas(arena: Arena, fn: Callable) -> Verdict:
    """Check that replicas train as one process does: they return the weights after each step.

    `train_replicas(fabric, weights, x, y, batch_size, epochs, learning_rate)`: the model is a line, `weights` its
    [slope] and [intercept], which differ by rank at the start; the loss is the mean squared error. x and y have shape
    [examples].
    """
    return judge("train_replicas", TRAIN, _trainings(arena, fn, arena.draws.getrandbits(32)))


# ---- inputs ----------------------------------------------------------------------------------


def _weights(n: int, seed: int) -> list[Arrays]:
    generator = np.random.default_rng([seed, n])
    return [[np.asarray(generator.integers(1, 100, s) + 1000 * (r + 1)).astype(d) for s, d in SHAPES] for r in range(n)]


def _gradients(counts: Sequence[int], seed: int) -> list[Arrays]:
    """Whole numbers that differ by rank and element; NaN, as a mean over no examples is, where a rank has none."""
    generator = np.random.default_rng([seed, *counts])

    def one(rank: int, shape: tuple[int, ...]) -> np.ndarray:
        numbers = generator.integers(1, 100, shape) + 1000.0 * (rank + 1)
        return numbers if counts[rank] else np.full(shape, np.nan)

    return [[one(rank, shape) for shape in GRADIENT_SHAPES] for rank in range(len(counts))]


# ---- messages --------------------------------------------------------------------------------


def _received_once(ended: ArenaResult, inputs: list[Arrays]) -> str | None:
    size_bytes = sum(x.nbytes for x in inputs[0])
    for rank in range(1, len(inputs)):
        share = ended.trace.received_bytes(rank) / size_bytes
        if share > 1:
            return f"rank {rank} received {times(share)} x the weights; once is enough, and nothing needs adding up."
    if ended.trace.received_bytes(0):
        return f"rank 0 received {ended.trace.received_bytes(0)} bytes: the weights come from it, it needs none."
    return None


def _more_than_an_all_reduce(ended: ArenaResult, gradients: Arrays) -> str | None:
    n, size_bytes = ended.trace.world_size, sum(x.nbytes for x in gradients)
    least, extra = 2 * (n - 1) * size_bytes, 2 * (n - 1) * COUNT_BYTES * (len(gradients) + 1)
    got = ended.trace.total_bytes()
    if got <= least + extra:
        return None
    return (
        f"all ranks together sent {times(got / size_bytes)} x the gradients ({got} bytes); one all-reduce needs "
        f"{2 * (n - 1)} x ({least} bytes). Use all_reduce, once for each gradient."
    )


# ---- trainings -------------------------------------------------------------------------------


def _trainings(arena: Arena, fn: Callable, seed: int) -> Iterator[Case]:
    """Whole batches first, whose result is known; then batches, which are compared with a rank that is alone."""
    descent, replicas, growth = TRAIN
    few, many = TrainingRun(seed, 2, 11, 11), TrainingRun(seed, 2, 41, 41)
    sent: dict[int, int] = {}

    def known(lesson: TrainingRun, ended: ArenaResult) -> dict[str, str | None]:
        sent[lesson.count] = ended.trace.total_bytes()
        complaint = replica_mistakes.wrong_history(ended.returned, lesson, lesson.descent())
        found: dict[str, Any] = {(descent if lesson.world_size == 1 else replicas): complaint}
        return found | ({growth: _grown(sent, few, many)} if lesson is many else {})

    for lesson in (TrainingRun(seed, 1, 12, 12), TrainingRun(seed, 3, 12, 12), few, many):
        yield Case(
            f"{lesson}",
            lambda lesson=lesson: lesson.run(arena, fn, lesson.world_size),
            lambda ended, lesson=lesson: known(lesson, ended),
        )
    for lesson in (TrainingRun(seed, 4, 21, 8), TrainingRun(seed, 4, 18, 16)):
        alone: list[ArenaResult] = []
        yield Case(
            f"{lesson}",
            lambda lesson=lesson, alone=alone: _with_one_alone(arena, fn, lesson, alone),
            lambda ended, lesson=lesson, alone=alone: {
                replicas: replica_mistakes.wrong_history(alone[0].returned, lesson, None)
                or replica_mistakes.wrong_history(ended.returned, lesson, alone[0].returned[0])
            },
        )


def _with_one_alone(arena: Arena, fn: Callable, lesson: TrainingRun, alone: list[ArenaResult]) -> ArenaResult:
    """The lesson on all its ranks, after one rank alone had it; the first that does not end well stands for both."""
    alone[:] = [lesson.run(arena, fn, 1)]
    return lesson.run(arena, fn, lesson.world_size) if alone[0].state == "done" else alone[0]


def _grown(sent: dict[int, int], few: TrainingRun, many: TrainingRun) -> str | None:
    less, more = sent.get(few.count, 0), sent[many.count]
    if not more:
        return "no message passed through the fabric: ranks that do not talk are no replicas."
    if more <= less:
        return None
    return (
        f"with {many.count} examples the ranks sent {times(more / less)} times as many bytes as with {few.count}, in as many "
        f"steps. Examples stay where they are: weights travel at the start, gradients at every step."
    )
