"""A big batch in parts over several ranks: the steps of one device that has all of it, and what slips give.

Each part has the gradient of the loss summed over its examples, as a plain array, so a mean of means, a sum, or a rank's
own gradient takes a few additions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from worldsize.checks.kit.judge import ranks_in_words
from worldsize.checks.verdict import Complaint
from worldsize.checks.weighed_work import WeighedRank, WeighedWork, on_other_numbers
from worldsize.pytorch.timed_network import Network, TrainingTask, task
from worldsize.units import count

# 315 kB of weights: on two ranks half of them travel in one message, above 128 KiB. No few rows of one width have the bytes of
# a few rows of another, so the bytes of activations tell their number of examples
SIZES = [70, 384, 32, 5]
LAYERS = len(SIZES) - 1
MOMENTUM = 0.9
FORWARD_S, BACKWARD_S = 0.001, 0.002

Part = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class BigBatch:
    """A training with big batches in parts: `steps[step][rank]` holds a rank's parts, (x, y) each.

    `tasks[rank]` is the model that the rank draws; rank 0's counts. `work` is the declared work of the real ranks, None
    where it was not weighed.
    """

    tasks: tuple[TrainingTask, ...]
    steps: list[list[list[Part]]]
    rate: float
    work: tuple[tuple[WeighedWork, ...], ...] | None = None

    @classmethod
    def drawn(cls, draws: random.Random, *counts: Sequence[Sequence[int]]) -> BigBatch:
        """Draw for a big batch `counts[step][rank][part]` examples, each rank's from a seed of its own."""
        tasks, by_rank = [], []
        for own in zip(*counts, strict=True):
            seed = draws.getrandbits(32)
            tasks.append(task(
                sizes=SIZES, dtype="float64", seed=seed, steps=len(own), parts=len(own[0]),
                forward_s=FORWARD_S, backward_s=BACKWARD_S,
            ))  # fmt: skip
            generator = np.random.default_rng(seed)
            by_rank.append([[] for _ in own])
            for parts, sizes in zip(by_rank[-1], own, strict=True):
                for k in sizes:
                    parts.append((generator.normal(size=(k, SIZES[0])), generator.integers(0, SIZES[-1], k)))

        rate = round(draws.uniform(0.05, 0.2), 3)
        return cls(tuple(tasks), list(map(list, zip(*by_rank, strict=True))), rate)

    @property
    def task(self) -> TrainingTask:
        return self.tasks[0]

    @property
    def ranks(self) -> int:
        return len(self.tasks)

    @property
    def parts(self) -> int:
        return len(self.steps[0][0])

    @property
    def inputs(self) -> list[dict[str, Any]]:
        given = []
        for rank, own in enumerate(self.tasks):
            steps = [step[rank] for step in self.steps]
            given.append({"task": own, "rate": self.rate, "momentum": MOMENTUM, "steps": steps})
        return given

    @override
    def __str__(self) -> str:
        shown = []
        for parts in self.steps[0]:
            shown.append(", ".join(str(len(y)) for _, y in parts))
        first = " in the first step" * (len(self.steps) > 1)
        return f"{ranks_in_words(self.ranks)}, {count(self.parts, 'part')} of {'; '.join(shown)} examples{first}"

    # ---- one device --------------------------------------------------------------------------

    @cached_property
    def start(self) -> np.ndarray:
        """Return rank 0's weights before the first big batch, [numbers]."""
        return _flat(Network(WeighedRank(0), self.task).parameters())

    @cached_property
    def weights(self) -> list[np.ndarray]:
        """Return the weights that every rank should hold after each big batch."""
        return self._trained[1]

    @cached_property
    def _trained(self) -> tuple[list[WeighedRank], list[np.ndarray]]:
        ranks = self._weighed_ranks()
        return ranks, self._descended([False] * len(self.steps), ranks)

    def invented_work(self) -> Complaint:
        """Complain about a rank that declared work on other numbers than the right weights lead to."""
        if self.work is None:
            return None
        for one in self._trained[0]:
            if not one.all_done:
                return on_other_numbers(one.rank)
        return None

    def _weighed_ranks(self) -> list[WeighedRank]:
        return [WeighedRank(rank, self.work and self.work[rank]) for rank in range(self.ranks)]

    def without_zero_grad(self, step: int) -> np.ndarray:
        """Return the weights after `step` where the gradient of the big batch before was not zeroed."""
        kept = [False] * len(self.steps)
        kept[step] = True
        return self._descended(kept, self._weighed_ranks())[step]

    def by_rate(self, step: int) -> list[np.ndarray]:
        """Return the weights after `step` where the summed gradients stay as they are and the rate is scaled instead.

        That is once for a rate that is set back after each big batch, and once for one that is not.
        """
        ends = []
        for keeps in (False, True):
            weights, speed, rate = self.start, 0.0, self.rate
            for number in range(step + 1):
                sums, counts = self._sums(weights, number, self._weighed_ranks())
                speed = MOMENTUM * speed + sums.sum((0, 1)) / self.ranks
                rate = (rate if keeps else self.rate) * self.ranks / counts.sum()
                weights = weights - rate * speed
            ends.append(weights)
        return ends

    def _descended(self, kept: Sequence[bool], ranks: Sequence[WeighedRank]) -> list[np.ndarray]:
        held, weights, speed, before = [], self.start, 0.0, 0.0
        for step, keeps in enumerate(kept):
            sums, counts = self._sums(weights, step, ranks)
            mean = sums.sum((0, 1)) / counts.sum()
            speed = MOMENTUM * speed + mean + (before if keeps else 0.0)
            weights = weights - self.rate * speed
            held.append(weights)
            before = mean

        return held

    def _sums(self, weights: np.ndarray, step: int, ranks: Sequence[WeighedRank]) -> tuple[np.ndarray, np.ndarray]:
        """Return each part's gradient of its summed loss at these weights, [ranks, parts, numbers], and its number of examples.
        """
        sums, counts = [], []
        for rank, parts in zip(ranks, self.steps[step], strict=True):
            network = Network(rank, self.task)
            torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), network.parameters())
            sums.append(_of_parts(network, rank, parts))
            counts.append([len(y) for _, y in parts])
        return np.array(sums), np.array(counts)

    # ---- slips -------------------------------------------------------------------------------

    @cached_property
    def slips(self) -> dict[str, list[np.ndarray]]:
        """Return {words: the first big batch's gradient on each rank by that slip}, [numbers]."""
        n, parts = self.ranks, self.parts
        sums, counts = self._sums(self.start, 0, self._weighed_ranks())
        means = sums / counts[:, :, None]
        total, examples = sums.sum((0, 1)), counts.sum()
        own, own_counts = sums.sum(1), counts.sum(1)[:, None]

        alike = {  # on every rank
            f"The step is 1/{n} of the right one: DDP divides by the number of ranks, so multiply the loss by {n}.":
                total / examples / n,
            f"The step is {n} times the right one: DDP already divides by the number of ranks.": total / examples * n,
            "This is the mean of the parts' means: a part with few examples counts as much as one with many. Divide by the "
            "examples of all parts of all ranks.": means.mean((0, 1)),
            "This is the mean of the ranks' means: a rank with few examples counts as much as one with many. Divide by the "
            "examples of all ranks.": (own / own_counts).mean(0),
            "All ranks' first parts count as much as all second ones, and so on: divide by the examples of all parts of all "
            "ranks.": (sums.sum(0) / counts.sum(0)[:, None]).mean(0),
            "The parts' means add up: nothing was divided by the number of parts.": means.sum(1).mean(0),
            "The sums over the examples are divided by the number of ranks alone: divide by the number of examples.": total / n,
            "These are the sums over all examples: divide by the number of examples.": total,
            "Only the last part counts: is a gradient zeroed between the parts?": means[:, -1].mean(0),
            "Only the last part is in the step, divided by all examples: is a gradient zeroed between the parts?":
                sums[:, -1].sum(0) / examples,
            "Only the first part counts.": means[:, 0].mean(0),
        }  # fmt: skip

        first = sums[:, 0]
        return {words: [gradient] * n for words, gradient in alike.items()} | {
            "Only the first part's gradients are averaged over the ranks, the others are added to them: let the last part be "
            "the one outside no_sync().": [*((first.sum(0) + n * (own - first)) / examples)],
            "Every rank steps by the gradient of its own examples: run the last part's forward and backward outside "
            "no_sync().": [*(n * own / examples)],
            "Every rank steps by the mean gradient of its own examples: nothing was averaged over the ranks.":
                [*(own / own_counts)],
            f"Every rank's own means are divided by {parts} parts, and nothing was averaged over the ranks.": [*means.mean(1)],
        }  # fmt: skip


def _of_parts(network: Network, rank: WeighedRank, parts: list[Part]) -> list[np.ndarray]:
    """Return the gradient of the summed loss of each part of a big batch.

    Where the real rank worked on all parts at once, the first entry is the gradient of all, the others are 0.
    """
    missed = rank.missed
    sums = [_of_summed_loss(network, *part) for part in parts]
    if rank.missed == missed:
        return sums

    missed_in_parts, rank.missed = rank.missed, missed
    whole = _of_summed_loss(network, *map(np.concatenate, zip(*parts, strict=True)))
    if rank.missed == missed:
        return [whole, *(np.zeros_like(whole) for _ in parts[1:])]
    rank.missed = missed_in_parts
    return sums


def _of_summed_loss(network: Network, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with torch.enable_grad():
        loss = torch.nn.functional.cross_entropy(network(torch.from_numpy(x)), torch.from_numpy(y), reduction="sum")
        return _flat(torch.autograd.grad(loss, list(network.parameters())))


def _flat(tensors: Any) -> np.ndarray:
    return torch.cat([x.detach().flatten() for x in tensors]).numpy().copy()
