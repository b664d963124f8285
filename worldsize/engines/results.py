"""A rank's return value as bytes: pickled if its host is this user's own, else as plain values.

An invited host belongs to somebody else, so nothing from it is unpickled. Torch tensors, arrays, numbers, text, bytes,
lists, tuples and dicts keep their type, TensorFlow tensors become arrays, and anything else becomes text that names its
type. `json_and_bytes.py` defines plain values.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from worldsize import arrays
from worldsize.engines.json_and_bytes import HEADER, BadFrame, decode, encode, framed, text_of

_MAX_JSON_BYTES = 256_000_000
_MOST_TYPES = 20
_BFLOAT16 = "bfloat16"  # NumPy lacks it: its bits travel as int16


def packed(result: Any, plain: bool) -> bytes:
    """Return the bytes of a result. Raises pickle's errors, and ValueError for more plain data than may travel."""
    if not plain:
        return cloudpickle.dumps(result)

    blob = bytearray()
    as_text: set[str] = set()

    value = encode(result, blob, lambda other: _encode_other(other, blob, as_text))
    data = framed({"value": value, "as_text": sorted(as_text)[:_MOST_TYPES]}, blob)
    json_bytes = len(data) - len(blob) - HEADER.size
    if json_bytes > _MAX_JSON_BYTES:
        raise ValueError(
            f"expected a result of at most {_MAX_JSON_BYTES / 1e6:g} MB without its arrays, got {json_bytes / 1e6:.0f} MB: "
            f"turn long lists into arrays"
        )
    return data


def _encode_other(value: Any, blob: bytearray, as_text: set[str]) -> Any:
    """Return JSON for bytes and tensors, which are no plain values; None for other objects, which arrive as text."""
    if isinstance(value, bytes):
        return ["bytes", encode(np.frombuffer(value, np.uint8), blob)]

    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        import torch

        tensor = value.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            return [_BFLOAT16, encode(tensor.contiguous().view(torch.int16).numpy(), blob)]
        # NumPy cannot hold torch's lazy conjugate and negative views
        return ["tensor", encode(tensor.resolve_conj().resolve_neg().numpy(), blob)]

    simpler = arrays.plain(value)
    if isinstance(simpler, (np.ndarray, tuple)):  # a TensorFlow tensor
        return ["plain", encode(simpler, blob)]
    as_text.add(type(value).__name__)
    return None


def unpacked(source: Path | bytes, plain: bool) -> tuple[Any, tuple[str, ...]]:
    """Return a result from its file or bytes, and the types of the objects in it that came as text.

    Raises BadFrame for data that should be plain and is not.
    """
    if not plain:
        return pickle.loads(source if isinstance(source, bytes) else source.read_bytes()), ()

    try:
        data = source if isinstance(source, bytes) else source.read_bytes()
    except OSError:
        raise BadFrame("expected a result, got none") from None
    if len(data) < HEADER.size:
        raise BadFrame("expected a result, got too few bytes")

    json_bytes, blob_bytes = HEADER.unpack_from(data)
    start = HEADER.size + json_bytes
    if json_bytes > _MAX_JSON_BYTES or start + blob_bytes != len(data):
        raise BadFrame("expected a result as long as its header says, got another length")

    blob = memoryview(data)[start:]
    try:
        found = json.loads(data[HEADER.size : start])
        value, names = found["value"], found["as_text"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise BadFrame(f"expected a result as JSON, got {type(error).__name__}") from None
    if not isinstance(names, list) or len(names) > _MOST_TYPES:
        raise BadFrame("expected the names of types")

    types = [text_of(name, 100) for name in names]
    as_text = tuple(name if name.isidentifier() else "?" for name in types)
    return decode(value, blob, lambda other: _decode_other(other, blob)), as_text


def _decode_other(given: Any, blob: memoryview) -> Any:
    if not isinstance(given, list) or len(given) != 2:
        raise BadFrame("expected a kind and a value")

    kind, value = given[0], decode(given[1], blob)
    if kind == "plain":
        return value
    if kind not in ("bytes", "tensor", _BFLOAT16) or not isinstance(value, np.ndarray):
        raise BadFrame("expected a kind of value and its array")
    if kind == "bytes":
        return value.tobytes()

    import torch

    try:
        tensor = torch.from_numpy(value)
        return tensor.view(torch.bfloat16) if kind == _BFLOAT16 else tensor
    except (TypeError, RuntimeError):  # torch lacks the dtype, or its size is wrong
        raise BadFrame("expected an array that torch can hold") from None
