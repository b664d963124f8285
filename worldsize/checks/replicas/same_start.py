"""Check of the replicas' start: every rank gets rank 0's weights, each into the tensor that its model holds.

Messages may take any route, but no rank receives more bytes than its weights have. The broadcast at the start is from S. Li
et al., "PyTorch Distributed", VLDB 2020.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.values import TOLERANCE, same
from worldsize.checks.replicas.in_place import EXACT, Arrays, first_wrong, not_in_place, tensor_of
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count, times

ONCE = "rank 0's weights travel once to every other rank, into its own tensors"
ALIKE = "every rank holds rank 0's weights"

SIZES = (3, 4, 2, 1)
MORE_RANKS = (5, 8)  # range of the drawn world size
# float64 and int64 hold digits that float32 would round; the int64 scalar is like BatchNorm's counter of batches
SHAPES = (((2, 3), "float32"), ((3,), "float64"), ((), "int64"))
ONE_TENSOR, FIVE_TENSORS = SHAPES[1:2], (*SHAPES[::-1], ((2,), "int64"), ((4, 1), "float32"))
LARGE = 2**25  # float32 has no odd numbers beyond 2**24
CUT = 1.0  # a mean written into an integer tensor loses its fraction


@exercise({ONCE: 0.75, ALIKE: 0.25}, seen={ONCE: evidence.RETURNED_AND_MESSAGES})
def same_start(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check that replicas start alike: `same_start(fabric, weights)` copies rank 0's weights to all ranks, in place.

    `weights` is a list of tensors, of any shapes and dtypes.
    """
    cases = []
    lists = [(n, SHAPES) for n in SIZES]
    for n, shapes in (*lists, (2, ONE_TENSOR), (arena.draws.randint(*MORE_RANKS), FIVE_TENSORS)):
        inputs = _weights(n, arena.draws.getrandbits(32), shapes)
        run = partial(arena.ranks, fn, inputs, driver=on_ranks.in_memory)
        name = f"{ranks_in_words(n)}, {count(len(shapes), 'tensor')}"
        cases.append(Case(name, run, partial(_examine, inputs=inputs)))
    return cases


def _weights(n: int, seed: int, shapes: Sequence[tuple[tuple[int, ...], str]]) -> list[Arrays]:
    generator = np.random.default_rng([seed, n])
    inputs: list[Arrays] = []
    for rank in range(n):
        own = []
        for shape, dtype in shapes:
            numbers = np.asarray(generator.integers(1, 100, shape) + 1000 * (rank + 1) ** 2)  # squared: no rank has the mean
            if dtype == "int64":
                numbers = numbers + LARGE + numbers % 2 + 1  # odd
            if dtype == "float64":
                numbers = numbers + 1 / 3
            own.append(np.asarray(numbers).astype(dtype))
        inputs.append(own)

    return inputs


def _examine(ended: ArenaResult, inputs: list[Arrays]) -> dict[str, Complaint]:
    wrong = _wrong_start(ended.inputs, ended.returned, inputs)
    received = none_sent(ended.trace) or _received_too_much(ended, inputs)
    return {ALIKE: wrong, ONCE: UNEXAMINED if wrong else though_right("the values", received)}


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


def _wrong_start(held: Sequence[Any], noted: Sequence[Any], inputs: Sequence[Arrays]) -> Complaint:
    """Return a complaint if replicas do not start with rank 0's weights, or None.

    The complaint names the first tensor in the lists `held[rank]` that differs from rank 0's, or else the first whose
    memory differs. `noted[rank]` is the record of `on_ranks.in_memory`.
    """

    def diagnosis(rank: int, k: int, got: np.ndarray) -> str:
        return _start_mistake(got, tensor_of(noted[rank]["returned"], k), inputs, rank, k)

    return first_wrong(held, inputs[0], diagnosis) or not_in_place(noted, inputs[0])


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
        if same(given, inputs[0][k], **EXACT):
            return (
                "The function returned rank 0's weights, but the tensor itself is unchanged: receive into it, or copy_ into it."
            )
        if k:
            return f"Tensor {k - 1} did arrive: send all tensors of the list."
        return f"These are still rank {rank}'s own weights."

    for owner in range(1, len(inputs)):
        if same(got, inputs[owner][k], **EXACT):
            return f"These are rank {owner}'s weights: all ranks must hold rank 0's."

    return ""
