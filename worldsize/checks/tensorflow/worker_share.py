"""The check of a worker's share of a data set: at each step all workers together take one global batch.

Each worker's data set is made and read out in one process, then they are put side by side. Any way to share out a
batch passes. Left out: how a strategy feeds it to replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.verdict import Verdict
from worldsize.units import count as counted

POINTS = {
    "every worker has the same number of steps": 0.5,
    "the workers' parts of a step are one global batch": 0.5,
    "each worker takes an equal part of it": 0.5,
}
STEPS, BATCH, EQUAL = POINTS
PLANS = ((12, 4, 2), (11, 4, 2), (10, 4, 2), (14, 6, 3), (7, 3, 1))  # (examples, global batch, workers)
FACTOR = 10  # an example's label is its number times this
MOST_STEPS = 50


def worker_share(arena: Arena, fn: Callable) -> Verdict:
    """Check of a worker's share of a data set in TensorFlow.

    `worker_share(dataset, global_batch, workers, index)`: the batched data set of one worker.
    """
    first = arena.draws.randrange(100, 1000)
    return judge("worker_share", POINTS, _cases(arena, fn, first))


def _cases(arena: Arena, fn: Callable, first: int) -> Iterator[Case]:
    read: list[ArenaResult] = []

    def ask(k: int) -> ArenaResult:
        if not read:
            read.append(arena.tensorflow(fn, [{"plans": PLANS, "first": first}], driver=readings))
        ended = read[0]
        return ended if ended.state != "done" else ArenaResult("done", returned=(ended.returned[0][k],))

    for k, (examples, batch, workers) in enumerate(PLANS):
        yield Case(
            f"{examples} examples, global batches of {batch}, {counted(workers, 'worker')}",
            lambda k=k: ask(k),
            lambda ended, k=k: _examine(ended.returned[0], first, *PLANS[k]),
        )


def readings(fn: Callable, asked: dict[str, Any]) -> list[list[Any]]:
    """What each worker's share of a data set holds, read in the task.

    Runs in the task: what each worker's data set holds, a list of steps, for every plan.
    """
    import tensorflow as tf

    def read(examples: int, batch: int, workers: int, index: int) -> Any:
        numbers = np.arange(asked["first"], asked["first"] + examples)
        got = fn(tf.data.Dataset.from_tensor_slices((numbers, FACTOR * numbers)), batch, workers, index)
        if not isinstance(got, tf.data.Dataset):
            return f"expected a tf.data.Dataset, got {'None' if got is None else type(got).__name__}"
        return [_plain(element) for element in got.take(MOST_STEPS)]

    return [[read(*plan, index) for index in range(plan[2])] for plan in asked["plans"]]


def _plain(element: Any) -> Any:
    parts = element if isinstance(element, tuple) else (element,)
    return [np.asarray(part).tolist() for part in parts]


def _examine(tables: Sequence[Any], first: int, examples: int, batch: int, workers: int) -> dict[str, str | None]:
    wrong = next((f"worker {w}: {complaint}" for w, table in enumerate(tables) if (complaint := _no_steps(table))), None)
    if wrong:
        return {STEPS: wrong}
    taken = [[[int(n) - first for n in numbers] for numbers, _ in table] for table in tables]
    return {
        STEPS: _wrong_lengths(taken, examples // batch),
        BATCH: _wrong_batches(taken, examples, batch),
        EQUAL: _wrong_parts(taken, batch // workers),
    }


def _no_steps(table: Any) -> str | None:
    """Words where it is no list of steps, each with numbers and labels."""
    if isinstance(table, str):
        return f"{table} (does the function return it?)" if table.endswith("None") else table
    for step, parts in enumerate(table):
        if len(parts) != 2:
            return f"step {step}: expected pairs of examples and labels, as in the data set given, got {len(parts)} part"
        numbers, labels = parts
        if not isinstance(numbers, (tuple, list)) or not isinstance(labels, (tuple, list)):
            return f"step {step}: got a single example, expected a batch: is `batch` missing?"
        if numbers and isinstance(numbers[0], (tuple, list)):
            return f"step {step}: these are batches of batches; batch once"
        if [FACTOR * n for n in numbers] != list(labels):
            return f"step {step}: examples {list(numbers)} came with labels {list(labels)}, which are not theirs"
    return None


def _wrong_lengths(taken: list[list[list[int]]], expected: int) -> str | None:
    lengths = [len(steps) for steps in taken]
    if len(set(lengths)) > 1:
        more, less = int(np.argmax(lengths)), int(np.argmin(lengths))
        return (
            f"worker {more} has {counted(max(lengths), 'step')}, worker {less} has {min(lengths)}: in its last step worker "
            f"{more} would wait for ever. Drop an incomplete *global* batch."
        )
    if lengths[0] == expected:
        return None
    if lengths[0] == expected + 1:
        why = " The last global batch is incomplete, and is to be left out."
    elif len(taken) > 1 and lengths[0] <= expected // len(taken) + 1:
        why = " Each step takes a global batch for every worker: global_batch is for all of them together."
    else:
        why = " Does every worker go through all examples?" if lengths[0] > expected else ""
    return f"expected {counted(expected, 'step')}, the whole global batches there are; got {lengths[0]}.{why}"


def _wrong_batches(taken: list[list[list[int]]], examples: int, batch: int) -> str | None:
    for step in range(min(map(len, taken))):
        together = [n for steps in taken for n in steps[step]]
        wanted = list(range(step * batch, min((step + 1) * batch, examples)))
        if sorted(together) == wanted:
            continue
        shown = "; ".join(f"worker {w} takes {steps[step]}" for w, steps in enumerate(taken))
        told = f"step {step}: expected examples {wanted[0]} to {wanted[-1]} (counted from 0), each once; {shown}. "
        twice = sorted({n for n in together if together.count(n) > 1})
        if twice:
            return told + f"Example {twice[0]} is taken by several workers, so it counts too much."
        if len(together) > batch:
            return told + "That is more than one global batch: global_batch is for all workers together."
        if len(together) < len(wanted):
            return told + "Some of the batch is taken by nobody."
        return told + "Cut global batches first, then share each one out; nothing is to be shuffled here."
    return None


def _wrong_parts(taken: list[list[list[int]]], expected: int) -> str | None:
    for step in range(min(map(len, taken))):
        for worker, steps in enumerate(taken):
            if len(steps[step]) != expected:
                return f"step {step}: worker {worker} takes {counted(len(steps[step]), 'example')}, expected {expected}"
    return None
