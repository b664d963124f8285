"""What training sends when it sends less: the largest numbers alone, matrices of low rank, and what that does to the time.

A gradient has `numbers` values of 4 bytes. Plain averaging goes round a ring (`cost.bytes_ring_all_reduce`). The largest k
travel as values with their indices, to every other rank; a matrix of low rank travels as two thin ones, which add up over
ranks as gradients do. Left out: latencies, the time that compressing takes (it is measured), and what is lost.

Y. Lin et al., "Deep Gradient Compression", ICLR 2018 (arXiv:1712.01887); T. Vogels, S. P. Karimireddy and M. Jaggi, "PowerSGD:
Practical low-rank gradient compression for distributed optimization", NeurIPS 2019 (arXiv:1905.13727).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

NUMBER_BYTES = 4
INDEX_BYTES = 4


def top_k_bytes(n: int, k: int) -> int:
    """Compression by the largest k: the bytes a rank sends, k (4 + 4) (n − 1): values and indices, to each other rank.

    Raises ValueError for less than one rank or a k below zero.
    """
    if n < 1 or k < 0:
        raise ValueError(f"compression: expected 1 rank or more and k from 0 on, got {n} ranks and k = {k}")
    return k * (NUMBER_BYTES + INDEX_BYTES) * (n - 1)


def top_k_crossing(numbers: int, k: int) -> float:
    """Compression by the largest k: from so many ranks on it sends as much as a ring all-reduce of all numbers.

    8 k (n − 1) = 2 (n − 1)/n · 4 · numbers, so n = numbers/k. Raises ValueError where k is none of the numbers.
    """
    if not 1 <= k <= numbers:
        raise ValueError(f"compression: expected k from 1 to {numbers}, all the numbers, got {k}")
    return 2 * NUMBER_BYTES * numbers / ((NUMBER_BYTES + INDEX_BYTES) * k)


def coded_bytes(n: int, numbers: int, bits: int, block: int) -> int:
    """Compression by codes: the bytes a rank sends, n − 1 times its codes, packed, and a scale of 4 bytes for each block.

    Raises ValueError for less than one rank, number, bit or block.
    """
    if min(n, numbers, bits, block) < 1:
        raise ValueError(
            f"compression: expected 1 or more of each, got {n} ranks, {numbers} numbers, {bits} bits and blocks of {block}"
        )
    return (n - 1) * (-(-numbers * bits // 8) + NUMBER_BYTES * -(-numbers // block))


def union_by_chance(share: float, n: int) -> float:
    """Compression by the largest k: what part of all numbers some rank sends, if each chose its `share` by chance.

    1 − (1 − share)^n. Ranks that agree on what is large send less.
    """
    return 1 - (1 - share) ** n


def low_rank_numbers(shapes: Iterable[Sequence[int]], rank: int) -> int:
    """Compression to low rank: how many numbers of a gradient travel, r (rows + columns) of each matrix.

    A tensor [out, …] is the matrix of `out` rows; vectors, and matrices that would not get smaller, travel whole. Vogels et
    al., 2019. Raises ValueError for a rank below 1.
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
    """Compression's gain or loss of time: steps · (work + bytes/bandwidth), nothing of it overlapped.

    `work_s` is all of a step that is not the bytes' own time, compressing too. Models of this kind, with overlap: S. Agarwal et
    al., "On the utility of gradient compression in distributed training systems", MLSys 2022.
    """
    return steps * (work_s + step_bytes / bandwidth_bytes_per_s)
