"""A mixture of experts on n ranks: an expert's capacity, the bytes that travel, and a router's imbalance.

D. Lepikhin et al., "GShard", arXiv:2006.16668, 2020: a rank's tokens are a group, and an expert takes at most so many of them.
W. Fedus, B. Zoph and N. Shazeer, "Switch Transformers", JMLR 23, 2022: one expert per token, and a loss that balances them.
Left out: two experts per token, noise in the router, and padding.
"""

import math
from collections.abc import Sequence

import numpy as np


def capacity(tokens: int, experts: int, factor: float) -> int:
    """Return the most tokens of a group that an expert takes: ⌈factor · tokens/experts⌉. Fedus et al., 2022, equation 3."""
    if tokens < 0 or experts < 1 or factor <= 0:
        raise ValueError(f"capacity: expected tokens, experts and a factor above 0, got {tokens!r}, {experts!r} and {factor!r}")
    return math.ceil(factor * tokens / experts)


def kept(chosen: Sequence[int], most: int | None) -> list[int]:
    """Return a group of tokens' places whose token reaches its expert: the first `most` of each expert, in order; all if None."""
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
    """Return the bytes of rows from rank to rank and back, [senders, receivers]; `chosen[rank]` are its tokens' experts.

    Expert e lives on rank e · n // experts. Lepikhin et al., 2020, section 3.2: an all-to-all there, and one back.
    """
    n = len(chosen)
    if experts % n:
        raise ValueError(f"row_bytes_sent: expected the same number of experts on each of {n} ranks, got {experts} in all")
    there = np.zeros((n, n), dtype=np.int64)
    for rank, own in enumerate(chosen):
        for place in kept(own, most):
            there[rank, int(own[place]) * n // experts] += width * item_bytes
    np.fill_diagonal(there, 0)
    return there + there.T


def balancing_loss(shares: Sequence[float], probabilities: Sequence[float]) -> float:
    """Return a router's balancing loss over E experts: E Σ fₑ Pₑ, 1 if both are even. Fedus et al., 2022, equations 4 to 6.

    `shares` are the fractions of the tokens that each expert gets, `probabilities` the router's means.
    """
    if len(shares) != len(probabilities):
        raise ValueError(
            f"balancing_loss: expected a share and a probability for each expert, got {len(shares)} and {len(probabilities)}"
        )
    return len(shares) * float(np.dot(shares, probabilities))


def hottest(shares: Sequence[float]) -> float:
    """Return the busiest expert's load relative to an even share: all ranks wait for that expert."""
    return max(shares) * len(shares) / sum(shares)
