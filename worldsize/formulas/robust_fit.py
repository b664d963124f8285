"""A fit of a sum of parts to measured seconds: nonnegative constants, relative errors, and outliers that count less.

Iterated least squares with the weights of P. Huber, "Robust estimation of a location parameter", Annals of Mathematical
Statistics 35, 1964. Negative constants are fixed at 0, the most negative first, as in C. Lawson and R. Hanson, "Solving least
squares problems", 1974, chapter 23, except that none returns. Left out: errors of the constants.
"""

from collections.abc import Mapping

import numpy as np

TOLERATED = 0.05  # relative errors beyond this count by their size, not by their square


def fit(
    parts: np.ndarray, seconds: np.ndarray, *, known: Mapping[int, float] | None = None, rounds: int = 200
) -> np.ndarray:
    """Return constants c, float64 `[k]`, so that `parts` `[rows, k]` @ c approximates `seconds` `[rows]`.

    `known`: given constants, by column. Columns that are all 0 get 0. Raises ValueError for shapes that don't match, seconds that
    are not above 0, and fewer rows than constants.
    """
    parts, seconds = np.asarray(parts, float), np.asarray(seconds, float)
    if parts.ndim != 2 or seconds.shape != parts.shape[:1] or not (seconds > 0).all():
        raise ValueError(
            f"robust_fit: expected parts [rows, k] and [rows] seconds above 0, got shapes {parts.shape} and {seconds.shape}."
        )

    constants = np.zeros(parts.shape[1])
    for column, value in (known or {}).items():
        constants[column] = value
    free = [k for k in range(parts.shape[1]) if k not in (known or {}) and parts[:, k].any()]
    if len(seconds) < len(free):
        raise ValueError(f"robust_fit: {len(free)} constants need at least as many rows, got {len(seconds)}. Measure more.")

    relative = parts / seconds[:, None]
    rest = 1 - relative @ constants
    while free:
        solution = _huber(relative[:, free], rest, rounds)
        if solution.min() >= 0:
            constants[free] = solution
            break
        del free[int((solution * np.abs(relative[:, free]).mean(0)).argmin())]
    return constants


def _huber(parts: np.ndarray, target: np.ndarray, rounds: int) -> np.ndarray:
    weights = np.ones(len(target))
    for _ in range(rounds):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(parts * root[:, None], target * root, rcond=None)[0]
        off = np.abs(target - parts @ found)
        weights = np.minimum(1, TOLERATED / np.maximum(off, 1e-12))
    return found
