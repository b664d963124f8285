"""How far the forecast of a cluster's steps depends on the rows that it was fitted to: choices, resamples, splits, models.

The 26 rows of 64 GPUs hold one model, on which memory traffic grows with the matrix products: they fit about as well with any
constant of memory traffic, and that constant decides the forecast. So one error of a forecast is one draw of many. Here are
the others. Resampling: B. Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7, 1979.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worldsize.data import MeasuredIteration
from worldsize.formulas import measured_clusters as clusters

LEAST_MICRO_BATCHES = (1, 2, 4, 8)
FITTED = 26  # rows of a random split, as many as there are of 64 GPUs

Rows = Sequence[MeasuredIteration]


@dataclass(frozen=True)
class Choice:
    """One fit of a cluster's step: the rows of the node behind its constant of memory traffic, and the errors, as parts of 1."""

    name: str
    rows: int
    memory: float
    error_fitted: float
    error_asked: float


def by_micro_batch(single: Rows, few: Rows, asked: Rows) -> list[Choice]:
    """The forecast of a cluster's steps by the least micro-batch of the rows that memory's constant is fitted to."""
    found = []
    for least in LEAST_MICRO_BATCHES:
        rows = sum(row.tensor == row.pipeline == 1 and row.micro_batch >= least for row in single)
        memory = clusters.fit_memory(single, micro_batch=least)
        fit = clusters.fit(few, memory)
        errors = clusters.error(fit, few), clusters.error(fit, asked)
        found.append(Choice(f"micro-batch {least} and more", rows, memory, *errors))
    return found


def bootstrapped(single: Rows, few: Rows, asked: Rows, draws: int = 200, seed: int = 0) -> np.ndarray:
    """Errors of a cluster's forecast on `asked` where memory's rows are drawn anew, with replacement: float64 `[draws]`."""
    whole = [row for row in single if row.tensor == row.pipeline == 1]
    generator = np.random.default_rng(seed)
    errors = []
    for _ in range(draws):
        rows = [whole[k] for k in generator.integers(0, len(whole), len(whole))]
        errors.append(clusters.error(clusters.fit(few, clusters.fit_memory(rows)), asked))
    return np.array(errors)


def random_splits(single: Rows, multi: Rows, draws: int = 200, seed: int = 0) -> np.ndarray:
    """A cluster's steps, fitted to 26 random rows of `multi` and asked for the others: float64 `[draws, 2]`.

    Columns: the mean error, and the part of the others that lie in the interval of nominally 90 %.
    """
    generator, memory = np.random.default_rng(seed), clusters.fit_memory(single)
    found = []
    for _ in range(draws):
        order = generator.permutation(len(multi))
        fit = clusters.fit([multi[k] for k in order[:FITTED]], memory)
        others = [multi[k] for k in order[FITTED:]]
        found.append((clusters.error(fit, others), clusters.coverage(fit, others)[0]))
    return np.array(found)


def without_a_model(single: Rows, multi: Rows) -> dict[int, float]:
    """Errors of a cluster's steps on each model's rows, by its width, fitted to the rows of the other models."""
    memory = clusters.fit_memory(single)
    found = {}
    for width in sorted({row.hidden for row in multi}):
        fit = clusters.fit([row for row in multi if row.hidden != width], memory)
        found[width] = clusters.error(fit, [row for row in multi if row.hidden == width])
    return found


def by_tensor(fit: clusters.ClusterFit, rows: Rows) -> dict[int, tuple[int, float, float]]:
    """Of a cluster's forecast, by how many ranks share a layer: rows, mean error, and mean signed error (below 0: too short)."""
    found = {}
    for tensor in sorted({row.tensor for row in rows}):
        of = [row for row in rows if row.tensor == tensor]
        off = clusters.predict(fit, of) / np.array([row.iteration_s for row in of]) - 1
        found[tensor] = (len(of), float(np.abs(off).mean()), float(off.mean()))
    return found
