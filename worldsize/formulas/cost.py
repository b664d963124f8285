"""The alpha-beta model: what a collective costs on paper, before anything runs; and what a pipeline does.

A message of m bytes over a link of latency α and bandwidth B takes α + m/B. Every rank has one full-duplex
link: what it sends leaves through one egress, one message after another, and what it receives enters
through one ingress, one after another; a rank may do both at once. So n − 1 messages that arrive at one
rank queue there, and a server pays for its fan-in and again for its fan-out, while latencies of queued
messages overlap. Adding numbers up is free.

`n` is the world size, `size_bytes` the whole tensor that every rank holds (m), the answer is in seconds.
Each function `bytes_…` says how many bytes the busiest rank sends. For sizes that don't divide by n, real
chunks differ by one element from m/n. A star is rank 0 with everybody; a tree is binomial, its formulas exact
where n is a power of two and elsewhere a bound from above, since a subtree that isn't full is early. Left out:
switches, contention inside the network, the time of the arithmetic, and fitting α and B to measured times.

The model is R. Hockney's ("The communication challenge for MPP", Parallel Computing 20, 1994), used as by
Thakur, Rabenseifner and Gropp ("Optimization of collective communication operations in MPICH", IJHPCA 19,
2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

from worldsize.links import Link


def message(size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: one message takes α + m/B."""
    return _rounds(1, size_bytes, link)


def parameter_server(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a parameter server, n − 1 tensors in and n − 1 back, takes 2 (α + (n − 1) m/B).

    Rank 0 gathers n − 1 tensors, adds, and sends n − 1 back: the server is one of the n ranks. M. Li et al.,
    "Scaling distributed machine learning with the parameter server", OSDI 2014; its fan-in is what the sharded form
    spreads.
    """
    _check(n, size_bytes)
    if n == 1:
        return 0.0
    return _rounds(2, (n - 1) * size_bytes, link)


def bytes_parameter_server(n: int, size_bytes: float) -> float:
    """Alpha-beta cost model, bytes: a parameter server sends (n − 1) m, and a worker m."""
    _check(n, size_bytes)
    return (n - 1) * size_bytes


def sharded_parameter_server(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a sharded parameter server takes 2 (α + (n − 1) m/(nB)).

    Every rank is the server of one n-th. Holds when ranks start with different servers, rank r with r + 1; if all
    start with server 0, its ingress queues. J. Dean et al., "Large scale distributed deep networks", NIPS 2012.
    """
    _check(n, size_bytes)
    if n == 1:
        return 0.0
    return _rounds(2, (n - 1) * size_bytes / n, link)


def reduce_scatter(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a ring reduce-scatter, n − 1 steps of one chunk, takes (n − 1) (α + m/(nB)).

    Each rank ends with one summed chunk. P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for
    clusters of workstations", J. Parallel and Distributed Computing 69, 2009.
    """
    _check(n, size_bytes)
    return _rounds(n - 1, size_bytes / n, link)


def bytes_reduce_scatter(n: int, size_bytes: float) -> float:
    """Alpha-beta cost model, bytes: in a ring reduce-scatter every rank sends (n − 1) m/n."""
    _check(n, size_bytes)
    return (n - 1) * size_bytes / n


def all_gather(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a ring all-gather, n − 1 steps of one chunk, takes (n − 1) (α + m/(nB)).

    Each rank's chunk goes to all others; m is the whole that every rank ends with. Patarasuk and Yuan, 2009, as for
    `reduce_scatter`.
    """
    return reduce_scatter(n, size_bytes, link)


def bytes_all_gather(n: int, size_bytes: float) -> float:
    """Alpha-beta cost model, bytes: in a ring all-gather every rank sends (n − 1) m/n."""
    return bytes_reduce_scatter(n, size_bytes)


def ring_all_reduce(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a ring all-reduce takes 2 (n − 1) (α + m/(nB)).

    It is a ring reduce-scatter, then a ring all-gather. No all-reduce can send fewer bytes a rank. Patarasuk and
    Yuan, 2009, as for `reduce_scatter`.
    """
    return reduce_scatter(n, size_bytes, link) + all_gather(n, size_bytes, link)


def bytes_ring_all_reduce(n: int, size_bytes: float) -> float:
    """Alpha-beta cost model, bytes: in a ring all-reduce every rank sends 2 (n − 1) m/n."""
    return bytes_reduce_scatter(n, size_bytes) + bytes_all_gather(n, size_bytes)


def rabenseifner_all_reduce(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: Rabenseifner's all-reduce takes 2 log2 n α + 2 (n − 1)/n m/B, where n is a power of two.

    A reduce-scatter by recursive halving: in each round a rank exchanges half of what it still adds up with a partner, m/2
    bytes, then m/4, and so on; then an all-gather by recursive doubling, the same rounds backwards. R. Rabenseifner,
    "Optimization of collective reduction operations", ICCS 2004; Thakur, Rabenseifner and Gropp, 2005.
    """
    _check(n, size_bytes)
    if n & (n - 1):
        raise ValueError(f"cost: rabenseifner_all_reduce has its partners among a power of two of ranks, got n = {n!r}.")
    return 2 * _levels(n) * link.latency_s + bytes_ring_all_reduce(n, size_bytes) / link.bandwidth_bytes_per_s


def tree_all_reduce(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a reduce up one tree and a broadcast down takes 2 ⌈log2 n⌉ (α + m/B).

    The whole tensor goes along every edge; `double_tree_all_reduce` cuts it.
    """
    return reduce_tree(n, size_bytes, link) + broadcast_tree(n, size_bytes, link)


def double_tree_all_reduce(n: int, size_bytes: float, link: Link, pieces: int = 8) -> float:
    """Alpha-beta cost model: an all-reduce over two binary trees takes about 2 ⌈log2 n⌉ (α + m/(kB)) + 2 (1 − 1/k) m/B.

    Half of the tensor goes up and down each tree, in k pieces that follow each other; inner ranks of one are leaves of the
    other. An inner rank takes two children's pieces in turn, m/(kB) together; with two ranks there is one child, and it is
    quicker. P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
    Parallel Computing 35, 2009.
    """
    _check(n, size_bytes)
    if n == 1:
        return 0.0
    return _rounds(2 * _levels(n), size_bytes / pieces, link) + 2 * (1 - 1 / pieces) * size_bytes / link.bandwidth_bytes_per_s


def two_level_ring_all_reduce(nodes: int, per_node: int, size_bytes: float, inside: Link, between: Link) -> float:
    """Alpha-beta cost model: rings inside N nodes of g ranks, and between them, take
    2 (g − 1) (αᵢ + m/(g Bᵢ)) + 2 (N − 1) (αₙ + m/(g N Bₙ)).

    A reduce-scatter inside each node; then each rank adds up its chunk, m/g, round a ring of the ranks of the same place
    in all nodes; then an all-gather inside. `inside` is a rank's link to its node, `between` its own to other nodes. H.
    Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash", arXiv:1811.05233, 2018 (2D-torus).
    """
    _check(nodes, size_bytes)
    _check(per_node, size_bytes)
    halves = reduce_scatter(per_node, size_bytes, inside) + all_gather(per_node, size_bytes, inside)
    return halves + ring_all_reduce(nodes, size_bytes / per_node, between)


def bus_bandwidth(n: int, size_bytes: float, seconds: float) -> float:
    """What a measured all-reduce of n ranks came to in bytes a second on the busiest link: m/t · 2 (n − 1)/n.

    m/t alone is the algorithm bandwidth, which falls with n on the same links; times what an all-reduce has to send, it can
    be held against a card's own bandwidth. nccl-tests, doc/PERFORMANCE.md ("busbw"). An all-reduce that sends less, as
    inside a switch that adds, comes out above the card. Raises ValueError for a time that is not above 0.
    """
    if not seconds > 0:
        raise ValueError(f"cost: bus_bandwidth of a measurement of {seconds!r} s; expected a time above 0.")
    return bytes_ring_all_reduce(n, size_bytes) / seconds


def pipeline(stage_seconds: Sequence[float], micro_batches: int) -> float:
    """Alpha-beta's companion in the cost model, with no messages: a batch through stages costs Σ tₛ + (m − 1) max tₛ.

    The stages take `stage_seconds` for a micro-batch, forward and backward together. The first micro-batch fills
    and drains every stage, each later one follows the slowest: for GPipe (Y. Huang et al., arXiv:1811.06965, 2019)
    and for 1F1B with a flush (D. Narayanan et al., PipeDream, SOSP 2019; Megatron-LM, SC 2021), where messages are
    free.
    """
    _check_pipeline(len(stage_seconds), micro_batches)
    return sum(stage_seconds) + (micro_batches - 1) * max(stage_seconds)


def bubble(stages: int, micro_batches: int) -> float:
    """In the cost model: how many times as long as without idle stages a batch costs, (m + p − 1)/m.

    All stages are alike. GPipe, 2019, section 2.3, where the idle part is (p − 1)/(m + p − 1).
    """
    return pipeline([1] * stages, micro_batches) / micro_batches


def broadcast_star(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a broadcast as a star takes α + (n − 1) m/B.

    Rank 0 sends its tensor to each of the others in turn, and the latencies overlap.
    """
    return gather_star(n, size_bytes, link)


def broadcast_tree(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a broadcast as a tree takes ⌈log2 n⌉ (α + m/B).

    Whoever has the tensor passes it on, so that their number doubles. Thakur, Rabenseifner and Gropp, 2005. For
    large m a scatter and an all-gather are quicker: R. van de Geijn, "On global combine operations", J. Parallel
    and Distributed Computing 22, 1994.
    """
    _check(n, size_bytes)
    return _rounds(_levels(n), size_bytes, link)


def reduce_star(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a reduce as a star takes α + (n − 1) m/B.

    Everybody sends its tensor to rank 0, which adds.
    """
    return gather_star(n, size_bytes, link)


def reduce_tree(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a reduce as a tree takes ⌈log2 n⌉ (α + m/B).

    It is a broadcast's tree with its arrows turned round, adding on the way. That the two are each other's reverse:
    E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn, "Collective communication: theory, practice, and
    experience", Concurrency and Computation 19, 2007.
    """
    return broadcast_tree(n, size_bytes, link)


def gather_star(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a gather as a star takes α + (n − 1) m/B.

    Everybody sends its block of m bytes to rank 0.
    """
    _check(n, size_bytes)
    if n == 1:
        return 0.0
    return _rounds(1, (n - 1) * size_bytes, link)


def gather_tree(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a gather as a tree takes ⌈log2 n⌉ α + (n − 1) m/B.

    Blocks of m bytes travel up together, twice as many in each round. Rank 0 has to receive n − 1 blocks whatever
    way they come. Thakur, Rabenseifner and Gropp, 2005.
    """
    _check(n, size_bytes)
    return _levels(n) * link.latency_s + (n - 1) * size_bytes / link.bandwidth_bytes_per_s


def scatter_star(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a scatter as a star takes α + (n − 1) m/B.

    Rank 0 sends each of the others a block of m bytes.
    """
    return gather_star(n, size_bytes, link)


def scatter_tree(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: a scatter as a tree takes ⌈log2 n⌉ α + (n − 1) m/B.

    It is a gather's tree turned round, the largest subtree first. Chan et al., 2007.
    """
    return gather_tree(n, size_bytes, link)


def all_gather_star(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: an all-gather as two stars costs a gather of m/n bytes and a broadcast of m.

    Blocks of m/n bytes go to rank 0, then all m bytes to each.
    """
    _check(n, size_bytes)
    return gather_star(n, size_bytes / n, link) + broadcast_star(n, size_bytes, link)


def all_gather_tree(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: an all-gather as two trees costs a gather of m/n bytes and a broadcast of m.

    m is the whole that every rank ends with, as for `all_gather`.
    """
    _check(n, size_bytes)
    return gather_tree(n, size_bytes / n, link) + broadcast_tree(n, size_bytes, link)


def all_to_all(n: int, size_bytes: float, link: Link) -> float:
    """Alpha-beta cost model: an all-to-all in n − 1 rounds of one block takes (n − 1) (α + m/(nB)).

    Every rank has a table of m bytes, one n-th of it for each rank, and in each round all ranks send to different ranks.
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


def _check_pipeline(stages: int, micro_batches: int) -> None:
    if stages < 1 or micro_batches < 1:
        raise ValueError(f"cost: expected 1 stage and 1 micro-batch or more, got {stages} and {micro_batches}.")
