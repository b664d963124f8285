"""Checks of lab 02's two trees: broadcast and reduce, from and to any root, at any world size.

Values must be exact, and messages a tree's: one for every rank but the root, in ⌈log2 n⌉ rounds. Rounds carry most of
the points, since a star has all the rest; any such tree passes. The binomial tree of these collectives is in R. Thakur,
R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19, 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.collectives import chunks, tree_transfers
from worldsize.checks.kit.judge import Case, judge, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.values import all_same, first_difference, inputs_for, same
from worldsize.checks.verdict import Complaint, Verdict
from worldsize.trace import Trace

Sizes = Iterable[tuple[int, int]]  # (world size, elements); the root is elements % world size

# Four ranks first: with three, a star and a chain are as quick as a tree. Eleven tell a good tree from a middling one, and
# need a round more than eight; nineteen need a round more than sixteen, for three ranks. A message of 40,001 numbers is too
# long to be copied when it is sent.
SIZES: Sizes = ((4, 8), (4, 5), (3, 40_001), (2, 5), (1, 3), (5, 7), (6, 9), (11, 6), (19, 22))
DTYPES = {5: "int64", 6: "float64"}  # by world size; a buffer of a fixed dtype then shows
BEYOND_FLOAT32 = 2.0**40  # the next float32 is 131,072 further on

BROADCAST = {
    "every rank's x is the root's": 0.25,
    "one message to every rank but the root, the whole tensor": 0.25,
    "⌈log2 n⌉ rounds": 1.0,
}
REDUCE = {
    "x of the root holds the sum": 0.25,
    "one message from every rank but the root, the whole tensor": 0.25,
    "⌈log2 n⌉ rounds": 1.0,
}


@dataclass(frozen=True)
class TreeRules:
    """The rules of a tree: the properties' points, and functions that return a complaint about a run, or None.

    `wrong_values(ended, inputs, root)`, `wrong_messages(trace, root, bytes of an input)`, `slow(trace, root)`.
    """

    points: dict[str, float]
    wrong_values: Callable[[ArenaResult, Sequence[np.ndarray], int], Complaint]
    wrong_messages: Callable[[Trace, int, int], Complaint]
    slow: Callable[[Trace, int], Complaint]


def tree_broadcast(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check a broadcast down a tree.

    `tree_broadcast(fabric, x, root)` leaves the root's x, of shape [elements], in every rank's x.
    """
    rules = TreeRules(BROADCAST, _wrong_copies, tree_transfers.wrong_tensors_down, tree_transfers.slow_down)
    return judge("tree_broadcast", BROADCAST, _cases(arena, fn, sizes, rules))


def tree_reduce(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check a reduce up a tree.

    `tree_reduce(fabric, x, root)` leaves the sum of all x, of shape [elements], in the root's x.
    """
    rules = TreeRules(REDUCE, _wrong_total, tree_transfers.wrong_tensors_up, tree_transfers.slow_up)
    return judge("tree_reduce", REDUCE, _cases(arena, fn, sizes, rules))


def _cases(arena: Arena, fn: Callable, sizes: Sizes, rules: TreeRules) -> Iterator[Case]:
    seed = arena.draws.getrandbits(32)
    for world_size, length in sizes:
        dtype = DTYPES.get(world_size, "float32")
        inputs, root = _inputs(world_size, length, seed, dtype), length % world_size
        kind = f" of {dtype}" * (dtype == "float64")
        yield Case(
            f"{ranks_in_words(world_size)}, root {root}, {length} elements{kind}",
            lambda inputs=inputs, root=root: arena.ranks(fn, inputs, root),
            lambda ended, inputs=inputs, root=root: _examine(ended, inputs, root, rules),
        )


def _inputs(world_size: int, length: int, seed: int, dtype: str) -> list[np.ndarray]:
    """Draw the ranks' inputs, each of shape [elements].

    In float64 no value is whole, and two inputs are so large that float32 would lose their digits; their sum is small
    and exact, so that the loss shows.
    """
    inputs = inputs_for(world_size, length, seed, dtype)
    if dtype == "float64":
        for rank, x in enumerate(inputs):
            x += (rank + 1) / 16
        inputs[1] += BEYOND_FLOAT32
        inputs[2] -= BEYOND_FLOAT32
    return inputs


def _examine(ended: ArenaResult, inputs: Sequence[np.ndarray], root: int, rules: TreeRules) -> dict[str, Complaint]:
    """Return complaints by property. Rounds are counted only if values and messages are right."""
    values, messages, rounds = rules.points
    wrong = rules.wrong_values(ended, inputs, root)
    sent = none_sent(ended.trace) or rules.wrong_messages(ended.trace, root, inputs[0].nbytes)
    if wrong:
        return {values: wrong, messages: sent}
    if sent:
        return {values: None, messages: though_right("the values", sent)}

    slow = rules.slow(ended.trace, root)
    return {values: None, messages: None, rounds: though_right("the values", slow)}


def _owner(got: object, inputs: Sequence[np.ndarray]) -> int | None:
    """Return the rank whose own tensor `got` is, or None."""
    for rank, x in enumerate(inputs):
        if same(got, x):
            return rank

    return None


_COUNT_FROM_THE_ROOT = "Count ranks from the root: (rank − root) % n."


# ---- a broadcast's values --------------------------------------------------------------------


def _wrong_copies(ended: ArenaResult, inputs: Sequence[np.ndarray], root: int) -> Complaint:
    expected = inputs[root]
    wrong = [rank for rank, got in enumerate(ended.inputs) if not same(got, expected)]
    if not wrong:
        return None

    if all_same(ended.returned, expected):
        return "the root's tensor was returned, but x itself does not hold it: receive into x."
    if root and all_same(ended.inputs, inputs[0]):
        return f"every rank has rank 0's tensor, but the root is rank {root}. {_COUNT_FROM_THE_ROOT}"

    rank = wrong[0]
    complaint = first_difference(ended.inputs[rank], expected, rank, f"the tensor of rank {root}, the root")
    if not chunks.is_like(ended.inputs[rank], expected):
        return complaint
    return f"{complaint}. {_whose_copy(ended.inputs[rank], inputs, rank, root)}"


def _whose_copy(got: np.ndarray, inputs: Sequence[np.ndarray], rank: int, root: int) -> str:
    owner, expected = _owner(got, inputs), inputs[root]
    if rank == root:
        return "The root's own x was overwritten: the root receives nothing."
    if owner == rank:
        return f"These are still rank {rank}'s own values: nothing arrived in its x."
    if owner is not None:
        return f"These are rank {owner}'s own values: it passed on its x before the root's tensor arrived."
    if same(got, expected.astype("float32").astype(expected.dtype)):
        return chunks.LOST_DIGITS
    if chunks.is_whole_part(got, expected):
        return chunks.WHOLE.rstrip()
    if same(got, chunks.total(inputs)):
        return "This is the sum of all ranks: a broadcast copies and adds nothing."
    return ""


# ---- a reduce's values -----------------------------------------------------------------------


def _wrong_total(ended: ArenaResult, inputs: Sequence[np.ndarray], root: int) -> Complaint:
    expected, got = chunks.total(inputs), ended.inputs[root]
    if same(got, expected):
        return None
    if same(ended.returned[root], expected):
        return f"rank {root} returned the sum, but its x does not hold it: add up in place, x += …"

    complaint = first_difference(got, expected, root, "the sum on the root")
    if len(inputs) > 1:
        for rank, x in enumerate(ended.inputs):
            if same(x, expected):
                return f"rank {rank} holds the sum, but the root is rank {root}. {_COUNT_FROM_THE_ROOT}"

        if same(got, expected / len(inputs)):
            return f"{complaint}. This is the mean, not the sum: do not divide."
        if chunks.is_like(got, expected):
            if _was_made_whole(got, expected, len(inputs)):
                return f"{complaint}. {chunks.WHOLE}".rstrip()
            if chunks.has_lost_digits(got, expected, inputs):
                return f"{complaint}. {chunks.LOST_DIGITS}"
            for rank, x in enumerate(inputs):
                if same(got + x, expected):
                    return f"{complaint}. Rank {rank}'s values are not in this sum."

    return f"{complaint}. {_first_ranks(got, inputs, root) or chunks.whose(got, root, inputs)}".rstrip()


def _first_ranks(got: np.ndarray, inputs: Sequence[np.ndarray], root: int) -> str:
    """Return a complaint if the root has the sum of the first ranks alone, counted from it, as with too few steps; else
    empty.
    """
    if not chunks.is_like(got, inputs[root]):
        return ""

    n = len(inputs)
    ordered = [inputs[(root + k) % n] for k in range(n)]
    for many in range(2, n):
        if same(got, chunks.total(ordered[:many])):
            return (
                f"It is the sum of the first {many} ranks, counted from the root: go on while the step is below n = {n}."
            )
    return ""


def _was_made_whole(got: np.ndarray, expected: np.ndarray, ranks: int) -> bool:
    """Return whether `got` is whole although a sum is not: the sum was rounded, or every rank's part of it."""
    broken = bool((expected != np.rint(expected)).any())
    return broken and np.array_equal(got, np.rint(got)) and bool(np.abs(got - expected).max() < ranks)
