"""Attention whose keys and values lie in blocks on several ranks: the right rows, and the rows that slips give.

A block's part of a row is (greatest score, sum of exp, weighted sum of values); two parts are merged at the greater score. M.
Milakov and N. Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867, 2018; H. Liu et al., "Ring Attention
with Blockwise Transformers for Near-Infinite Context", arXiv:2310.01889, 2023. Left out: the bytes of messages, and their order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from worldsize.checks.kit.transfers import by_sender
from worldsize.checks.verdict import Complaint
from worldsize.checks.weighed_work import WeighedRank, WeighedWork
from worldsize.trace import Trace, ring_links, stray

WORK_S = 0.001  # declared for each block, so that the trace shows when a rank works on it
_UNSEEN = np.finfo(np.float64).min  # greatest score of a row that sees no key of a block; finite, as −inf − −inf is NaN

Part = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Sequence1D:
    """A token sequence whose blocks lie on ranks: `q`, `k`, `v` [length, width], and the numbers of each rank's tokens.

    `work` is the real ranks' declared work, None if it was not weighed.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    tokens: tuple[tuple[int, ...], ...]
    causal: bool
    work: tuple[tuple[WeighedWork, ...], ...] | None = None

    @property
    def world_size(self) -> int:
        return len(self.tokens)

    def of(self, x: np.ndarray, rank: int) -> np.ndarray:
        """Return the rows of `x` whose tokens a rank owns."""
        return x[list(self.tokens[rank])]

    def block_bytes(self, rank: int) -> int:
        """Return the bytes of a rank's block, its keys and values together."""
        return self.of(self.k, rank).nbytes + self.of(self.v, rank).nbytes

    def inputs(self) -> list[dict[str, Any]]:
        """Return what each rank is handed: its own rows for blockwise attention, and the numbers of all ranks' tokens."""
        given = []
        for rank in range(self.world_size):
            rows = {name: self.of(x, rank).copy() for name, x in (("q", self.q), ("k", self.k), ("v", self.v))}
            tokens = [list(own) for own in self.tokens]
            given.append({**rows, "tokens": tokens, "causal": self.causal, "work_s": WORK_S})
        return given

    def parts(
        self, rank: int, masked_as: Callable[[int, int], int] = lambda rank, source: source,
        arrives: Callable[[int, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] = lambda hops, k, v: (k, v),
    ) -> list[Part]:  # fmt: skip
        """Return each block's part of a rank's rows, in ring order: the rank's own block first, then the previous rank's.

        The block of rank `source` is masked as if `masked_as(rank, source)` owned it. `arrives(hops, k, v)` returns the keys and
        values that a block has after so many hops.
        """
        weighed = WeighedRank(rank, self.work and self.work[rank])
        q = self.of(self.q, rank)

        parts = []
        for step in range(self.world_size):
            source = (rank - step) % self.world_size
            k, v = arrives(step, self.of(self.k, source), self.of(self.v, source))
            scores = q.astype(np.float64) @ k.T.astype(np.float64) / k.shape[1] ** 0.5
            if self.causal:
                # with a wrong owner the number of tokens may differ from the block's: repeat or cut them
                theirs = np.resize(self.tokens[masked_as(rank, source)], len(k))
                scores = np.where(theirs[None, :] > np.array(self.tokens[rank])[:, None], -np.inf, scores)

            greatest = np.maximum(scores.max(axis=1, keepdims=True), _UNSEEN)
            weights = np.exp(scores - greatest)
            weighted = weights @ v.astype(np.float64)
            weighted = weighted * weighed.weights_of(WORK_S, weighted.astype(self.q.dtype))
            parts.append((greatest, weights.sum(axis=1, keepdims=True), weighted))
        return parts


def off_the_ring(trace: Trace) -> Complaint:
    """Return a complaint about the first message that goes to no neighbour on a ring, which may turn either way; None if none."""
    n = trace.world_size
    if not all(stray(trace, ring_links(n, step)) for step in (1, -1)):
        return None
    odd = next(t for t in by_sender(trace) if (t.src, t.dst) not in ring_links(n))
    return (
        f"rank {odd.src} sent to rank {odd.dst}; expected every message to go to the next rank, {(odd.src + 1) % n}, "
        f"which passes it on: on a ring no link carries more than another."
    )


def merged(parts: Sequence[Part]) -> np.ndarray:
    """Return a rank's rows of blockwise attention, [own tokens, width]: all blocks under one softmax."""
    tops, totals, weighted = zip(*parts, strict=True)
    top = np.max(tops, axis=0)
    factors = [np.exp(greatest - top) for greatest in tops]
    return sum(map(np.multiply, factors, weighted)) / sum(map(np.multiply, factors, totals))


def attended(
    sequence: Sequence1D, masked_as: Callable[..., int] = lambda rank, source: source
) -> list[np.ndarray]:
    """Return each rank's attention by blocks, with the work as it was weighed; `masked_as` is as in `Sequence1D.parts`."""
    return [merged(sequence.parts(rank, masked_as)) for rank in range(sequence.world_size)]


def slips(sequence: Sequence1D) -> dict[str, list[np.ndarray]]:
    """Return {words for a slip: the blockwise rows that it gives, by rank}; on one rank, only the missing division and mask."""
    n = sequence.world_size
    with np.errstate(all="ignore"):
        of_ranks = [_wrong_merges(sequence.parts(rank)) for rank in range(n)]
        by_slip = {}
        for words in of_ranks[0]:
            if n > 1 or words == _UNDIVIDED:
                by_slip[words] = [rows[words] for rows in of_ranks]
        if n > 1:
            for words, arrives in _WRONG_ARRIVALS.items():
                by_slip[words] = [merged(sequence.parts(rank, arrives=arrives)) for rank in range(n)]
        if not sequence.causal:
            return by_slip

        by_slip["There is no mask: a query sees no later key."] = attended(replace(sequence, causal=False))
        for words, masked_as in WRONG_MASKS.items():
            # with one rank or two, the supposed owner may be the real one
            if any(masked_as(rank, source) % n != source for rank, source in product(range(n), repeat=2)):
                by_slip[words] = attended(sequence, lambda rank, source, of=masked_as: of(rank, source) % n)
    return by_slip


_WRONG_ARRIVALS = {
    "Keys and values change places on the way: receive them in the order in which they are sent.":
        lambda hops, k, v: (v, k) if hops % 2 else (k, v),
    "Keys came as values, too: send the values beside them.": lambda hops, k, v: (k, k) if hops else (k, v),
    "Values came as keys, too: send the keys beside them.": lambda hops, k, v: (v, v) if hops else (k, v),
}  # fmt: skip
Factor = Callable[[np.ndarray], np.ndarray]  # of a part, from its greatest score minus the common one


def _one_by_one(parts: Sequence[Part], of_old: Factor = np.exp, of_new: Factor = np.exp, raised: bool = True) -> np.ndarray:
    """Return a rank's rows, merged block after block; by default they are right. `raised`: the greatest score is kept."""
    top, total, weighted = parts[0]
    for greatest, more, rows in parts[1:]:
        both = np.maximum(top, greatest)
        old, new = of_old(top - both), of_new(greatest - both)
        total, weighted = total * old + more * new, weighted * old + rows * new
        top = both if raised else top
    return weighted / total


def _reciprocal(difference: np.ndarray) -> np.ndarray:
    return np.exp(-difference)


_UNDIVIDED = "The weighted sum was not divided by the sum of exp."
WRONG_MASKS: dict[str, Callable[[int, int], int]] = {  # the supposed owner, modulo n, of the block of `source`
    "Every block was masked as if it were the rank's own: use the owner of each block.": lambda rank, source: rank,
    "A block was masked as if blocks came from the next rank: they come from the previous one.":
        lambda rank, source: 2 * rank - source,
    "A block was masked as the one that comes after it: use the owner of the current block, not of the block on its way.":
        lambda rank, source: source - 1,
}  # fmt: skip


def _wrong_merges(parts: Sequence[Part]) -> dict[str, np.ndarray]:
    """Return {words for a slip: the rows that a rank gets from wrongly merged blocks}."""
    tops, totals, weighted = zip(*parts, strict=True)
    factors = np.exp(np.array(tops) - np.max(tops, axis=0))
    scaled_total = sum(factors * totals)
    scaled_weighted = sum(factors * weighted)

    stuck = {}
    if len(parts) > 2:  # with two blocks the first one's greatest score is used once, and rightly
        words = "The greatest score so far stays the first block's: after each block keep the greater one for the next."
        stuck[words] = _one_by_one(parts, raised=False)
    return stuck | {
        "These are the rows of its own block alone: every rank's keys must come past.": merged(parts[:1]),
        "The last block is missing: n ranks hold n blocks, so n − 1 must arrive.": merged(parts[:-1] or parts),
        "These are the rows of the last block alone: merge each block's part with the earlier ones.": merged(parts[-1:]),
        "Its own block is missing.": merged(parts[1:] or parts),
        "Each block had its own softmax, and the results were averaged: a block with greater scores must weigh more.":
            np.mean([rows / total for _, total, rows in parts], axis=0),
        "The parts were added as they are, each scaled by its own greatest score: bring both to the greater one first.":
            sum(weighted) / sum(totals),
        "The sums of exp were brought to one scale, but the weighted sums of values were not.": sum(weighted) / scaled_total,
        "The weighted sums of values were brought to one scale, but the sums of exp were not.": scaled_weighted / sum(totals),
        "The factors are upside down: a part with greatest score m counts exp(m − the greater one), never more than 1.":
            _one_by_one(parts, _reciprocal, _reciprocal),
        "The earlier parts kept their old scale: when the greatest score grows, multiply them by exp(old − new).":
            _one_by_one(parts, of_old=np.ones_like),
        "A block's part was added in its own scale: it counts exp(its greatest score − the common one) times.":
            _one_by_one(parts, of_new=np.ones_like),
        _UNDIVIDED: scaled_weighted,
    }  # fmt: skip
