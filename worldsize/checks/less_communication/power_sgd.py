"""Check of `power_sgd_average`: a low-rank average by one step of a power iteration that continues from step to step.

`low_rank_steps` has the formulas. Only M q and Mᵀ P must travel, in two small all-reduces: sending M gives the values, but saves
nothing. T. Vogels, S. P. Karimireddy and M. Jaggi, "PowerSGD", NeurIPS 2019, arXiv:1905.13727, algorithms 1 and 2. Left out: an
M that only rounding keeps from a lower rank.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import less_communication
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import ByRank, Expected, Mistakes
from worldsize.checks.kit.judge import Case, ranks_in_words, though_right
from worldsize.checks.kit.needed_bytes import TOO_FEW, NeededBytes
from worldsize.checks.kit.values import first_slip, kind_in_words
from worldsize.checks.less_communication.compared_steps import (
    awaited,
    changed_arguments,
    inputs_of,
    not_as_asked,
)
from worldsize.checks.less_communication.low_rank_steps import (
    LowRankStep,
    average_slips,
    draw_steps,
    q_slips,
    residual_slips,
    with_own_residuals,
)
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

AVERAGE = "the average is P Qᵀ, the same on every rank"
FEEDBACK = "what is not in P Qᵀ stays in the residual, and is in the next M"
WARM = "q is the Q of this step, where the next one begins"
KEPT = "gradient, residual and q stay as they were handed in"
BYTES = "two small all-reduces: r (rows + columns) numbers"
# ranks, rows, columns, r, steps, dtype; the last has messages above 128 KiB, which no wire copies
SIZES = (
    (2, 6, 5, 2, 3, "float64"), (3, 7, 4, 1, 3, "float64"), (5, 4, 9, 3, 2, "float32"), (1, 5, 6, 2, 2, "float64"),
    (4, 3, 8, 3, 2, "float64"), (2, 20_000, 3, 2, 1, "float64"),
)  # fmt: skip
ROUNDING = {"float32": 1e-3, "float64": 1e-5}
LESS = 1 - 1e-9  # below 1 by more than rounding


@exercise({AVERAGE: 0.25, FEEDBACK: 0.25, WARM: 0.25, KEPT: 0.25, BYTES: 0.25}, seen={BYTES: evidence.MESSAGES}, waits=BYTES)
def power_sgd_average(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check the low-rank average: `power_sgd_average(fabric, gradient, residual, q)` returns (average, residual, q).

    gradient, residual and average have shape [rows, columns], q [columns, r]. Inputs are redrawn until both matrices to
    orthonormalize have a condition under 20. By case, 62 to 100 of 100 draws qualify (measured); even at 50, the chance that
    1,000 draws are not enough is 0.5 ** 1000 < 1e-300. A q from elsewhere spans the right space, to within 1e-5, with a chance
    under 1e-25: even in the first case it has r (columns − r) = 6 angles to meet.
    """
    for n, rows, columns, r, steps, dtype in SIZES:
        generator = np.random.default_rng(arena.draws.getrandbits(32))
        drawn = draw_steps(generator, n, (rows, columns), r, steps, dtype)
        name = f"{ranks_in_words(n)}, {rows:,} × {columns} of {dtype}, r = {r}, {count(steps, 'step')}"
        run = partial(arena.ranks, fn, inputs_of(drawn, drawn[0].q), driver=less_communication.step_by_step)
        yield Case(name, run, partial(_examine, drawn), _ADVICE)

    generator = np.random.default_rng(arena.draws.getrandbits(32))
    for n, rows, columns, alive, what in ((2, 6, 5, 1, "only one row is not zero"), (3, 4, 4, 0, "all zeros")):
        (step,) = draw_steps(generator, n, (rows, columns), 2, 1, "float64")
        here = np.zeros((rows, 1))
        here[1 : 1 + alive] = 1
        step = LowRankStep([g * here for g in step.gradients], [e * here for e in step.residuals], step.q)
        name = f"{ranks_in_words(n)}, {rows} × {columns} of float64, {what}, r = 2, 1 step"
        run = partial(arena.ranks, fn, inputs_of([step], step.q), driver=less_communication.step_by_step)
        yield Case(name, run, partial(_examine_deficient, step), _ADVICE)


_ADVICE = {"shapes cannot be multiplied": "M is [rows, columns], q [columns, r], so P is [rows, r] and Q is [columns, r]."}


def _examine(steps: list[LowRankStep], ended: ArenaResult) -> dict[str, Complaint]:
    unexamined = dict.fromkeys(power_sgd_average.points, UNEXAMINED)
    complaint = not_as_asked(ended, "(average, residual, q)", 3)
    if complaint:
        return unexamined | {AVERAGE: complaint}

    for number, (step, by_own) in enumerate(zip(steps, with_own_residuals(steps), strict=True), 1):
        averages, residuals, qs = zip(*[told[number - 1] for told in ended.returned], strict=True)
        right = [step.average] * len(averages)
        wanted = _wanted(f"the average of step {number}", right, partial(average_slips, step))
        complaint = wanted.wrong(averages)
        if complaint:
            return unexamined | {AVERAGE: complaint}

        slips = partial(residual_slips, step)
        wanted = _wanted(f"the residual of step {number}", step.kept, slips, [by_own.kept_by_own()])
        feedback, warm = wanted.wrong(residuals), _wrong_q(qs, step, number)
        if feedback or warm:
            return unexamined | {AVERAGE: None, FEEDBACK: feedback, WARM: warm}

    kept = changed_arguments(ended, ("the gradient", "the residual", "q"))
    sent = _needed(steps).wrong(ended.trace)
    right = "average, residual and q"
    return {AVERAGE: None, FEEDBACK: None, WARM: None, KEPT: though_right(right, kept), BYTES: though_right(right, sent)}


def _examine_deficient(step: LowRankStep, ended: ArenaResult) -> dict[str, Complaint]:
    """Check a PowerSGD step whose M has a rank below r, so that P and Q are not unique.

    P Qᵀ must equal M's mean, or leave less of the mean than there was.
    """
    complaint = not_as_asked(ended, "(average, residual, q)", 3)
    if complaint:
        return {AVERAGE: complaint}

    averages = [told[0][0] for told in ended.returned]
    complaint = _wanted("the average, all of M's mean", [step.mean] * len(averages)).wrong(averages)
    if not complaint or all(_leaves_less(average, step.mean) for average in averages):
        return {AVERAGE: None}
    return {AVERAGE: f"{complaint} {_LOWER_RANK}"}


def _leaves_less(average: np.ndarray, mean: np.ndarray) -> bool:
    """Return whether PowerSGD leaves less of the mean than there was; residuals then make up for it.

    Error feedback asks for no more (S. P. Karimireddy et al., "Error feedback fixes SignSGD", ICML 2019). The paper's
    Gram-Schmidt divides by a length + 1e-8, so a column of rounding becomes a shorter copy of the previous one, and the average
    stays below twice the mean. With r = 2 that leaves LESS or more with a chance under 1e-9: the second of two normal numbers
    would have to be 1e9 times the first.
    """
    if (average.shape, average.dtype) != (mean.shape, mean.dtype):
        return False
    if not np.isfinite(average).all():
        return False
    return bool(np.linalg.norm(mean - average) < LESS * np.linalg.norm(mean))


_LOWER_RANK = (
    "Where M has a lower rank than r, Gram-Schmidt leaves a column of zeros, or of rounding errors. Dividing it by a length "
    "of 0 gives NaN, and by a tiny length a direction that counts twice. Leave such a column at 0, or use torch.linalg.qr."
)


def _wanted(name: str, right: ByRank, mistakes: Callable[[], Mistakes] = dict, too: Sequence[ByRank] = ()) -> Expected:
    return awaited(name, right, mistakes, too, ROUNDING[str(right[0].dtype)])


def _wrong_q(held: Sequence, step: LowRankStep, number: int) -> Complaint:
    """Return a complaint if q's columns do not span Q's columns, as the next step needs.

    P's basis does not matter: Q spans the same space for any, so any orthogonalization passes.
    """
    right, name = step.next_q, f"q of step {number}"
    rounding = ROUNDING[str(right.dtype)]
    for rank, got in enumerate(held):
        if (got.shape, got.dtype) != (right.shape, right.dtype):
            shape = list(right.shape)
            return f"rank {rank}: expected {name}, shape {shape} of {right.dtype}, got {kind_in_words(got)} of {got.dtype}"

        if not _span(got, right, rounding):
            slip = first_slip(lambda given, got=got, rank=rank: _span(got, given[rank], rounding), q_slips(step))
            slip = slip or "Hand on the Q of this step."
            return f"rank {rank}: the columns of {name} do not span those of Q, the mean of Mᵀ P. {slip}"

    return None


def _span(got: np.ndarray, right: np.ndarray, rounding: float) -> bool:
    """Return whether the columns of a PowerSGD q, `got`, span the columns of `right`, of one shape [columns, r]."""
    if got.shape != right.shape or not np.isfinite(got).all():
        return False

    basis = np.linalg.qr(got.astype(float))[0]
    unit = np.linalg.qr(right.astype(float))[0]
    return bool(np.abs(unit - basis @ (basis.T @ unit)).max() < rounding)


def _needed(steps: list[LowRankStep]) -> NeededBytes:
    n, (rows, columns) = len(steps[0].gradients), steps[0].mean.shape
    r, item = steps[0].q.shape[1], steps[0].gradients[0].itemsize
    each = 2 * (n - 1) * item * len(steps)
    small = each * r * (rows + columns)

    mistakes = {
        each * rows * columns: "That is an all-reduce of M itself: nothing is saved. Send only M q and Mᵀ P.",
        small + each * rows * columns: "M itself travelled too. Send only M q and Mᵀ P.",
        2 * small: (
            "Does each number take 8 bytes? Send M q and Mᵀ P in the gradient's dtype, here float32."
            if item == 4
            else "Each of the two is sent twice."
        ),
        n * small // 2: "Every rank sent its part to every other: an all-reduce sends 2 (n − 1)/n of it.",
    }
    return NeededBytes(
        small,
        "two all-reduces of r (rows + columns) numbers",
        {size: words for size, words in mistakes.items() if size > small},  # fewer cannot hold the sums
        "Add up only M q, [rows, r], and Mᵀ P, [columns, r], over the ranks.",
        TOO_FEW,
    )
