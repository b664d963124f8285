"""Attention whose keys and values lie in blocks on several ranks: the right rows, and the rows that slips give.

A block's part of a row is (greatest score, sum of exp, weighted sum of values); two parts are merged at the greater score. M.
Milakov and N. Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867, 2018; H. Liu et al., "Ring Attention
with Blockwise Transformers for Near-Infinite Context", arXiv:2310.01889, 2023. Left out: the messages (`ring_attention`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from worldsize.checks.weighed_work import WeighedRank, WeighedWork

WORK_S = 0.001  # declared for each block, so that the trace shows when a rank works on it
_UNSEEN = np.finfo(np.float64).min  # greatest score of a row that sees no key of a block; finite, as −inf − −inf is NaN

Part = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Sequence1D:
    """A token sequence sharded over ranks: `q`, `k`, `v` [length, width], and the numbers of each rank's tokens.

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
        """Return the bytes of a rank's keys and values together."""
        return self.of(self.k, rank).nbytes + self.of(self.v, rank).nbytes

    def inputs(self) -> list[dict[str, Any]]:
        """Return what each rank is handed: its own rows, and the numbers of all ranks' tokens."""
        tokens = [list(own) for own in self.tokens]
        return [
            {
                **{name: self.of(x, rank).copy() for name, x in (("q", self.q), ("k", self.k), ("v", self.v))},
                "tokens": tokens, "causal": self.causal, "work_s": WORK_S,
            }
            for rank in range(self.world_size)
        ]  # fmt: skip

    def ring_order(self, rank: int) -> list[int]:
        """Return the owner of the block that a rank has in each round, if blocks go to the next rank: its own first."""
        return [(rank - step) % self.world_size for step in range(self.world_size)]

    def parts(self, rank: int, masked_as: Callable[[int], int] = lambda source: source) -> dict[int, Part]:
        """Return {source: its block's part of a rank's rows}; a block is masked as if `masked_as(source)` owned it."""
        ranks = WeighedRank(rank, self.work and self.work[rank])
        found = {}
        for source in self.ring_order(rank):
            greatest, total, weighted = self._part(rank, source, masked_as(source))
            found[source] = greatest, total, weighted * ranks.weights_of(WORK_S, weighted.astype(self.q.dtype))
        return found

    def _part(self, rank: int, source: int, numbered_as: int) -> Part:
        q, k, v = self.of(self.q, rank), self.of(self.k, source), self.of(self.v, source)
        scores = q.astype(np.float64) @ k.T.astype(np.float64) / k.shape[1] ** 0.5
        if self.causal:
            # with a wrong owner the number of tokens may differ from the block's: repeat or cut them
            theirs = np.resize(self.tokens[numbered_as], len(k))
            scores = np.where(theirs[None, :] > np.array(self.tokens[rank])[:, None], -np.inf, scores)
        greatest = np.maximum(scores.max(axis=1, keepdims=True), _UNSEEN)
        weights = np.exp(scores - greatest)
        return greatest, weights.sum(axis=1, keepdims=True), weights @ v.astype(np.float64)


def merged(parts: Sequence[Part]) -> np.ndarray:
    """Return a rank's rows, [own tokens, width]: all blocks under one softmax."""
    top = np.max([greatest for greatest, _, _ in parts], axis=0)
    factors = [np.exp(greatest - top) for greatest, _, _ in parts]
    total = sum(f * s for f, (_, s, _) in zip(factors, parts, strict=True))
    return sum(f * o for f, (_, _, o) in zip(factors, parts, strict=True)) / total


def attended(sequence: Sequence1D) -> list[np.ndarray]:
    """Return the right rows of each rank, with the work as it was weighed."""
    return [merged(list(sequence.parts(rank).values())) for rank in range(sequence.world_size)]


# ---- slips -----------------------------------------------------------------------------------


def _mean_of_softmaxes(parts: Sequence[Part]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.mean([o / s for _, s, o in parts], axis=0)


def _without_scaling(parts: Sequence[Part]) -> np.ndarray:
    return sum(o for _, _, o in parts) / sum(s for _, s, _ in parts)


def _weighted_alone(parts: Sequence[Part]) -> np.ndarray:
    """Rescale the sums of exp, but not the weighted sums of values."""
    top = np.max([greatest for greatest, _, _ in parts], axis=0)
    return sum(o for _, _, o in parts) / sum(np.exp(m - top) * s for m, s, _ in parts)


def _new_part_alone(parts: Sequence[Part]) -> np.ndarray:
    """Merge, but leave earlier blocks in their old scale when a greater score comes."""
    top, total, weighted = parts[0]
    for greatest, s, o in parts[1:]:
        new = np.maximum(top, greatest)
        total, weighted, top = total + s * np.exp(greatest - new), weighted + o * np.exp(greatest - new), new
    return weighted / total


def _old_part_alone(parts: Sequence[Part]) -> np.ndarray:
    """Merge, but add each new block in its own scale."""
    top, total, weighted = parts[0]
    for greatest, s, o in parts[1:]:
        new = np.maximum(top, greatest)
        total, weighted, top = total * np.exp(top - new) + s, weighted * np.exp(top - new) + o, new
    return weighted / total


def _undivided(parts: Sequence[Part]) -> np.ndarray:
    top = np.max([greatest for greatest, _, _ in parts], axis=0)
    return sum(np.exp(m - top) * o for m, _, o in parts)


_MERGES: dict[str, Callable[[Sequence[Part]], np.ndarray]] = {
    "These are the rows of its own block alone: every block of keys has to come by.": lambda parts: merged(parts[:1]),
    "The last block is missing: n ranks hold n blocks, so n − 1 of them have to come.": lambda parts: merged(parts[:-1]),
    "These are the rows of the last block alone: merge a block's part with what came before.": lambda parts: merged(parts[-1:]),
    "Its own block is missing.": lambda parts: merged(parts[1:]),
    "Each block had a softmax of its own, and their results were averaged: a block whose scores are greater weighs more.":
        _mean_of_softmaxes,
    "The parts were added as they are, each scaled by its own greatest score: bring both to the greater one first.":
        _without_scaling,
    "The sums of exp were brought to one scale, and the weighted sums of values were not.": _weighted_alone,
    "What was merged before kept its old scale: when the greatest score grows, it shrinks by exp(old − new).": _new_part_alone,
    "A block's part was added in its own scale: it counts exp(its greatest score − the common one) times.": _old_part_alone,
    "The weighted sum was not divided by the sum of exp.": _undivided,
}  # fmt: skip


def slips(sequence: Sequence1D) -> dict[str, list[np.ndarray]]:
    """Return {words for a slip: the rows that it gives, by rank}; on one rank, only the missing division and mask."""
    n = sequence.world_size
    found = {}
    with np.errstate(all="ignore"):
        for words, merge in _MERGES.items():
            if n > 1 or merge is _undivided:
                found[words] = [merge(list(sequence.parts(rank).values())) for rank in range(n)]
        if sequence.causal:
            found |= _wrong_masks(sequence)
    return found


def _wrong_masks(sequence: Sequence1D) -> dict[str, list[np.ndarray]]:
    """Return {words for a slip: the rows with blocks masked as another rank's, or not masked, by rank}."""
    n = sequence.world_size
    found = {
        "No mask was laid over it: a query sees no later key.": attended(replace(sequence, causal=False)),
    }
    if n > 1:
        for words, numbered_as in (
            ("Every block was masked as if it were the rank's own: say whose block it is.", lambda rank, source: rank),
            ("A block was masked as if blocks came from the next rank: they come from the previous one.",
             lambda rank, source: (2 * rank - source) % n),
            ("A block was masked as the one that comes after it: say whose block is at hand, not whose is on its way.",
             lambda rank, source: (source - 1) % n),
        ):  # fmt: skip
            if all(numbered_as(rank, source) == source for rank in range(n) for source in range(n)):
                continue  # with two ranks, next and previous are the same rank
            found[words] = [
                merged(list(sequence.parts(rank, lambda source, rank=rank, of=numbered_as: of(rank, source)).values()))
                for rank in range(n)
            ]
    return found
