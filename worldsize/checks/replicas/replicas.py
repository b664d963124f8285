"""Checks of replicas: the same start, averaged gradients, and a training that equals one process.

Every rank must hold the values of one process with the whole batch; messages may take any route, but no more bytes than
needed. Averaging and its pitfalls: P. Goyal et al., arXiv:1706.02677, 2017; the broadcast at the start: S. Li et al.,
"PyTorch Distributed", VLDB 2020.
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
FAULTY = (3, 0, 2)  # examples by rank; the last rank has examples, but a NaN gradient
START_SIZES = (3, 4, 2, 1)
MORE_RANKS = (5, 8)  # range of world sizes in the drawn cases
# float64 and int64 hold digits that float32 would round; the int64 scalar is like BatchNorm's counter of batches
SHAPES = (((2, 3), "float32"), ((3,), "float64"), ((), "int64"))
LARGE = 2**25  # float32 has no odd numbers beyond 2**24
GRADIENT_SHAPES = ((3, 2), (5,))
LINE_BYTES = 16  # slope and intercept in float64, or their gradients
COUNT_BYTES = 8  # allowance for a number sent along with each tensor


def same_start(arena: Arena, fn: Callable) -> Verdict:
    """Check that replicas start alike: `same_start(fabric, weights)` copies rank 0's weights to all ranks, in place.

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
    """Check that every rank ends with the mean gradient over all ranks' examples.

    `average_gradients(fabric, gradients, counts)` works in place. `gradients` are the means over the rank's own
    examples, `counts` the examples by rank.
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
    """Check that replicas train as one process does.

    `train_replicas(fabric, weights, x, y, batch_size, epochs, learning_rate, begin, average)` returns the weights after
    each step. The model is a line: `weights` are [slope] and [intercept], which differ by rank at the start. The loss
    is the mean squared error. x and y have shape [examples]; in one case y differs by rank. The check supplies `begin`
    and `average`.
    """
    return judge("train_replicas", TRAIN, _trainings(arena, fn))


# ---- inputs ----------------------------------------------------------------------------------


def _weights(n: int, seed: int) -> list[Arrays]:
    generator = np.random.default_rng([seed, n])

    def one(rank: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        numbers = np.asarray(generator.integers(1, 100, shape) + 1000 * (rank + 1) ** 2)  # squared: no rank has the mean
        if dtype == "int64":
            numbers = numbers + LARGE + numbers % 2 + 1  # odd
        if dtype == "float64":
            numbers = numbers + 1 / 3
        return np.asarray(numbers).astype(dtype)

    return [[one(rank, *tensor) for tensor in SHAPES] for rank in range(n)]


def _gradients(counts: Sequence[int], seed: int) -> list[Arrays]:
    """Draw gradients that differ by rank and element and that float32 would round.

    A rank without examples has NaN, as a mean over no examples is.
    """
    generator = np.random.default_rng([seed, *counts])

    def one(rank: int, shape: tuple[int, ...]) -> np.ndarray:
        numbers = generator.integers(1, 100, shape) + 1000.0 * (rank + 1) + 1 / 3
        if counts[rank] == 0:
            return np.full(shape, np.nan)
        return numbers

    return [[one(rank, shape) for shape in GRADIENT_SHAPES] for rank in range(len(counts))]


def _drawn_counts(arena: Arena) -> list[int]:
    """Draw counts for more ranks, in no order: one or two ranks have no examples.

    The last rank, which a short list misses, has some. Any two nonzero counts exceed the number of ranks together, so
    no sum of several counts equals it.
    """
    n = arena.draws.randint(*MORE_RANKS)
    empty = arena.draws.sample(range(n - 1), arena.draws.randint(1, 2))
    return [0 if rank in empty else arena.draws.randint(5, 20) for rank in range(n)]


# ---- messages --------------------------------------------------------------------------------


def _messages_besides(sent: Complaint, values: Complaint) -> Complaint:
    """Return the complaint about messages, and say that the values are right if they are."""
    if sent is None or values:
        return sent
    return f"the values are right, but {sent}"


def _received_too_much(ended: ArenaResult, inputs: list[Arrays]) -> Complaint:
    size_bytes = sum(x.nbytes for x in inputs[0])
    for rank in range(1, len(inputs)):
        share = ended.trace.received_bytes(rank) / size_bytes
        if share > 1:
            return (
                f"rank {rank} received {times(share)} x the weights; once is enough, each tensor in its own dtype. "
                f"Nothing needs adding up."
            )

    if ended.trace.received_bytes(0):
        return f"rank 0 received {ended.trace.received_bytes(0)} bytes: the weights come from rank 0, so it needs none."
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
    """Yield whole batches with a known result, a training that shows each rank's examples, and batches beside a rank alone."""
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
    """Draw a training with more ranks. If a batch has fewer examples than ranks, some ranks take none."""
    draws = arena.draws
    count, batch_size = draws.randint(20, 30), draws.randint(3, 9)
    return TrainingRun(seed, draws.randint(*MORE_RANKS), count, batch_size, epochs=3, learning_rate=draws.uniform(0.01, 0.1))


def _shares(arena: Arena, fn: Callable) -> Case:
    """Return a case in which each rank has its own y, and only the check's `begin` and `average` give the right weights."""
    _, replicas, parts, orders = TRAIN
    lesson = SharesTaken.drawn(arena.draws)

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        found = lesson.found(_histories(ended))
        together = _with_counts(found.together, ended, lesson.sizes)
        used = found.parts or _wrong_bytes(ended, lesson.steps)
        return {replicas: together, parts: together or used, orders: together or found.orders}

    return Case(f"{lesson}", lambda: lesson.run(arena, fn), examine)


def _beside_one_alone(arena: Arena, fn: Callable, lesson: TrainingRun) -> Case:
    """Return a case that trains on one rank alone, then on all ranks; if the first run fails, it stands for both."""
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
    """Return a complaint if a training did not leave the last weights in its arguments, or changed x or y; else None."""
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
    """Extend a complaint about the weights if `average` got counts that do not add up to the batch."""
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
    """Return the bytes that `begin` and `average` send."""
    return LINE_BYTES * (world_size - 1) * (1 + 2 * steps)  # a broadcast, then an all-reduce at every step


def _silent(ended: ArenaResult, steps: int) -> Complaint:
    """Return a complaint if ranks exchange too little to average gradients: each trained on all examples by itself."""
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
    return said + "Examples and weights stay where they are: only gradients travel, once in every step."
