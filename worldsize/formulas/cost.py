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
    """One message: α + m/B."""
    return _rounds(1, size_bytes, link)


def parameter_server(n: int, size_bytes: float, link: Link) -> float:
    """Rank 0 gathers n − 1 tensors, adds, and sends n − 1 back: 2 (α + (n − 1) m/B).

    The server is one of the n ranks. M. Li et al., "Scaling distributed machine learning with the
    parameter server", OSDI 2014; its fan-in is what the sharded form spreads.
    """
    _check(n, size_bytes)
    return _rounds(2, (n - 1) * size_bytes, link) if n > 1 else 0.0


def bytes_parameter_server(n: int, size_bytes: float) -> float:
    """The server sends (n − 1) m; a worker sends m."""
    _check(n, size_bytes)
    return (n - 1) * size_bytes


def sharded_parameter_server(n: int, size_bytes: float, link: Link) -> float:
    """Every rank is the server of one n-th: 2 (α + (n − 1) m/(nB)).

    Holds when ranks start with different servers, rank r with r + 1; if all start with server 0, its
    ingress queues. J. Dean et al., "Large scale distributed deep networks", NIPS 2012.
    """
    _check(n, size_bytes)
    return _rounds(2, (n - 1) * size_bytes / n, link) if n > 1 else 0.0


def bytes_sharded_parameter_server(n: int, size_bytes: float) -> float:
    """Every rank sends 2 (n − 1) m/n: its pieces to their servers, its own sum to the others."""
    _check(n, size_bytes)
    return 2 * (n - 1) * size_bytes / n


def reduce_scatter(n: int, size_bytes: float, link: Link) -> float:
    """Round the ring, n − 1 steps of one chunk; each rank ends with one summed chunk: (n − 1) (α + m/(nB)).

    P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", J.
    Parallel and Distributed Computing 69, 2009.
    """
    _check(n, size_bytes)
    return _rounds(n - 1, size_bytes / n, link)


def bytes_reduce_scatter(n: int, size_bytes: float) -> float:
    """Every rank sends (n − 1) m/n."""
    _check(n, size_bytes)
    return (n - 1) * size_bytes / n


def all_gather(n: int, size_bytes: float, link: Link) -> float:
    """Round the ring, each rank's chunk to all others, n − 1 steps: (n − 1) (α + m/(nB)).

    m is the whole that every rank ends with. Patarasuk and Yuan, 2009, as for `reduce_scatter`.
    """
    return reduce_scatter(n, size_bytes, link)


def bytes_all_gather(n: int, size_bytes: float) -> float:
    """Every rank sends (n − 1) m/n."""
    return bytes_reduce_scatter(n, size_bytes)


def ring_all_reduce(n: int, size_bytes: float, link: Link) -> float:
    """A ring reduce-scatter, then a ring all-gather: 2 (n − 1) (α + m/(nB)).

    No all-reduce can send fewer bytes a rank. Patarasuk and Yuan, 2009, as for `reduce_scatter`.
    """
    return reduce_scatter(n, size_bytes, link) + all_gather(n, size_bytes, link)


def bytes_ring_all_reduce(n: int, size_bytes: float) -> float:
    """Every rank sends 2 (n − 1) m/n."""
    return bytes_reduce_scatter(n, size_bytes) + bytes_all_gather(n, size_bytes)


def tree_all_reduce(n: int, size_bytes: float, link: Link) -> float:
    """A binomial tree up to rank 0, then down: 2 ⌈log2 n⌉ (α + m/B).

    Exact where n is a power of two; elsewhere a bound from above, since a subtree that isn't full is
    early. Thakur, Rabenseifner and Gropp, 2005.
    """
    _check(n, size_bytes)
    return _rounds(2 * _levels(n), size_bytes, link)


def bytes_tree_all_reduce(n: int, size_bytes: float) -> float:
    """Rank 0 sends ⌈log2 n⌉ m on the way down."""
    _check(n, size_bytes)
    return _levels(n) * size_bytes


def halving_doubling_all_reduce(n: int, size_bytes: float, link: Link) -> float:
    """Reduce-scatter by recursive halving, all-gather by recursive doubling: 2 log2(p) α + 2 (p − 1) m/(pB).

    p is the largest power of two up to n. The n − p ranks that are left over first send their whole tensor
    to a neighbour and get the result at the end, which adds 2 (α + m/B). R. Rabenseifner, "Optimization of
    collective reduction operations", ICCS 2004; the left-over ranks as in MPICH (Thakur, Rabenseifner and
    Gropp, 2005).
    """
    _check(n, size_bytes)
    inner = _largest_power_of_two(n)
    halves = sum(_rounds(1, size_bytes / 2**k, link) for k in range(1, _levels(inner) + 1))
    folded = _rounds(2, size_bytes, link) if inner < n else 0.0
    return 2 * halves + folded


def bytes_halving_doubling_all_reduce(n: int, size_bytes: float) -> float:
    """A rank sends 2 (p − 1) m/p, and m more where it returns the result to a left-over rank."""
    _check(n, size_bytes)
    inner = _largest_power_of_two(n)
    return 2 * (inner - 1) * size_bytes / inner + (size_bytes if inner < n else 0)


def pipeline(stage_seconds: Sequence[float], micro_batches: int) -> float:
    """A batch through stages that take `stage_seconds` for a micro-batch, forward and backward together.

    The first fills and drains every stage, each later one follows the slowest: Σ tₛ + (m − 1) max tₛ, for
    GPipe (Y. Huang et al., arXiv:1811.06965, 2019) and for 1F1B with a flush (D. Narayanan et al., PipeDream,
    SOSP 2019; Megatron-LM, SC 2021), where messages are free.
    """
    _check_pipeline(len(stage_seconds), micro_batches)
    return sum(stage_seconds) + (micro_batches - 1) * max(stage_seconds)


def bubble(stages: int, micro_batches: int) -> float:
    """How many times as long as without idle stages a batch takes, all stages alike: (m + p − 1)/m.

    GPipe, 2019, section 2.3, where the idle part is (p − 1)/(m + p − 1).
    """
    return pipeline([1] * stages, micro_batches) / micro_batches


def broadcast_star(n: int, size_bytes: float, link: Link) -> float:
    """Rank 0 sends its tensor to each of the others in turn: α + (n − 1) m/B, since the latencies overlap."""
    return gather_star(n, size_bytes, link)


def broadcast_tree(n: int, size_bytes: float, link: Link) -> float:
    """Whoever has the tensor passes it on, so that their number doubles: ⌈log2 n⌉ (α + m/B).

    Thakur, Rabenseifner and Gropp, 2005. For large m a scatter and an all-gather are quicker: R. van de Geijn, "On
    global combine operations", J. Parallel and Distributed Computing 22, 1994.
    """
    _check(n, size_bytes)
    return _rounds(_levels(n), size_bytes, link)


def reduce_star(n: int, size_bytes: float, link: Link) -> float:
    """Everybody sends its tensor to rank 0, which adds: α + (n − 1) m/B."""
    return gather_star(n, size_bytes, link)


def reduce_tree(n: int, size_bytes: float, link: Link) -> float:
    """A broadcast's tree with its arrows turned round, adding on the way: ⌈log2 n⌉ (α + m/B).

    That the two are each other's reverse: E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn, "Collective
    communication: theory, practice, and experience", Concurrency and Computation 19, 2007.
    """
    return broadcast_tree(n, size_bytes, link)


def gather_star(n: int, size_bytes: float, link: Link) -> float:
    """Everybody sends its block of m bytes to rank 0: α + (n − 1) m/B."""
    _check(n, size_bytes)
    return _rounds(1, (n - 1) * size_bytes, link) if n > 1 else 0.0


def gather_tree(n: int, size_bytes: float, link: Link) -> float:
    """Blocks of m bytes travel up together, twice as many in each round: ⌈log2 n⌉ α + (n − 1) m/B.

    Rank 0 has to receive n − 1 blocks whatever way they come. Thakur, Rabenseifner and Gropp, 2005.
    """
    _check(n, size_bytes)
    return _levels(n) * link.latency_s + (n - 1) * size_bytes / link.bandwidth_bytes_per_s


def scatter_star(n: int, size_bytes: float, link: Link) -> float:
    """Rank 0 sends each of the others a block of m bytes: α + (n − 1) m/B."""
    return gather_star(n, size_bytes, link)


def scatter_tree(n: int, size_bytes: float, link: Link) -> float:
    """A gather's tree turned round, the largest subtree first: ⌈log2 n⌉ α + (n − 1) m/B. Chan et al., 2007."""
    return gather_tree(n, size_bytes, link)


def all_gather_star(n: int, size_bytes: float, link: Link) -> float:
    """Blocks of m/n bytes to rank 0, then all m bytes to each: a gather and a broadcast, both as stars."""
    _check(n, size_bytes)
    return gather_star(n, size_bytes / n, link) + broadcast_star(n, size_bytes, link)


def all_gather_tree(n: int, size_bytes: float, link: Link) -> float:
    """The same as two trees; m is the whole that every rank ends with, as for `all_gather`."""
    _check(n, size_bytes)
    return gather_tree(n, size_bytes / n, link) + broadcast_tree(n, size_bytes, link)


def _rounds(count: int, size_bytes: float, link: Link) -> float:
    return count * (link.latency_s + size_bytes / link.bandwidth_bytes_per_s)


def _levels(n: int) -> int:
    return int(n - 1).bit_length()


def _largest_power_of_two(n: int) -> int:
    return 1 << (int(n).bit_length() - 1)


def _check(n: int, size_bytes: float) -> None:
    if not isinstance(n, Integral) or n < 1:
        raise ValueError(f"cost: the world size n is {n!r}; expected a whole number of ranks, 1 or more.")
    if not size_bytes >= 0:
        raise ValueError(f"cost: size_bytes is {size_bytes!r}; expected 0 or more. Give the whole tensor's bytes.")


def _check_pipeline(stages: int, micro_batches: int) -> None:
    if stages < 1 or micro_batches < 1:
        raise ValueError(f"cost: expected 1 stage and 1 micro-batch or more, got {stages} and {micro_batches}.")
