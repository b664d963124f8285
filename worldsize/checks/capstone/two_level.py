"""Check an all-reduce on two levels: inside each node, then between nodes, then inside again.

A node is `per_node` consecutive ranks, and any algorithm may do a stage (a ring, straight to the owner, halves). All ranks
together must send 2(k − 1) times the tensor between k nodes, every rank its part, and the same inside a node. Ranks must
work at once, counted in rounds by the order of calls, not by a clock.
P. Patarasuk, X. Yuan, J. Parallel and Distributed Computing 69, 2009 (a stage); M. Cho et al., "BlueConnect", MLSys 2019
(the stages: reduce-scatter inside, all-reduce between ranks of one place, all-gather inside).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.collectives import all_reduce_transfers, chunks
from worldsize.checks.collectives.long_tensors import Runs
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, none_sent, ranks_in_words, values_first
from worldsize.checks.kit.values import inputs_for, same
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.trace import Transfer
from worldsize.units import count, times


class NodeSize(NamedTuple):
    """A two-level case: the number of ranks, the ranks in a node, and the elements of each rank's tensor."""

    world_size: int
    per_node: int
    elements: int
    dtype: str = "float32"

    @property
    def nodes(self) -> int:
        return self.world_size // self.per_node

    @property
    def tensor_bytes(self) -> int:
        return self.elements * np.dtype(self.dtype).itemsize

    @property
    def even(self) -> bool:
        return self.elements % self.world_size == 0

    @property
    def shard_elements(self) -> int:
        """Return the elements of a node's largest shard."""
        return chunks.largest_chunk(self.elements, self.per_node)

    @override
    def __str__(self) -> str:
        kind = f" of {self.dtype}" * (self.dtype != "float32")
        uneven = " (shards or chunks differ in length)" * (not self.even)
        where = f"{count(self.nodes, 'node')} of {ranks_in_words(self.per_node)}"
        return f"{where}, {self.elements} elements{kind}{uneven}"


SIZES: Iterable[NodeSize] = (
    NodeSize(6, 2, 24),  # three nodes first: between two, a tree sends as much as a ring
    NodeSize(6, 3, 24),
    NodeSize(6, 2, 25),
    NodeSize(4, 2, 3),
    NodeSize(3, 1, 7),
    NodeSize(2, 2, 5),
    NodeSize(1, 1, 5),
    NodeSize(6, 3, 13, "float64"),
    NodeSize(8, 2, 48),  # of four nodes two are no neighbours; partners that swap whole shards send more than a ring
    NodeSize(8, 4, 40),
    NodeSize(6, 2, 18, "int32"),
    NodeSize(4, 2, 160_000),  # chunks of 160 kB: a wire copies smaller messages
    NodeSize(9, 3, 36),
)
SHOWS_ROUNDS = 9  # with fewer ranks, taking turns is hardly slower
BEYOND_FLOAT32 = {"float64": 2**40, "int32": 2**29}  # here float32 numbers are 131,072 and 64 apart

SUM = "x holds the sum on every rank"
BETWEEN = "between nodes: 2(nodes − 1) of the tensor in all, and every rank sends its part"
INSIDE = "inside a node: 2(per_node − 1) of the tensor, and every rank sends its part"
AT_ONCE = "all ranks send at once, in 2(per_node − 1) + 2(nodes − 1) rounds"


@exercise(
    {SUM: 0.25, BETWEEN: 1.0, INSIDE: 0.25, AT_ONCE: 0.5},
    seen=dict.fromkeys((BETWEEN, INSIDE, AT_ONCE), evidence.MESSAGES),
)
def two_level_all_reduce(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check `two_level_all_reduce(fabric, x, per_node)`, which leaves the sum in x on every rank.

    x has shape [elements]; ranks node · per_node and the per_node − 1 after it are in one node.
    """
    seed, runs = arena.draws.getrandbits(32), Runs(arena, fn)
    for size in SIZES:
        inputs = inputs_for(size.world_size, size.elements, seed, size.dtype)
        if size.dtype in BEYOND_FLOAT32:  # two inputs so large that a float32 would lose their digits
            inputs[0] += BEYOND_FLOAT32[size.dtype]
            inputs[-1] -= BEYOND_FLOAT32[size.dtype]
        if runs.would_take_minutes(inputs):
            continue
        yield Case(
            str(size),
            lambda inputs=inputs, size=size: runs.on(inputs, size.per_node),
            lambda ended, inputs=inputs, size=size: _examine(ended, inputs, size),
        )


def _examine(ended: ArenaResult, inputs: list[np.ndarray], size: NodeSize) -> dict[str, Complaint]:
    """Judge the values, messages and rounds of a two-level all-reduce.

    Messages of the right size between nodes count only with the right values, and rounds only where nothing is wrong.
    """
    wrong = chunks.wrong_sum(ended.inputs, inputs, "x")
    if wrong:
        wrong = _other_sum(ended.inputs, inputs, size) or wrong
    complaints = {SUM: wrong}
    if wrong and size.world_size > 1 and not chunks.wrong_sum(ended.returned, inputs, "x"):
        complaints[SUM] = "the sum was returned, but x itself does not hold it: work in place, x.copy_(…) or x[start:stop] = …"
        wrong = None  # messages count where the sum is right, though it is beside x

    if size.world_size > 1:
        complaints[BETWEEN] = UNEXAMINED if wrong else none_sent(ended.trace) or _wrong_between(ended, size)
        complaints[INSIDE] = none_sent(ended.trace) or _wrong_inside(ended, size)

    if not any(complaints.values()):
        complaints[SUM] = _not_returned(ended, inputs)

    if any(complaints.values()) or ended.unwaited:
        complaints[AT_ONCE] = UNEXAMINED
    elif size.even and size.world_size >= SHOWS_ROUNDS:
        fewest = 2 * (size.per_node - 1) + 2 * (size.nodes - 1)
        complaints[AT_ONCE] = all_reduce_transfers.slow(ended.trace, fewest, "No node and no shard needs to wait for another.")
    else:
        complaints[AT_ONCE] = None  # so few ranks show no more

    return values_first(complaints)


def _not_returned(ended: ArenaResult, inputs: Sequence[np.ndarray]) -> Complaint:
    """Complain if x holds the two-level sum but is not returned: the lab's next cell goes on with the returned tensor."""
    for rank, got in enumerate(ended.returned):
        if got is None:
            return f"x holds the sum, but rank {rank} returned nothing, and the next cell needs it: return x"
    if chunks.wrong_sum(ended.returned, inputs, "x"):
        return "x holds the sum, but the function returned something else, and the next cell needs x: return x"
    return None


def _other_sum(held: Sequence[np.ndarray], inputs: Sequence[np.ndarray], size: NodeSize) -> Complaint:
    """Return what else the ranks hold, in words: a node's sum, a place's sum, an average, or the whole sum in a shard alone."""
    n, g = size.world_size, size.per_node
    if 1 in (size.nodes, g) or not all(map(chunks.is_like, held, inputs)):
        return None

    tables = np.array(inputs)
    of_node = [tables[r // g * g : r // g * g + g].sum(axis=0) for r in range(n)]
    if all(map(same, held, of_node)):
        return "every rank holds the sum of its own node: the sums have not been added up between the nodes"

    of_place = [tables[r % g :: g].sum(axis=0) for r in range(n)]
    if all(map(same, held, of_place)):
        return f"every rank holds the sum over ranks 0, {g} and so on, or over the next ones: nothing was added up inside a node"

    expected = chunks.total(inputs)
    divided = {
        "between nodes: it is the sum over the number of nodes": size.nodes,
        "inside a node: it is the sum over the ranks of a node": g,
    }
    for where, by in divided.items():
        if all(same(got * by, expected) for got in held):
            return f"every rank holds an average {where}. Divide nothing"
    if all(same(got, expected * size.nodes) for got in held):
        return "every rank holds the sum once for each node: it was added up between the nodes twice"

    own = []  # of a rank: in each shard of x, the input of that shard's rank
    for first in range(0, n, g):
        shards = [np.array_split(inputs[first + place], g)[place] for place in range(g)]
        own += [np.concatenate(shards)] * g
    if all(map(same, held, own)):
        return "each shard of x is its rank's own input: the sum was not put back into x before the all-gather"
    if all(same(got - expected, began) for got, began in zip(held, own, strict=True)):
        return "each shard was added to what x held there: put the sum in its place, copy_ and not +="

    right = np.array([np.isclose(got, expected, rtol=1e-6) for got in held])
    if (right.sum(axis=0) == size.nodes).all() and right.any(axis=1).all():
        return "one rank of every node holds the whole sum of each shard, and no other does: all-gather inside the node"
    lacking = [rank for rank, got in enumerate(held) if not same(got, expected)]
    if 0 < len(lacking) < n:
        return f"some ranks hold the sum, rank {lacking[0]} does not: every rank of every node must hold it"
    return None


def _wrong_between(ended: ArenaResult, size: NodeSize) -> Complaint:
    """Complain about wrong bytes between nodes: first about all ranks together, then about the rank that sent most."""
    crossing = [t for t in ended.trace.transfers if _crosses(t, size)]
    total, expected = sum(t.size_bytes for t in crossing), 2 * (size.nodes - 1) * size.tensor_bytes
    if total != expected:
        got = f"{total} bytes went between nodes, {times(total / size.tensor_bytes)} x the tensor"
        return (
            f"{got}; expected {expected} bytes, {2 * (size.nodes - 1)} x, from all ranks together. "
            f"{_why_wrong(crossing, total, expected, size)}"
        )

    sent = _sent(crossing, size)
    most = sent.index(max(sent))
    # a shard's all-reduce between k nodes: 2(k − 1) of its chunks
    allowed = 2 * (size.nodes - 1) * chunks.largest_chunk(size.shard_elements, size.nodes) * np.dtype(size.dtype).itemsize
    if sent[most] > allowed:
        advice = "Let all ranks that share a shard send equal parts."
        if 0 in sent:
            advice = f"{count(sent.count(0), 'rank')} sent none there: let every rank carry its own shard across."
        return (
            f"rank {most} sent {sent[most]} bytes to other nodes; expected at most {allowed}, "
            f"2 (nodes − 1)/nodes of its shard. {advice}"
        )
    return None


def _why_wrong(crossing: Sequence[Transfer], total: int, expected: int, size: NodeSize) -> str:
    if total < expected:
        return "Something that other nodes need did not cross."
    if size.per_node == 1:
        return "With one rank per node this is an all-reduce of the whole tensor: send a chunk at a time."
    if total == expected * size.per_node:
        return "Every rank carries the whole tensor across: first reduce-scatter inside the node, then cross with the shard."

    links = {(t.src, t.dst) for t in crossing}
    ring = {(r, (r + 1) % size.world_size) for r in range(size.world_size)}
    if links <= ring or links <= {(b, a) for a, b in ring}:
        return "That is one ring through all ranks: its edges between nodes carry what all ranks behind them send."
    for parts in (size.per_node, size.world_size):
        padded = -(-size.elements // parts) * parts
        if total * size.elements == expected * padded:
            return f"That is as much as {padded} elements take: do not pad x, its parts may differ in length."
    if total - expected < size.tensor_bytes / 4:
        return "That is a little more: do other messages cross, too?"
    nodes, g = size.nodes, size.per_node
    every_nth = all(src % nodes == dst % nodes or src // nodes == dst // nodes for src, dst in links)
    if every_nth and any((dst - src) % g for src, dst in links):
        return f"Your groups take ranks 0, {nodes} and so on for a node: it is {g} neighbors, ranks 0 to {g - 1}, then the next."
    return "Send only a rank's own shard across, 1/per_node of the tensor, in chunks."


def _wrong_inside(ended: ArenaResult, size: NodeSize) -> Complaint:
    staying = [t for t in ended.trace.transfers if not _crosses(t, size)]
    sent, expected = _sent(staying, size), 2 * (size.per_node - 1) * size.tensor_bytes
    for node in range(size.nodes):
        total = sum(sent[node * size.per_node : (node + 1) * size.per_node])
        if total != expected:
            return (
                f"{total} bytes went inside node {node}, {times(total / size.tensor_bytes)} x the tensor; expected {expected} "
                f"bytes, {2 * (size.per_node - 1)} x: reduce-scatter and all-gather, per_node − 1 each, both in the dtype of x."
            )

    most = sent.index(max(sent))
    allowed = 2 * (size.per_node - 1) * size.shard_elements * np.dtype(size.dtype).itemsize
    if sent[most] > allowed:
        return (
            f"rank {most} sent {sent[most]} bytes inside its node; expected at most {allowed}, "
            f"2 (per_node − 1)/per_node of the tensor, as every rank of the node does."
        )
    return None


def _crosses(t: Transfer, size: NodeSize) -> bool:
    return t.src // size.per_node != t.dst // size.per_node


def _sent(transfers: Iterable[Transfer], size: NodeSize) -> list[int]:
    """Return the bytes of a two-level case's transfers, by sender."""
    sent = [0] * size.world_size
    for t in transfers:
        sent[t.src] += t.size_bytes
    return sent
