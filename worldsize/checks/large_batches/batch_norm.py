"""Batch norm over the rows of all ranks in NumPy, forwards and backwards: the reference, and what slips give.

    mean = Σ x / N,  var = Σ (x − mean)² / N,  x̂ = (x − mean) / √(var + eps),  y = weight · x̂ + bias
    grad_x = weight / √(var + eps) · (grad − Σ grad / N − x̂ · Σ (grad · x̂) / N)

Sums are over the N rows of all ranks; grad_weight and grad_bias are a rank's own sums of grad · x̂ and grad.
S. Ioffe and C. Szegedy, "Batch Normalization", ICML 2015, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from worldsize.checks.kit.judge import ranks_in_words

NAMES = ("y", "grad_x", "grad_weight", "grad_bias")

ByRank = list[np.ndarray]


@dataclass(frozen=True)
class NormTask:
    """The inputs of a batch norm: `x[rank]` and `grads[rank]` of shape [rows, features], weight and bias of shape [features]."""

    x: ByRank
    weight: np.ndarray
    bias: np.ndarray
    grads: ByRank
    eps: float

    @classmethod
    def drawn(
        cls, generator: np.random.Generator, rows: Sequence[int], features: int, shift: float = 0.0, apart: float = 1.5,
        dtype: str = "float64",
    ) -> NormTask:  # fmt: skip
        """Draw a task in which rank r's mean is about `shift + apart * r`."""
        x = [generator.normal(shift + apart * rank, 1.0, (count, features)).astype(dtype) for rank, count in enumerate(rows)]
        grads = [generator.normal(0.3, 1.0, (count, features)).astype(dtype) for count in rows]
        weight, bias = generator.uniform(0.5, 1.5, (2, features)).astype(dtype)
        return cls(x, weight, bias, grads, eps=round(float(generator.uniform(0.05, 0.2)), 3))

    @property
    def ranks(self) -> int:
        return len(self.x)

    @property
    def features(self) -> int:
        return self.x[0].shape[1]

    @property
    def rows(self) -> list[int]:
        return list(map(len, self.x))

    @property
    def inputs(self) -> list[tuple[np.ndarray, ...]]:
        return [(x, self.weight, self.bias, grad) for x, grad in zip(self.x, self.grads, strict=True)]

    def __str__(self) -> str:
        return f"{ranks_in_words(self.ranks)} with {', '.join(map(str, self.rows))} rows, {self.features:,} features"


def reference(task: NormTask) -> dict[str, ByRank]:
    """Return what each rank should return, computed in float64."""
    mean, var = statistics(task)
    hat = standard(task, mean, var)
    bias, weight = own_sums(task, hat)
    return {"y": _outputs(task, hat), "grad_x": backward(task, hat, var), "grad_weight": weight, "grad_bias": bias}


def statistics(task: NormTask) -> tuple[ByRank, ByRank]:
    """Return the mean and the variance over the rows of all ranks, [features] each, for every rank."""
    every = np.concatenate(task.x).astype(float)
    return [every.mean(0)] * task.ranks, [every.var(0)] * task.ranks


def standard(task: NormTask, mean: ByRank, var: ByRank, eps: float | None = None) -> ByRank:
    """Return x̂ on every rank."""
    eps = task.eps if eps is None else eps
    return [(x - m) / np.sqrt(v + eps) for x, m, v in zip(task.x, mean, var, strict=True)]


def own_sums(task: NormTask, hat: ByRank) -> tuple[ByRank, ByRank]:
    """Return each rank's sums of grad and of grad · x̂ over its rows."""
    sums = [g.sum(0, dtype=float) for g in task.grads]
    return sums, [(g * one).sum(0) for g, one in zip(task.grads, hat, strict=True)]


def backward(task: NormTask, hat: ByRank, var: ByRank, means: tuple[ByRank, ByRank] | None = None) -> ByRank:
    """Return grad_x on every rank. `means` are each rank's means of grad and of grad · x̂; the default is over all rows."""
    if means is None:
        means = tuple([sum(sums) / sum(task.rows)] * task.ranks for sums in own_sums(task, hat))

    found = []
    for rank, (grad, one) in enumerate(zip(task.grads, hat, strict=True)):
        inner = grad - means[0][rank] - one * means[1][rank]
        found.append(task.weight / np.sqrt(var[rank] + task.eps) * inner)
    return found


# ---- slips -----------------------------------------------------------------------------------


def slips(task: NormTask, name: str) -> dict[str, ByRank]:
    """Return {words: what each rank returns by the slip}, for one of NAMES."""
    if name == "y":
        return _forward_slips(task)
    if name == "grad_x":
        return _backward_slips(task)
    return _parameter_slips(task)[name]


def _forward_slips(task: NormTask) -> dict[str, ByRank]:
    """Return {words: y as the slip gives it}."""
    n, rows = task.ranks, task.rows
    total = sum(rows)
    mean, var = statistics(task)
    means = [x.mean(0) for x in task.x]
    variances = [x.var(0) for x in task.x]
    squares = [(x**2).mean(0) for x in task.x]
    shares = np.array(rows) / total

    flat = np.mean(means, axis=0)
    within = np.array([v * count for v, count in zip(variances, rows, strict=True)])
    between = var[0] * total - within.sum(0)
    inflated = sum(v * count**2 / max(1, count - 1) for v, count in zip(variances, rows, strict=True))
    of_own_rows = [sum(x.sum(0) for x in task.x) / (n * count) for count in rows]
    of_own_squares = [sum((x**2).sum(0) for x in task.x) / (n * count) for count in rows]
    of_own_distances = []
    for m, count in zip(of_own_rows, rows, strict=True):
        distances = sum(many * (one - m) ** 2 for one, many in zip(means, rows, strict=True))
        of_own_distances.append((within.sum(0) + distances) / (n * count))

    alike = {  # mean and variance, on every rank
        "The ranks' means count equally: a rank with more rows must count for more. Add up sums and counts.":
            (flat, np.mean(squares, axis=0) - flat**2),
        "The ranks' means and variances count equally: a rank with more rows must count for more.":
            (flat, np.mean(variances, axis=0)),
        "This is the mean of the ranks' variances: it misses how far the ranks' own means lie apart.":
            (mean[0], np.sum(shares[:, None] * variances, axis=0)),
        "The joint mean counts the ranks' means equally: a rank with more rows must count for more.":
            (flat, var[0] + (mean[0] - flat) ** 2),
        "A rank's squares come from x.var(), which divides by one less than its rows: use x.var(correction=0).":
            (mean[0], (inflated + between) / total),
        "The squares between the ranks' means and the joint one count once a rank: each counts for all the rank's rows.":
            (mean[0], (within.sum(0) + ((np.array(means) - mean[0]) ** 2).sum(0)) / total),
        "The variance is divided by N − 1: batch norm divides by N.": (mean[0], var[0] * total / max(1, total - 1)),
        "The variance is the mean of the squares: subtract the square of the mean.": (mean[0], var[0] + mean[0] ** 2),
    }  # fmt: skip
    by_rank = {
        "These are the mean and the variance of this rank's own rows: take them over the rows of all ranks.": (means, variances),
        "The mean is over all ranks' rows, but the variance is over this rank's own.": (mean, variances),
        "The variance is over this rank's own rows, around the mean of all rows.":
            (mean, [((x - mean[0]) ** 2).mean(0) for x in task.x]),
        "The sums of all ranks are divided by n times this rank's rows: count the rows of all.":
            (of_own_rows, [s - m**2 for s, m in zip(of_own_squares, of_own_rows, strict=True)]),
        "All ranks' parts of mean and variance are divided by n times this rank's rows: count the rows of all.":
            (of_own_rows, of_own_distances),
    }  # fmt: skip

    found = {}
    with np.errstate(invalid="ignore"):  # a slip may give a variance below 0, and so NaN
        for words, (m, v) in by_rank.items():
            found[words] = _outputs(task, standard(task, m, v))
        for words, (m, v) in alike.items():
            found[words] = _outputs(task, standard(task, [m] * n, [v] * n))
    return found | _wrong_formulas(task, mean, var)


def _outputs(task: NormTask, hat: ByRank) -> ByRank:
    return [task.weight * one + task.bias for one in hat]


def _wrong_formulas(task: NormTask, mean: ByRank, var: ByRank) -> dict[str, ByRank]:
    hat = standard(task, mean, var)
    centred = [x - m for x, m in zip(task.x, mean, strict=True)]
    return {
        "eps belongs under the root, beside the variance.": _outputs(
            task, [c / (np.sqrt(v) + task.eps) for c, v in zip(centred, var, strict=True)]
        ),
        "eps is missing.": _outputs(task, standard(task, mean, var, 0.0)),
        "eps is 1e-5, whatever was given.": _outputs(task, standard(task, mean, var, 1e-5)),
        "It is divided by the variance: divide by its root.": _outputs(
            task, [c / (v + task.eps) for c, v in zip(centred, var, strict=True)]
        ),
        "weight and bias are missing.": hat,
        "weight is missing.": [one + task.bias for one in hat],
        "bias is missing.": [task.weight * one for one in hat],
    }


def _backward_slips(task: NormTask) -> dict[str, ByRank]:
    """Return {words: grad_x as the slip gives it}; y may be right nevertheless."""
    n, rows = task.ranks, task.rows
    mean, var = statistics(task)
    hat = standard(task, mean, var)
    of_grad, of_product = own_sums(task, hat)
    nothing = [np.zeros(task.features)] * n

    def by(taken: Callable[[ByRank, int], np.ndarray]) -> ByRank:
        means = tuple([taken(sums, rank) for rank in range(n)] for sums in (of_grad, of_product))
        return backward(task, hat, var, means)

    right = [sum(sums) / sum(rows) for sums in (of_grad, of_product)]
    x_means, x_vars = [x.mean(0) for x in task.x], [x.var(0) for x in task.x]
    local = standard(task, x_means, x_vars)
    local_means = tuple(
        [own / count for own, count in zip(sums, rows, strict=True)] for sums in own_sums(task, local)
    )
    return {
        "The sums of the backward pass are over this rank's own rows: mean and variance depend on the rows of all ranks, so "
        "these sums need an all-reduce too.": by(lambda sums, rank: sums[rank] / rows[rank]),
        "The sums of the backward pass are this rank's own, divided by the rows of all ranks: they need an all-reduce "
        "too.": by(lambda sums, rank: sums[rank] / sum(rows)),
        "This is the gradient of a batch norm of this rank's own rows.": backward(task, local, x_vars, local_means),
        "Mean and variance are taken for constants: they depend on x, too.": backward(task, hat, var, (nothing, nothing)),
        "The mean of grad is missing: the mean depends on x, too.": backward(task, hat, var, (nothing, [right[1]] * n)),
        "The part with x̂ is missing: the variance depends on x, too.": backward(task, hat, var, ([right[0]] * n, nothing)),
        "The two sums of the backward pass are swapped: x̂ multiplies the sum of grad · x̂.": backward(
            task, hat, var, ([right[1]] * n, [right[0]] * n)
        ),
        "The part with x̂ is added: subtract it.": backward(task, hat, var, ([right[0]] * n, [-right[1]] * n)),
        "The ranks' means of the backward pass count equally: a rank with more rows must count for more.": by(
            lambda sums, rank: sum(own / count for own, count in zip(sums, rows, strict=True)) / n
        ),
        "The sums of the backward pass are divided by this rank's rows: they are sums over the rows of all ranks.": by(
            lambda sums, rank: sum(sums) / rows[rank]
        ),
        "The sums of the backward pass are divided by n times this rank's rows: count the rows of all.": by(
            lambda sums, rank: sum(sums) / (n * rows[rank])
        ),
        "The sums of the backward pass are divided by the number of ranks: divide by the number of all rows.": by(
            lambda sums, rank: sum(sums) / n
        ),
        "The sums of the backward pass are not divided: subtract means over all rows.": by(
            lambda sums, rank: sum(sums)
        ),
        "weight is missing.": [g / task.weight for g in backward(task, hat, var)],
        "The root of the variance is missing: x̂ is divided by it.": [
            g * np.sqrt(v + task.eps) for g, v in zip(backward(task, hat, var), var, strict=True)
        ],
    }


def _parameter_slips(task: NormTask) -> dict[str, dict[str, ByRank]]:
    """Return {"grad_weight" or "grad_bias": {words: what each rank returns by the slip}}."""
    n, rows = task.ranks, task.rows
    hat = standard(task, *statistics(task))
    found = {}
    bias, weight = own_sums(task, hat)
    for name, sums, other in (("grad_weight", weight, bias), ("grad_bias", bias, weight)):
        found[name] = {
            "This is the sum over the rows of all ranks: return this rank's own, DDP averages them.": [sum(sums)] * n,
            "This is the mean over the ranks: return this rank's own sum, DDP averages them.": [sum(sums) / n] * n,
            "This is the mean over this rank's rows: return the sum, as autograd does.": [
                own / count for own, count in zip(sums, rows, strict=True)
            ],
            "This is divided by the rows of all ranks: return the sum, as autograd does.": [own / sum(rows) for own in sums],
            "This is the sum of grad times x: weight multiplies x̂.": [
                (g * x).sum(0, dtype=float) for g, x in zip(task.grads, task.x, strict=True)
            ],
            "grad_weight and grad_bias are swapped.": other,
        }
    return found
