"""Forecasts as (low, middle, high) in seconds, one for each row: their form, and middles that are off by one factor.

Each exercise itself states how often forecasts hold and how wide they may be.
"""

from typing import Any

import numpy as np

from worldsize.checks.kit.values import number, shown
from worldsize.checks.verdict import Complaint


def no_intervals(got: Any, expected: int) -> Complaint:
    """Return a complaint unless `got` is `expected` triples of finite low ≤ middle ≤ high with a middle above 0."""
    if not isinstance(got, tuple | list | np.ndarray):
        return f"expected a list of (low, middle, high), one for each of the {expected} rows, got {shown(got)}"
    if len(got) != expected:
        return f"expected {expected} intervals, one for each row, got {len(got)}"

    for place, interval in enumerate(got):
        if not isinstance(interval, tuple | list | np.ndarray) or len(interval) != 3:
            return f"row {place}: expected (low, middle, high) in seconds, got {shown(interval)}"
        values = list(map(number, interval))
        if any(isinstance(value, str) or not np.isfinite(value) for value in values):
            return f"row {place}: expected three finite numbers, got {shown(interval)}"
        low, middle, high = values
        if not 0 < middle or not low <= middle <= high:
            return f"row {place}: expected low ≤ middle ≤ high and a middle above 0, got ({low:.4g}, {middle:.4g}, {high:.4g})"
    return None


def as_seconds(got: Any) -> np.ndarray:
    """Return forecasts that `no_intervals` let pass, as an array of seconds of shape [rows, 3]."""
    return np.array([list(map(number, one)) for one in got], float).reshape(-1, 3)


def one_factor(middle: np.ndarray, measured: np.ndarray, near: float) -> str:
    """Return a complaint if the intervals' middles are in milliseconds, or right within `near` on average but for one factor;
    else empty.
    """
    ratio = float(np.median(middle / measured))
    if 500 < ratio < 2000:  # around 1000, however wrong otherwise
        return "Return seconds, not milliseconds."
    if (ratio > 1.5 or ratio < 0.67) and float(np.abs(middle / ratio / measured - 1).mean()) <= near:
        return f"The forecasts are right but for one factor: all are about {ratio:.2g} times as long as measured."
    return ""
