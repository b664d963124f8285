"""The checks of replicas: the same start, the average of gradients, and a training that equals one process.

Values must be those of one process with the whole batch, on every rank; the messages may take any route, but no more
bytes than they need. The words for gradients and for trainings are in `replica_mistakes`.
Gradient averaging and its pitfalls: P. Goyal et al., arXiv:1706.02677, 2017; S. Li et al., "PyTorch Distributed",
VLDB 2020, for the broadcast at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge, none_sent, ranks_in_words
from worldsize.checks.replicas import replica_mistakes
from worldsize.checks.replicas.replica_mistakes import TrainingRun
from worldsize.checks.replicas.shares_taken import SharesStep
from worldsize.checks.verdict import Complaint, Verdict
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

    def examine(ended: ArenaResult, inputs: list[Arrays]) -> dict[str, Complaint]:
        complaint = replica_mistakes.wrong_start(ended.inputs, ended.returned, inputs)
        received = none_sent(ended.trace) or _received_too_much(ended, inputs)
        return {values: complaint, messages: _messages_besides(received, complaint)}

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

    def examine(ended: ArenaResult, inputs: list[Arrays], counts: Sequence[int]) -> dict[str, Complaint]:
        complaint = replica_mistakes.wrong_mean(ended.inputs, ended.returned, inputs, counts)
        sent = none_sent(ended.trace) or _more_than_an_all_reduce(ended, inputs[0])
        held = values if len(set(counts)) == 1 else uneven
        return {held: complaint, messages: _messages_besides(sent, complaint)}

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
    [examples]; in one of the cases y differs by rank.
    """
    return judge("train_replicas", TRAIN, _trainings(arena, fn, arena.draws.getrandbits(32)))


# ---- inputs ----------------------------------------------------------------------------------


def _weights(n: int, seed: int) -> list[Arrays]:
    generator = np.random.default_rng([seed, n])

    def one(rank: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return np.asarray(generator.integers(1, 100, shape) + 1000 * (rank + 1)).astype(dtype)

    return [[one(rank, *tensor) for tensor in SHAPES] for rank in range(n)]


def _gradients(counts: Sequence[int], seed: int) -> list[Arrays]:
    """Whole numbers that differ by rank and element; NaN, as a mean over no examples is, where a rank has none."""
    generator = np.random.default_rng([seed, *counts])

    def one(rank: int, shape: tuple[int, ...]) -> np.ndarray:
        numbers = generator.integers(1, 100, shape) + 1000.0 * (rank + 1)
        if counts[rank] == 0:
            return np.full(shape, np.nan)
        return numbers

    return [[one(rank, shape) for shape in GRADIENT_SHAPES] for rank in range(len(counts))]


# ---- messages --------------------------------------------------------------------------------


def _messages_besides(sent: Complaint, values: Complaint) -> Complaint:
    """What is wrong about the messages, where the values may be wrong, too."""
    if sent is None or values:
        return sent
    return f"the values are right, but {sent}"


def _received_too_much(ended: ArenaResult, inputs: list[Arrays]) -> Complaint:
    size_bytes = sum(x.nbytes for x in inputs[0])
    for rank in range(1, len(inputs)):
        share = ended.trace.received_bytes(rank) / size_bytes
        if share > 1:
            return f"rank {rank} received {times(share)} x the weights; once is enough, and nothing needs adding up."

    if ended.trace.received_bytes(0):
        return f"rank 0 received {ended.trace.received_bytes(0)} bytes: the weights come from it, it needs none."
    return None


def _more_than_an_all_reduce(ended: ArenaResult, gradients: Arrays) -> Complaint:
    n, size_bytes = ended.trace.world_size, sum(x.nbytes for x in gradients)
    least = 2 * (n - 1) * size_bytes
    extra = 2 * (n - 1) * COUNT_BYTES * (len(gradients) + 1)
    got = ended.trace.total_bytes()

    if got <= least + extra:
        return None
    return (
        f"all ranks together sent {times(got / size_bytes)} x the gradients ({got} bytes); one all-reduce needs "
        f"{2 * (n - 1)} x ({least} bytes). Use all_reduce, once for each gradient."
    )


# ---- trainings -------------------------------------------------------------------------------


def _trainings(arena: Arena, fn: Callable, seed: int) -> Iterator[Case]:
    """Whole batches first, whose result is known; then batches, which are compared with a rank that is alone.

    Among the first is a step on which the ranks have examples of their own: it shows who took which.
    """
    descent, replicas, growth = TRAIN
    few = TrainingRun(seed, world_size=2, count=11, batch_size=11)
    many = replace(few, count=41, batch_size=41)
    sent: dict[int, int] = {}

    def examine(lesson: TrainingRun, ended: ArenaResult) -> dict[str, Complaint]:
        sent[lesson.count] = ended.trace.total_bytes()
        held = descent if lesson.world_size == 1 else replicas
        found = {held: replica_mistakes.wrong_history(ended.returned, lesson, lesson.descent())}
        if lesson is many:
            found[growth] = _grown(sent, few, many)

        return found

    def whole_batches(lesson: TrainingRun) -> Case:
        return Case(f"{lesson}", lambda: lesson.run(arena, fn, lesson.world_size), lambda ended: examine(lesson, ended))

    one = TrainingRun(seed, world_size=1, count=12, batch_size=12)
    yield whole_batches(one)
    yield whole_batches(replace(one, world_size=3))

    shares = SharesStep()
    yield Case(f"{shares}", lambda: shares.run(arena, fn), lambda ended: {replicas: shares.wrong_step(ended.returned)})

    yield whole_batches(few)
    yield whole_batches(many)

    for count, batch_size in ((21, 8), (18, 16)):
        lesson = TrainingRun(seed, world_size=4, count=count, batch_size=batch_size)
        yield _beside_one_alone(arena, fn, lesson, replicas)


def _beside_one_alone(arena: Arena, fn: Callable, lesson: TrainingRun, held: str) -> Case:
    """The lesson on all its ranks, after one rank alone had it; the first that does not end well stands for both."""
    alone: list[ArenaResult] = []

    def run() -> ArenaResult:
        alone[:] = [lesson.run(arena, fn, 1)]
        if alone[0].state != "done":
            return alone[0]
        return lesson.run(arena, fn, lesson.world_size)

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        complaint = replica_mistakes.wrong_history(alone[0].returned, lesson, None)
        if complaint is None:
            complaint = replica_mistakes.wrong_history(ended.returned, lesson, alone[0].returned[0])
        return {held: complaint}

    return Case(f"{lesson}", run, examine)


def _grown(sent: dict[int, int], few: TrainingRun, many: TrainingRun) -> Complaint:
    less, more = sent.get(few.count, 0), sent[many.count]
    if not more:
        return "no message passed through the fabric: ranks that do not talk are no replicas."
    if more <= less:
        return None
    return (
        f"with {many.count} examples the ranks sent {times(more / less)} times as many bytes as with {few.count}, in as many "
        f"steps. Examples stay where they are: weights travel at the start, gradients at every step."
    )
