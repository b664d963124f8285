"""The sensitivity of a forecast of a cluster's steps to the rows it was fitted to: choices, resamples, splits, models.

The 26 rows of 64 GPUs hold one model, on which memory traffic grows with the matrix products: they fit about as well with any
constant of memory traffic, and that constant decides the forecast. A single error of a forecast is thus one draw of many; this
module computes the others. Resampling: B. Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7,
1979.
"""

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
    """A fit of a cluster's step: the number of one-node rows behind its constant of memory traffic, and the errors, as fractions.
    """

    name: str
    rows: int
    memory: float
    error_fitted: float
    error_asked: float


def by_micro_batch(single: Rows, few: Rows, asked: Rows) -> list[Choice]:
    """Return the forecast's errors by the least micro-batch of the rows that fit memory's constant."""
    choices = []
    for least in LEAST_MICRO_BATCHES:
        rows = sum(row.tensor == row.pipeline == 1 and row.micro_batch >= least for row in single)
        memory = clusters.fit_memory(single, micro_batch=least)
        fit = clusters.fit(few, memory)
        errors = clusters.error(fit, few), clusters.error(fit, asked)
        choices.append(Choice(f"micro-batch {least} and more", rows, memory, *errors))
    return choices


def bootstrapped(single: Rows, few: Rows, asked: Rows, draws: int = 200, seed: int = 0) -> np.ndarray:
    """Return the forecasts' errors on `asked` when memory's rows are resampled with replacement, float64 `[draws]`."""
    whole = [row for row in single if row.tensor == row.pipeline == 1]
    generator = np.random.default_rng(seed)
    errors = []
    for _ in range(draws):
        rows = [whole[k] for k in generator.integers(0, len(whole), len(whole))]
        errors.append(clusters.error(clusters.fit(few, clusters.fit_memory(rows)), asked))
    return np.array(errors)


def random_splits(single: Rows, multi: Rows, draws: int = 200, seed: int = 0) -> np.ndarray:
    """Fit to 26 random rows of `multi` and predict the others; return float64 `[draws, 2]`.

    Columns: the mean error, and the share of the others inside the nominal 90 % interval.
    """
    generator, memory = np.random.default_rng(seed), clusters.fit_memory(single)
    scores = []
    for _ in range(draws):
        order = generator.permutation(len(multi))
        fit = clusters.fit([multi[k] for k in order[:FITTED]], memory)
        others = [multi[k] for k in order[FITTED:]]
        scores.append((clusters.error(fit, others), clusters.coverage(fit, others)[0]))
    return np.array(scores)


def without_a_model(single: Rows, multi: Rows) -> dict[int, float]:
    """Return the error of a cluster's forecast on each model's rows, by its width, when fitted to the other models' rows."""
    memory = clusters.fit_memory(single)
    errors = {}
    for width in sorted({row.hidden for row in multi}):
        fit = clusters.fit([row for row in multi if row.hidden != width], memory)
        errors[width] = clusters.error(fit, [row for row in multi if row.hidden == width])
    return errors


def by_tensor(fit: clusters.ClusterFit, rows: Rows) -> dict[int, tuple[int, float, float]]:
    """Return {ranks that share a layer: (rows, mean error, mean signed error)}; a signed error below 0 means predicted too short.
    """
    errors = {}
    for tensor in sorted({row.tensor for row in rows}):
        of = [row for row in rows if row.tensor == tensor]
        off = clusters.predict(fit, of) / np.array([row.iteration_s for row in of]) - 1
        errors[tensor] = (len(of), float(np.abs(off).mean()), float(off.mean()))
    return errors
