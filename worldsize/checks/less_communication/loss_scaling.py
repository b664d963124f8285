"""Check of `scaled_steps`: float16 gradients on the wire, float32 weights, and a scale that all ranks change together.

P. Micikevicius et al., "Mixed precision training", ICLR 2018 (arXiv:1710.03740), for the copy of the weights in float32 and the
scale; the scale changes by the rule of torch.amp.GradScaler, whose `growth_interval` is the patience here. Left out:
clipping, which needs unscaled gradients, and layers that stay in float32.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import less_communication
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import Expected, Mistakes
from worldsize.checks.kit.judge import Case, first_complaint, ranks_in_words, though_right
from worldsize.checks.kit.needed_bytes import NeededBytes
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import close, differing, lone_number, other_than_tuple, same, shown
from worldsize.checks.less_communication.scaled_training import (
    PLAIN,
    SLOW,
    TINY,
    Doubled,
    Left,
    Mean,
    ScaledResult,
    ScaledTraining,
    ScalingMistake,
    Unscaled,
    draw_training,
    trained,
)
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

SCALES = "the scale falls and grows by the rule, on all ranks at the same steps"
STEPS = "the mean is unscaled in float32, and moves float32 weights"
BYTES = "one all-reduce a step, 2 bytes a number"
ROUNDING = 1e-3  # a mistake moves a slow weight by five times as much; sums in float16 differ by a fifth of it
NEAR_ZERO = 1e-10  # tiny weights end near 1e-6
_IN_EACH_STEP = "In each step all ranks add up, also where a rank's own gradient is not finite: its inf is how the others learn."
BFLOAT16 = 2.0**-7  # the largest error of a weight's way after sums in bfloat16; it hits numbers of all kinds alike


@exercise({SCALES: 0.25, STEPS: 0.5, BYTES: 0.25}, seen={BYTES: evidence.MESSAGES}, waits=BYTES)
def scaled_steps(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check training with a scale: `scaled_steps(fabric, weights, gradient, steps, rate, scale, patience)`.

    weights [numbers], float32, are the same on every rank; gradient(half, scale) is a rank's own, in float16. It returns
    (weights, scales): a list with the scale of each step. Cases of several ranks are redrawn until they tell every mistake of
    `scaled_training`.
    """
    draw = partial(draw_training, np.random.default_rng(arena.draws.getrandbits(32)))
    for task in (
        draw(3, 24, 3),
        draw(2, 24, 2),
        draw(4, 6, 100, scale=25_600.0, loud=0),  # each rank's numbers are finite, their sum is not
        draw(5, 20, 3),
        draw(2, 20, 2, crosses=1.0),  # no scale is too small, or too large
        draw(2, 24, 2, crosses=65_536.0),
        draw(2, 24, 2, crosses=2.0**24),
        draw(1, 10, 1),
        draw(2, 1, 1),
        draw(2, 3, 2, numbers=70_001),  # its messages exceed 128 KiB, which no wire copies
    ):
        inputs = [
            {"weights": task.start, "slope": slope, "pushes": pushes}
            for slope, pushes in zip(task.slopes, task.pushes, strict=True)
        ]
        more = task.steps, task.rate, task.scale, task.patience
        run = partial(arena.ranks, fn, inputs, *more, driver=less_communication.scaled_gradients)
        name = (
            f"{ranks_in_words(task.world_size)}, {task.start.size:,} weights, {count(task.steps, 'step')}, scale "
            f"{_in_digits(task.scale)}, patience {task.patience}"
        )
        yield Case(name, run, partial(_examine, task), advice={"deadlock": _IN_EACH_STEP})


def _examine(task: ScaledTraining, ended: ArenaResult) -> dict[str, Complaint]:
    for rank, returned in enumerate(ended.returned):
        came = other_than_tuple(returned, 2)
        if came:
            return dict.fromkeys(scaled_steps.points, UNEXAMINED) | {
                STEPS: f"rank {rank}: expected (weights, scales), got {came}"
            }

    held, scales = zip(*ended.returned, strict=True)
    right = trained(task)
    read = [_numbers(row) for row in scales]
    scaling = _scales_apart(task, read) or _wrong_scales(task, right[0], scales, read)
    steps = Expected(
        "the weights", [end.weights for end in right], partial(_slips, task), rounding=ROUNDING, near_zero=NEAR_ZERO,
        otherwise=partial(_by_kind, task),
    ).wrong(held)
    sent = _needed(task).wrong(ended.trace)
    if scaling:
        return {SCALES: scaling, STEPS: steps and UNEXAMINED, BYTES: sent}
    if steps:
        return {SCALES: None, STEPS: steps, BYTES: sent}

    kept = first_complaint(
        changed(given["weights"], task.start, "the tensor of weights that was handed in", rank)
        for rank, given in enumerate(ended.inputs)
    )
    return {SCALES: None, STEPS: though_right("the weights", kept), BYTES: though_right("the weights", sent)}


def _by_kind(task: ScaledTraining, rank: int, got: object, right: np.ndarray) -> str:
    """Return what the kinds of numbers that are wrong tell, where roundings on the way leave no mistake its exact result."""
    if not isinstance(got, np.ndarray) or (got.shape, got.dtype) != (right.shape, right.dtype):
        return ""
    if not np.isfinite(got).all():
        return (
            "Weights that are inf or NaN have taken a step along a mean that was not finite: look for both, with isfinite, in "
            "the mean that all ranks have."
        )
    kinds = task.kinds
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(got - right) / np.abs(right - task.start)
    if off.max() <= BFLOAT16 and off[kinds != TINY].max() > off[kinds == TINY].max() / 5:
        return (
            "Each number has moved by less than 1 % too much or too little, as after a sum in bfloat16, which has 8 bits for its "
            "digits. float16 has 11: add up float16."
        )
    if (kinds[differing(got, right, ROUNDING, NEAR_ZERO)] == TINY).all():
        return (
            "Only the smallest numbers are wrong: float16 holds them only while they are scaled. Was something unscaled in "
            "float16? Make the mean float32 first, then divide."
        )
    stands = np.isclose(got, task.start, rtol=float(np.finfo(np.float16).eps))
    if task.steps > 1 and stands[kinds == SLOW].all() and not stands[kinds == PLAIN].any():
        return (
            "Weights that a step hardly moves stand still: were they kept in float16? Keep them in float32, and hand a float16 "
            "copy to gradient."
        )
    for words, by_rank in _slips(task).items():  # where a mistake has led a weight near 0, roundings are large in parts of it
        if np.allclose(got, by_rank[rank], 0, NEAR_ZERO + ROUNDING * np.abs(by_rank[rank] - task.start)):
            return words
    return ""


def _scales_apart(task: ScaledTraining, read: Sequence[list[float] | None]) -> Complaint:
    """Return a complaint if ranks used other scales, though each has one number for each step; else None."""
    for rank, row in enumerate(read):
        if row and read[0] and len(row) == len(read[0]) == task.steps and row != read[0]:
            step = next(k for k, (one, other) in enumerate(zip(row, read[0], strict=True)) if one != other)
            return (
                f"in step {step} rank 0 used the scale {_in_digits(read[0][step])} and rank {rank} {_in_digits(row[step])}: what "
                "overflows on one rank must stop all. Look at the mean, which all ranks have, not at a rank's own gradient."
            )
    return None


def _numbers(row: object) -> list[float] | None:
    """Return a returned list's numbers, or None if it is no list of numbers."""
    if not isinstance(row, (tuple, np.ndarray)) or np.ndim(row) > 1:
        return None
    numbers = [lone_number(value) for value in row]
    return None if any(isinstance(value, str) for value in numbers) else [float(value) for value in numbers]


def _wrong_scales(
    task: ScaledTraining, ended: ScaledResult, scales: Sequence[object], read: Sequence[list[float] | None]
) -> Complaint:
    """Return a complaint about the first rank whose scales, as returned and as `read`, `ended` has not used, or None."""
    right = ended.scales
    for rank, (row, got) in enumerate(zip(scales, read, strict=True)):
        if got is None:
            return f"rank {rank}: expected the scales as a list of {count(task.steps, 'number')}, got {shown(row)}"
        if _alike(got, right):
            continue
        if len(got) != len(right):
            words = "A step that is left out has used its scale, too." if len(got) < len(right) else ""
            return f"rank {rank}: expected {count(len(right), 'scale')}, one a step, got {len(got)}. {words}".rstrip()

        step = next(k for k, (one, other) in enumerate(zip(got, right, strict=True)) if not close(one, other))
        named = next((words for words, given in _scale_slips(task, ended) if _alike(got, given)), "")
        if not named and step and right[step] < right[step - 1] <= got[step]:
            named = _HIDDEN
        expected = f"rank {rank}: expected the scale {_in_digits(right[step])} in step {step}, got {_in_digits(got[step])}"
        return f"{expected}. {named}".rstrip()
    return None


def _in_digits(scale: float) -> str:
    return f"{scale:,.0f}" if scale.is_integer() else f"{scale:g}"


def _alike(got: list[float], right: list[float]) -> bool:
    return len(got) == len(right) and all(map(close, got, right))


_SUM_OVERFLOWS = "The sum overflowed where each rank's numbers are finite: divide by the number of ranks before you add up."
_HIDDEN = (
    "A rank's gradient had inf or NaN in the step before, and the scale did not fall. Is inf replaced before the sum, as by "
    "nan_to_num? It is how the other ranks learn."
)
_NO_MOST = "double it there too, no scale is too large while the mean is finite."
_BY_STEP = (
    "The scale doubled where `patience` divides the number of the step: count good steps in a row, from 0 after each step that "
    "is left out."
)
_SCALES_NAMED = {
    ScalingMistake(falls=1.0): (
        "The scale stayed as it was where the mean was not finite: halve it, and double none that has just been halved (0 good "
        "steps are no row, though 0 % patience is 0)."
    ),
    ScalingMistake(falls=0.25): "The scale fell to a quarter where the mean was not finite: halve it, once.",
    ScalingMistake(whole=True): "Half of 1 is 0.5, not 0: // cuts to a whole number, / halves. No scale is too small.",
    ScalingMistake(least=1.0): "The scale stopped at 1: halve it there too, no scale is too small.",
    ScalingMistake(most=2.0**16): f"The scale stopped at 65,536: {_NO_MOST}",
    ScalingMistake(most=2.0**24): f"The scale stopped at 16,777,216: {_NO_MOST}",
    ScalingMistake(grows=1.0): "The scale never grew: double it after `patience` good steps in a row.",
    ScalingMistake(resets=False): "A step that was left out ends the row: count good steps from 0 after it.",
    ScalingMistake(starts_anew=False): "A scale that has just doubled needs `patience` good steps more: count from 0 again.",
    ScalingMistake(doubled=Doubled.ONCE_A_ROW, starts_anew=False): (
        "The scale doubled only once in a row of good steps: count from 0 again after each doubling."
    ),
    ScalingMistake(patience=1): "The scale doubled one step too late: it doubles after `patience` good steps in a row.",
    ScalingMistake(patience=-1): "The scale doubled one step too early: it doubles after `patience` good steps in a row.",
    ScalingMistake(doubled=Doubled.BY_STEP): _BY_STEP,
    ScalingMistake(doubled=Doubled.BY_STEP_FROM_0): _BY_STEP,
    ScalingMistake(doubled=Doubled.BY_ANY_STEP): (
        "The scale doubled after every `patience` steps, also those that were left out: count good steps in a row, from 0 after "
        "each step that is left out."
    ),
    ScalingMistake(doubled=Doubled.BY_ANY_STEP_FROM_0): _BY_STEP,
    ScalingMistake(mean=Mean.SUM_DIVIDED): _SUM_OVERFLOWS,
    ScalingMistake(left=Left.SUM_NOT_FINITE): (
        "A step was left out though all numbers of its mean are finite: their sum overflows in float16. Ask isfinite of each "
        "number."
    ),
    ScalingMistake(left=Left.NAN): "A step went through with inf: isnan does not see it. isfinite sees inf and NaN.",
    ScalingMistake(left=Left.INFINITE): (
        "A step went through with NaN: inf − inf is NaN, and isinf does not see it. isfinite sees both."
    ),
    ScalingMistake(unscaled=Unscaled.NEVER): (
        "The weights flew apart, and their gradients overflowed: divide the mean by the scale that the gradient was asked for."
    ),
    ScalingMistake(left=Left.NEVER): (
        "A mean with inf or NaN was taken for a good step: leave the step out, and halve the scale. Let inf and NaN stand until "
        "all ranks have added up."
    ),
}


def _scale_slips(task: ScaledTraining, ended: ScaledResult) -> Iterator[tuple[str, list[float]]]:
    for mistake, words in _SCALES_NAMED.items():
        yield words, trained(task, mistake)[0].scales
    yield "These are the scales after each step: note the one that the step used.", [*ended.scales[1:], ended.next_scale]
    yield "This is the scale of the first step for each: note what each step used.", [task.scale] * task.steps


_NAMED = {
    ScalingMistake(unscaled=Unscaled.NEVER): "The mean was not unscaled: divide it by the scale that the gradient was asked for.",
    ScalingMistake(unscaled=Unscaled.BY_NEXT): (
        "The mean was divided by the scale of the next step: unscale it before you change the scale."
    ),
    ScalingMistake(unscaled=Unscaled.BY_FIRST): (
        "The mean was divided by the first scale: divide it by the one that this step's gradient was asked for."
    ),
    ScalingMistake(keeps_finite=True): (
        "A step that is left out moved the weights whose numbers are finite: leave out all of it."
    ),
    ScalingMistake(mean=Mean.SUM_DIVIDED): _SUM_OVERFLOWS,
    ScalingMistake(mean=Mean.SUM): "The ranks' gradients were added up and not divided by the number of ranks.",
    ScalingMistake(mean=Mean.OWN): "This is a step along the rank's own gradient: average over the ranks.",
    ScalingMistake(rate=1.0): "The rate was left out.",
    ScalingMistake(first_weights=True): (
        "Every gradient was taken at the weights that came in: hand gradient a float16 copy of this step's weights."
    ),
}


def _slips(task: ScaledTraining) -> Mistakes:
    right, found = [end.weights for end in trained(task)], {}
    for mistake, words in _NAMED.items():
        given = [end.weights for end in trained(task, mistake)]
        if not all(same(one, other, ROUNDING, NEAR_ZERO) for one, other in zip(given, right, strict=True)):
            found[words] = given
    return found | {"These are the weights that came in.": [task.start] * task.world_size}


def _needed(task: ScaledTraining) -> NeededBytes:
    n, numbers, steps = task.world_size, task.start.size, task.steps
    right = 2 * (n - 1) * 2 * numbers * steps
    flags = {
        right + 2 * (n - 1) * item * steps: (
            "A flag travelled besides: inf and NaN survive a sum, so every rank sees in the mean what overflowed anywhere."
        )
        for item in (1, 2, 4, 8)
    }
    return NeededBytes(
        right,
        "one all-reduce of float16 numbers in each step",
        flags
        | {
            2 * right: "Did the gradients travel as float32? Add up the float16 numbers, and make the mean float32.",
            n * right // 2: "Every rank sent its gradient to every other: an all-reduce sends 2 (n − 1)/n of it.",
        },
        "In each step, also one that is left out, add up the scaled float16 gradients, and send nothing else.",
        f"A step is missing its sum. {_IN_EACH_STEP}",
    )
