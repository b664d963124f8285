"""Who took which example: a single step of replicas on examples whose numbers differ from rank to rank.

On equal examples a rank that takes the whole batch is not told from one that takes its share and hears of the others'.
Here the error of example i on rank r is a power of two of its own, so the step's length says, bit by bit, whose examples
are in it. Any sharing of a batch will do, as long as every example is in the step once. Left out: batches and epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult, ByRank
from worldsize.checks.kit.judge import ranks_in_words
from worldsize.checks.kit.values import all_same
from worldsize.checks.replicas.replica_mistakes import no_history
from worldsize.checks.verdict import Complaint

NEAR = 0.25  # of the smallest error, 1: float32 will do

SHARE = "Each rank is to take its share of the batch, and the gradients are to be averaged."


@dataclass(frozen=True)
class SharesStep:
    """One step of a line on a batch of `count` examples, which every rank has with numbers of its own."""

    world_size: int = 3
    count: int = 6
    learning_rate: float = 0.05
    steps: int = 1

    def starts(self) -> list[list[np.ndarray]]:
        """[slope] and [intercept] of every rank."""
        return [[np.array([2.0 + rank]), np.array([-1.0 - 3 * rank])] for rank in range(self.world_size)]

    def errors(self) -> np.ndarray:
        """What the start of rank 0 is off, by rank and example: 1, 2, 4, … Shape [ranks, count]."""
        powers = 2.0 ** np.arange(self.world_size * self.count)
        return powers.reshape(self.world_size, self.count)

    def run(self, arena: Arena, fn: Callable) -> ArenaResult:
        slope, intercept = self.starts()[0]
        x = np.ones(self.count)
        y = slope + intercept - self.errors()
        return arena.ranks(fn, self.starts(), x, ByRank(tuple(y)), self.count, 1, self.learning_rate)

    def after(self, error: float) -> np.ndarray:
        """The weights after a step whose errors have this sum over the batch. Shape [1, 2]."""
        return np.concatenate(self.starts()[0])[None] - 2 * self.learning_rate * error / self.count

    def wrong_step(self, returned: Sequence[Any]) -> Complaint:
        """Words for a step that is not that of every example, each from the rank that took it."""
        for rank, got in enumerate(returned):
            complaint = no_history(got, self, rank)
            if complaint:
                return complaint

        errors = self.errors()
        whole, everybody = errors.sum(axis=1), errors.sum()

        if all(self._is(got, error) for got, error in zip(returned, whole, strict=True)):
            return f"every rank trained on the whole batch by itself, whatever it sent. {SHARE}"
        for rank, error in enumerate(whole):
            if all(self._is(got, error) for got in returned):
                return f"the step is that of rank {rank} alone, which took the whole batch. {SHARE}"

        if all(self._is(got, everybody / self.world_size) for got in returned):
            return f"every rank computed the gradient of the whole batch, and these were averaged: all did all the work. {SHARE}"
        if not all_same(returned, returned[0]):
            return f"the ranks hold different weights after one step. {SHARE}"
        return self._taken_wrongly(returned[0])

    def _is(self, got: np.ndarray, error: float) -> bool:
        return bool(np.all(np.abs(got - self.after(error)) <= np.abs(self.after(NEAR) - self.after(0.0))))

    def _taken_wrongly(self, got: np.ndarray) -> Complaint:
        total = (self.after(0.0) - got)[0, 0] * self.count / (2 * self.learning_rate)
        if not 0 <= total < 2 * self.errors()[-1, -1] or not self._is(got, np.rint(total)):
            return f"the step is not the mean over the {self.count} examples, each with the numbers of one rank. {SHARE}"

        bits = int(np.rint(total)) // self.errors().astype(int) % 2
        for example, takers in enumerate(bits.sum(axis=0)):
            if takers != 1:
                return f"{takers} ranks took example {example} of the batch in one step: each is in one rank's share."

        shares = bits.sum(axis=1)
        if shares.max() - shares.min() > 1:
            return f"the ranks took {', '.join(map(str, shares))} examples: shares differ by one at most."
        return None

    def __str__(self) -> str:
        return f"{ranks_in_words(self.world_size)}, {self.count} examples in one batch, with other numbers on each rank"
