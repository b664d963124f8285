"""Check of `local_sgd`: ranks train alone for a while, and then take one outer step together.

In each round the check's own local training draws a rank's weights towards targets of its own. The outer gradient is the
round's start minus the mean of the ranks' ends; the outer step is Nesterov's, as in torch.optim.SGD(nesterov=True): buffer =
momentum·buffer + g, weights −= rate·(g + momentum·buffer). A. Douillard et al., "DiLoCo", arXiv:2311.08105, 2023, algorithm 1;
with momentum 0 and rate 1, the averaging of S. Stich, "Local SGD converges fast and communicates little", ICLR 2019. Left out:
the inner optimizer's state, which stays on its rank.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import less_communication
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import ByRank
from worldsize.checks.kit.judge import Case, first_complaint, ranks_in_words, though_right
from worldsize.checks.kit.needed_bytes import TOO_FEW, NeededBytes
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.less_communication.compared_steps import awaited
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

AVERAGING = "rate 1, momentum 0: every round begins at the mean of the ranks' weights"
OUTER = "the outer step is Nesterov's, with one buffer for all rounds"
KEPT = "the weights that were handed in, and those that train_locally returned, stay as they were"
BYTES = "one all-reduce of the weights a round"
ROUNDING = {"float32": 1e-4, "float64": 1e-10}


@dataclass(frozen=True)
class LocalTraining:
    """Rounds of local training: `start` [numbers], targets[rank] [rounds, numbers], left[rank] [numbers].

    A round leaves the fraction `left` of each weight's distance to its target.
    """

    start: np.ndarray
    targets: ByRank
    left: ByRank
    rate: float
    momentum: float
    in_place: bool = False

    @property
    def world_size(self) -> int:
        return len(self.targets)

    @property
    def rounds(self) -> int:
        return len(self.targets[0])

    def end(self, rank: int, weights: np.ndarray, number: int) -> np.ndarray:
        """Return the rank's weights after its local steps in round `number`."""
        target = self.targets[rank][number]
        return target + self.left[rank] * (weights - target)

    @override
    def __str__(self) -> str:
        how = "its argument, changed in place" if self.in_place else "a new tensor"
        return (
            f"{ranks_in_words(self.world_size)}, {self.start.size:,} weights of {self.start.dtype}, "
            f"{count(self.rounds, 'round')}, rate {self.rate:.3g}, momentum {self.momentum:.3g}, train_locally returns {how}"
        )


class Shared(Enum):
    """The combination that ranks make of their ends in a round of local SGD; MEAN is right."""

    MEAN = auto()
    SUM = auto()
    HALF_SUM = auto()
    SUM_OF_GRADIENTS = auto()  # a gradient is start minus end
    NOTHING = auto()


@dataclass(frozen=True)
class OuterMistake:
    """A mistake in the outer steps of local SGD; the defaults are no mistake."""

    shared: Shared = Shared.MEAN
    start_moves: bool = False  # the start was changed in place to the rank's own end
    uphill: bool = False
    from_mean: bool = False  # the outer step begins at the ranks' mean, not at the round's start
    own_start: bool = False  # every round begins at the rank's own end
    first_round_only: bool = False
    keeps: float = 1.0  # fraction of the buffer that lasts to the next round
    nesterov: bool = True
    dampened: bool = False
    buffer_twice: bool = False  # momentum · buffer is added to the buffer, not to the gradient
    swapped: bool = False  # momentum · gradient is added to the buffer
    rate: float | None = None
    momentum: float | None = None
    first_start: bool = False  # the outer gradient begins at the weights that came in
    looks_ahead: bool = False  # a round begins where the buffer alone would lead
    plain_first: bool = False  # the first round's step is rate · gradient
    rate_in_buffer: bool = False  # the rate multiplies what goes into the buffer, and nothing else
    rounds_left_out: int = 0
    last_ends: bool = False  # returns the last round's mean end, without an outer step


@exercise({AVERAGING: 0.25, OUTER: 0.25, KEPT: 0.25, BYTES: 0.25}, seen={BYTES: evidence.MESSAGES}, waits=BYTES)
def local_sgd(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check local training with an outer step: `local_sgd(fabric, weights, train_locally, rounds, rate, momentum)`.

    weights [numbers] are the same on every rank; train_locally(weights, number) is a rank's own. It returns the weights after
    `rounds` outer steps, the same on every rank. A right answer passes whatever is drawn; a wrong one gives 5 weights or more
    to within 1e-10 with a chance far under 1e-30.
    """
    between = arena.draws.uniform
    for what, task in (
        # three ranks: with two, a step from their mean equals a step by the summed gradients
        (AVERAGING, draw_training(arena, 3, 6, 3, 1.0, 0.0)),
        (AVERAGING, draw_training(arena, 2, 5, 4, 1.0, 0.0, in_place=True)),
        (OUTER, draw_training(arena, 3, 7, 4, between(0.5, 0.8), between(0.8, 0.95))),
        (OUTER, draw_training(arena, 4, 6, 3, between(0.5, 0.8), between(0.4, 0.6), in_place=True)),
        (OUTER, draw_training(arena, 2, 5, 2, between(0.4, 0.6), 0.0, in_place=True)),
        (OUTER, draw_training(arena, 1, 5, 3, between(0.5, 0.8), between(0.8, 0.95))),
        (OUTER, draw_training(arena, 5, 8, 1, between(0.5, 0.8), between(0.8, 0.95), in_place=True)),
        # its messages exceed 128 KiB, which no wire copies
        (OUTER, draw_training(arena, 2, 70_001, 2, 0.7, 0.9, in_place=True, dtype="float32")),
    ):
        inputs = []
        for targets, left in zip(task.targets, task.left, strict=True):
            inputs.append({"weights": task.start, "targets": targets, "left": left, "in_place": task.in_place, "overwritten": []})
        driver = less_communication.local_rounds
        run = partial(arena.ranks, fn, inputs, task.rounds, task.rate, task.momentum, driver=driver)
        yield Case(str(task), run, partial(_examine, task, what), _ADVICE)


def draw_training(
    arena: Arena, n: int, numbers: int, rounds: int, rate: float, momentum: float, in_place: bool = False,
    dtype: str = "float64",
) -> LocalTraining:  # fmt: skip
    """Draw a local training of `n` ranks, each with its own targets and strengths."""
    generator = np.random.default_rng(arena.draws.getrandbits(32))
    # a strength per weight, so that no later average makes up for a missing one
    left = [generator.uniform(0.2, 0.8, numbers).astype(dtype) for _ in range(n)]
    start = generator.normal(size=numbers).astype(dtype)
    targets = [generator.normal(size=(rounds, numbers)).astype(dtype) for _ in range(n)]
    return LocalTraining(start, targets, left, rate, momentum, in_place)


def _examine(task: LocalTraining, what: str, ended: ArenaResult) -> dict[str, Complaint]:
    rounding = ROUNDING[str(task.start.dtype)]
    wanted = awaited("the weights", outer_steps(task), partial(_slips, task), rounding=rounding)
    complaint = wanted.wrong(ended.returned)
    if complaint and what == AVERAGING and not task.in_place:  # ranks that cannot average have nothing to send
        return {what: complaint, KEPT: UNEXAMINED, BYTES: UNEXAMINED}

    kept = first_complaint(
        changed(given["weights"], task.start, "the tensor of weights that was handed in", rank)
        for rank, given in enumerate(ended.inputs)
    )
    if kept and task.in_place:
        kept += " train_locally may change its argument: hand it a copy."
    kept = kept or first_complaint(map(_overwritten, range(task.world_size), ended.inputs))
    sent = _needed(task).wrong(ended.trace)
    if complaint:  # to keep the weights is no merit of ranks that take no step together
        return {what: complaint, KEPT: kept or (sent and UNEXAMINED), BYTES: sent}
    return {what: None, KEPT: though_right("the weights", kept), BYTES: though_right("the weights", sent)}


def _overwritten(rank: int, given: dict[str, Any]) -> Complaint:
    if not given["overwritten"]:
        return None
    return (
        f"rank {rank}: the tensor that train_locally returned in round {given['overwritten'][0]} was changed in place, and "
        f"it may hold a model's weights. Hand a copy to all_reduce."
    )


_ADVICE = {"Nesterov momentum requires": "With momentum 0 there is no Nesterov: hand torch's SGD nesterov=momentum > 0."}


def outer_steps(task: LocalTraining, mistake: OuterMistake = OuterMistake()) -> list[np.ndarray]:  # noqa: B008, it is frozen
    """Return the weights that each rank has after all rounds of local SGD."""
    n = task.world_size
    rate = task.rate if mistake.rate is None else mistake.rate
    momentum = task.momentum if mistake.momentum is None else mistake.momentum
    weights = [task.start] * n
    begins = weights
    buffers = [np.zeros_like(task.start)] * n

    ends = weights
    for number in range(task.rounds - mistake.rounds_left_out):
        if mistake.looks_ahead:
            begins = [w - rate * momentum * b for w, b in zip(weights, buffers, strict=True)]
        ends = [task.end(r, begins[r], 0 if mistake.first_round_only else number) for r in range(n)]
        starts = ends if mistake.start_moves else begins if mistake.looks_ahead else weights
        shared = ends  # what each rank takes for the end of the round
        if mistake.shared is Shared.SUM:
            shared = [np.sum(ends, axis=0)] * n
        elif mistake.shared is Shared.HALF_SUM:
            shared = [np.sum(ends, axis=0) / 2] * n
        elif mistake.shared is not Shared.NOTHING:
            shared = [np.mean(ends, axis=0)] * n
        gradients = list(map(np.subtract, [task.start] * n if mistake.first_start else starts, shared))
        if mistake.shared is Shared.SUM_OF_GRADIENTS:
            gradients = [n * g for g in gradients]
        if mistake.uphill:
            gradients = list(map(np.negative, gradients))

        share = 1 - momentum if mistake.dampened else rate if mistake.rate_in_buffer else 1.0
        buffers = [momentum * mistake.keeps * b + share * g for b, g in zip(buffers, gradients, strict=True)]
        steps = buffers
        if mistake.nesterov:
            steps = [g + momentum * b for g, b in zip(gradients, buffers, strict=True)]
        if mistake.buffer_twice:
            steps = [(1 + momentum) * b for b in buffers]
        if mistake.swapped:
            steps = [b + momentum * g for g, b in zip(gradients, buffers, strict=True)]
        if mistake.looks_ahead:
            steps = buffers
        if mistake.plain_first and number == 0:
            steps = gradients
        leaves = shared if mistake.from_mean else weights if mistake.looks_ahead else starts
        length = 1.0 if mistake.rate_in_buffer else rate
        weights = [leave - length * step for leave, step in zip(leaves, steps, strict=True)]
        begins = ends if mistake.own_start else weights

    if mistake.last_ends:
        return [np.mean(ends, axis=0)] * n
    return weights


_NAMED = {
    OuterMistake(start_moves=True): (
        "The round's start was changed: train_locally may change its argument. Keep the start, and hand out a copy."
    ),
    OuterMistake(rate=1.0, momentum=0.0): "This is plain averaging: rate and momentum were left out.",
    OuterMistake(momentum=0.0): "There is no momentum in it: the buffer carries the outer gradients from round to round.",
    OuterMistake(rate=1.0): "The rate was left out.",
    OuterMistake(keeps=0.0): "The buffer began anew in every round: keep it from round to round.",
    OuterMistake(nesterov=False): (
        "This is plain momentum: weights −= rate · buffer. Nesterov's step is rate · (gradient + momentum · buffer), with "
        "this round's gradient already in the buffer."
    ),
    OuterMistake(buffer_twice=True): (
        "The step is rate · (1 + momentum) · buffer. Nesterov's adds momentum · buffer to this round's gradient, not to itself."
    ),
    OuterMistake(swapped=True): (
        "The step is rate · (buffer + momentum · gradient). Nesterov's is rate · (gradient + momentum · buffer)."
    ),
    OuterMistake(first_start=True): (
        "The mean of the ends was taken off the weights that came in: in each round take it off the start of that round."
    ),
    OuterMistake(looks_ahead=True): (
        "The rounds began at weights − rate · momentum · buffer. That is another form of Nesterov's momentum: torch's SGD takes "
        "the gradient at the weights themselves."
    ),
    OuterMistake(plain_first=True): (
        "The first step was rate · gradient. It too is rate · (gradient + momentum · buffer), where the buffer is this first "
        "gradient."
    ),
    OuterMistake(rate_in_buffer=True): (
        "The rate is in the buffer alone: it multiplies the whole step, rate · (gradient + momentum · buffer)."
    ),
    OuterMistake(shared=Shared.HALF_SUM): "The sum of the ends was divided by 2, not by the number of ranks.",
    OuterMistake(dampened=True): "The buffer got (1 − momentum) · gradient: torch's SGD adds the whole gradient.",
    OuterMistake(shared=Shared.SUM_OF_GRADIENTS): "The outer gradient is n times too large: divide by the number of ranks.",
    OuterMistake(shared=Shared.SUM): "The ends were added up and not divided: divide their sum by the number of ranks.",
    OuterMistake(uphill=True): "The step went the wrong way: the outer gradient is the start minus the mean of the ends.",
    OuterMistake(from_mean=True): "The outer step began at the mean of the ranks' ends: begin it at the round's start.",
    OuterMistake(shared=Shared.NOTHING): "Every rank went its own way: average the ends of a round over the ranks.",
    OuterMistake(own_start=True): (
        "Every rank went on from its own end: begin every round at the weights of the last outer step, the same on all ranks."
    ),
    OuterMistake(first_round_only=True): "train_locally was asked for round 0 each time: number the rounds from 0.",
    OuterMistake(last_ends=True): "These are the ranks' ends in the last round, averaged: its outer step was not taken.",
    OuterMistake(rounds_left_out=1): "These are the weights of the round before: the last outer step is missing.",
}


def _slips(task: LocalTraining) -> dict[str, ByRank]:
    """Return {words for a slip: the weights that each rank has with it after local SGD}."""
    found = {words: outer_steps(task, mistake) for mistake, words in _NAMED.items()}
    return found | {"These are the weights that came in.": [task.start] * task.world_size}


def _needed(task: LocalTraining) -> NeededBytes:
    n, rounds, size_bytes = task.world_size, task.rounds, task.start.nbytes
    sum_bytes = 2 * (n - 1) * size_bytes
    return NeededBytes(
        sum_bytes * rounds,
        "one all-reduce of the weights a round",
        {
            2 * sum_bytes * rounds: (
                "Two all-reduces a round: let every rank keep its own buffer, since the buffers stay the same on all."
                if task.start.dtype == "float64"  # float64 cases come first, so more bytes cannot be a wider dtype
                else "Did the weights travel as 8 bytes a number? They are float32: add them up in float32."
            ),
            sum_bytes * (rounds + 1): (
                "That is one all-reduce more than rounds: all ranks have the same start and last step anyway."
            ),
            sum_bytes * rounds + sum_bytes // 2: (
                "The weights travelled once more: they are already the same on all ranks at the start."
            ),
            n * sum_bytes * rounds // 2: "Every rank sent its end to every other: an all-reduce sends 2 (n − 1)/n of it.",
        },
        "In a round, average the ranks' ends, and send nothing else.",
        TOO_FEW,
    )
