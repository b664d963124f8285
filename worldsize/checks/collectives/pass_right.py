"""Check of lab 00: every rank passes its tensor to the next rank of a ring."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.collectives.long_tensors import Runs
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import Expected
from worldsize.checks.kit.judge import Case, ranks_in_words
from worldsize.checks.kit.transfers import sent_by_each
from worldsize.checks.kit.values import inputs_for
from worldsize.checks.verdict import Complaint
from worldsize.trace import Trace, ring_links, stray

VALUES = "every rank returns its left neighbour's tensor"
MESSAGES = "one message a rank, to the right neighbour"
ALONE = "a rank alone returns its own values"
AT_LARGE = "so too with nine ranks, a large matrix, another dtype"
BEYOND_FLOAT32 = 2**25  # float32 has only every fourth whole number beyond it


@dataclass(frozen=True)
class _Ring:
    """A run of `pass_right`: the number of ranks, and the shape and dtype of each rank's tensor."""

    world_size: int
    shape: tuple[int, ...]
    dtype: str = "float32"


RINGS = (
    _Ring(2, (4,)),
    _Ring(3, (5,)),
    _Ring(1, (3,)),
    _Ring(4, (200, 201)),  # 160.8 kB: too large to travel in one piece with its header
    _Ring(9, (6,), "int64"),
)


@exercise({VALUES: 1.0, MESSAGES: 1.0, ALONE: 1.0, AT_LARGE: 1.0}, seen={MESSAGES: evidence.MESSAGES})
def pass_right(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check the first exercise, a message to the right.

    `pass_right(fabric, x)` returns what the rank before sent; x has any shape and any dtype. No verdict depends on
    luck: inputs are whole numbers that differ from rank to rank in every element.
    """
    seed, runs = arena.draws.getrandbits(32), Runs(arena, fn)
    for ring in RINGS:
        drawn = inputs_for(ring.world_size, int(np.prod(ring.shape)), seed, ring.dtype)
        if ring.dtype == "int64":
            drawn = [values + BEYOND_FLOAT32 for values in drawn]
        arena.draws.shuffle(drawn)  # so that no value gives away its rank
        inputs = [values.reshape(ring.shape) for values in drawn]
        if runs.would_take_minutes(inputs):
            continue
        at_large = ring.dtype != "float32" or len(ring.shape) > 1
        name = ranks_in_words(ring.world_size)
        if at_large:
            name += f", {ring.dtype}{list(ring.shape)}"
        yield Case(name, partial(runs.on, inputs), partial(_examine, inputs=inputs, at_large=at_large))


def _examine(ended: ArenaResult, inputs: list[np.ndarray], at_large: bool) -> dict[str, Complaint]:
    value = _expected(inputs).wrong(ended.returned)
    messages = _wrong_messages(ended.trace)
    if len(inputs) == 1:
        return {ALONE: value or messages}
    if at_large:
        return {AT_LARGE: value or messages}
    return {VALUES: value, MESSAGES: messages}


def _expected(inputs: list[np.ndarray]) -> Expected:
    if len(inputs) == 1:
        return Expected("its own values", inputs, rounding=0.0)

    mistakes = {
        "This is the rank's own tensor: return the received tensor.": inputs,
        "This is the right neighbour's tensor: the ring turns the wrong way.": [*inputs[1:], inputs[0]],
    }
    right = [inputs[-1], *inputs[:-1]]
    return Expected(lambda rank: f"rank {(rank - 1) % len(inputs)}'s values", right, mistakes, rounding=0.0)


def _wrong_messages(trace: Trace) -> Complaint:
    n = trace.world_size
    strays = trace.transfers if n == 1 else stray(trace, ring_links(n))
    if strays:
        first = min(strays, key=lambda t: (t.src, t.dst))  # not the first in time, which differs from run to run
        right = f"only to the right neighbour, rank {(first.src + 1) % n}"
        return f"rank {first.src} sent a message to rank {first.dst}; expected one {right}"

    if n == 1:
        return None
    sent = sent_by_each(trace)
    for rank in range(n):
        if sent[rank] != 1:
            return f"rank {rank} sent {sent[rank]} messages; expected exactly 1"

    return None
