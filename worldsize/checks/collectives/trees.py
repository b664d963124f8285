"""The checks of lab 02's three trees: broadcast, reduce and gather, from and to any root, at any world size.

Values must be exact; the messages must be a tree's: one for every rank but the root, in ⌈log2 n⌉ rounds. Any tree
that keeps this passes. The words come from `tree_transfers` (messages) and `chunks` (sums). Left out: speed. The
binomial tree of these collectives is in R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective
communication operations in MPICH", IJHPCA 19, 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.collectives import chunks, tree_transfers
from worldsize.checks.kit.judge import Case, judge, none_sent, ranks_in_words
from worldsize.checks.kit.values import first_difference, inputs_for, same
from worldsize.checks.verdict import Verdict

Sizes = Iterable[tuple[int, int]]  # (world size, elements); the root is the remainder of the two
Words = str | None
# what is wrong with the values and with the messages; rounds are asked for where both are right
Examine = Callable[[ArenaResult, list[np.ndarray], int], tuple[Words, Words, Callable[[], Words]]]

# Four ranks first: with three, a star and a chain are as quick as a tree. Eight tell a good tree from a middling one.
SIZES: Sizes = ((4, 8), (4, 5), (3, 5), (2, 5), (1, 3), (5, 7), (8, 6))

BROADCAST = {
    "every rank's x is the root's": 0.5,
    "one message to every rank but the root, the whole tensor": 0.5,
    "⌈log2 n⌉ rounds": 0.5,
}
REDUCE = {
    "x of the root holds the sum": 0.5,
    "one message from every rank but the root, the whole tensor": 0.5,
    "⌈log2 n⌉ rounds": 0.5,
}
GATHER = {
    "the root returns every rank's block, the others None": 0.5,
    "one message from every rank but the root: its own block and those it received": 0.5,
    "⌈log2 n⌉ rounds": 0.5,
}


def tree_broadcast(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check of a broadcast down or up one of the trees.

    `tree_broadcast(fabric, x, root)` leaves the root's x, of shape [elements], in every rank's x.
    """

    def examine(ended: ArenaResult, inputs: list[np.ndarray], root: int) -> tuple[Words, Words, Callable[[], Words]]:
        return (
            _wrong_copies(ended, inputs, root),
            none_sent(ended.trace) or tree_transfers.one_to_each(ended.trace, root, inputs[0].nbytes),
            lambda: tree_transfers.slow_down(ended.trace, root),
        )

    return judge("tree_broadcast", BROADCAST, _cases(arena, fn, sizes, BROADCAST, examine))


def tree_reduce(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check of a reduce down or up one of the trees.

    `tree_reduce(fabric, x, root)` leaves the sum of all x, of shape [elements], in the root's x.
    """

    def examine(ended: ArenaResult, inputs: list[np.ndarray], root: int) -> tuple[Words, Words, Callable[[], Words]]:
        return (
            _wrong_total(ended, inputs, root),
            none_sent(ended.trace) or tree_transfers.whole_tensors_up(ended.trace, root, inputs[0].nbytes),
            lambda: tree_transfers.slow_up(ended.trace, root),
        )

    return judge("tree_reduce", REDUCE, _cases(arena, fn, sizes, REDUCE, examine))


def tree_gather(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Verdict:
    """Check of a gather down or up one of the trees.

    `tree_gather(fabric, x, root)` returns all x, of shape [world size, elements], on the root, None elsewhere.
    """

    def examine(ended: ArenaResult, inputs: list[np.ndarray], root: int) -> tuple[Words, Words, Callable[[], Words]]:
        return (
            _wrong_rows(ended, inputs, root),
            none_sent(ended.trace) or tree_transfers.blocks_up(ended.trace, root, inputs[0].nbytes),
            lambda: tree_transfers.slow_up(ended.trace, root),
        )

    return judge("tree_gather", GATHER, _cases(arena, fn, sizes, GATHER, examine))


def _cases(arena: Arena, fn: Callable, sizes: Sizes, names: Iterable[str], examine: Examine) -> Iterator[Case]:
    seed = arena.draws.getrandbits(32)
    for world_size, length in sizes:
        inputs, root = inputs_for(world_size, length, seed), length % world_size
        yield Case(
            f"{ranks_in_words(world_size)}, root {root}, {length} elements",
            lambda inputs=inputs, root=root: arena.ranks(fn, inputs, root),
            lambda ended, inputs=inputs, root=root: _found(names, *examine(ended, inputs, root)),
        )


def _found(names: Iterable[str], wrong: Words, traffic_words: Words, slow: Callable[[], Words]) -> dict[str, Words]:
    """By property. Says of wrong messages that the values are right, where they are."""
    values, messages, rounds = names
    if wrong:
        return {values: wrong, messages: traffic_words}
    complaint = traffic_words or slow()
    but = complaint and f"the values are right, but {complaint}"
    return {values: None, messages: but} if traffic_words else {values: None, messages: None, rounds: but}


_COUNT_FROM_THE_ROOT = "Count ranks from the root: (rank − root) % n."


# ---- a broadcast's values --------------------------------------------------------------------


def _wrong_copies(ended: ArenaResult, inputs: Sequence[np.ndarray], root: int) -> str | None:
    expected = inputs[root]
    if _all_are(ended.inputs, expected):
        return None
    if _all_are(ended.returned, expected):
        return "the root's tensor was returned, but x itself does not hold it: receive into x."
    if root and _all_are(ended.inputs, inputs[0]):
        return f"every rank has rank 0's tensor, but the root is rank {root}. {_COUNT_FROM_THE_ROOT}"
    rank = next(r for r, got in enumerate(ended.inputs) if not same(got, expected))
    complaint = first_difference(ended.inputs[rank], expected, rank, f"the tensor of rank {root}, the root")
    return f"{complaint}. {_whose_copy(ended.inputs[rank], inputs, rank, root)}"


def _whose_copy(got: np.ndarray, inputs: Sequence[np.ndarray], rank: int, root: int) -> str:
    owner = next((r for r, x in enumerate(inputs) if same(got, x)), None)
    if rank == root:
        return "The root's own x was overwritten: it has nothing to receive."
    if owner == rank:
        return f"These are still rank {rank}'s own values: nothing arrived in its x."
    if owner is not None:
        return f"These are rank {owner}'s own values: it passed on its x before the root's had arrived."
    if same(got, chunks.total(inputs)):
        return "This is the sum of all ranks: a broadcast copies, it adds nothing."
    return ""


# ---- a reduce's values -----------------------------------------------------------------------


def _wrong_total(ended: ArenaResult, inputs: Sequence[np.ndarray], root: int) -> str | None:
    expected, got = chunks.total(inputs), ended.inputs[root]
    if same(got, expected):
        return None
    if same(ended.returned[root], expected):
        return f"rank {root} returned the sum, but its x does not hold it: add up in place, x += …"
    holder = next((r for r, x in enumerate(ended.inputs) if len(inputs) > 1 and same(x, expected)), None)
    if holder is not None:
        return f"rank {holder} holds the sum, but the root is rank {root}. {_COUNT_FROM_THE_ROOT}"
    complaint = first_difference(got, expected, root, "the sum, on the root")
    if len(inputs) > 1 and same(got, expected / len(inputs)):
        return f"{complaint}. This is the mean, not the sum: nothing is to be divided."
    return f"{complaint}. {chunks.whose(got, root, inputs)}".rstrip()


# ---- a gather's values -----------------------------------------------------------------------


def _wrong_rows(ended: ArenaResult, inputs: Sequence[np.ndarray], root: int) -> str | None:
    expected = np.stack(inputs)
    holders = [r for r, got in enumerate(ended.returned) if got is not None]
    got = ended.returned[root]
    if got is None and any(same(ended.returned[r], expected) for r in holders):
        return f"rank {holders[0]} returned the blocks, but the root is rank {root}. {_COUNT_FROM_THE_ROOT}"
    if not isinstance(got, np.ndarray) or (got.shape, got.dtype) != (expected.shape, expected.dtype):
        return first_difference(got, expected, root, "all blocks")
    for row in range(len(inputs)):
        if not same(got[row], expected[row]):
            return f"rank {root}, row {row}: expected rank {row}'s block. {_whose_row(got, inputs, row)}"
    other = next((r for r in holders if r != root), None)
    return None if other is None else f"rank {other} returned something; expected None: rank {root}, the root, has it all."


def _whose_row(got: np.ndarray, inputs: Sequence[np.ndarray], row: int) -> str:
    owners = [next((r for r, x in enumerate(inputs) if same(part, x)), None) for part in got]
    if sorted(r for r in owners if r is not None) == list(range(len(inputs))):
        return f"It holds rank {owners[row]}'s: all blocks are there, in the order of the tree. Put them in that of the ranks."
    if owners[row] is not None:
        return f"It holds rank {owners[row]}'s, and rank {row}'s is in row {owners.index(row)}." if row in owners else (
            f"It holds rank {owners[row]}'s; rank {row}'s never arrived."
        )  # fmt: skip
    return "It holds zeros: that block never arrived." if not got[row].any() else f"It holds no rank's block: {got[row][:3]} …"


# ---- of all ----------------------------------------------------------------------------------


def _all_are(held: Sequence[object], expected: np.ndarray) -> bool:
    return all(same(got, expected) for got in held)
