"""Frames, the only data that crosses the wall of a sandbox: plain values as JSON and raw bytes. Nothing is ever unpickled.

Values are numbers, text, lists, tuples, dicts with plain keys, and NumPy arrays; anything else arrives as text that names
its type. Decoding checks dtypes, shapes and depth, and makes text printable. A frame is two lengths, a JSON object and bytes, and
a `Reader` limits both sizes.
"""

import json
import math
import struct
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from worldsize.units import text_of

JobMode = Literal["call", "ranks", "group", "tensorflow", "cells", "play"]  # the work asked of a rank
FabricOp = Literal["post", "wait", "take", "compute"]  # from a rank to the broker
RankOp = Literal["done", "failed", "cell", "call"]  # from a rank to the run

UNSEEN = "unseen"  # the mark of a cell whose lines no traceback shows

MAX_JSON_BYTES = 4_000_000
MAX_BLOB_BYTES = 32_000_000

ValueKind = Literal["l", "t", "d", "a", "g", "f"]  # list, tuple, dict, array, NumPy scalar, value of a hook

HEADER = struct.Struct("!QQ")  # sizes in bytes of a frame's JSON and of the arrays after it
MAX_DEPTH = 50
MAX_SIDE = 2**31
MAX_TEXT = 8_000_000  # characters
# numbers only: no objects, text or times
_DTYPES = {name: np.dtype(name) for name in {np.dtype(code).str for code in "?bBhHiIlLqQefdFD"}}


class BadFrame(ValueError):
    """The data is no frame, or holds something that no frame may hold."""


def framed(message: dict[str, Any], blob: bytes | bytearray | memoryview = b"") -> bytes:
    """Return the bytes of one frame: two lengths, the JSON of `message`, and `blob`."""
    text = json.dumps(message).encode()
    return b"".join((HEADER.pack(len(text), len(blob)), text, blob))


def encode(value: Any, blob: bytearray, name_of: Callable[[Any], Any] | None = None) -> Any:
    """Return `value` as JSON for a frame, and append the bytes of its arrays to the frame's `blob`.

    `name_of` returns JSON for other objects, such as callables, or None.
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
    """Return the value that `encode` put into a frame: plain from JSON, arrays from the bytes in `blob`.

    All arrays together have at most as many bytes as `blob`, because `encode` stores none twice.
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
            raise BadFrame(f"expected lists nested at most {MAX_DEPTH} deep")
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
        raise BadFrame(f"expected a known kind of value, got {text_of(kind, 20)!r}")

    def _dict(self, rows: list, depth: int) -> dict:
        mapping = {}
        for row in rows:
            if not isinstance(row, list) or len(row) != 2:
                raise BadFrame("expected pairs in a dict")

            key = self.value(row[0], depth)
            value = self.value(row[1], depth)
            try:
                mapping[key] = value
            except TypeError:
                raise BadFrame("expected plain keys in a dict") from None
        return mapping

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
            raise BadFrame("expected arrays with bytes of their own, got arrays that overlap")

        try:
            if count:
                array = np.frombuffer(self._blob, dtype, count, start).reshape(shape).copy()
            else:
                array = np.empty(shape, dtype)
        except ValueError:  # an empty array with sides too long for NumPy
            raise BadFrame("expected a shape that NumPy can hold") from None

        if kind == "g" and count == 1:
            return array.reshape(-1)[0]
        return array


def sides(shape: Any) -> bool:
    """Return whether a frame's `shape` is a list of at most 12 plausible lengths."""
    if not isinstance(shape, list) or len(shape) > 12:
        return False
    return all(type(n) is int and 0 <= n < MAX_SIDE for n in shape)


class Reader:
    """A splitter of a stream of bytes into frames."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.frame_bytes = 0  # of the latest frame

    @property
    def kept_bytes(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> None:
        self._data += data

    def next(self) -> tuple[dict[str, Any], bytes] | None:
        """Return the next whole frame, or None until all of it has come. Raises BadFrame."""
        if len(self._data) < HEADER.size:
            return None

        json_bytes, blob_bytes = HEADER.unpack_from(self._data)
        if json_bytes > MAX_JSON_BYTES or blob_bytes > MAX_BLOB_BYTES:  # the header alone decides
            most = f"{MAX_JSON_BYTES / 1e6:g} MB of JSON and {MAX_BLOB_BYTES / 1e6:g} MB of arrays"
            raise BadFrame(f"expected at most {most} at once, got {json_bytes} and {blob_bytes} bytes")

        start = HEADER.size + json_bytes
        stop = start + blob_bytes
        if len(self._data) < stop:
            return None

        with memoryview(self._data) as data:
            text = bytes(data[HEADER.size : start])
            blob = bytes(data[start:stop])
        del self._data[:stop]
        self.frame_bytes = stop

        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadFrame(f"expected JSON, got {type(error).__name__}") from None
        if not isinstance(message, dict):
            raise BadFrame(f"expected an object, got {type(message).__name__}")
        return message, blob
