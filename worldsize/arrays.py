"""Conversion of values between a check and a student's function: NumPy's arrays on one side, tensors on the other.

`fabric` and `grade.frames` handle bytes on a wire.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np


def tensors(value: Any) -> Any:
    """Convert NumPy arrays to tensors with their own memory, also inside lists and dicts."""
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, (list, tuple)):
        return type(value)(tensors(v) for v in value)
    if isinstance(value, dict):
        return {k: tensors(v) for k, v in value.items()}
    return value


def gone_through(value: Any) -> Any:
    """Return the list of what a generator gives, which can be gone through once; anything else as it is."""
    return list(value) if isinstance(value, Iterator) else value


def plain(value: Any) -> Any:
    """Convert tensors of torch and TensorFlow to NumPy arrays, also inside lists, tuples and dicts. A range and a value per
    replica become a tuple; numbers, text and None stay; anything else becomes the name of its type."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, (list, tuple)):
        return tuple(plain(v) for v in value)
    if isinstance(value, range):
        return tuple(value)  # goes for a list: it has a length, and can be gone through again
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, slice):
        return (value.start, value.stop)
    if isinstance(value, str):
        return str(value)  # NumPy's text is another type, which a frame of the grader does not know
    if isinstance(value, (np.ndarray, bytes)):
        return _plain_array(value)
    if value is None or isinstance(value, (bool, int, float, np.generic)):
        return value
    if hasattr(value, "numpy"):  # a tensor or a variable of TensorFlow or Keras; a mirrored variable is one value
        return _plain_array(value.numpy())
    if isinstance(getattr(value, "values", None), tuple):  # TensorFlow's PerReplica
        return tuple(plain(v) for v in value.values)

    return f"<{type(value).__name__}>"


def _plain_array(value: Any) -> Any:
    """Convert to NumPy's own dtypes; TensorFlow's text is bytes, and NumPy does not know its bfloat16."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if not isinstance(value, np.ndarray):
        return value

    if value.dtype == object:
        return plain(value.tolist())
    return value.astype(np.float32) if value.dtype.kind == "V" else np.array(value)
