"""The rule for arguments: a function changes nothing that it was not asked to change.

Each check judges the result itself, and any tensor that a function is to change in place.
"""

from typing import Any

import numpy as np

from worldsize.checks.verdict import Complaint


def changed(after: Any, given: Any, name: str, rank: int | None = None) -> Complaint:
    """Return a complaint if an argument is no longer what was handed in, or None. Tuples, lists and dicts are searched."""
    if _alike(after, given):
        return None
    whose = "" if rank is None else f"rank {rank}: "
    return f"{whose}{name} was changed in place: the caller still needs it unchanged. Work on a copy."


def _alike(after: Any, given: Any) -> bool:
    if isinstance(given, np.ndarray):
        if not isinstance(after, np.ndarray) or (after.shape, after.dtype) != (given.shape, given.dtype):
            return False
        return np.array_equal(after, given, equal_nan=given.dtype.kind in "fc")

    if isinstance(given, dict):
        if not isinstance(after, dict) or set(after) != set(given):
            return False
        return all(_alike(after[key], value) for key, value in given.items())

    if isinstance(given, (tuple, list)):
        if not isinstance(after, (tuple, list)) or len(after) != len(given):
            return False
        return all(map(_alike, after, given))

    return bool(after == given)
