"""What a training step costs on paper when gradients travel in buckets while backward goes on.

Backward lasts T and yields the gradients evenly. They travel in b equal buckets, one all-reduce after the other; an
all-reduce of s bytes takes A + s/C, where A is what it costs however small it is, and C how fast the rest goes. All
gradients together need W = M/C. Bucket k of b is ready at kT/b, so that

    step = T/b + bA + W      where the network is busy from the first bucket on (it falls, then rises with b),
    step = T + A + W/b       where backward is slower: only the last bucket is left when it ends,

and the larger of the two holds. The first is least at b = √(T/A), where the head that nothing can travel in, T/b, is as
long as what all the buckets cost; where backward is the slower one, at the b at which the two meet. Left out: forward,
buckets of unequal sizes, and arithmetic in the background that slows backward down. S. Li et al., "PyTorch Distributed:
Experiences on Accelerating Data Parallel Training", VLDB 2020, sections 3.2.3 and 5.2, measured this curve.
"""

from __future__ import annotations

from math import sqrt

from worldsize.links import Link


def fixed_s(n: int, link: Link) -> float:
    """A in the formula of bucketing: seconds that each bucket's all-reduce costs however small it is, n latencies.

    That is the all-reduce of the course's `fabric.collectives`: n − 1 latencies round the ring and one from every
    rank to all; none where a rank is alone.
    """
    return n * link.latency_s if n > 1 else 0.0


def moving_s(n: int, size_bytes: float, link: Link) -> float:
    """W in the formula of bucketing: seconds that the bytes of all gradients themselves cost, 2 (n − 1) m/(nB)."""
    return 2 * (n - 1) * size_bytes / n / link.bandwidth_bytes_per_s


def naive_s(backward_s: float, tensors: int, fixed_s: float, moving_s: float) -> float:
    """A step without bucketing: after backward, one all-reduce a tensor, T + kA + W.

    Flattened is k = 1.
    """
    return backward_s + tensors * fixed_s + moving_s


def step_s(backward_s: float, buckets: int, fixed_s: float, moving_s: float) -> float:
    """Seconds of a training step whose gradients travel in `buckets` equal buckets while backward goes on.

    Raises ValueError for none.
    """
    if buckets < 1:
        raise ValueError(f"bucketing: expected 1 bucket or more, got {buckets}")

    busy_network_s = backward_s / buckets + buckets * fixed_s + moving_s
    busy_backward_s = backward_s + fixed_s + moving_s / buckets
    return max(busy_network_s, busy_backward_s)


def best_buckets(backward_s: float, fixed_s: float, moving_s: float) -> float:
    """The number of equal gradient buckets that makes the step shortest, as if it need not be whole.

    Raises ValueError where A is zero.
    """
    if fixed_s <= 0:
        raise ValueError("bucketing: without a fixed cost the smallest buckets are best; expected one above zero")
    return max(1.0, sqrt(backward_s / fixed_s), (backward_s - moving_s) / fixed_s)
