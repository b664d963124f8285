"""Batch norm over the rows of all ranks in NumPy, forwards and backwards: the reference, and what slips give.

    mean = Σ x / N,  var = Σ (x − mean)² / N,  x̂ = (x − mean) / √(var + eps),  y = weight · x̂ + bias
    grad_x = weight / √(var + eps) · (grad − Σ grad / N − x̂ · Σ (grad · x̂) / N)

Sums are over the N rows of all ranks; grad_weight and grad_bias are a rank's own sums of grad · x̂ and grad.
S. Ioffe and C. Szegedy, "Batch Normalization", ICML 2015, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

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
        """Draw a batch norm's task in which rank r's mean is about `shift + apart * r`."""
        x = [generator.normal(shift + apart * rank, 1.0, (count, features)).astype(dtype) for rank, count in enumerate(rows)]
        grads = [generator.normal(0.3, 1.0, (count, features)).astype(dtype) for count in rows]
        signs = generator.choice([-1, 1], (2, features))
        signs[0, :2] = 0, -1  # a weight may be 0, as where a residual branch begins
        weight, bias = (signs * generator.uniform(0.5, 1.5, (2, features))).astype(dtype)
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
    def inputs(self) -> list[dict[str, np.ndarray]]:
        pairs = zip(self.x, self.grads, strict=True)
        return [{"x": x, "weight": self.weight, "bias": self.bias, "grad": grad} for x, grad in pairs]

    @override
    def __str__(self) -> str:
        return f"{ranks_in_words(self.ranks)} with {', '.join(map(str, self.rows))} rows, {self.features:,} features"


def reference(task: NormTask) -> dict[str, ByRank]:
    """Return the batch norm that each rank should return, computed in float64."""
    _, var = statistics(task)
    hats = standard(task)
    means = own_sums(task, hats).sum(1) / sum(task.rows)
    expected: dict[str, ByRank] = {name: [] for name in NAMES}
    for grad, hat in zip(task.grads, hats, strict=True):
        expected["y"].append(task.weight * hat + task.bias)
        expected["grad_x"].append(task.weight / np.sqrt(var + task.eps) * (grad - means[0] - hat * means[1]))
    expected["grad_bias"], expected["grad_weight"] = map(list, own_sums(task, hats))
    return expected


def statistics(task: NormTask) -> tuple[np.ndarray, np.ndarray]:
    """Return the batch norm's mean and variance over the rows of all ranks, [features] each."""
    every = np.concatenate(task.x).astype(float)
    return every.mean(0), every.var(0)


def standard(task: NormTask) -> ByRank:
    """Return the batch norm's x̂ on every rank."""
    mean, var = statistics(task)
    return [(x - mean) / np.sqrt(var + task.eps) for x in task.x]


def own_sums(task: NormTask, hats: ByRank) -> np.ndarray:
    """Return each rank's sums of grad and of grad · x̂ over its rows, for a batch norm: [2, ranks, features]."""
    of_grad = [grad.sum(0, dtype=float) for grad in task.grads]
    of_product = [(grad * hat).sum(0) for grad, hat in zip(task.grads, hats, strict=True)]
    return np.array([of_grad, of_product])


def slips(task: NormTask, name: str) -> dict[str, ByRank]:
    """Return {words: the batch norm that each rank returns by the slip}, for one of NAMES."""
    slips_of = {"y": _forward_slips, "grad_x": _backward_slips}.get(name, _parameter_slips)
    by_slip: dict[str, ByRank] = {}
    with np.errstate(invalid="ignore"):  # a slip may give a variance below 0, and so NaN
        for rank in range(task.ranks):
            for words, value in slips_of(task, rank, name).items():
                by_slip.setdefault(words, []).append(value)
    return by_slip


def _forward_slips(task: NormTask, rank: int, _: str) -> dict[str, np.ndarray]:
    """Return {words: a rank's y, the batch norm, as the slip gives it}."""
    n, total, x, count = task.ranks, sum(task.rows), task.x[rank], task.rows[rank]
    rows = np.array(task.rows)[:, None]
    mean, var = statistics(task)

    # by rank, [ranks, features]
    means = np.array([own.mean(0) for own in task.x])
    variances = np.array([own.var(0) for own in task.x])
    squares = variances + means**2

    flat = means.mean(0)
    within = (variances * rows).sum(0)
    between = var * total - within
    inflated = (variances * rows**2 / np.maximum(1, rows - 1)).sum(0)
    too_few = (means * rows).sum(0) / (n * count)
    wrong_statistics = {  # mean and variance
        "These are the mean and the variance of this rank's own rows: take them over the rows of all ranks.":
            (means[rank], variances[rank]),
        "The ranks' means count equally: a rank with more rows must count for more. Add up sums and counts.":
            (flat, squares.mean(0) - flat**2),
        "The ranks' means and variances count equally: a rank with more rows must count for more.": (flat, variances.mean(0)),
        "This is the mean of the ranks' variances: it misses how far the ranks' own means lie apart.": (mean, within / total),
        "The joint mean counts the ranks' means equally: a rank with more rows must count for more.":
            (flat, var + (mean - flat) ** 2),
        "A rank's squares come from x.var(), which divides by one less than its rows: use x.var(correction=0).":
            (mean, (inflated + between) / total),
        "The squares between the ranks' means and the joint one count once a rank: each counts for all the rank's rows.":
            (mean, (within + ((means - mean) ** 2).sum(0)) / total),
        "The mean is over all ranks' rows, but the variance is over this rank's own.": (mean, variances[rank]),
        "The variance is over this rank's own rows, around the mean of all rows.": (mean, ((x - mean) ** 2).mean(0)),
        "The sums of all ranks are divided by n times this rank's rows: count the rows of all.":
            (too_few, (squares * rows).sum(0) / (n * count) - too_few**2),
        "All ranks' parts of mean and variance are divided by n times this rank's rows: count the rows of all.":
            (too_few, (within + (rows * (means - too_few) ** 2).sum(0)) / (n * count)),
        "The variance is divided by N − 1: batch norm divides by N.": (mean, var * total / max(1, total - 1)),
        "The variance is the mean of the squares: subtract the square of the mean.": (mean, var + mean**2),
    }  # fmt: skip
    outputs = {}
    for words, (m, v) in wrong_statistics.items():
        outputs[words] = task.weight * (x - m) / np.sqrt(v + task.eps) + task.bias

    centred = x - mean
    hat = centred / np.sqrt(var + task.eps)
    return outputs | {
        "eps belongs under the root, beside the variance.": task.weight * centred / (np.sqrt(var) + task.eps) + task.bias,
        "eps is not in it: add it to the variance, under the root.": task.weight * centred / np.sqrt(var) + task.bias,
        "eps is 1e-5, whatever was given.": task.weight * centred / np.sqrt(var + 1e-5) + task.bias,
        "It is divided by the variance: divide by its root.": task.weight * centred / (var + task.eps) + task.bias,
        "This is grad_x: return y, grad_x, grad_weight and grad_bias, in this order.": reference(task)["grad_x"][rank],
        "weight counts without its sign.": np.abs(task.weight) * hat + task.bias,
        "weight and bias are missing.": hat,
        "weight is missing.": hat + task.bias,
        "bias is missing.": task.weight * hat,
    }


def _backward_slips(task: NormTask, rank: int, _: str) -> dict[str, np.ndarray]:
    """Return {words: a rank's grad_x of the batch norm as the slip gives it}; y may be right nevertheless."""
    n, total, x, grad, count = task.ranks, sum(task.rows), task.x[rank], task.grads[rank], task.rows[rank]
    _, var = statistics(task)
    hats = standard(task)
    hat, scale = hats[rank], task.weight / np.sqrt(var + task.eps)

    each = own_sums(task, hats)
    own, sums = each[:, rank], each.sum(1)
    right = sums / total
    wrong_means = {  # of grad, and of grad · x̂
        "The sums of the backward pass are over this rank's own rows: mean and variance depend on the rows of all ranks, so "
        "these sums need an all-reduce too.": own / count,
        "The sums of the backward pass are this rank's own, divided by the rows of all ranks: they need an all-reduce "
        "too.": own / total,
        "Mean and variance are taken for constants: they depend on x, too.": (0.0, 0.0),
        "The mean of grad is missing: the mean depends on x, too.": (0.0, right[1]),
        "The part with x̂ is missing: the variance depends on x, too.": (right[0], 0.0),
        "The two sums of the backward pass are swapped: x̂ multiplies the sum of grad · x̂.": right[::-1],
        "The part with x̂ is added: subtract it.": (right[0], -right[1]),
        "The ranks' means of the backward pass count equally: a rank with more rows must count for more.":
            (each / np.array(task.rows)[:, None]).mean(1),
        "The sums of the backward pass are divided by this rank's rows: they are sums over the rows of all ranks.": sums / count,
        "The sums of the backward pass are divided by n times this rank's rows: count the rows of all.": sums / (n * count),
        "The sums of the backward pass are divided by the number of ranks: divide by the number of all rows.": sums / n,
        "The sums of the backward pass are not divided: subtract means over all rows.": sums,
    }  # fmt: skip
    gradients = {words: scale * (grad - of_grad - hat * of_product) for words, (of_grad, of_product) in wrong_means.items()}

    deviation = np.sqrt(x.var(0) + task.eps)
    local = (x - x.mean(0)) / deviation
    unscaled = grad - right[0] - hat * right[1]
    return gradients | {
        "This is the gradient of a batch norm of this rank's own rows.":
            task.weight / deviation * (grad - grad.mean(0) - local * (grad * local).mean(0)),
        "weight is missing.": unscaled / np.sqrt(var + task.eps),
        "weight counts without its sign.": np.abs(scale) * unscaled,
        "The root of the variance is missing: x̂ is divided by it.": task.weight * unscaled,
    }  # fmt: skip


def _parameter_slips(task: NormTask, rank: int, name: str) -> dict[str, np.ndarray]:
    """Return {words: a rank's grad_weight or grad_bias of the batch norm as the slip gives it}."""
    of_grad, of_product = own_sums(task, standard(task))
    sums, other = (of_product, of_grad) if name == "grad_weight" else (of_grad, of_product)
    return {
        "This is the sum over the rows of all ranks: return this rank's own, DDP averages them.": sums.sum(0),
        "This is the mean over the ranks: return this rank's own sum, DDP averages them.": sums.mean(0),
        "This is the mean over this rank's rows: return the sum, as autograd does.": sums[rank] / task.rows[rank],
        "This is divided by the rows of all ranks: return the sum, as autograd does.": sums[rank] / sum(task.rows),
        "This is the sum of grad times x: weight multiplies x̂.": (task.grads[rank] * task.x[rank]).sum(0, dtype=float),
        "grad_weight and grad_bias are swapped.": other[rank],
    }
