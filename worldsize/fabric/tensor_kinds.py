"""The kind of a message, a dtype and a shape: as numbers, as text, and the error where two do not match.

This module needs no torch, because a grader that routes messages has none.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from typing_extensions import override

# a dtype's number is its place; the value is the bytes of an element
_ITEM_BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
DTYPE_NAMES = tuple(_ITEM_BYTES)


class TensorKind(NamedTuple):
    """The number of a message's dtype, and its shape."""

    dtype: int
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return _ITEM_BYTES[DTYPE_NAMES[self.dtype]] * math.prod(self.shape)

    @override
    def __str__(self) -> str:
        return kind_text(DTYPE_NAMES[self.dtype], self.shape)


def kind_text(dtype: str, shape: Sequence[int]) -> str:
    """Return a kind as text, such as `float32[4, 2]`."""
    return f"{dtype.removeprefix('torch.')}{list(shape)}"


def kind_mismatch(rank: int, frm: int, tag: int, expected: str, got: str) -> str:
    """Return the text of the ValueError when rank `rank` receives the wrong kind; `kind_text` made both kinds."""
    return (
        f"recv on rank {rank} from rank {frm} (tag {tag}): expected {expected}, which is what `out` is, got {got}. "
        f"Receive into a tensor like the one that rank {frm} sends."
    )
