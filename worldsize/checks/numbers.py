"""Numbers that a student's function returned: are they numbers, are they right, and which mistake do they show?

A mistake is named by what it would have given: the first one that gives what came back. Left out: which mistakes
there are (each check knows).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

TOLERANCE = 1e-6


def number(value: Any) -> float | str:
    """`value` as a float, or words that say what came instead."""
    if value is None:
        return "got None (does the function return it?)"
    if isinstance(value, (bool, np.bool_, str)):
        return f"got {value!r}"
    try:
        found = float(np.asarray(value, dtype=float).reshape(-1)[0]) if np.size(value) == 1 else None
    except (TypeError, ValueError):
        found = None
    return f"got {_kind(value)}" if found is None else found


def close(got: float, expected: float, tolerance: float = TOLERANCE) -> bool:
    """Equal but for rounding; `tolerance` is absolute for small numbers and relative for large ones."""
    return math.isclose(got, expected, rel_tol=tolerance, abs_tol=tolerance)


def first_named(got: float, mistakes: Mapping[str, float | Callable[[], float]], tolerance: float = TOLERANCE) -> str:
    """". This is …" for the first mistake that gives what was got; empty where none does."""
    for words, value in mistakes.items():
        found = value() if callable(value) else value
        if math.isfinite(found) and close(got, found, tolerance):
            return f". {words}"
    return ""


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list, dict, np.ndarray)):
        return f"{np.size(value) if not isinstance(value, dict) else len(value)} values"
    return f"a {type(value).__name__}"
