"""What the check of a batch norm over all ranks runs in a rank: the student's function on tensors, no expected value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def normed(fn: Callable, fabric: Any, given: Sequence[Any], eps: float) -> Any:
    """`fn(fabric, x, weight, bias, grad, eps)`, where `given` is (x, weight, bias, grad)."""
    return fn(fabric, *given, eps)
