"""Complaints about wrong weights after a training on several ranks, compared with one process that has all their examples.

A mistake shows in the first step: n times too long, the rank's own gradient alone, or a step from other weights than rank 0's.
Left out: messages, and the choice of trainings (`gradient_averaging`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np
import torch

from worldsize.checks.kit.expected import Expected
from worldsize.checks.kit.values import same
from worldsize.checks.verdict import Complaint
from worldsize.checks.weighed_work import WeighedRank, WeighedWork, on_other_numbers
from worldsize.pytorch import timed_network
from worldsize.pytorch.timed_network import Network, TrainingTask
from worldsize.units import number

SIGNATURES_AFTER_STEPS = 1  # after more steps, mistakes mix too much to be told apart
NEAR_ZERO = 1e-9  # weights and steps are about 1: sums over ranks in any order err by far less in float64

_same = partial(same, near_zero=NEAR_ZERO)


@dataclass(frozen=True)
class OverlapTraining:
    """A training on several ranks, and its expected weights. `tasks[rank]` differ only in their seeds.

    So a rank can know another's weights or examples only from messages. `work` is the real ranks' declared work, None if it was
    not weighed; the expected results are weighed in the same way.
    """

    tasks: tuple[TrainingTask, ...]
    work: tuple[tuple[WeighedWork, ...], ...] | None = None

    @property
    def task(self) -> TrainingTask:
        """Rank 0's task, for the values that are equal on all ranks."""
        return self.tasks[0]

    @property
    def world_size(self) -> int:
        return len(self.tasks)

    @cached_property
    def starts(self) -> list[list[np.ndarray]]:
        """The first weights, which each rank draws for itself."""
        return list(map(_arrays, self._networks()))

    @cached_property
    def expected(self) -> list[np.ndarray]:
        """The right weights at the end: rank 0's start, then descent on the mean loss over all ranks' examples."""
        return _arrays(self._trained[1][0])

    @cached_property
    def _trained(self) -> tuple[list[WeighedRank], list[Network]]:
        ranks = self._ranks()
        networks = _sharing(self._networks(ranks))
        for step in range(self.task["steps"]):
            self._backward(networks, range(self.world_size), step)
            with torch.no_grad():
                for p in networks[0].parameters():
                    if p.grad is not None:
                        p -= self.task["rate"] * p.grad

        return ranks, networks

    def invented_work(self, weights_are_right: bool) -> Complaint:
        """Return a complaint about a rank that declared work on other numbers than its own.

        The right numbers follow from the weights. If the final weights are wrong, only the first step counts, from rank 0's
        start or from the rank's own.
        """
        if self.work is None or not (self.task["forward_s"] or self.task["backward_s"]):
            return None
        for rank in range(self.world_size):
            right = self._trained[0][rank].all_done if weights_are_right else self._begins_well(rank)
            if not right:
                return on_other_numbers(rank)

        return None

    def _begins_well(self, rank: int) -> bool:
        for own_start in (False, True):
            ranks = self._ranks()
            networks = self._networks(ranks)
            self._backward(networks if own_start else _sharing(networks), [rank], 0)
            if not ranks[rank].missed:
                return True
        return False

    @cached_property
    def own(self) -> list[list[np.ndarray]]:
        """Each rank's own gradients of the training's first step, at rank 0's weights; zeros for a missing gradient."""
        networks, gradients = _sharing(self._networks()), []
        for rank in range(self.world_size):
            self._backward(networks, [rank], 0)
            gradients.append([_gradient(p) for p in networks[0].parameters()])

        return gradients

    @cached_property
    def last_part(self) -> list[np.ndarray]:
        """The mean over the ranks of the gradients of the first step's last micro-batch alone, at rank 0's weights."""
        networks = _sharing(self._networks())
        self._backward(networks, range(self.world_size), 0, [self.task["parts"] - 1])
        return [_gradient(p).copy() for p in networks[0].parameters()]

    def from_start(self, start: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the overlapped training's weights after the first step if all ranks begin with `start`."""
        networks = _sharing(self._networks())
        with torch.no_grad():
            for p, values in zip(networks[0].parameters(), start, strict=True):
                p.copy_(torch.from_numpy(values))
        self._backward(networks, range(self.world_size), 0)
        rate = self.task["rate"]
        return [p.detach().numpy() - rate * _gradient(p) * p.requires_grad for p in networks[0].parameters()]

    @property
    def learns(self) -> list[bool]:
        return [p.requires_grad for p in Network(WeighedRank(0), self.task).parameters()]

    def layers(self, k: int) -> list[int]:
        """Return the layers of the overlapped training that use parameter k."""
        network = Network(WeighedRank(0), self.task)
        parameter = list(network.parameters())[k]
        return [layer for layer, weight in enumerate(network.weights) if weight is parameter]

    def _ranks(self) -> list[WeighedRank]:
        return [WeighedRank(rank, self.work and self.work[rank]) for rank in range(self.world_size)]

    def _networks(self, ranks: Sequence[WeighedRank] = ()) -> list[Network]:
        return [Network(rank, task) for rank, task in zip(ranks or self._ranks(), self.tasks, strict=True)]

    def _backward(
        self, networks: list[Network], ranks: Sequence[int], step: int, parts: Sequence[int] | None = None
    ) -> None:
        for network in networks:
            network.zero_grad()
        losses = []
        for rank, part in product(ranks, range(self.task["parts"]) if parts is None else parts):
            losses.append(timed_network.loss(self.tasks[rank], rank, networks[rank], step, part))

        torch.stack(losses).mean().backward()


def _sharing(networks: list[Network]) -> list[Network]:
    """Make all networks use rank 0's weights themselves, and return them."""
    for network in networks:
        network.weights = networks[0].weights
    return networks


def _arrays(network: Network) -> list[np.ndarray]:
    return [p.detach().numpy().copy() for p in network.parameters()]


def _gradient(parameter: torch.nn.Parameter) -> np.ndarray:
    if parameter.grad is None:
        return np.zeros(parameter.shape)
    return parameter.grad.numpy()


def wrong_weights(returned: Sequence[Any], training: OverlapTraining) -> Complaint:
    """Return a complaint about the first rank and weight that differ from one process's; None if all are right."""
    shapes, held = [w.shape for w in training.expected], []
    for rank, result in enumerate(returned):
        weights = result.get("weights") if isinstance(result, dict) else None
        if not isinstance(weights, tuple) or [getattr(w, "shape", None) for w in weights] != shapes:
            return f"rank {rank}: expected what `train` returns; leave the given last line as it is"
        held.append(weights)

    for k in sorted(range(len(shapes)), key=lambda k: training.learns[k]):  # frozen first: they spoil the others
        weight = Expected(
            f"one process's weight of layer {' and '.join(map(str, training.layers(k)))}",
            [training.expected[k]] * training.world_size, near_zero=NEAR_ZERO,
            otherwise=partial(_mistake, held=held, training=training, k=k),
        )  # fmt: skip
        wrong = weight.wrong([weights[k] for weights in held])
        if wrong:
            return wrong

    return None


def _mistake(
    rank: int, got: Any, right: np.ndarray, *, held: Sequence[Sequence[np.ndarray]], training: OverlapTraining, k: int
) -> str:
    starts = training.starts
    if not training.learns[k]:
        if _same(got, starts[rank][k]):
            return f"This frozen weight is still rank {rank}'s own: broadcast all weights from rank 0, frozen ones too."
        return "It is frozen: no step should change it."

    if training.world_size > 1:
        moves = [weights[k] - start[k] for weights, start in zip(held, starts, strict=True)]
        if moves[0].any() and all(_same(move, moves[0]) for move in moves):
            return (
                "All ranks take the same steps, each from random weights of its own: broadcast rank 0's before the first step."
            )

    started = _other_start(held, training)
    if started:
        return f"The ranks agree, but they began with {started}: broadcast rank 0's weights."
    if training.task["steps"] > SIGNATURES_AFTER_STEPS:
        return "Is one step right and the next one wrong? A handle, a set or a sum may be left over from the step before."
    steps = [[(a - b) / training.task["rate"] for a, b in zip(starts[0], weights, strict=True)] for weights in held]
    return _first_step(training, rank, k, [own[k] for own in steps]) or _in_other_places(training, steps[rank])


def _other_start(held: Sequence[Sequence[np.ndarray]], training: OverlapTraining) -> str:
    """Describe the weights that all ranks began with, if these explain one step and are not rank 0's; else empty."""
    if training.world_size == 1 or training.task["steps"] > 1 or training.task["forward_s"] or training.task["backward_s"]:
        return ""

    n, starts = training.world_size, training.starts
    others = {f"rank {rank}'s weights": starts[rank] for rank in range(1, n)}
    sums = [np.sum(every, axis=0) for every in zip(*starts, strict=True)]
    others |= {"the mean of all ranks' weights": [one / n for one in sums], "the sum of all ranks' weights": sums}

    for name, start in others.items():
        ends = training.from_start(start)
        if all(all(map(_same, weights, ends)) for weights in held):
            return name
    return ""


def _first_step(training: OverlapTraining, rank: int, k: int, steps: Sequence[np.ndarray]) -> Complaint:
    """Name the mistake behind a first step's weight; `steps[rank]` is the gradient that explains the weight's change there."""
    n, parts, own = training.world_size, training.task["parts"], [gradients[k] for gradients in training.own]
    layers, step, mean = training.layers(k), steps[rank], np.mean([gradients[k] for gradients in training.own], axis=0)
    without = [r for r, gradient in enumerate(own) if not gradient.any()]  # ranks whose first loss does not reach it
    if 0 < len(without) < n:
        complaint = _partly_unused(step, own, without, layers)
        if complaint:
            return complaint

    if n > 1:
        for other, gradient in enumerate(own):
            if gradient.any() and all(_same(one, gradient) for one in steps):
                return f"All ranks step by rank {other}'s gradient: the other ranks' gradients count as much."
        if _same(step, own[rank] + mean):
            return f"Rank {rank} steps by its own gradient plus the mean: put the mean in the gradient's place."
        if _same(step, own[rank] / n):
            return (
                f"Rank {rank} steps by its own gradient, divided by {n}: the sum over the ranks is missing. Do you wait for the "
                f"sum before the step, and add up p.grad itself, not a copy?"
            )
        if _same(step, own[rank]):
            return (
                f"Rank {rank} steps by its own gradient alone. If you averaged anything, it was not p.grad: averaging equal "
                f"weights changes nothing."
                + " Do the buckets' numbers count only the tensors that learn?"
                * bool(training.task["frozen"] and training.task["buckets"])
            )

    tied = ""
    if len(layers) > 1:
        tied = f" Layers {layers[0]} and {layers[1]} share one tensor: it has one gradient."

    complaint = _wrong_length(step, mean, n, parts)
    if complaint:
        return f"{complaint}{tied}"
    if not step.any():
        early = " Did its bucket begin before the hooks of all its tensors had fired? Then it sent zeros."
        return f"It has not moved, and one process moves it.{early * bool(training.task['buckets'])}{tied}"
    if parts > 1:
        last = training.last_part[k]
        if _same(step, last) or _same(step, last / parts):
            return f"Only the last of {parts} micro-batches is in the step: is a gradient zeroed between them?"
        if _same(step, mean - last / parts):
            return f"The last of {parts} micro-batches is not in the step."
    return tied.strip()


def _in_other_places(training: OverlapTraining, steps: Sequence[np.ndarray]) -> str:
    """Say of a first step whether its numbers are the mean gradients', in other places, or that it is another one."""
    means = [np.mean(gradients, axis=0) for gradients in zip(*training.own, strict=True)]
    if _same(*(np.sort(np.concatenate([one.ravel() for one in every])) for every in (steps, means))):
        return (
            "The step's numbers are those of the mean gradients, in other places: cut the flat tensor up in the order in which "
            "it was packed, each piece in its tensor's shape."
        )
    if training.task["parts"] > 1:
        return f"The gradient should be the mean over the {training.task['parts']} micro-batches of all ranks."
    return "The gradient should be the mean over the ranks' gradients."


def _wrong_length(step: np.ndarray, mean: np.ndarray, n: int, parts: int) -> Complaint:
    lengths = [
        (n, "the gradients were added up, but not divided by the number of ranks."),
        (1 / n, "divided twice by the number of ranks."),
        (parts, "the micro-batches' gradients add up: divide by the number of micro-batches."),
        (n * parts, "nothing was divided, neither by the ranks nor by the micro-batches."),
        (1 / parts, "divided twice by the number of micro-batches."),
    ]
    if parts > 1:
        for k in range(2, 9):
            lengths.append((parts / k, f"divided by {k}, but there are {parts} micro-batches, task[\"parts\"]."))
    for length, complaint in lengths:
        if length != 1 and _same(step, length * mean):
            return f"The step is {number(length)} times the mean gradient: {complaint}"

    ratio = float((step * mean).sum() / max((mean * mean).sum(), NEAR_ZERO))
    if ratio and _same(step, ratio * mean):
        return f"The step is {number(ratio)} times the mean gradient."
    return None


def _partly_unused(step: np.ndarray, own: list[np.ndarray], without: list[int], layers: list[int]) -> Complaint:
    n, missing = len(own), " and ".join(map(str, without))
    unused = f"The loss of rank {missing} skips layer {layers[0]}, so the layer's p.grad is None there: it counts as zeros"
    if not step.any():
        return f"{unused}, and the other ranks' gradients still count."
    if _same(step, np.sum(own, axis=0) / (n - len(without))):
        return f"{unused}. Divide by all {n} ranks, not by those that have a gradient."
    if _same(step, np.mean(own, axis=0)):
        return None
    return f"{unused}."
