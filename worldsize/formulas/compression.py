"""Costs of compressed gradients: only the largest numbers, matrices of low rank, and the effect on training time.

A gradient has `numbers` values of 4 bytes. Plain averaging goes round a ring (`cost.bytes_ring_all_reduce`). The largest k
travel as values with their indices to every other rank; a matrix of low rank travels as two thin matrices, which are summed
over ranks as gradients are. Left out: latencies, the (measured) time of compression, and the error.

Y. Lin et al., "Deep Gradient Compression", ICLR 2018 (arXiv:1712.01887); T. Vogels, S. P. Karimireddy and M. Jaggi, "PowerSGD:
Practical low-rank gradient compression for distributed optimization", NeurIPS 2019 (arXiv:1905.13727).
"""

from collections.abc import Iterable, Sequence
from math import prod

NUMBER_BYTES = 4
INDEX_BYTES = 4


def top_k_bytes(n: int, k: int) -> int:
    """Return the bytes that a rank sends of its largest k numbers: k (4 + 4) (n − 1), values and indices, to each other rank.

    Raises ValueError for less than one rank or a k below zero.
    """
    if n < 1 or k < 0:
        raise ValueError(f"compression: expected 1 rank or more and k of 0 or more, got {n} ranks and k = {k}")
    return k * (NUMBER_BYTES + INDEX_BYTES) * (n - 1)


def top_k_crossing(numbers: int, k: int) -> float:
    """Return the number of ranks at which top-k sends as much as a ring all-reduce of all numbers.

    8 k (n − 1) = 2 (n − 1)/n · 4 · numbers, so n = numbers/k. Raises ValueError unless k is from 1 to `numbers`.
    """
    if not 1 <= k <= numbers:
        raise ValueError(f"compression: expected k from 1 to {numbers} (all the numbers), got {k}")
    return 2 * NUMBER_BYTES * numbers / ((NUMBER_BYTES + INDEX_BYTES) * k)


def coded_bytes(n: int, numbers: int, bits: int, block: int) -> int:
    """Return the bytes that a rank sends of codes: n − 1 times its packed codes, and a scale of 4 bytes for each block.

    Raises ValueError for less than one rank, number, bit or block.
    """
    if min(n, numbers, bits, block) < 1:
        raise ValueError(
            f"compression: expected 1 or more of each, got {n} ranks, {numbers} numbers, {bits} bits and blocks of {block}"
        )
    return (n - 1) * (-(-numbers * bits // 8) + NUMBER_BYTES * -(-numbers // block))


def union_by_chance(share: float, n: int) -> float:
    """Return the share of all numbers that some rank sends, if each chooses its `share` at random.

    1 − (1 − share)^n. Ranks that agree on the largest numbers send less.
    """
    return 1 - (1 - share) ** n


def low_rank_numbers(shapes: Iterable[Sequence[int]], rank: int) -> int:
    """Return the number of values that travel at low rank: r (rows + columns) of each matrix.

    A tensor [out, …] is a matrix of `out` rows; vectors, and matrices that would not get smaller, travel whole. Vogels et al.,
    2019. Raises ValueError for a rank below 1.
    """
    if rank < 1:
        raise ValueError(f"compression: expected a rank of 1 or more, got {rank}")

    sent = 0
    for shape in shapes:
        whole = prod(shape)
        thin = rank * (shape[0] + whole // shape[0]) if len(shape) > 1 else whole
        sent += min(whole, thin)
    return sent


def seconds_to_target(steps: float, work_s: float, step_bytes: float, bandwidth_bytes_per_s: float) -> float:
    """Return a compressed training's seconds to the target: steps · (work + bytes/bandwidth), without overlap.

    `work_s` is the whole step except the bytes' own time; it includes compression. Models of this kind, with overlap: S. Agarwal
    et al., "On the utility of gradient compression in distributed training systems", MLSys 2022.
    """
    return steps * (work_s + step_bytes / bandwidth_bytes_per_s)
