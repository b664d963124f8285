"""Results of known mistakes in PowerSGD, by the words that explain each: for the average, the residual and q.

Left out: the right values, and the judging (`power_sgd`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from worldsize.checks.less_communication.returned import NO_WEIGHT, ByRank

if TYPE_CHECKING:
    from worldsize.checks.less_communication.power_sgd import LowRankStep


def orthonormal(matrix: np.ndarray) -> np.ndarray:
    """Return orthonormal columns that span the columns of `matrix`, [rows, r]."""
    return np.linalg.qr(matrix)[0]


def average_slips(step: LowRankStep) -> dict[str, ByRank]:
    """Return {words for a slip: the average of the step that it gives, by rank}."""
    n, totals, mean, q = len(step.totals), step.totals, step.mean, step.q
    raw = mean @ q
    own = [orthonormal(total @ q) for total in totals]
    united = np.mean(own, axis=0)
    columns = raw / (np.linalg.norm(raw, axis=0) + NO_WEIGHT)
    gradient = np.mean(step.gradients, axis=0)
    half = orthonormal(gradient @ q)
    everywhere = {  # the same wrong average on every rank
        "The residual was not added: M is gradient + residual.": _projected(gradient, q),
        "The residual was not added for Q: M is gradient + residual in both products.": step.p @ (gradient.T @ step.p).T,
        "The residual was not added for P: M is gradient + residual in both products.": half @ (mean.T @ half).T,
        "This is n times the average: the sum of Mᵀ P has to be divided by the number of ranks.": n * step.average,
        "This is the average divided by the number of ranks once more: P's columns have length 1, so all that is "
        "left to divide is the sum of Mᵀ P.": step.average / n,
        "This is n² times the average: the sums were not divided by the number of ranks, and P is not orthonormal.": (
            n * n * raw @ (mean.T @ raw).T
        ),
        "P has no orthonormal columns: M q gives what M stretches, and how much. Orthonormalise it before Mᵀ P.": (
            raw @ (mean.T @ raw).T
        ),
        "The columns of P have length 1, and are not orthogonal to each other: what they share counts twice.": (
            columns @ (mean.T @ columns).T
        ),
        "Q was made orthonormal too, and the lengths are lost: P Qᵀ takes Q as it is.": step.p
        @ orthonormal(step.next_q).T,
        "This is the mean of M, all of it: an average of rank r is what P Qᵀ gives.": mean,
        "This is the best matrix of rank r, by an SVD: for that the whole mean has to be on one rank. P Qᵀ takes one step "
        "from q towards it.": _best(mean, q.shape[1]),
        "The ranks have orthonormalised their own M q before they were averaged: first the mean, then the columns.": united
        @ (mean.T @ united).T,
        "The ranks have orthonormalised their own M q, and then the mean of these: first the mean of M q, then the columns.": (
            orthonormal(united) @ (mean.T @ orthonormal(united)).T
        ),
        "Each rank compressed its own M, and these were averaged: that has rank n r. Average M q and Mᵀ P.": np.mean(
            [p @ (p.T @ total) for p, total in zip(own, totals, strict=True)], axis=0
        ),
        "q was not used: P has to be the mean of M q.": _projected(mean, np.eye(*q.shape, dtype=q.dtype)),
    }  # fmt: skip
    slips = {words: [value] * n for words, value in everywhere.items()}
    sums = np.mean([total.T @ p for total, p in zip(totals, own, strict=True)], axis=0)
    return slips | {
        "Rank by rank another one: P is the mean's, but Mᵀ P is the rank's own. Average it too.": [
            step.p @ (total.T @ step.p).T for total in totals
        ],
        "Rank by rank another one: P is from the rank's own M q. Average it before its columns are made orthonormal.": [
            p @ sums.T for p in own
        ],
        "This is made of the rank's own M alone: M q and Mᵀ P have to be averaged over the ranks.": [
            p @ (p.T @ total) for p, total in zip(own, totals, strict=True)
        ],
    }


def residual_slips(step: LowRankStep) -> dict[str, ByRank]:
    """Return {words for a slip: the residual after the step that it gives, by rank}."""
    n, average, kept = len(step.totals), step.average, step.kept()
    return {
        "It is M: what is in the average has to be taken off, or it counts again.": step.totals,
        "It is as it was before the step.": step.residuals,
        "It is empty: what P Qᵀ has not is lost for ever. Error feedback keeps it.": [np.zeros_like(m) for m in step.totals],
        "What was left of older steps is lost: it is gradient − P Qᵀ, and should be M − P Qᵀ, M = gradient + residual.": [
            g - average for g in step.gradients
        ],
        "This is the average itself: the residual is what is not in it.": [average] * n,
        "It has the wrong sign: M − P Qᵀ, not P Qᵀ − M.": [-own for own in kept],
        "It is divided by the number of ranks: the residual is this rank's own.": [own / n for own in kept],
        "n times the average was taken off: the ranks' Mᵀ P were not divided yet.": [m - n * average for m in step.totals],
    }


def q_slips(step: LowRankStep) -> dict[str, ByRank]:
    """Return {words for a slip: a matrix whose columns span the columns of the slip's q, by rank}."""
    n, totals = len(step.totals), step.totals
    return {
        "It is the q that came in: return Q, and each step begins where the last one ended (warm start).": [step.q] * n,
        "It is P: the next step multiplies M by it, so it has to have M's columns.": [step.p] * n,
        "It is the rank's own Mᵀ P: the mean over the ranks is the q of the next step.": [m.T @ step.p for m in totals],
        "It is the rank's own Mᵀ P, made of the rank's own P.": [m.T @ orthonormal(m @ step.q) for m in totals],
    }


def _projected(matrix: np.ndarray, q: np.ndarray) -> np.ndarray:
    p = orthonormal(matrix @ q)
    return p @ (matrix.T @ p).T


def _best(matrix: np.ndarray, r: int) -> np.ndarray:
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    return (u[:, :r] * s[:r]) @ v[:r]
