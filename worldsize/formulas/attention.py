"""Costs of attention over a long sequence whose tokens lie on n ranks: pairs, bytes and seconds of a forward pass.

A ring passes keys and values on, block by block, while each rank works on its current block (H. Liu et al., "Ring Attention with
Blockwise Transformers for Near-Infinite Context", arXiv:2310.01889, 2023). Alternatively two all-to-alls distribute the heads,
and each rank then has all tokens of its heads (S. A. Jacobs et al., "DeepSpeed Ulysses", arXiv:2309.14509, 2023). Links are as in
`cost`: a message takes α + m/B, and the latencies of simultaneous messages overlap. Left out: the backward pass,
projections, a kernel's memory traffic.
"""

import math
from collections.abc import Sequence

import numpy as np

from worldsize.links import Link

RING_TENSORS, HEADS_TENSORS = 2, 4  # keys and values; queries, keys and values on the way out, and rows back


def causal_pairs(length: int) -> int:
    """Return the pairs of a query and a key that it sees under a causal mask, for `length` tokens: L (L + 1)/2."""
    return length * (length + 1) // 2


def pairs_by_round(tokens: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the pairs that queries see under a causal mask, [rounds, ranks]; `tokens[rank]` are a rank's tokens.

    In round s rank r works on the block of rank (r − s) mod n. Brandon et al., "Striped Attention", arXiv:2311.09431, 2023.
    """
    n, owned = len(tokens), [np.sort(np.asarray(own)) for own in tokens]
    pairs = np.zeros((n, n), dtype=np.int64)
    for step in range(n):
        for rank in range(n):
            pairs[step, rank] = np.searchsorted(owned[(rank - step) % n], owned[rank], side="right").sum()
    return pairs


def score_bytes(length: int, heads: int, item_bytes: int = 2, n: int = 1) -> float:
    """Return the bytes of all attention scores that a rank would hold at once without blocks: heads · L²/n numbers."""
    _check(n)
    return heads * length**2 * item_bytes / n


def block_bytes(length: int, width: int, n: int, item_bytes: int = 2) -> float:
    """Return the bytes of a rank's rows of one of queries, keys and values: L/n · width numbers, all heads together."""
    _check(n)
    return length / n * width * item_bytes


def bytes_ring(n: int, length: int, width: int, item_bytes: int = 2) -> float:
    """Return the bytes that a rank sends round the ring: n − 1 blocks of keys and values. Liu et al., 2023, section 3."""
    return (n - 1) * RING_TENSORS * block_bytes(length, width, n, item_bytes)


def bytes_heads(n: int, length: int, width: int, item_bytes: int = 2) -> float:
    """Return the bytes that a rank sends to distribute heads: 4 (n − 1)/n of its rows. Jacobs et al., 2023, section 3.2."""
    return HEADS_TENSORS * (n - 1) / n * block_bytes(length, width, n, item_bytes)


def ring_seconds(n: int, length: int, width: int, link: Link, work_s: float, item_bytes: int = 2) -> float:
    """Return the seconds of ring attention's forward pass: (n − 1) max(w, α + 2m/B) + w, where w = work/n² is a block's work.

    `work_s` is the time of all pairs on one device. Messages cost nothing while a block's work takes longer. Liu et al., 2023,
    section 3.
    """
    block_s = work_s / n**2
    sent_s = link.latency_s + RING_TENSORS * block_bytes(length, width, n, item_bytes) / link.bandwidth_bytes_per_s
    return (n - 1) * max(block_s, sent_s) + block_s


def heads_seconds(n: int, heads: int, length: int, width: int, link: Link, work_s: float, item_bytes: int = 2) -> float:
    """Return attention's seconds with distributed heads: 2 α + 4 (n − 1)/n m/B + work/n; infinite if n does not divide the heads.

    Queries, keys and values go together, the rows come back; no message hides behind work. Jacobs et al., 2023.
    """
    _check(n)
    if heads % n:
        return math.inf
    if n == 1:
        return work_s
    return 2 * link.latency_s + bytes_heads(n, length, width, item_bytes) / link.bandwidth_bytes_per_s + work_s / n


def _check(n: int) -> None:
    if n < 1:
        raise ValueError(f"attention: expected one rank or more, got {n!r}")
