"""Check of a worker's share of a data set: in each step all workers together take one global batch.

One process builds and reads every worker's data set, and the check compares them; any way to share out a batch passes.
A strategy's feeding of replicas is left out.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers.worker_share import MOST_STEPS, readings
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import NOTHING
from worldsize.checks.tensorflow.coordinator import cases_of_one_run
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count as counted

STEPS = "every worker has the same number of steps"
BATCH = "the workers' parts of a step are one global batch"
EQUAL = "each worker takes an equal part of it"
PLANS = (  # (examples, global batch, workers, whether the data set knows its length, whether an example has two features)
    (11, 4, 2, True, False), (10, 4, 2, True, False), (14, 6, 3, True, False), (7, 3, 1, True, False),
)  # fmt: skip
UNKNOWN_LENGTH = (14, 4, 2, False, False)
# The first plan, for two workers: ranges of steps, and of a worker's examples in a step. Randomly ordered examples give its
# batches with chance 4!³ / 12! = 1 / 34,650 at most, and those of all six plans below 1e-12.
DRAWN = ((3, 8), (2, 9))
WIDE = ((4, 6), (1, 3))  # ranges of workers, and of a worker's examples in a step, where an example has two features
UNKNOWN = (
    " The length of this data set is unknown, as when it reads from a stream: len() raises and cardinality() is "
    "negative. Use drop_remainder=True instead."
)
IN_TURN = (
    "workers take whole global batches in turn, so that a step has one for each of them. All workers share every global "
    "batch: cut it, then give each worker a slice."
)
FACTOR = 10  # label = number x FACTOR


@exercise({STEPS: 0.5, BATCH: 0.75, EQUAL: 0.25}, needs=needs.TENSORFLOW)
def worker_share(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check a worker's share of a data set in TensorFlow.

    `worker_share(dataset, global_batch, workers, index)` returns the batched data set of one worker.
    """
    first = arena.draws.randrange(100, 1000)
    steps, part = (arena.draws.randint(*span) for span in DRAWN)
    workers, rows = (arena.draws.randint(*span) for span in WIDE)
    wide = (2 * workers * rows + 1, workers * rows, workers, True, True)
    asked = [(2 * part * steps, 2 * part, 2, True, False), *PLANS, wide, UNKNOWN_LENGTH]
    plans = {}
    for plan in asked:
        examples, batch, workers, known, has_two = plan
        name = f"{examples} examples, global batches of {batch}, {counted(workers, 'worker')}"
        plans[name + ", of unknown length" * (not known) + ", of two features each" * has_two] = plan

    def run() -> ArenaResult:
        return arena.tensorflow(fn, [{"plans": asked, "first": first, "factor": FACTOR}], driver=readings)

    right = set(worker_share.points)  # in all plans of known length, which come first

    def examine(name: str, tables: Sequence[Any]) -> dict[str, Complaint]:
        *plan, known, _ = plans[name]
        complaints = _wrong(tables, first, *plan)
        if known:
            right.difference_update(tried for tried, complaint in complaints.items() if complaint is not None)
            return complaints
        return {STEPS: _of_unknown_length(complaints, right)}

    return cases_of_one_run(run, plans, examine)


def _of_unknown_length(complaints: dict[str, Complaint], right: Collection[str]) -> Complaint:
    """Return the complaint about the worker's steps, or about what only the unknown length makes wrong."""
    for name, words in complaints.items():
        if words and name in (STEPS, *right):
            return f"{words}.{UNKNOWN}".replace("..", ".")  # only some complaints end with a full stop
    return complaints[STEPS]


def _wrong(tables: Sequence[Any], first: int, examples: int, batch: int, workers: int) -> dict[str, Complaint]:
    for worker, table in enumerate(tables):
        complaint = _no_steps(table)
        if complaint:
            return {STEPS: f"worker {worker}: {complaint}", BATCH: UNEXAMINED, EQUAL: UNEXAMINED}

    taken = []  # by worker and step: examples, counted from 0
    for table in tables:
        taken.append([[int(number) - first for number in numbers] for numbers, _ in table])

    steps = list(chain(*taken))
    every = list(chain(*steps))
    whole = all(step == list(range(step[0], step[0] + batch)) for step in steps if step)
    if workers > 1 and every and whole and len(set(every)) == len(every):
        return {STEPS: UNEXAMINED, BATCH: IN_TURN, EQUAL: UNEXAMINED}

    return {
        STEPS: _wrong_lengths(taken, examples // batch),
        BATCH: _wrong_batches(taken, examples, batch),
        EQUAL: _wrong_parts(taken, batch // workers),
    }


def _no_steps(table: Any) -> Complaint:
    """Return a complaint if a worker's table is not a list of steps with numbers and labels, or None."""
    if isinstance(table, str):
        if table.endswith("None"):
            return table.removesuffix("None") + NOTHING
        return table

    for step, parts in enumerate(table):
        if len(parts) != 2:
            return f"step {step}: expected pairs of examples and labels, as in the data set given, got {len(parts)} part"

        numbers, labels = parts
        if not isinstance(numbers, (tuple, list)) or not isinstance(labels, (tuple, list)):
            return f"step {step}: got a single example, expected a batch: is `batch` missing?"
        if len(numbers) != len(labels):
            return (
                f"step {step}: {counted(len(numbers), 'example')} came with {counted(len(labels), 'label')}: cut along the first "
                f"dimension, and keep an example's features together"
            )
        if numbers and isinstance(numbers[0], (tuple, list)):
            return f"step {step}: these are batches of batches; batch once"
        if [FACTOR * n for n in numbers] != list(labels):
            return f"step {step}: examples {list(numbers)} came with labels {list(labels)}, which are not theirs"

    return None


def _wrong_lengths(taken: list[list[list[int]]], expected: int) -> Complaint:
    lengths = list(map(len, taken))
    if len(set(lengths)) > 1:
        more, less = int(np.argmax(lengths)), int(np.argmin(lengths))
        return (
            f"worker {more} has {counted(max(lengths), 'step')}, worker {less} has {min(lengths)}: in its last step worker "
            f"{more} would wait for ever. Drop an incomplete *global* batch."
        )
    if lengths[0] == expected:
        return None

    steps, workers = lengths[0], len(taken)
    complaint = f"expected {counted(expected, 'step')}, one for each whole global batch; got {steps}."
    if steps >= MOST_STEPS:
        return f"{complaint} The data set does not end: is there a `repeat` in it?"
    if steps == expected + 1:
        return f"{complaint} The last global batch is incomplete: leave it out."
    if workers > 1 and steps <= expected // workers + 1:
        return f"{complaint} Each step takes a global batch for every worker: global_batch is for all workers together."
    if steps > expected:
        return f"{complaint} Does every worker go through all examples?"
    return complaint


def _wrong_batches(taken: list[list[list[int]]], examples: int, batch: int) -> Complaint:
    endless = max(map(len, taken)) >= MOST_STEPS
    for step, parts in enumerate(zip(*taken, strict=False)):
        together = list(chain(*parts))
        wanted = list(range(step * batch, min((step + 1) * batch, examples)))
        if sorted(together) == wanted:
            continue
        if not wanted or (endless and step == examples // batch):  # a step too many, which `_wrong_lengths` reports
            return None

        shown = "; ".join(f"worker {worker} takes {part}" for worker, part in enumerate(parts))
        complaint = f"step {step}: expected examples {wanted[0]} to {wanted[-1]} (counted from 0), each once; {shown}. "
        twice = sorted({n for n in together if together.count(n) > 1})
        if twice:
            return complaint + f"Example {twice[0]} is taken several times, so it counts too much."
        if len(together) > batch:
            return complaint + "That is more than one global batch: global_batch is for all workers together."
        if len(together) < len(wanted):
            return complaint + "No worker takes the rest of the batch."
        return complaint + "Cut global batches first, then share each one out; do not shuffle here."

    return None


def _wrong_parts(taken: list[list[list[int]]], expected: int) -> Complaint:
    for step, parts in enumerate(zip(*taken, strict=False)):
        for worker, part in enumerate(parts):
            if len(part) != expected:
                return f"step {step}: worker {worker} takes {counted(len(part), 'example')}, expected {expected}"
    return None
