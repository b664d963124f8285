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
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit.judge import Case, first_complaint, judge, none_sent, ranks_in_words
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.replicas import replica_mistakes
from worldsize.checks.replicas.replica_mistakes import TrainingRun
from worldsize.checks.replicas.shards import resets
from worldsize.checks.replicas.shares_taken import SharesTaken
from worldsize.checks.verdict import Complaint, Verdict
from worldsize.units import times

Arrays = list[np.ndarray]

START = {
    "rank 0's weights travel once to every other rank, into its own tensors": 0.75,
    "every rank holds rank 0's weights": 0.25,
}
AVERAGE = {
    "the mean over all examples, on every rank, in place": 0.25,
    "also where the ranks have unequal counts, or none": 1.0,
    "the bytes of one all-reduce": 0.25,
}
TRAIN = {
    "one rank: gradient descent on all examples, in place": 0.25,
    "more ranks: each takes its share, and the weights are those of one rank, after every step": 0.75,
    "begin once, average at every step, and nothing else travels": 0.25,
    "every epoch has an order of its own": 0.25,
}

COUNTS = ((4, 4, 4), (2, 1, 1, 1), (5, 3), (1, 1, 1, 0), (0, 3), (7,))  # examples by rank
FAULTY = (3, 0, 2)  # the last of these ranks has NaN for the gradient of its examples
START_SIZES = (3, 4, 2, 1)
MORE_RANKS = (5, 8)  # from how many to how many in the cases that are drawn
# float64 and int64 hold what float32 would round; the last is as BatchNorm's counter of batches
SHAPES = (((2, 3), "float32"), ((3,), "float64"), ((), "int64"))
LARGE = 2**25  # float32 has no odd numbers from here on
GRADIENT_SHAPES = ((3, 2), (5,))
LINE_BYTES = 16  # a slope and an intercept, or the gradient of each
COUNT_BYTES = 8  # what a number that travels along with each tensor may take


def same_start(arena: Arena, fn: Callable) -> Verdict:
    """Check that replicas start alike: `same_start(fabric, weights)` puts rank 0's weights on all ranks, in place.

    `weights` is a list of tensors, of any shapes and dtypes.
    """
    messages, values = START

    def examine(ended: ArenaResult, inputs: list[Arrays]) -> dict[str, Complaint]:
        complaint = replica_mistakes.wrong_start(ended.inputs, ended.returned, inputs)
        received = none_sent(ended.trace) or _received_too_much(ended, inputs)
        return {messages: complaint or _messages_besides(received, complaint), values: complaint}

    def cases() -> Iterator[Case]:
        for n in (*START_SIZES, arena.draws.randint(*MORE_RANKS)):
            inputs = _weights(n, arena.draws.getrandbits(32))
            yield Case(
                ranks_in_words(n),
                lambda inputs=inputs: arena.ranks(fn, inputs, driver=on_ranks.in_memory),
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
        found = {held: complaint, messages: _messages_besides(sent, complaint)}
        if held == values or first_complaint(found.values()):
            return found
        kept = (changed(noted["more"], (list(counts),), "counts", rank) for rank, noted in enumerate(ended.returned))
        return {**found, values: first_complaint(kept)}

    def cases() -> Iterator[Case]:
        for counts in (*COUNTS, FAULTY, _drawn_counts(arena)):
            inputs = _gradients(counts, arena.draws.getrandbits(32))
            fault = ""
            if counts is FAULTY:
                inputs[-1][-1][...] = np.nan
                fault = ", a NaN among the gradients"
            yield Case(
                f"{ranks_in_words(len(counts))} with {', '.join(map(str, counts))} examples{fault}",
                lambda inputs=inputs, counts=counts: arena.ranks(fn, inputs, list(counts), driver=on_ranks.in_memory),
                lambda ended, inputs=inputs, counts=counts: examine(ended, inputs, counts),
            )

    return judge("average_gradients", AVERAGE, cases())


def train_replicas(arena: Arena, fn: Callable) -> Verdict:
    """Check that replicas train as one process does: they return the weights after each step.

    `train_replicas(fabric, weights, x, y, batch_size, epochs, learning_rate, begin, average)`: the model is a line,
    `weights` its [slope] and [intercept], which differ by rank at the start; the loss is the mean squared error. x and y
    have shape [examples]; in one of the cases y differs by rank. `begin` and `average` are the check's own.
    """
    return judge("train_replicas", TRAIN, _trainings(arena, fn))


# ---- inputs ----------------------------------------------------------------------------------


def _weights(n: int, seed: int) -> list[Arrays]:
    generator = np.random.default_rng([seed, n])

    def one(rank: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        numbers = np.asarray(generator.integers(1, 100, shape) + 1000 * (rank + 1) ** 2)  # no rank's is the mean
        if dtype == "int64":
            numbers = numbers + LARGE + numbers % 2 + 1  # odd
        if dtype == "float64":
            numbers = numbers + 1 / 3
        return np.asarray(numbers).astype(dtype)

    return [[one(rank, *tensor) for tensor in SHAPES] for rank in range(n)]


def _gradients(counts: Sequence[int], seed: int) -> list[Arrays]:
    """Numbers that differ by rank and element, no float32s; NaN, as a mean over no examples is, where a rank has none."""
    generator = np.random.default_rng([seed, *counts])

    def one(rank: int, shape: tuple[int, ...]) -> np.ndarray:
        numbers = generator.integers(1, 100, shape) + 1000.0 * (rank + 1) + 1 / 3
        if counts[rank] == 0:
            return np.full(shape, np.nan)
        return numbers

    return [[one(rank, shape) for shape in GRADIENT_SHAPES] for rank in range(len(counts))]


def _drawn_counts(arena: Arena) -> list[int]:
    """Counts of more ranks, in no order; one or two have no examples, and the last, whom a short list would miss, has some.

    Two of them have more examples than there are ranks: so no sum of some of the counts is the number of ranks.
    """
    n = arena.draws.randint(*MORE_RANKS)
    empty = arena.draws.sample(range(n - 1), arena.draws.randint(1, 2))
    return [0 if rank in empty else arena.draws.randint(5, 20) for rank in range(n)]


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
            return (
                f"rank {rank} received {times(share)} x the weights; once is enough, each in its own dtype. "
                f"Nothing needs adding up."
            )

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


def _trainings(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Whole batches, whose result is known; a training that shows who took which; batches beside a rank that is alone."""
    descent, replicas, parts, _ = TRAIN
    seed = arena.draws.getrandbits(32)

    def whole_batches(lesson: TrainingRun) -> Case:
        def examine(ended: ArenaResult) -> dict[str, Complaint]:
            complaint = replica_mistakes.wrong_history(_histories(ended), lesson, lesson.descent())
            if lesson.world_size == 1:
                return {descent: complaint}

            complaint = _with_counts(complaint, ended, lesson.sizes) or _silent(ended, lesson.steps)
            return {replicas: complaint, parts: complaint or _wrong_bytes(ended, lesson.steps)}

        return Case(f"{lesson}", lambda: lesson.run(arena, fn, lesson.world_size), examine)

    one = TrainingRun(seed, world_size=1, count=12, batch_size=12)
    yield whole_batches(one)
    yield whole_batches(replace(one, world_size=3))
    yield _shares(arena, fn)
    yield whole_batches(TrainingRun(seed, world_size=2, count=11, batch_size=11))

    for count, batch_size in ((21, 8), (18, 16)):
        yield _beside_one_alone(arena, fn, TrainingRun(seed, world_size=4, count=count, batch_size=batch_size))
    yield _beside_one_alone(arena, fn, _drawn_training(arena, seed))


def _drawn_training(arena: Arena, seed: int) -> TrainingRun:
    """More ranks; where a batch has fewer examples than there are ranks, some take none in any step."""
    draws = arena.draws
    count, batch_size = draws.randint(20, 30), draws.randint(3, 9)
    return TrainingRun(seed, draws.randint(*MORE_RANKS), count, batch_size, epochs=3, learning_rate=draws.uniform(0.01, 0.1))


def _shares(arena: Arena, fn: Callable) -> Case:
    """Ranks with numbers of their own, and with a begin and an average that no other can stand for."""
    _, replicas, parts, orders = TRAIN
    lesson = SharesTaken.drawn(arena.draws)

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        found = lesson.found(_histories(ended))
        together = _with_counts(found.together, ended, lesson.sizes)
        used = found.parts or _wrong_bytes(ended, lesson.steps)
        return {replicas: together, parts: together or used, orders: together or found.orders}

    return Case(f"{lesson}", lambda: lesson.run(arena, fn), examine)


def _beside_one_alone(arena: Arena, fn: Callable, lesson: TrainingRun) -> Case:
    """The lesson on all its ranks, after one rank alone had it; the first that does not end well stands for both."""
    descent, replicas, parts, orders = TRAIN
    alone: list[ArenaResult] = []

    def run() -> ArenaResult:
        alone[:] = [lesson.run(arena, fn, 1)]
        if alone[0].state != "done":
            return alone[0]
        return lesson.run(arena, fn, lesson.world_size)

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        expected = _histories(alone[0])
        complaint = replica_mistakes.wrong_history(expected, lesson, None)
        if complaint is None:
            complaint = replica_mistakes.wrong_history(_histories(ended), lesson, expected[0])

        complaint = _with_counts(complaint, ended, lesson.sizes)
        found = {replicas: complaint, parts: complaint or _wrong_bytes(ended, lesson.steps)}
        if first_complaint(found.values()):
            return found
        reset = resets("train_replicas", alone[0].returned[0]["drawn"])
        return {**found, descent: _left_behind([*alone, ended], lesson, expected[0]), orders: reset}

    return Case(f"{lesson}", run, examine)


def _left_behind(runs: Sequence[ArenaResult], lesson: TrainingRun, history: np.ndarray) -> Complaint:
    """Say where a training has not left the last weights in those that it was given, or has changed the examples."""
    given = dict(zip(("x", "y"), lesson.examples(), strict=True))
    found = [replica_mistakes.not_trained(ended.inputs, ended.returned, history) for ended in runs]
    for ended in runs:
        for rank, noted in enumerate(ended.returned):
            for (name, before), after in zip(given.items(), noted["more"], strict=False):
                found.append(changed(after, before, name, rank))
    return first_complaint(found)


def _histories(ended: ArenaResult) -> list:
    return [of_rank["returned"] for of_rank in ended.returned]


def _with_counts(complaint: Complaint, ended: ArenaResult, sizes: Sequence[int]) -> Complaint:
    """Where the weights are wrong: were the counts that `average` got the batch's?"""
    if complaint is None:
        return None

    for rank, noted in enumerate(ended.returned):
        if len(noted["counts"]) != len(sizes):
            continue
        for step, (counts, size) in enumerate(zip(noted["counts"], sizes, strict=True)):
            if sum(counts) != size:
                given = ", ".join(map(str, counts))
                return (
                    f"{complaint} In step {step} rank {rank} gave average the counts {given}; its batch has {size} "
                    f"examples, and each rank's share of them is wanted."
                )

    return complaint


def _expected_bytes(world_size: int, steps: int) -> int:
    """What `begin` and `average` send."""
    return LINE_BYTES * (world_size - 1) * (1 + 2 * steps)


def _silent(ended: ArenaResult, steps: int) -> Complaint:
    """Ranks that hear less of each other than their gradients have each trained on all examples."""
    if ended.trace.total_bytes() < _expected_bytes(ended.trace.world_size, steps):
        return _wrong_bytes(ended, steps)
    return None


def _wrong_bytes(ended: ArenaResult, steps: int) -> Complaint:
    expected = _expected_bytes(ended.trace.world_size, steps)
    got = ended.trace.total_bytes()
    if got == expected:
        return None

    begun, averaged = ended.returned[0]["begun"], len(ended.returned[0]["counts"])
    said = f"the weights are right, but the ranks sent {got} bytes; begin once and average in {steps} steps send {expected}. "
    if begun != 1:
        return said + f"begin was called {times(begun)} times: the weights travel once, before the first step."
    if not averaged:
        return said + "average was never called: gradients travel through it, at every step."
    return said + "Examples and weights stay where they are: gradients travel, once in every step."
