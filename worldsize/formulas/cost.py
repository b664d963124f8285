"""The alpha-beta model: a collective's cost on paper, before anything runs; and a pipeline's.

A message of m bytes over a link of latency α and bandwidth B takes α + m/B. Every rank has one full-duplex link: its sends leave
through one egress, one after another, and its receives enter through one ingress, one after another; a rank may do both at once.
So n − 1 messages for one rank queue there, and a server pays for its fan-in and again for its fan-out, while the latencies of
queued messages overlap. Arithmetic is free.

`n` is the world size, `size_bytes` (m) the whole tensor on each rank; times are in seconds.
Each function `bytes_…` returns the bytes that the busiest rank sends. If n does not divide the size, real chunks differ by one
element from m/n. A star is rank 0 with every other rank; a tree is binomial, and its formulas are exact where n is a power of two
and an upper bound elsewhere, since a partial subtree finishes early. Left out: switches, contention inside the network, the time
of the arithmetic, and fitting α and B to measured times.

The model is R. Hockney's ("The communication challenge for MPP", Parallel Computing 20, 1994), used as by Thakur, Rabenseifner
and Gropp ("Optimization of collective communication operations in MPICH", IJHPCA 19, 2005).
"""

from collections.abc import Sequence
from numbers import Integral

from worldsize.links import Link


def message(size_bytes: float, link: Link) -> float:
    """Return the time of one message: α + m/B."""
    return _rounds(1, size_bytes, link)


def parameter_server(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a parameter server: 2 (α + (n − 1) m/B).

    Rank 0, the server, is one of the n ranks: it gathers n − 1 tensors, adds them, and sends n − 1 back. M. Li et al., "Scaling
    distributed machine learning with the parameter server", OSDI 2014; the sharded form spreads the fan-in.
    """
    _check(n, size_bytes)
    if n == 1:
        return 0.0
    return _rounds(2, (n - 1) * size_bytes, link)


def bytes_parameter_server(n: int, size_bytes: float) -> float:
    """Return the bytes that a parameter server sends, (n − 1) m; a worker sends m."""
    _check(n, size_bytes)
    return (n - 1) * size_bytes


def sharded_parameter_server(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a sharded parameter server: 2 (α + (n − 1) m/(nB)).

    Every rank is the server of one n-th. Holds when ranks start with different servers, rank r with r + 1; if all start with
    server 0, its ingress queues. J. Dean et al., "Large scale distributed deep networks", NIPS 2012.
    """
    _check(n, size_bytes)
    if n == 1:
        return 0.0
    return _rounds(2, (n - 1) * size_bytes / n, link)


def reduce_scatter(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a ring reduce-scatter, n − 1 steps of one chunk: (n − 1) (α + m/(nB)).

    Each rank ends with one summed chunk. P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", J. Parallel and Distributed Computing 69, 2009.
    """
    _check(n, size_bytes)
    return _rounds(n - 1, size_bytes / n, link)


def bytes_reduce_scatter(n: int, size_bytes: float) -> float:
    """Return the bytes that every rank sends in a ring reduce-scatter: (n − 1) m/n."""
    _check(n, size_bytes)
    return (n - 1) * size_bytes / n


def all_gather(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a ring all-gather, n − 1 steps of one chunk: (n − 1) (α + m/(nB)).

    Each rank's chunk goes to all others; every rank ends with the whole, m. Patarasuk and Yuan, 2009, as for `reduce_scatter`.
    """
    return reduce_scatter(n, size_bytes, link)


def bytes_all_gather(n: int, size_bytes: float) -> float:
    """Return the bytes that every rank sends in a ring all-gather: (n − 1) m/n."""
    return bytes_reduce_scatter(n, size_bytes)


def ring_all_reduce(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a ring all-reduce: 2 (n − 1) (α + m/(nB)).

    A ring reduce-scatter, then a ring all-gather. No all-reduce can send fewer bytes per rank. Patarasuk and Yuan, 2009, as for
    `reduce_scatter`.
    """
    return reduce_scatter(n, size_bytes, link) + all_gather(n, size_bytes, link)


def bytes_ring_all_reduce(n: int, size_bytes: float) -> float:
    """Return the bytes that every rank sends in a ring all-reduce: 2 (n − 1) m/n."""
    return bytes_reduce_scatter(n, size_bytes) + bytes_all_gather(n, size_bytes)


def rabenseifner_all_reduce(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of Rabenseifner's all-reduce: 2 log2 n α + 2 (n − 1)/n m/B. Raises ValueError unless n is a power of two.

    First a reduce-scatter by recursive halving: in each round a rank exchanges half of what it still adds up with a partner, m/2
    bytes, then m/4, and so on. Then an all-gather by recursive doubling, the same rounds backwards. R. Rabenseifner,
    "Optimization of collective reduction operations", ICCS 2004; Thakur, Rabenseifner and Gropp, 2005.
    """
    _check(n, size_bytes)
    if n & (n - 1):
        raise ValueError(f"cost: rabenseifner_all_reduce needs a power of two as its number of ranks, got n = {n!r}.")
    return 2 * _levels(n) * link.latency_s + bytes_ring_all_reduce(n, size_bytes) / link.bandwidth_bytes_per_s


def tree_all_reduce(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a reduce up one tree and a broadcast down: 2 ⌈log2 n⌉ (α + m/B).

    The whole tensor goes along every edge; `double_tree_all_reduce` cuts it.
    """
    return reduce_tree(n, size_bytes, link) + broadcast_tree(n, size_bytes, link)


def double_tree_all_reduce(n: int, size_bytes: float, link: Link, pieces: int = 8) -> float:
    """Return the approximate time of an all-reduce over two binary trees: 2 ⌈log2 n⌉ (α + m/(kB)) + 2 (1 − 1/k) m/B.

    Half of the tensor goes up and down each tree, in k consecutive pieces; inner ranks of one tree are leaves of the other.
    An inner rank takes two children's pieces in turn, m/(kB) together; two ranks have one child and are quicker. P. Sanders, J.
    Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35, 2009.
    """
    _check(n, size_bytes)
    if n == 1:
        return 0.0
    return _rounds(2 * _levels(n), size_bytes / pieces, link) + 2 * (1 - 1 / pieces) * size_bytes / link.bandwidth_bytes_per_s


def two_level_ring_all_reduce(nodes: int, per_node: int, size_bytes: float, inside: Link, between: Link) -> float:
    """Return the time of rings inside N nodes of g ranks and between the nodes:

    2 (g − 1) (αᵢ + m/(g Bᵢ)) + 2 (N − 1) (αₙ + m/(g N Bₙ)).

    First a reduce-scatter inside each node, then an all-reduce of each chunk, m/g, round a ring of the ranks with the same place
    in all nodes, then an all-gather inside. `inside` is a rank's link to its node, `between` its own link to other nodes. H.
    Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash", arXiv:1811.05233, 2018 (2D-torus).
    """
    _check(nodes, size_bytes)
    _check(per_node, size_bytes)
    halves = reduce_scatter(per_node, size_bytes, inside) + all_gather(per_node, size_bytes, inside)
    return halves + ring_all_reduce(nodes, size_bytes / per_node, between)


def bus_bandwidth(n: int, size_bytes: float, seconds: float) -> float:
    """Return the bus bandwidth of a measured all-reduce, bytes per second on the busiest link: m/t · 2 (n − 1)/n.

    m/t alone is the algorithm bandwidth, which falls with n on the same links; the factor makes it comparable with a card's own
    bandwidth. nccl-tests, doc/PERFORMANCE.md ("busbw"). An all-reduce that sends less, such as one inside a switch that adds,
    comes out above the card. Raises ValueError unless the time is above 0.
    """
    if not seconds > 0:
        raise ValueError(f"cost: bus_bandwidth got a measurement of {seconds!r} s; expected a time above 0.")
    return bytes_ring_all_reduce(n, size_bytes) / seconds


def pipeline(stage_seconds: Sequence[float], micro_batches: int) -> float:
    """Return the time of a batch through pipeline stages, with free messages: Σ tₛ + (m − 1) max tₛ.

    The stages take `stage_seconds` per micro-batch, forward and backward together. The first micro-batch fills and drains every
    stage; each later one follows the slowest stage. Holds for GPipe (Y. Huang et al., arXiv:1811.06965, 2019) and for 1F1B with a
    flush (D. Narayanan et al., PipeDream, SOSP 2019; Megatron-LM, SC 2021).
    """
    stages = len(stage_seconds)
    if stages < 1 or micro_batches < 1:
        raise ValueError(f"cost: expected 1 stage and 1 micro-batch or more, got {stages} and {micro_batches}.")
    return sum(stage_seconds) + (micro_batches - 1) * max(stage_seconds)


def bubble(stages: int, micro_batches: int) -> float:
    """Return the ratio of a batch's time to its time without idle stages: (m + p − 1)/m.

    All stages are alike. GPipe, 2019, section 2.3, where the idle part is (p − 1)/(m + p − 1).
    """
    return pipeline([1] * stages, micro_batches) / micro_batches


def broadcast_star(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a broadcast as a star: α + (n − 1) m/B.

    Rank 0 sends its tensor to each of the others in turn, and the latencies overlap.
    """
    return gather_star(n, size_bytes, link)


def broadcast_tree(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a broadcast as a tree: ⌈log2 n⌉ (α + m/B).

    Every rank that has the tensor passes it on, so their number doubles. Thakur, Rabenseifner and Gropp, 2005. For large m a
    scatter and an all-gather are quicker: R. van de Geijn, "On global combine operations", J. Parallel and Distributed Computing
    22, 1994.
    """
    _check(n, size_bytes)
    return _rounds(_levels(n), size_bytes, link)


def reduce_star(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a reduce as a star: α + (n − 1) m/B.

    Every other rank sends its tensor to rank 0, which adds.
    """
    return gather_star(n, size_bytes, link)


def reduce_tree(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a reduce as a tree: ⌈log2 n⌉ (α + m/B).

    The tree is a broadcast's with its arrows reversed, adding on the way: E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn,
    "Collective communication: theory, practice, and experience", Concurrency and Computation 19, 2007.
    """
    return broadcast_tree(n, size_bytes, link)


def gather_star(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a gather as a star: α + (n − 1) m/B.

    Every other rank sends its block of m bytes to rank 0.
    """
    _check(n, size_bytes)
    if n == 1:
        return 0.0
    return _rounds(1, (n - 1) * size_bytes, link)


def gather_tree(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a gather as a tree: ⌈log2 n⌉ α + (n − 1) m/B.

    Blocks of m bytes travel up together, twice as many in each round. Rank 0 must receive n − 1 blocks by any route. Thakur,
    Rabenseifner and Gropp, 2005.
    """
    _check(n, size_bytes)
    return _levels(n) * link.latency_s + (n - 1) * size_bytes / link.bandwidth_bytes_per_s


def scatter_star(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a scatter as a star: α + (n − 1) m/B.

    Rank 0 sends each of the others a block of m bytes.
    """
    return gather_star(n, size_bytes, link)


def scatter_tree(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of a scatter as a tree: ⌈log2 n⌉ α + (n − 1) m/B.

    The tree is a gather's reversed, the largest subtree first. Chan et al., 2007.
    """
    return gather_tree(n, size_bytes, link)


def all_gather_star(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of an all-gather as two stars: a gather of m/n bytes and a broadcast of m.

    Blocks of m/n bytes go to rank 0, then all m bytes to each other rank.
    """
    _check(n, size_bytes)
    return gather_star(n, size_bytes / n, link) + broadcast_star(n, size_bytes, link)


def all_gather_tree(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of an all-gather as two trees: a gather of m/n bytes and a broadcast of m.

    Every rank ends with the whole, m, as in `all_gather`.
    """
    _check(n, size_bytes)
    return gather_tree(n, size_bytes / n, link) + broadcast_tree(n, size_bytes, link)


def all_to_all(n: int, size_bytes: float, link: Link) -> float:
    """Return the time of an all-to-all in n − 1 rounds of one block: (n − 1) (α + m/(nB)).

    Every rank has a table of m bytes, one n-th for each rank. In each round all ranks send to different ranks.
    Thakur, Rabenseifner and Gropp, 2005, for long messages.
    """
    return reduce_scatter(n, size_bytes, link)


def _rounds(count: int, size_bytes: float, link: Link) -> float:
    return count * (link.latency_s + size_bytes / link.bandwidth_bytes_per_s)


def _levels(n: int) -> int:
    return int(n - 1).bit_length()


def _check(n: int, size_bytes: float) -> None:
    if not isinstance(n, Integral) or n < 1:
        raise ValueError(f"cost: the world size n is {n!r}; expected a whole number of ranks, 1 or more.")
    if not size_bytes >= 0:
        raise ValueError(f"cost: size_bytes is {size_bytes!r}; expected 0 or more. Give the whole tensor's bytes.")
