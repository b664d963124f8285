"""The gain of a larger batch: the steps to a goal, the learning rate, and the batch beyond which little is gained.

A batch of B examples gives the gradient with noise that falls as 1/B. Left out: the time of a step, momentum, Adam, and the
effect of noise on generalization. S. McCandlish, J. Kaplan, D. Amodei and others, "An empirical model of large-batch training",
2018, arXiv:1812.06162.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np


def steps(batch: float, fewest_steps: float, critical_batch: float) -> float:
    """Return the steps to a goal with large batches of B examples: S_min · (1 + B_crit/B).

    McCandlish 2018, section 2.3: (S/S_min − 1)(E/E_min − 1) = 1 with E = B·S examples and B_crit = E_min/S_min.
    """
    _above_0(batch=batch, fewest_steps=fewest_steps, critical_batch=critical_batch)
    return fewest_steps * (1 + critical_batch / batch)


def fit_steps(measured: Mapping[float, float] | Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return (S_min, B_crit) fitted to steps by batch, in logarithms so that all batches weigh alike.

    `measured`: (batch, steps), at least two different batches; a batch may occur several times. Raises ValueError for fewer.
    """
    pairs = list(measured.items()) if isinstance(measured, Mapping) else list(measured)
    batches, taken = np.array(pairs, float).reshape(-1, 2).T
    if len(set(batches)) < 2:
        raise ValueError(f"large_batches.fit_steps: got {len(set(batches))} batch sizes; expected two or more.")

    # For each critical batch the best S_min is a mean of logarithms, so only one number has to be searched for.
    candidates = []
    for critical in np.geomspace(batches.min() / 1e3, batches.max() * 1e3, 6_001):
        over = np.log(taken) - np.log1p(critical / batches)
        candidates.append((float(over.var()), math.exp(over.mean()), float(critical)))
    _, fewest, critical = min(candidates)
    return fewest, critical


def best_rate(batch: float, largest_rate: float, noise_scale: float) -> float:
    """Return the learning rate that gains most in one step of batch B: ε_max/(1 + B_noise/B).

    Proportional to the batch far below the noise scale, and ε_max far above it. McCandlish 2018, equation 2.6.
    """
    _above_0(batch=batch, largest_rate=largest_rate, noise_scale=noise_scale)
    return largest_rate / (1 + noise_scale / batch)


def _above_0(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"large_batches: {name} is {value!r}; expected a number above 0.")
