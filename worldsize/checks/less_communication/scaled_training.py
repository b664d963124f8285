"""Trainings in float16 with a scale, drawn for the check of `scaled_steps`, and the results that mistakes would give.

A rank's gradient at float16 weights is slope · weights + push, of each step its own. Its numbers are of four kinds: `plain`
ones; `slow` ones, whose step is smaller than half the distance of two float16 weights; `tiny` ones, which float16 holds only
while they are scaled; and a `loud` one, which overflows at any scale that the training reaches. Left out: the judging
(`loss_scaling`).
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import pairwise

import numpy as np

from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.expected import ByRank

PLAIN, SLOW, TINY, LOUD = range(4)  # kinds of numbers
LARGEST = float(np.finfo(np.float16).max)
LOUDNESS = 100.0  # overflows at a scale of 1,024
LEAST_SCALE = 1024.0  # below it the tiny numbers lose digits
LEAST_PLAIN = 0.5  # a plain weight that ends nearer to 0 is less exact than others, in parts of itself
MARGIN = 1.05  # no scaled number, or sum of them, is within this factor of the largest float16


@dataclass(frozen=True)
class ScaledTraining:
    """A training of all ranks: `start` [numbers], slopes[rank] [numbers], pushes[rank] [steps, numbers]."""

    start: np.ndarray
    slopes: ByRank
    pushes: ByRank
    rate: float
    scale: float
    patience: int

    @property
    def world_size(self) -> int:
        return len(self.slopes)

    @property
    def steps(self) -> int:
        return len(self.pushes[0])

    @property
    def kinds(self) -> np.ndarray:
        return kinds_of(self.start.size)


def kinds_of(numbers: int) -> np.ndarray:
    """Return the kind of each number: PLAIN, SLOW and TINY in turn, and the last one LOUD."""
    kinds = np.arange(numbers) % LOUD
    kinds[-1] = LOUD
    return kinds


class Mean(Enum):
    """The mean of the ranks' scaled gradients; EACH_DIVIDED is right."""

    EACH_DIVIDED = auto()
    SUM_DIVIDED = auto()  # the sum of finite numbers may overflow
    SUM = auto()
    OWN = auto()


class Unscaled(Enum):
    """The division of the mean by the scale; IN_FLOAT32 is right."""

    IN_FLOAT32 = auto()
    BY_NEXT = auto()  # by the scale of the next step
    BY_FIRST = auto()  # by the scale that was handed in
    NEVER = auto()


class Left(Enum):
    """The condition on which a rank leaves a step out; NOT_FINITE is right."""

    NOT_FINITE = auto()
    OWN_NOT_FINITE = auto()  # by its own gradient, before the sum
    SUM_NOT_FINITE = auto()  # by the mean's sum in float16, which overflows where all numbers are finite
    INFINITE = auto()  # NaN goes through
    NAN = auto()  # inf goes through
    NEVER = auto()


class Doubled(Enum):
    """The steps after which the scale doubles; IN_A_ROW is right, those from BY_STEP on go by the number of the step."""

    IN_A_ROW = auto()
    ONCE_A_ROW = auto()  # where a count that never begins anew is `patience`
    BY_STEP = auto()  # good ones whose number `patience` divides, counted from 1
    BY_STEP_FROM_0 = auto()
    BY_ANY_STEP = auto()  # also those that are left out
    BY_ANY_STEP_FROM_0 = auto()


@dataclass(frozen=True)
class ScalingMistake:
    """A mistake in training with a scale; the defaults are no mistake."""

    mean: Mean = Mean.EACH_DIVIDED
    unscaled: Unscaled = Unscaled.IN_FLOAT32
    left: Left = Left.NOT_FINITE
    keeps_finite: bool = False  # a step that is left out moves the weights whose numbers are finite
    falls: float = 0.5
    whole: bool = False  # a scale that falls is cut to a whole number
    grows: float = 2.0
    least: float = 0.0
    most: float = np.inf
    doubled: Doubled = Doubled.IN_A_ROW
    patience: int = 0  # steps more than asked
    resets: bool = True  # a step that was left out ends the row of good ones
    starts_anew: bool = True  # a scale that has doubled needs a whole row of good steps again
    rate: float | None = None
    first_weights: bool = False  # every gradient is taken at the weights that came in


@dataclass(frozen=True)
class ScaledResult:
    """The result of a training on a rank: its weights, the scale of each step, the weights before it, and the scale to come."""

    weights: np.ndarray
    scales: list[float]
    before: list[np.ndarray]
    next_scale: float


def trained(task: ScaledTraining, mistake: ScalingMistake = ScalingMistake()) -> list[ScaledResult]:  # noqa: B008, it is frozen
    """Return what each rank has after all steps."""
    n = task.world_size
    rate = task.rate if mistake.rate is None else mistake.rate
    weights = [task.start] * n
    scales, good = [task.scale] * n, [0] * n
    used: list[list[float]] = [[] for _ in range(n)]
    before: list[list[np.ndarray]] = [[] for _ in range(n)]

    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for step in range(task.steps):
            at = [task.start] * n if mistake.first_weights else weights
            own = [scaled_gradient(task, rank, step, at[rank], scales[rank]) for rank in range(n)]
            shared = _shared(own, mistake.mean)
            for rank in range(n):
                used[rank].append(scales[rank])
                before[rank].append(weights[rank])
                mean, scale = shared[rank], scales[rank]
                skipped = _is_left_out(mistake.left, own[rank], mean)
                good[rank] = (0 if mistake.resets else good[rank]) if skipped else good[rank] + 1
                if skipped:
                    fallen = scale * mistake.falls
                    scales[rank] = max(np.floor(fallen) if mistake.whole else fallen, min(scale, mistake.least))
                if _doubles(task, mistake, step, good[rank], skipped):
                    scales[rank] = min(scales[rank] * mistake.grows, max(scale, mistake.most))
                    good[rank] = 0 if mistake.starts_anew else good[rank]
                if skipped and not mistake.keeps_finite:
                    continue
                moved = rate * _unscaled(mean, scale, scales[rank], task.scale, mistake.unscaled)
                moves = np.isfinite(mean) if mistake.keeps_finite else True
                weights[rank] = np.where(moves, weights[rank] - moved.astype(np.float32), weights[rank])
    return list(map(ScaledResult, weights, used, before, scales))


def scaled_gradient(task: ScaledTraining, rank: int, step: int, weights: np.ndarray, scale: float) -> np.ndarray:
    """Return a rank's scaled gradient, float16 [numbers], at its weights rounded to float16."""
    half = weights.astype(np.float16).astype(np.float32)
    gradient = task.slopes[rank] * half + task.pushes[rank][step]
    return (gradient * np.float32(scale)).astype(np.float16)


def _shared(own: list[np.ndarray], how: Mean) -> list[np.ndarray]:
    """Return the mean that each rank has, float16, or float32 where it is the mean of exact numbers."""
    n = len(own)
    if how is Mean.OWN:
        return own
    if how is Mean.EACH_DIVIDED:
        own = [(g / np.float16(n)).astype(np.float16) for g in own]

    total = np.sum([g.astype(np.float32) for g in own], axis=0)
    if how is not Mean.EACH_DIVIDED:
        total = total.astype(np.float16).astype(np.float32)  # inf where the sum overflows
    if how is Mean.SUM_DIVIDED:
        total = total / n
    return [total] * n


def _is_left_out(left: Left, own: np.ndarray, mean: np.ndarray) -> bool:
    if left is Left.NEVER:
        return False
    if left is Left.INFINITE:
        return bool(np.isinf(mean).any())
    if left is Left.NAN:
        return bool(np.isnan(mean).any())
    if left is Left.SUM_NOT_FINITE:
        return not np.isfinite(mean.astype(np.float32).sum().astype(np.float16))
    return not np.isfinite(own if left is Left.OWN_NOT_FINITE else mean).all()


def _doubles(task: ScaledTraining, mistake: ScalingMistake, step: int, good: int, skipped: bool) -> bool:
    any_step = mistake.doubled in (Doubled.BY_ANY_STEP, Doubled.BY_ANY_STEP_FROM_0)
    if skipped and not any_step:
        return False
    if mistake.doubled is Doubled.IN_A_ROW:
        return good >= task.patience + mistake.patience
    if mistake.doubled is Doubled.ONCE_A_ROW:
        return good == task.patience
    first = 0 if mistake.doubled in (Doubled.BY_STEP_FROM_0, Doubled.BY_ANY_STEP_FROM_0) else 1
    return (step + first) % task.patience == 0


def _unscaled(mean: np.ndarray, scale: float, following: float, first: float, how: Unscaled) -> np.ndarray:
    by = {Unscaled.NEVER: 1.0, Unscaled.BY_NEXT: following, Unscaled.BY_FIRST: first}.get(how, scale)
    return mean.astype(np.float32) / np.float32(by)


def draw_training(
    generator: np.random.Generator, n: int, steps: int, patience: int, numbers: int = 13, scale: float = 4096.0,
    loud: float = 0.25, crosses: float | None = None,
) -> ScaledTraining:  # fmt: skip
    """Draw a training in which a share `loud` of the steps overflows on a rank, until it `_tells`.

    `crosses`: a scale that the training falls below, if it is 1 or less, or else rises above. The gradients are then of such a
    size that it begins near there. Raises AssertionError as `drawn_until`.
    """
    unit = 1.0
    if crosses is not None:
        begins = crosses * 2 if crosses <= 1 else crosses / 2
        scale, unit = begins, scale / begins
    return drawn_until(
        lambda task: _tells(task, unit, crosses, telling=loud > 0 and n > 1 and steps > 12),
        lambda: _in_units(_drawn(generator, n, steps, patience, numbers, scale * unit, loud), unit),
        f"scaled_steps for {n} ranks, {steps} steps",
    )


def _in_units(task: ScaledTraining, unit: float) -> ScaledTraining:
    """Return the same training with gradients times `unit`, a power of two: its weights are the same, to the last bit."""
    larger = np.float32(unit)
    return replace(
        task,
        slopes=[slope * larger for slope in task.slopes],
        pushes=[push * larger for push in task.pushes],
        rate=task.rate / unit,
        scale=task.scale / unit,
    )


def _drawn(
    generator: np.random.Generator, n: int, steps: int, patience: int, numbers: int, scale: float, loud: float
) -> ScaledTraining:
    kinds = kinds_of(numbers)
    start = generator.uniform(3, 5, numbers)
    start[kinds == SLOW] = generator.uniform(1.1, 1.9, numbers)[kinds == SLOW]
    start[kinds == TINY] = 0

    slopes, pushes = [], []
    for _ in range(n):
        slope = np.where(kinds == PLAIN, generator.uniform(0.05, 0.1, numbers), 0)
        push = generator.uniform(0.5, 1.5, (steps, numbers))
        push[:, kinds == SLOW] *= 3e-3
        push[:, kinds == TINY] *= 5e-7
        push[:, kinds == LOUD] = 0.5
        slopes.append(slope.astype(np.float32))
        pushes.append(push.astype(np.float32))

    for step in np.flatnonzero(generator.random(steps) < loud):
        ranks = generator.permutation(n)
        pushes[ranks[0]][step, -1] = LOUDNESS
        if n > 1 and generator.random() < 0.5:  # inf − inf is NaN
            pushes[ranks[1]][step, -1] = -LOUDNESS
    return ScaledTraining(start.astype(np.float32), slopes, pushes, 0.1, scale, patience)


def _tells(task: ScaledTraining, unit: float, crosses: float | None, telling: bool) -> bool:
    """Return whether no overflow is a matter of rounding; and, if `telling`, whether every kind of event happens."""
    ended = trained(task)[0]
    if min(ended.scales) * unit < LEAST_SCALE or not (ended.weights[task.kinds == PLAIN] > LEAST_PLAIN).all():
        return False
    if crosses is not None and not min(ended.scales) < crosses < max(ended.scales):
        return False

    infinite, cancelled = 0, 0
    for step, (scale, weights) in enumerate(zip(ended.scales, ended.before, strict=True)):
        sizes = np.abs(_exact(task, step, weights)) * scale
        if _is_near_the_largest(sizes) or _is_near_the_largest(sizes.sum(axis=0)):
            return False
        over = [rank for rank in range(task.world_size) if (sizes[rank] > LARGEST).any()]
        infinite += over not in ([], [0]) and len(over) == 1
        cancelled += len(over) > 1

    if not telling:
        return True
    grows = sum(after > before for before, after in pairwise(ended.scales))
    falls = sum(after < before for before, after in pairwise(ended.scales))
    if not (infinite and cancelled and grows > 1 and falls > 1):
        return False

    others = (
        ScalingMistake(resets=False), ScalingMistake(left=Left.NAN), ScalingMistake(doubled=Doubled.BY_STEP),
        ScalingMistake(doubled=Doubled.ONCE_A_ROW, starts_anew=False),
    )  # fmt: skip
    if any(ended.scales == trained(task, mistake)[0].scales for mistake in others):
        return False
    by_sum = trained(task, ScalingMistake(left=Left.SUM_NOT_FINITE))[0]
    sums = [
        _exact(task, step, weights).mean(axis=0).sum() * scale
        for step, (scale, weights) in enumerate(zip(by_sum.scales, by_sum.before, strict=True))
    ]
    # the scale of three ranks seldom grows until the sum of a mean's numbers overflows
    return not _is_near_the_largest(np.array(sums)) and (task.world_size > 2 or ended.scales != by_sum.scales)


def _exact(task: ScaledTraining, step: int, weights: np.ndarray) -> np.ndarray:
    """Return all ranks' gradients before they are scaled and rounded, [ranks, numbers]."""
    return np.stack([slope * weights + push[step] for slope, push in zip(task.slopes, task.pushes, strict=True)]).astype(float)


def _is_near_the_largest(sizes: np.ndarray) -> bool:
    """Return whether a rounding might decide if one of these numbers overflows in float16."""
    sizes = np.abs(sizes)
    return bool(np.any((LARGEST / MARGIN < sizes) & (sizes < LARGEST * MARGIN)))
