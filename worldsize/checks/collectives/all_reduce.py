"""Checks of lab 06's all-reduces: one parameter server, a server on every rank, and the ring.

Values must be exact on every rank, and messages must be the algorithm's, in few rounds where that is the algorithm's
idea; any contiguous split, direction and starting chunk passes. No verdict depends on luck: all inputs differ by rank,
and rounds are counted by the order of calls. The ring is from P. Patarasuk and X. Yuan (J. Parallel and Distributed
Computing 69, 2009); `ring_halves` checks its two halves alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import starmap
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.collectives import all_reduce_transfers, chunks
from worldsize.checks.collectives.all_reduce_transfers import Ring, with_hint
from worldsize.checks.collectives.long_tensors import Runs
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, none_sent, ranks_in_words, values_first
from worldsize.checks.kit.values import inputs_for
from worldsize.checks.verdict import UNEXAMINED, Complaint


class Size(NamedTuple):
    """An all-reduce's case: the number of ranks, and the elements and dtype of each rank's tensor."""

    world_size: int
    elements: int
    dtype: str = "float32"

    @override
    def __str__(self) -> str:
        uneven = " (chunks differ in length)" * bool(self.elements % self.world_size)
        kind = f" of {self.dtype}" * (self.dtype != "float32")
        return f"{ranks_in_words(self.world_size)}, {self.elements} elements{kind}{uneven}"


Sizes = Iterable[tuple[int, int] | Size]
Examine = Callable[..., dict[str, Complaint]]  # examine(ended, inputs)

# Three ranks first: with two, a ring and a server look alike, and a mistake would get a less helpful name.
OTHER_DTYPE = Size(3, 7, "float64")
INTEGERS = Size(3, 8, "int64")
LARGE = Size(3, 120_000)  # chunks of 160 kB: the wire copies smaller ones
MANY = Size(9, 18)  # enough ranks, with equal chunks, to judge rounds; not a power of two
SIZES: Sizes = ((3, 6), (3, 7), (4, 8), (4, 3), (2, 5), (1, 5), OTHER_DTYPE, INTEGERS, LARGE, MANY)
SERVER_SIZES: Sizes = ((3, 6), (4, 8), (2, 6), (1, 5), OTHER_DTYPE, INTEGERS, LARGE, MANY)
IN_EIGHTHS = (OTHER_DTYPE, MANY)
# {dtype: a number so large that its neighbour in float32 or float64 is 131,072 or 256 further on}
BEYOND = {"float64": 2.0**40, "int64": 2**60}
SHOWS_ROUNDS = 5  # with fewer ranks, taking turns is hardly slower

SUM_RETURNED = "every rank returns the sum"
TO_ONE_SERVER = "one tensor to rank 0 and one back, nothing else"
TO_ALL_SERVERS = "at most two messages of one chunk on every link"
SERVERS_AT_ONCE = "all ranks serve at once, in about 2(n − 1) rounds"
SUM_IN_PLACE = "x holds the sum on every rank"
ON_THE_RING = "2(n − 1) messages a rank, to one neighbour"
EVEN_SHARES = "2(n − 1)/n of the tensor from every rank"
RING_AT_ONCE = "all ranks send at once, in 2(n − 1) rounds"

AT_ONCE = "In every round each rank sends one chunk and receives another: isend, then recv, then wait."
EACH_A_SERVER = "Let all ranks serve at the same time: start every isend first, and only then receive."
LOST = ", or the all-gather did not start with the fully summed chunk"


@exercise({SUM_RETURNED: 0.25, TO_ONE_SERVER: 0.75}, seen={TO_ONE_SERVER: evidence.MESSAGES})
def parameter_server(arena: Arena, fn: Callable, sizes: Sizes = SERVER_SIZES) -> Iterable[Case]:
    """Check the all-reduce by one server: in `parameter_server(fabric, x)` rank 0 adds up.

    The function returns the sum; x has shape [elements].
    """

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
        sent = none_sent(ended.trace) or all_reduce_transfers.wrong_at_server(ended.trace, inputs[0].nbytes)
        wrong = chunks.wrong_sum(ended.returned, inputs, "the return value")
        return values_first({SUM_RETURNED: wrong, TO_ONE_SERVER: sent})

    return cases(arena, fn, sizes, examine)


@exercise(
    {SUM_RETURNED: 0.25, TO_ALL_SERVERS: 0.25, SERVERS_AT_ONCE: 0.5},
    seen={TO_ALL_SERVERS: evidence.MESSAGES, SERVERS_AT_ONCE: evidence.MESSAGES},
)
def sharded_parameter_server(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Iterable[Case]:
    """Check the all-reduce by many servers: in `sharded_parameter_server(fabric, x)` rank k adds up chunk k.

    The function returns the sum; x has shape [elements].
    """

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
        want = ring_of(inputs, halves=2)
        sent = none_sent(ended.trace) or all_reduce_transfers.wrong_at_shards(ended.trace, want)
        found = {SUM_RETURNED: chunks.wrong_sum(ended.returned, inputs, "the return value"), TO_ALL_SERVERS: sent}
        return with_rounds(SERVERS_AT_ONCE, found, ended, want, EACH_A_SERVER)

    return cases(arena, fn, sizes, examine)


@exercise(
    {SUM_IN_PLACE: 0.25, ON_THE_RING: 0.5, EVEN_SHARES: 0.25, RING_AT_ONCE: 0.5},
    seen=dict.fromkeys((ON_THE_RING, EVEN_SHARES, RING_AT_ONCE), evidence.MESSAGES),
)
def ring_all_reduce(arena: Arena, fn: Callable, sizes: Sizes = SIZES) -> Iterable[Case]:
    """Check the whole ring, both halves: `ring_all_reduce(fabric, x)` leaves the sum in x on every rank.

    x has shape [elements].
    """

    def examine(ended: ArenaResult, inputs: list[np.ndarray]) -> dict[str, Complaint]:
        want, unsent = ring_of(inputs, halves=2), none_sent(ended.trace)
        wrong = chunks.wrong_sum(ended.inputs, inputs, "x", LOST)
        if wrong and len(inputs) > 1 and not chunks.wrong_sum(ended.returned, inputs, "x"):
            wrong = "the sum was returned, but x itself does not hold it: work in place, x[start:stop] += …"

        complaints = {
            SUM_IN_PLACE: with_hint(wrong, ended.trace, want),
            ON_THE_RING: unsent or all_reduce_transfers.off_the_ring(ended.trace, want),
            EVEN_SHARES: unsent or all_reduce_transfers.wrong_shares(ended.trace, want),
        }
        return with_rounds(RING_AT_ONCE, complaints, ended, want, AT_ONCE)

    return cases(arena, fn, sizes, examine)


def cases(arena: Arena, fn: Callable, sizes: Sizes, examine: Examine) -> Iterator[Case]:
    """Yield an all-reduce's case for each size, judged by `examine(ended, inputs)`."""
    seed, runs = arena.draws.getrandbits(32), Runs(arena, fn)
    for size in starmap(Size, sizes):
        inputs = inputs_of(size, seed)
        if not runs.would_take_minutes(inputs):
            yield Case(str(size), partial(runs.on, inputs), partial(examine, inputs=inputs))


def inputs_of(size: Size, seed: int) -> list[np.ndarray]:
    """Draw the ranks' inputs to an all-reduce, each of shape [elements].

    In float64 two inputs are so large that float32 would lose their digits, in int64 so large that float64 would; they
    cancel in the sum, so that the loss shows. In some cases rank 0's values are eighths: sums are exact, too, and no sum is
    a whole number.
    """
    inputs = inputs_for(size.world_size, size.elements, seed, size.dtype)
    if size in IN_EIGHTHS:
        inputs[0] += np.random.default_rng([seed, size.elements]).choice([1, 2, 3, 5, 6, 7], size.elements) / 8
    if size.dtype in BEYOND:
        first, second, *_ = inputs
        first += BEYOND[size.dtype]
        second -= BEYOND[size.dtype]
    return inputs


def with_rounds(
    name: str, complaints: dict[str, Complaint], ended: ArenaResult, want: Ring, advice: str
) -> dict[str, Complaint]:
    """Return `complaints` about an all-reduce, values first, and the property `name` about rounds.

    Rounds count only if nothing else is wrong in any case, so every case tries them. Few ranks, or chunks that differ in
    length, show no more than that.
    """
    tell = want.chunk_bytes * want.world_size == want.tensor_bytes and want.world_size >= SHOWS_ROUNDS
    if any(complaints.values()) or ended.unwaited:
        complaints[name] = UNEXAMINED
    else:
        complaints[name] = all_reduce_transfers.slow(ended.trace, want.steps, advice) if tell else None
    return values_first(complaints)


def ring_of(inputs: Sequence[np.ndarray], halves: int) -> Ring:
    """Return the messages that a ring all-reduce needs for these inputs in the coarsest usual split."""
    n, x = len(inputs), inputs[0]
    chunk_bytes = chunks.largest_chunk(len(x), n) * x.itemsize
    return Ring(world_size=n, halves=halves, tensor_bytes=x.nbytes, chunk_bytes=chunk_bytes)
