"""A mixture of experts that live on n ranks: what an expert may take, what travels, and how uneven a router is.

D. Lepikhin et al., "GShard", arXiv:2006.16668, 2020: a rank's tokens are a group, of which an expert takes so many at most.
W. Fedus, B. Zoph and N. Shazeer, "Switch Transformers", JMLR 23, 2022: one expert a token, and a loss that balances them.
Left out: two experts a token, noise in the router, and padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def capacity(tokens: int, experts: int, factor: float) -> int:
    """Tokens of a group that an expert takes at most: ⌈factor · tokens/experts⌉. Fedus et al., 2022, equation 3."""
    if tokens < 0 or experts < 1 or factor <= 0:
        raise ValueError(f"capacity: expected tokens, experts and a factor above 0, got {tokens!r}, {experts!r} and {factor!r}")
    return math.ceil(factor * tokens / experts)


def kept(chosen: Sequence[int], most: int | None) -> list[int]:
    """Places in a group whose token reaches its expert: the first `most` of each expert, in order; all where it is None."""
    counted: dict[int, int] = {}
    places = []
    for place, expert in enumerate(chosen):
        counted[int(expert)] = counted.get(int(expert), 0) + 1
        if most is None or counted[int(expert)] <= most:
            places.append(place)
    return places


def row_bytes_sent(
    chosen: Sequence[Sequence[int]], experts: int, width: int, item_bytes: int, most: int | None = None
) -> np.ndarray:
    """Bytes of rows from rank to rank, [senders, receivers], there and back, where `chosen[rank]` are its tokens' experts.

    Expert e lives on rank e · n // experts. Lepikhin et al., 2020, section 3.2: an all-to-all there, and one back.
    """
    n = len(chosen)
    if experts % n:
        raise ValueError(f"row_bytes_sent: expected as many experts on each of {n} ranks, got {experts} in all")
    there = np.zeros((n, n), dtype=np.int64)
    for rank, own in enumerate(chosen):
        for place in kept(own, most):
            there[rank, int(own[place]) * n // experts] += width * item_bytes
    np.fill_diagonal(there, 0)
    return there + there.T


def balancing_loss(shares: Sequence[float], probabilities: Sequence[float]) -> float:
    """Of a router over E experts: E Σ fₑ Pₑ, which is 1 where both are even. Fedus et al., 2022, equations 4 to 6.

    `shares` are the parts of the tokens that each expert gets, `probabilities` the router's means.
    """
    if len(shares) != len(probabilities):
        raise ValueError(
            f"balancing_loss: expected a share and a probability for each expert, got {len(shares)} and {len(probabilities)}"
        )
    return len(shares) * float(np.dot(shares, probabilities))


def hottest(shares: Sequence[float]) -> float:
    """Return how many times its even share the busiest expert gets: all ranks wait so much longer for it."""
    return max(shares) * len(shares) / sum(shares)
