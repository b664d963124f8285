"""Plain values as JSON and raw bytes: what may come from where nothing is to be unpickled, such as a sandbox.

Values are numbers, text, lists, tuples, dicts with plain keys and NumPy arrays; whatever else there is arrives as text
that names its type. What comes in is checked: dtypes, shapes and depth, and text is made printable. Left out: how the
JSON and the bytes travel (`grade.frames`, `results.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

ValueKind = Literal["l", "t", "d", "a", "g", "f"]  # list, tuple, dict; array, NumPy's scalar; what a hook knows

MAX_DEPTH = 50
MAX_SIDE = 2**31
MAX_TEXT = 8_000_000  # characters
_DTYPES = {name: np.dtype(name) for name in {np.dtype(code).str for code in "?bBhHiIlLqQefdFD"}}


class BadFrame(ValueError):
    """What came is no frame, or holds what no frame may hold."""


def text_of(value: Any, most: int = 4000) -> str:
    """Text as a frame brings it out of a sandbox, cut to `most` characters, such that it can be printed and written.

    That holds whatever came; what is no text gives "".
    """
    if not isinstance(value, str):
        return ""
    return str(value)[:most].encode("utf-8", "replace").decode()


def encode(value: Any, blob: bytearray, name_of: Callable[[Any], Any] | None = None) -> Any:
    """A value as it goes into a frame: `value` as JSON, while the bytes of its arrays go to the frame's `blob`.

    `name_of` answers with JSON for what is none of these, such as a callable, or with None.
    """
    if value is None or type(value) in (bool, str):
        return value
    if isinstance(value, np.generic):
        return _array("g", np.asarray(value), blob)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.ndarray):
        return _array("a", value, blob)

    if isinstance(value, (list, tuple)):
        kind: ValueKind = "l" if isinstance(value, list) else "t"
        return [kind, *(encode(v, blob, name_of) for v in value)]
    if isinstance(value, dict):
        return ["d", *([encode(k, blob, name_of), encode(v, blob, name_of)] for k, v in value.items())]

    named = name_of(value) if name_of else None
    if named is None:
        return f"<{type(value).__name__}>"
    return ["f", named]


def _array(kind: ValueKind, array: np.ndarray, blob: bytearray) -> Any:
    if array.dtype.str not in _DTYPES:
        return f"<array of {array.dtype.name}>"

    array = np.asarray(array, order="C")
    start = len(blob)
    blob += array.tobytes()
    return [kind, array.dtype.str, list(array.shape), start]


def decode(value: Any, blob: bytes, callable_of: Callable[[Any], Any] | None = None) -> Any:
    """The value that a frame holds, as `encode` put it there: plain from JSON, arrays from the bytes in `blob`.

    All arrays together have at most as many bytes as `blob`, as `encode` makes them: none of it is there twice.
    Raises BadFrame for anything that `encode` cannot have made.
    """
    return _Decoder(blob, callable_of).value(value, 0)


class _Decoder:
    def __init__(self, blob: bytes, callable_of: Callable[[Any], Any] | None) -> None:
        self._blob = blob
        self._left_bytes = len(blob)
        self._callable_of = callable_of

    def value(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise BadFrame(f"expected at most {MAX_DEPTH} lists in each other")
        if isinstance(value, str):
            return text_of(value, MAX_TEXT)
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if not isinstance(value, list) or not value or not isinstance(value[0], str):
            raise BadFrame("expected a value with its kind")

        kind, *rest = value
        if kind in ("l", "t"):
            items = [self.value(v, depth + 1) for v in rest]
            return items if kind == "l" else tuple(items)
        if kind == "d":
            return self._dict(rest, depth + 1)
        if kind in ("a", "g"):
            return self._array(kind, rest)
        if kind == "f" and self._callable_of is not None and len(rest) == 1:
            return self._callable_of(rest[0])
        raise BadFrame(f"expected a kind of value, got {text_of(kind, 20)!r}")

    def _dict(self, rows: list, depth: int) -> dict:
        found = {}
        for row in rows:
            if not isinstance(row, list) or len(row) != 2:
                raise BadFrame("expected pairs in a dict")

            key = self.value(row[0], depth)
            value = self.value(row[1], depth)
            try:
                found[key] = value
            except TypeError:
                raise BadFrame("expected plain keys in a dict") from None
        return found

    def _array(self, kind: ValueKind, rest: list) -> Any:
        if len(rest) != 3 or not isinstance(rest[0], str) or rest[0] not in _DTYPES:
            raise BadFrame("expected an array's dtype, shape and place")
        if not sides(rest[1]) or type(rest[2]) is not int:
            raise BadFrame("expected an array's dtype, shape and place")

        dtype, shape, start = _DTYPES[rest[0]], tuple(rest[1]), rest[2]
        count = math.prod(shape)
        if start < 0 or start + count * dtype.itemsize > len(self._blob):
            raise BadFrame("expected an array's bytes within its frame")

        self._left_bytes -= count * dtype.itemsize
        if self._left_bytes < 0:
            raise BadFrame("expected arrays whose bytes lie beside each other, got some that share them")

        try:
            if count:
                array = np.frombuffer(self._blob, dtype, count, start).reshape(shape).copy()
            else:
                array = np.empty(shape, dtype)
        except ValueError:  # no bytes at all, and sides too long for NumPy
            raise BadFrame("expected sides that NumPy can hold") from None

        if kind == "g" and count == 1:
            return array.reshape(-1)[0]
        return array


def sides(shape: Any) -> bool:
    """Whether the `shape` of an array in a frame may be believed: it is a list of at most 12 lengths."""
    if not isinstance(shape, list) or len(shape) > 12:
        return False
    return all(type(n) is int and 0 <= n < MAX_SIDE for n in shape)
