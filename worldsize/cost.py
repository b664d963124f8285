"""The alpha-beta model: what an all-reduce costs on paper, before anything runs.

A message of m bytes over a link of latency α and bandwidth B takes α + m/B. Every rank has one full-duplex
link: what it sends leaves through one egress, one message after another, and what it receives enters
through one ingress, one after another; a rank may do both at once. So n − 1 messages that arrive at one
rank queue there, and a server pays for its fan-in and again for its fan-out, while latencies of queued
messages overlap. Adding numbers up is free.

`n` is the world size, `size_bytes` the whole tensor that every rank holds (m), the answer is in seconds.
Each function `bytes_…` says how many bytes the busiest rank sends. For sizes that don't divide by n, real
chunks differ by one element from m/n. Left out: switches, contention inside the network, the time of the
arithmetic.

The model is R. Hockney's ("The communication challenge for MPP", Parallel Computing 20, 1994), used as by
Thakur, Rabenseifner and Gropp ("Optimization of collective communication operations in MPICH", IJHPCA 19,
2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Protocol

import numpy as np


class Link(Protocol):
    """What the formulas read of a `worldsize.links.Link`: α and B."""

    @property
    def latency_s(self) -> float: ...

    @property
    def bandwidth_bytes_per_s(self) -> float: ...


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


@dataclass(frozen=True)
class Fit:
    """α and β = 1/B of the line t = α + β m through measured messages.

    `residuals_s` are the measured seconds minus the line's, `relative_errors` the same over the measured
    seconds, both in the order of the sizes given.
    """

    alpha_s: float
    beta_s_per_byte: float
    residuals_s: tuple[float, ...]
    relative_errors: tuple[float, ...]

    @property
    def bandwidth_bytes_per_s(self) -> float:
        return 1 / self.beta_s_per_byte if self.beta_s_per_byte else float("inf")

    def predict(self, size_bytes: float) -> float:
        """Seconds for a message of this size, by the line."""
        return self.alpha_s + self.beta_s_per_byte * size_bytes


def fit(sizes_bytes: Sequence[float], seconds: Sequence[float]) -> Fit:
    """The line with α ≥ 0 and β ≥ 0 whose relative errors have the least sum of squares.

    Relative, because sizes span decades: plain least squares would see nothing but the largest message.
    ValueError for fewer than two different sizes, lengths that differ, a negative size, or a time not
    above zero.
    """
    sizes, times = np.asarray(sizes_bytes, float), np.asarray(seconds, float)
    _check_samples(sizes, times)
    alpha_s, beta = _least_squares(1 / times, sizes / times)
    residuals = times - (alpha_s + beta * sizes)
    return Fit(alpha_s, beta, tuple(residuals.tolist()), tuple((residuals / times).tolist()))


def _least_squares(ones: np.ndarray, sizes: np.ndarray) -> tuple[float, float]:
    """Non-negative (a, b) for which a·ones + b·sizes is nearest to 1; both are divided by the times."""
    scale = sizes.max()
    both = np.linalg.lstsq(np.stack([ones / ones.max(), sizes / scale], axis=1), np.ones(len(ones)), rcond=None)[0]
    alpha_s, beta = both[0] / ones.max(), both[1] / scale
    if alpha_s < 0:
        return 0.0, float(sizes.sum() / (sizes @ sizes))
    if beta < 0:
        return float(ones.sum() / (ones @ ones)), 0.0
    return float(alpha_s), float(beta)


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


def _check_samples(sizes: np.ndarray, times: np.ndarray) -> None:
    if sizes.ndim != 1 or sizes.shape != times.shape:
        raise ValueError(
            f"cost.fit: expected one time for each size, got {sizes.size} sizes and {times.size} times. "
            "Give two lists of one length."
        )
    if not (np.isfinite(sizes).all() and np.isfinite(times).all() and (sizes >= 0).all() and (times > 0).all()):
        raise ValueError("cost.fit: expected sizes of 0 or more and times above 0, all finite. Leave out the others.")
    if len(np.unique(sizes)) < 2:
        raise ValueError(
            f"cost.fit: expected at least two different sizes, got {len(np.unique(sizes))}; α and β can't be "
            "told apart by one. Measure a small message and a large one too."
        )
