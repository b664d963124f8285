"""Checks of lab 02's two trees: broadcast and reduce, from and to any root, at any world size.

Values must be exact, and messages a tree's: one for every rank but the root, in ⌈log2 n⌉ rounds. Rounds carry most of
the points, since a star has all the rest; any such tree passes. The binomial tree of these collectives is in R. Thakur,
R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19, 2005.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.collectives import chunks, tree_transfers
from worldsize.checks.collectives.long_tensors import Runs
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, none_sent, ranks_in_words, values_first
from worldsize.checks.kit.values import all_same, first_difference, inputs_for, same
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.trace import Trace

Sizes = Iterable[tuple[int, int]]  # (world size, elements); the root is elements % world size

# Four ranks first: with three, a star and a chain are as quick as a tree. Eleven tell a good tree from a middling one, and
# need a round more than eight; nineteen need a round more than sixteen, for three ranks. A message of 40,001 numbers is too
# long to be copied when it is sent.
SIZES: Sizes = ((4, 8), (4, 5), (3, 40_001), (2, 5), (1, 3), (5, 7), (6, 9), (11, 6), (19, 22))
DTYPES = {5: "int64", 6: "float64"}  # by world size; a buffer of a fixed dtype then shows
BEYOND_FLOAT32 = 2.0**40  # the next float32 is 131,072 further on

COPIED = "every rank's x is the root's"
ONE_TO_EACH = "one message to every rank but the root, the whole tensor"
SUMMED = "x of the root holds the sum"
ONE_FROM_EACH = "one message from every rank but the root, the whole tensor"
ROUNDS = "⌈log2 n⌉ rounds"


@exercise({COPIED: 0.25, ONE_TO_EACH: 0.25, ROUNDS: 1.0}, seen={ONE_TO_EACH: evidence.MESSAGES, ROUNDS: evidence.MESSAGES})
def tree_broadcast(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Iterable[Case]:
    """Check a broadcast down a tree.

    `tree_broadcast(fabric, x, root)` leaves the root's x, of shape [elements], in every rank's x.
    """
    ways = _Ways(_wrong_copies, _has_copied, tree_transfers.no_tree_down, tree_transfers.slow_down)
    return _cases(arena, fn, sizes, partial(_examine, COPIED, ONE_TO_EACH, ways))


@exercise({SUMMED: 0.25, ONE_FROM_EACH: 0.25, ROUNDS: 1.0}, seen={ONE_FROM_EACH: evidence.MESSAGES, ROUNDS: evidence.MESSAGES})
def tree_reduce(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Iterable[Case]:
    """Check a reduce up a tree.

    `tree_reduce(fabric, x, root)` leaves the sum of all x, of shape [elements], in the root's x.
    """
    ways = _Ways(_wrong_total, _has_summed, tree_transfers.no_tree_up, tree_transfers.slow_up)
    return _cases(arena, fn, sizes, partial(_examine, SUMMED, ONE_FROM_EACH, ways))


class _Ways(NamedTuple):
    """The ways to judge a tree, down or up."""

    wrong_values: Callable[[ArenaResult, Sequence[np.ndarray], int], Complaint]
    has_done: Callable[[ArenaResult, Sequence[np.ndarray], int], bool]  # for this root, be it the right one or not
    no_tree: Callable[[Trace, int], Complaint]
    slow: Callable[[Trace, int], Complaint]


def _examine(
    values: str, messages: str, ways: _Ways, ended: ArenaResult, inputs: Sequence[np.ndarray], root: int
) -> dict[str, Complaint]:
    sent = none_sent(ended.trace) or ways.no_tree(ended.trace, root) or _not_whole(ended, inputs)
    found = {values: ways.wrong_values(ended, inputs, root), messages: sent, ROUNDS: _rounds(ways, ended, inputs, root)}
    return values_first(found)


def _rounds(ways: _Ways, ended: ArenaResult, inputs: Sequence[np.ndarray], root: int) -> Complaint:
    """Count the rounds of a tree that has done its work, at the root or, if that is its mistake, at another rank."""
    for at in (root, *range(len(inputs))):
        if ways.no_tree(ended.trace, at):
            continue
        # another dtype tries buffers: digits that are lost there do not undo a tree whose work the other cases show
        if inputs[0].dtype != "float32" or (ways.has_done(ended, inputs, at) and not _not_whole(ended, inputs)):
            return ways.slow(ended.trace, at)
    return UNEXAMINED


def _not_whole(ended: ArenaResult, inputs: Sequence[np.ndarray]) -> Complaint:
    return tree_transfers.not_whole(ended.trace, inputs[0].nbytes)


def _cases(arena: Arena, fn: Callable, sizes: Sizes, examine: Callable) -> Iterator[Case]:
    seed, runs = arena.draws.getrandbits(32), Runs(arena, fn)
    for world_size, length in sizes:
        dtype = DTYPES.get(world_size, "float32")
        inputs, root = inputs_for(world_size, length, seed, dtype), length % world_size
        if dtype == "float64":  # no value is whole, and two lose their digits in float32; their small sum shows the loss
            for rank, x in enumerate(inputs):
                x += (rank + 1) / 16
            inputs[1] += BEYOND_FLOAT32
            inputs[2] -= BEYOND_FLOAT32
        if runs.would_take_minutes(inputs):
            continue
        kind = f" of {dtype}" * (dtype == "float64")
        yield Case(
            f"{ranks_in_words(world_size)}, root {root}, {length} elements{kind}",
            partial(runs.on, inputs, root),
            partial(examine, inputs=inputs, root=root),
        )


_COUNT_FROM_THE_ROOT = "Count ranks from the root: (rank − root) % n."


def _wrong_copies(ended: ArenaResult, inputs: Sequence[np.ndarray], root: int) -> Complaint:
    expected = inputs[root]
    for rank, got in enumerate(ended.inputs):
        if same(got, expected):
            continue
        if all_same(ended.returned, expected):
            return "the root's tensor was returned, but x itself does not hold it: receive into x."
        if root and all_same(ended.inputs, inputs[0]):
            return f"every rank has rank 0's tensor, but the root is rank {root}. {_COUNT_FROM_THE_ROOT}"

        complaint = first_difference(got, expected, rank, f"the tensor of rank {root}, the root")
        if not chunks.is_like(got, expected):
            return complaint
        return f"{complaint}. {_whose_copy(got, inputs, rank, root)}"

    return None


def _has_copied(ended: ArenaResult, inputs: Sequence[np.ndarray], root: int) -> bool:
    return all_same(ended.inputs, inputs[root])


def _whose_copy(got: np.ndarray, inputs: Sequence[np.ndarray], rank: int, root: int) -> str:
    expected = inputs[root]
    if rank == root:
        return "The root's own x was overwritten: the root receives nothing."
    if same(got, inputs[rank]):
        return f"These are still rank {rank}'s own values: nothing arrived in its x."
    for owner, x in enumerate(inputs):
        if same(got, x):
            return f"These are rank {owner}'s own values: it passed on its x before the root's tensor arrived."
    if same(got, expected.astype("float32").astype(expected.dtype)):
        return chunks.LOST_DIGITS
    if chunks.is_whole_part(got, expected):
        return chunks.WHOLE.rstrip()
    if same(got, chunks.total(inputs)):
        return "This is the sum of all ranks: a broadcast copies and adds nothing."
    return ""


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
            # the sum was rounded, or every rank's part of it
            whole, broken = np.array_equal(got, np.rint(got)), not np.array_equal(expected, np.rint(expected))
            if whole and broken and np.abs(got - expected).max() < len(inputs):
                return f"{complaint}. {chunks.WHOLE}".rstrip()
            if chunks.has_lost_digits(got, expected, inputs):
                return f"{complaint}. {chunks.LOST_DIGITS}"
            for rank, x in enumerate(inputs):
                if same(got + x, expected):
                    return f"{complaint}. Rank {rank}'s values are not in this sum."

    return f"{complaint}. {_first_ranks(got, inputs, root) or chunks.whose(got, root, inputs)}".rstrip()


def _has_summed(ended: ArenaResult, inputs: Sequence[np.ndarray], root: int) -> bool:
    return same(ended.inputs[root], chunks.total(inputs))


def _first_ranks(got: np.ndarray, inputs: Sequence[np.ndarray], root: int) -> str:
    """Return a complaint if a tree's root has the sum of the first ranks alone, counted from it, as with too few steps; else
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
