"""A training that shows which rank took which example, because the examples' y differ from rank to rank.

Every y is its own power of two, so the sum over a batch, computed from the weights before and after a step, shows bit
by bit whose examples it contains; any shares pass, if an epoch takes every example once and the next one reorders them.
`begin` adds a number to rank 0's weights once, and `average` returns a part of the mean, so a training without them ends with
other weights.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult, ByRank
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit.judge import ranks_in_words
from worldsize.checks.kit.values import all_same, kind_in_words
from worldsize.checks.verdict import Complaint

# Two shuffled epochs have the same batches with chance 7! 7! 4!/18! = 1e-7; some two of three epochs with less than 3e-7.
COUNT, BATCH, EPOCHS = 18, 7, 3
NEAR = 0.005  # relative to the smallest y, 1; float64 is off by a thousandth at most

SHARE = "Let each rank take its share of the batch, and average the gradients."
CALL = "Call the parameters begin and average."


@dataclass(frozen=True)
class PartsUsed:
    """A way to begin and average, to see the shares: with the check's `begin` and `average`, or without them."""

    shifted: bool
    scaled: bool
    words: Complaint


WAYS = (
    PartsUsed(True, True, None),
    PartsUsed(True, False, f"gradients are averaged, but not by the parameter average. {CALL}"),
    PartsUsed(False, True, f"the weights start as rank 0's, but not by the parameter begin. {CALL}"),
    PartsUsed(False, False, f"the training uses its own begin and average. {CALL}"),
)


@dataclass(frozen=True)
class FoundShares:
    """Complaints about a training's shares: the shares taken, its use of `begin` and `average`, its epochs' orders."""

    together: Complaint = None
    parts: Complaint = None
    orders: Complaint = None


@dataclass(frozen=True)
class SharesTaken:
    """A training of a line by `world_size` ranks, each with its own y, which shows the shares.

    `begin` adds `shift` once, `average` gives `scale` x the mean. `powers[rank * COUNT + example]` is the exponent of that y.
    """

    powers: tuple[int, ...]
    shift: float = 0.37
    scale: float = 0.618034  # no simple fraction, so a mean taken without `average` is no whole sum
    world_size: int = 2
    learning_rate: float = 0.2

    @property
    def steps(self) -> int:
        return EPOCHS * self.steps_in_epoch

    @property
    def steps_in_epoch(self) -> int:
        return -(-COUNT // BATCH)

    @property
    def sizes(self) -> list[int]:
        """Return the number of examples taken in each step's batch."""
        return [min(BATCH, COUNT - step % self.steps_in_epoch * BATCH) for step in range(self.steps)]

    def starts(self) -> list[list[np.ndarray]]:
        """Return every rank's [slope] and [intercept] before any share is taken."""
        return [[np.array([2.0 + rank]), np.array([-1.0 - 3 * rank])] for rank in range(self.world_size)]

    def targets(self) -> np.ndarray:
        """Return y by rank and example, different by rank to show shares. Shape [ranks, examples]."""
        return (2.0 ** np.array(self.powers)).reshape(self.world_size, COUNT)

    @classmethod
    def drawn(cls, draws: random.Random) -> SharesTaken:
        return cls(tuple(draws.sample(range(cls.world_size * COUNT), cls.world_size * COUNT)))

    def run(self, arena: Arena, fn: Callable) -> ArenaResult:
        plan = (np.ones(COUNT), ByRank(tuple(self.targets())), BATCH, EPOCHS, self.learning_rate)
        return arena.ranks(fn, self.starts(), *plan, self.shift, self.scale, driver=on_ranks.with_parts)

    # ---- reading the weights -----------------------------------------------------------------

    def found(self, returned: Sequence[Any]) -> FoundShares:
        """Return the complaints about the shares taken. `returned[rank]` has the weights after each step, of shape [steps, 2]."""
        for rank, got in enumerate(returned):
            complaint = no_history(got, self.steps, rank)
            if complaint:
                return FoundShares(complaint)

        if not all_same(returned, returned[0]):
            return FoundShares(self._apart(returned))

        for way in WAYS:
            taken = self._taken(returned[0], 0, way, rank=0, times=self.world_size)
            if taken is not None and np.all(taken == taken[0]) and taken.sum() == self.world_size * self.sizes[0]:
                return FoundShares(f"every rank computed the gradient of the whole batch: each did all the work. {SHARE}")

        whole = []  # ways that explain the first step, with the number of examples that they find in it
        for way in WAYS:
            taken = self._taken(returned[0], 0, way, rank=0)
            if taken is not None:
                whole.append((way, taken.sum()))
        if not whole:
            return FoundShares(self._no_mean(0))

        # another way's sum may be whole by luck, but hardly with the right number of examples
        way, _ = next((one for one in whole if one[1] == self.sizes[0]), whole[0])
        return self._followed(returned[0], way)

    def _followed(self, history: np.ndarray, way: PartsUsed) -> FoundShares:
        """Follow the steps, collect each batch's shares, and return the complaints."""
        batches = []
        for step in range(self.steps):
            taken = self._taken(history, step, way, rank=0)
            complaint = self._no_mean(step) if taken is None else self._wrong_shares(taken, step)
            if complaint:
                return FoundShares(complaint, way.words)
            batches.append(frozenset(np.flatnonzero(taken.sum(axis=0)).tolist()))

        n = self.steps_in_epoch
        epochs = [batches[first : first + n] for first in range(0, self.steps, n)]
        alike = None
        for a, b in combinations(range(EPOCHS), 2):
            if epochs[a] == epochs[b] and not alike:
                alike = f"epoch {b} has the batches of epoch {a}: give shards a new seed in every epoch."
        return FoundShares(_not_once(epochs), way.words, alike)

    def _taken(self, history: np.ndarray, step: int, way: PartsUsed, rank: int, times: int = 1) -> np.ndarray | None:
        """Return 1 for each example of each rank in the step, else 0: shape [ranks, examples]. None if the step is no mean.

        `times` multiplies the sum, which must then be a whole number.
        """
        before = history[step - 1]
        if step == 0:
            before = np.concatenate(self.starts()[rank]) + self.shift * way.shifted

        size = self.sizes[step]
        factor = 2 * self.learning_rate * (self.scale if way.scaled else 1.0)

        totals = times * (size * before.sum() - (before - history[step]) * size / factor)
        total = np.rint(totals[0])  # x is 1, so slope and intercept move alike
        if np.any(np.abs(totals - total) > NEAR * times) or not 0 <= total < times * 2 * self.targets().max():
            return None
        return int(total) // self.targets().astype(int) % 2

    # ---- complaints --------------------------------------------------------------------------

    def _wrong_shares(self, taken: np.ndarray, step: int) -> Complaint:
        shares = taken.sum(axis=1)
        size = self.sizes[step]
        if size > 1 and max(shares) == size == sum(shares):
            return f"in step {step} rank {int(np.argmax(shares))} alone took the whole batch. {SHARE}"

        for example, takers in enumerate(taken.sum(axis=0)):
            if takers > 1:
                return f"{takers} ranks took example {example} of the batch in step {step}: each belongs to one rank's share."
        if sum(shares) != size:
            return f"step {step}: {sum(shares)} examples were taken; expected {size}."
        if max(shares) - min(shares) > 1:
            return f"step {step}: the ranks took {', '.join(map(str, shares))} examples: shares may differ by one at most."
        return None

    def _apart(self, returned: Sequence[np.ndarray]) -> str:
        for way in WAYS:
            own = [self._taken(got, 0, way, rank) for rank, got in enumerate(returned)]
            shared = [self._taken(got, 0, way, 0) for got in returned]
            for taken in (own, shared):
                if all(bits is not None and bits[rank].sum() == self.sizes[0] for rank, bits in enumerate(taken)):
                    return f"every rank trained on the whole batch by itself, whatever it sent. {SHARE}"

        gaps, began = [], []
        for got, start in zip(returned[1:], self.starts()[1:], strict=True):
            gaps.append(got[0] - returned[0][0])
            began.append(np.concatenate(start) - np.concatenate(self.starts()[0]))
        if np.allclose(gaps, began):
            return f"The ranks take the same steps from different starts: they stay as far apart as they began. {CALL}"
        return "The ranks hold different weights after a step: are gradients averaged?"

    def _no_mean(self, step: int) -> str:
        return (
            f"step {step} is not the mean gradient of {self.sizes[step]} examples, each taken by one rank, times learning_rate, "
            f"{self.learning_rate:g}."
        )

    @override
    def __str__(self) -> str:
        return (
            f"{ranks_in_words(self.world_size)}, {COUNT} examples in batches of {BATCH}, {EPOCHS} epochs, "
            f"with different numbers on each rank"
        )


def _not_once(epochs: Sequence[Sequence[frozenset[int]]]) -> Complaint:
    for epoch, batches in enumerate(epochs):
        for example in range(COUNT):
            times = sum(example in batch for batch in batches)
            if times != 1:
                return f"example {example} is taken {times} times in epoch {epoch}; expected once."
    return None


def no_history(got: Any, steps: int, rank: int) -> Complaint:
    """Return a complaint, before shares are seen, if `got` is not a float tensor of shape [steps, 2], or None."""
    shape = [steps, 2]
    came = kind_in_words(got)
    if isinstance(got, np.ndarray):
        came = f"shape {list(got.shape)}"
        if list(got.shape) == shape and got.dtype.kind == "f":
            return None

    return f"rank {rank}: expected the weights after each of {steps} steps as a tensor of shape {shape}, got {came}"
