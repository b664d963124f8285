"""The check of lab 00: every rank passes its tensor to the next one round a ring."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, first_complaint, judge, ranks_in_words
from worldsize.checks.kit.transfers import sent_by_each
from worldsize.checks.kit.values import first_difference, inputs_for
from worldsize.checks.verdict import Complaint, Verdict
from worldsize.trace import Trace, Transfer, ring_links, stray

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
        dtype = "int64" if world_size == 3 else "float32"
        inputs = inputs_for(world_size, length, seed, dtype)
        yield Case(
            ranks_in_words(world_size),
            lambda inputs=inputs: arena.ranks(fn, inputs),
            lambda ended, inputs=inputs: _examine(ended, inputs),
        )


def _examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
    value = first_complaint(_wrong_value(got, inputs, rank) for rank, got in enumerate(ended.returned))
    if len(inputs) == 1:
        return {ALONE: value or _message_alone(ended.trace)}
    return {VALUES: value, MESSAGES: _wrong_messages(ended.trace)}


def _wrong_value(got: object, inputs: list[np.ndarray], rank: int) -> Complaint:
    n = len(inputs)
    if n == 1:
        return first_difference(got, inputs[0], rank, "its own tensor")

    left, right = (rank - 1) % n, (rank + 1) % n
    complaint = first_difference(got, inputs[left], rank, f"what rank {left} sent")
    if complaint is None or not isinstance(got, np.ndarray):
        return complaint

    if np.array_equal(got, inputs[rank]):
        return f"{complaint}. This is the rank's own tensor: return the one that was received"
    if n > 2 and np.array_equal(got, inputs[right]):
        return f"{complaint}. This is the right neighbour's tensor: the ring turns the wrong way"
    return complaint


def _message_alone(trace: Trace) -> Complaint:
    if trace.transfers:
        return _stray_message(trace.transfers, 1)
    return None


def _wrong_messages(trace: Trace) -> Complaint:
    n = trace.world_size
    strays = stray(trace, ring_links(n))
    if strays:
        return _stray_message(strays, n)

    sent = sent_by_each(trace)
    for rank in range(n):
        if sent[rank] != 1:
            return f"rank {rank} sent {sent[rank]} messages; expected exactly 1"

    return None


def _stray_message(strays: Sequence[Transfer], world_size: int) -> str:
    first = min(strays, key=lambda t: (t.src, t.dst))  # not the first in time, which differs from run to run
    right = f"only to the right neighbour, rank {(first.src + 1) % world_size}"
    return f"rank {first.src} sent a message to rank {first.dst}; expected one {right}"
