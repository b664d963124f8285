"""The check of lab 00: every rank passes its tensor to the next one round a ring."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge, ranks_in_words
from worldsize.checks.kit.values import first_difference, inputs_for
from worldsize.checks.verdict import Verdict
from worldsize.trace import Trace, ring_links, stray

POINTS = {
    "every rank returns its left neighbour's tensor": 2.0,
    "one message a rank, to the right neighbour": 1.0,
    "a rank alone returns its own values": 1.0,
}
VALUES, MESSAGES, ALONE = POINTS
SIZES = ((1, 3), (2, 4), (3, 5), (4, 6))  # (world size, elements)


def pass_right(arena: Arena, fn: Callable) -> Verdict:
    """Check of the first exercise, a message to the right.

    `pass_right(fabric, x)` returns what the rank before sent; x has shape [elements], any dtype.
    """
    return judge("pass_right", POINTS, _cases(arena, fn))


def _cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    seed = arena.draws.getrandbits(32)
    for world_size, length in (*SIZES[1:], SIZES[0]):
        inputs = inputs_for(world_size, length, seed, "int64" if world_size == 3 else "float32")
        yield Case(
            ranks_in_words(world_size),
            lambda inputs=inputs: arena.ranks(fn, inputs),
            lambda ended, inputs=inputs: _examine(ended, inputs),
        )


def _examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, str | None]:
    n = len(inputs)
    wrong = (_wrong_value(ended.returned[r], inputs, r) for r in range(n))
    value = next((complaint for complaint in wrong if complaint), None)
    if n == 1:
        return {ALONE: value or _strays(ended.trace)}
    return {VALUES: value, MESSAGES: _strays(ended.trace)}


def _wrong_value(got: object, inputs: list[np.ndarray], rank: int) -> str | None:
    n = len(inputs)
    left = (rank - 1) % n
    complaint = first_difference(got, inputs[left], rank, f"what rank {left} sent" if n > 1 else "its own tensor")
    if complaint and n > 1 and isinstance(got, np.ndarray):
        if np.array_equal(got, inputs[rank]):
            complaint += ". This is the rank's own tensor: return the one that was received"
        elif n > 2 and np.array_equal(got, inputs[(rank + 1) % n]):
            complaint += ". This is the right neighbour's tensor: the ring turns the wrong way"
    return complaint


def _strays(trace: Trace) -> str | None:
    n = trace.world_size
    wrong = stray(trace, ring_links(n)) if n > 1 else list(trace.transfers)
    if wrong:
        t = min(wrong, key=lambda t: (t.src, t.dst))  # not the first in time, which differs from run to run
        right = f"only to the right neighbour, rank {(t.src + 1) % n}"
        return f"rank {t.src} sent a message to rank {t.dst}; expected one {right}"
    for rank in range(n if n > 1 else 0):
        count = sum(t.src == rank for t in trace.transfers)
        if count != 1:
            return f"rank {rank} sent {count} messages; expected exactly 1"
    return None
