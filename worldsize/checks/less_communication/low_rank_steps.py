"""Steps of a low-rank average, drawn for the check of `power_sgd_average`, and the results of known mistakes.

With M = gradient + residual on each rank: P = mean of M q, its columns made orthonormal; Q = mean of Mᵀ P; the average is P Qᵀ.
Left out: the judging (`power_sgd`).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from typing_extensions import override

from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.expected import ByRank
from worldsize.checks.less_communication.compared_steps import NO_WEIGHT, StepWithResiduals

WORST = 20.0  # condition of a matrix to orthonormalize


@dataclass(frozen=True)
class LowRankStep(StepWithResiduals):
    """A low-rank step of all ranks: each rank's gradient and residual, [rows, columns], and the common q, [columns, r]."""

    q: np.ndarray

    @cached_property
    def mean(self) -> np.ndarray:
        return np.mean(self.totals, axis=0)

    @cached_property
    def p(self) -> np.ndarray:
        return _orthonormal(self.mean @ self.q)

    @cached_property
    def next_q(self) -> np.ndarray:
        return self.mean.T @ self.p

    @cached_property
    @override
    def average(self) -> np.ndarray:
        return self.p @ self.next_q.T

    @property
    @override
    def sent(self) -> list[np.ndarray]:
        return [self.average] * len(self.totals)

    def kept_by_own(self) -> list[np.ndarray]:
        """Return each rank's M minus its own P (Mᵀ P)ᵀ, as in algorithm 2.

        Such residuals are right too: only the ranks' mean is ever used, and it is the mean of `kept`.
        """
        return [total - self.p @ (total.T @ self.p).T for total in self.totals]


def _orthonormal(matrix: np.ndarray) -> np.ndarray:
    """Return a low-rank step's orthonormal columns that span the columns of `matrix`, [rows, r]."""
    return np.linalg.qr(matrix)[0]


def draw_steps(
    generator: np.random.Generator, n: int, shape: tuple[int, int], r: int, steps: int, dtype: str
) -> list[LowRankStep]:
    """Draw low-rank steps, each with the residuals and the Q of the previous one, of which none is near a lower rank.

    A step is near one if the mean of M q, or Q, has a condition number (largest over least singular value) of WORST or more.
    Raises AssertionError as `drawn_until`.
    """

    def gradients() -> list[np.ndarray]:
        """Draw a low-rank step's gradient per rank: a common part, and a part of the rank's own that is as large."""
        common, *own = (generator.normal(size=shape).astype(dtype) for _ in range(1 + n))
        return [common + part for part in own]

    def draw() -> list[LowRankStep]:
        residuals = [0.5 * part for part in gradients()]
        drawn = [LowRankStep(gradients(), residuals, generator.normal(size=(shape[1], r)).astype(dtype))]
        while len(drawn) < steps:
            drawn.append(LowRankStep(gradients(), drawn[-1].kept, drawn[-1].next_q))
        return drawn

    def tells(drawn: list[LowRankStep]) -> bool:
        to_orthonormalize = []
        for step in drawn:
            to_orthonormalize += [step.mean @ step.q, step.next_q]
        return max(map(np.linalg.cond, to_orthonormalize)) < WORST

    return drawn_until(tells, draw, f"power_sgd_average, {shape} for r = {r}")


def with_own_residuals(steps: list[LowRankStep]) -> list[LowRankStep]:
    """Return the same low-rank steps with the residuals of algorithm 2, which differ by rank but have the same mean."""
    found = steps[:1]
    for step in steps[1:]:
        found.append(replace(step, residuals=found[-1].kept_by_own()))
    return found


def average_slips(step: LowRankStep) -> dict[str, ByRank]:
    """Return {words for a slip: the average of the low-rank step that it gives, by rank}."""
    n, totals, mean, q, p = len(step.totals), step.totals, step.mean, step.q, step.p
    gradient = np.mean(step.gradients, axis=0)
    r = q.shape[1]

    # P in other ways than from the mean of M q
    raw = mean @ q
    unit = raw / (np.linalg.norm(raw, axis=0) + NO_WEIGHT)
    of_gradient = _orthonormal(gradient @ q)

    # each rank's own P, with its own M and with the mean of all ranks' Mᵀ P
    own, own_alone, own_q = [], [], []
    for total in totals:
        factor = _orthonormal(total @ q)
        own.append(factor)
        own_alone.append(factor @ (factor.T @ total))
        own_q.append(total.T @ factor)
    q_of_own = np.mean(own_q, axis=0)
    mean_of_own = np.mean(own, axis=0)

    wrong_factors = {  # P, and the M of Q = Mᵀ P
        "The residual was not added: M is gradient + residual.": (of_gradient, gradient),
        "The residual was not added for Q: M is gradient + residual in both products.": (p, gradient),
        "The residual was not added for P: M is gradient + residual in both products.": (of_gradient, mean),
        "P's columns are not orthonormal: M q has directions and lengths. Orthonormalise it before Mᵀ P.": (raw, mean),
        "The columns of P have length 1, but are not orthogonal to each other: their common part counts twice.": (unit, mean),
        "Each rank orthonormalised its own M q before the average: first average M q, then orthonormalise.": (mean_of_own, mean),
        "Each rank orthonormalised its own M q, and the mean was orthonormalised again: first average M q, then orthonormalise.":
            (_orthonormal(mean_of_own), mean),
        "q was not used: P must come from the mean of M q.": (_orthonormal(mean[:, :r]), mean),
    }  # fmt: skip
    found = {words: [factor @ (m.T @ factor).T] * n for words, (factor, m) in wrong_factors.items()}

    if n != 2:
        found[f"The sum of Mᵀ P was divided by 2, but there are {n} ranks."] = [step.average * n / 2] * n
    u, s, v = np.linalg.svd(mean, full_matrices=False)
    return found | {
        "This is n times the average: divide the sum of Mᵀ P by the number of ranks.": [n * step.average] * n,
        "This is the average divided by the number of ranks once more: P's columns have length 1, so divide the sum of Mᵀ P "
        "alone.": [step.average / n] * n,
        "This is n² times the average: the sums were not divided by the number of ranks, and P is not orthonormal.":
            [n * n * raw @ (mean.T @ raw).T] * n,
        "Q was made orthonormal too, which loses its lengths: P Qᵀ takes Q as it is.": [p @ _orthonormal(step.next_q).T] * n,
        "This is the whole mean of M: return P Qᵀ, which has rank r.": [mean] * n,
        "This is the best matrix of rank r, by an SVD: it needs the whole mean on one rank. P Qᵀ is one step from q towards it.":
            [(u[:, :r] * s[:r]) @ v[:r]] * n,
        "Each rank compressed its own M, and these were averaged: that has rank n r. Average M q and Mᵀ P.":
            [np.mean(own_alone, axis=0)] * n,
        "The ranks differ: P comes from the mean, but Mᵀ P is the rank's own. Average it too.":
            [p @ (total.T @ p).T for total in totals],
        "The ranks differ: P comes from the rank's own M q. Average M q before you orthonormalise its columns.":
            [factor @ q_of_own.T for factor in own],
        "This is made of the rank's own M alone: average M q and Mᵀ P over the ranks.": own_alone,
    }  # fmt: skip


def residual_slips(step: LowRankStep) -> dict[str, ByRank]:
    """Return {words for a slip: the residual after the low-rank step that it gives, by rank}."""
    n, totals, average, kept = len(step.totals), step.totals, step.average, step.kept
    return {
        "It is M: subtract the average, or what is in it counts again.": totals,
        "It is as it was before the step.": step.residuals,
        "It is zero: whatever P Qᵀ leaves out is lost for ever. Error feedback keeps it.": list(map(np.zeros_like, totals)),
        "The rest of older steps is lost: this is gradient − P Qᵀ; expected M − P Qᵀ, with M = gradient + residual.":
            [g - average for g in step.gradients],
        "This is the average itself: the residual is M minus the average.": [average] * n,
        "It has the wrong sign: M − P Qᵀ, not P Qᵀ − M.": list(map(np.negative, kept)),
        "It is divided by the number of ranks: the residual is this rank's own.": [own / n for own in kept],
        "An n-th part of M was taken: the residual is the rank's own whole M − P Qᵀ.": [m / n - average for m in totals],
        "An n-th part of the gradient was taken: the residual is the rank's own whole M − P Qᵀ, with M = gradient + residual.":
            [g / n - average for g in step.gradients],
        "An n-th part of the gradient was taken: the residual is M − P Qᵀ, and M the whole gradient + residual.":
            [g / n + r - average for g, r in zip(step.gradients, step.residuals, strict=True)],
        "n times the average was subtracted: first divide the sum of Mᵀ P by n.": [m - n * average for m in totals],
    }  # fmt: skip


def q_slips(step: LowRankStep) -> dict[str, ByRank]:
    """Return {words for a slip: a low-rank step's matrix whose columns span the columns of the slip's q, by rank}."""
    n, totals = len(step.totals), step.totals
    return {
        "It is the q that came in: return Q, so that each step begins where the last one ended (warm start).": [step.q] * n,
        "It is P: the next step multiplies M by q, so q needs a row for each column of M.": [step.p] * n,
        "It is the rank's own Mᵀ P: the mean over the ranks is the q of the next step.": [m.T @ step.p for m in totals],
        "It is the rank's own Mᵀ P, with the rank's own P.": [m.T @ _orthonormal(m @ step.q) for m in totals],
    }
