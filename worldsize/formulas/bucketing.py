"""The time of a training step whose gradients travel in buckets during backward, on paper.

Backward lasts T and yields the gradients evenly. The gradients travel in b equal buckets, one all-reduce after another; an
all-reduce of s bytes takes A + s/C, where A is its fixed cost and C its bandwidth. All gradients together need W = M/C. Bucket k
of b is ready at kT/b, so that

    step = T/b + bA + W      if the network is busy from the first bucket on (falls, then rises with b),
    step = T + A + W/b       if backward is slower: only the last bucket is left when it ends,

and the larger of the two holds. The first line is least at b = √(T/A), where T/b, the time before the first bucket, equals the
fixed cost of all buckets; if backward is slower, the best b is where the two meet. Left out: forward, buckets of unequal sizes,
and background arithmetic that slows backward down. S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel
Training", VLDB 2020, sections 3.2.3 and 5.2, measured this curve.
"""

from math import sqrt

from worldsize.links import Link


def fixed_s(n: int, link: Link) -> float:
    """Return A, the fixed seconds of each bucket's all-reduce: n latencies.

    These are `fabric.collectives`' n − 1 latencies round the ring and one latency from every rank to all; 0 for a single rank.
    """
    return n * link.latency_s if n > 1 else 0.0


def moving_s(n: int, size_bytes: float, link: Link) -> float:
    """Return W, the seconds of the bytes of all gradients: 2 (n − 1) m/(nB)."""
    return 2 * (n - 1) * size_bytes / n / link.bandwidth_bytes_per_s


def naive_s(backward_s: float, tensors: int, fixed_s: float, moving_s: float) -> float:
    """Return the seconds of a step without overlap: one all-reduce per tensor after backward, T + kA + W.

    Flattened is k = 1.
    """
    return backward_s + tensors * fixed_s + moving_s


def step_s(backward_s: float, buckets: int, fixed_s: float, moving_s: float) -> float:
    """Return the seconds of a step whose gradients travel in `buckets` equal buckets during backward.

    Raises ValueError for fewer than one bucket.
    """
    if buckets < 1:
        raise ValueError(f"bucketing: expected 1 bucket or more, got {buckets}")

    busy_network_s = backward_s / buckets + buckets * fixed_s + moving_s
    busy_backward_s = backward_s + fixed_s + moving_s / buckets
    return max(busy_network_s, busy_backward_s)


def best_buckets(backward_s: float, fixed_s: float, moving_s: float) -> float:
    """Return the number of equal buckets that makes the step shortest, not rounded.

    Raises ValueError if A is not above zero.
    """
    if fixed_s <= 0:
        raise ValueError("bucketing: expected a fixed cost above zero: without one, the smallest buckets are best")
    return max(1.0, sqrt(backward_s / fixed_s), (backward_s - moving_s) / fixed_s)
