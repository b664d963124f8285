"""What crosses the wall of a sandbox: frames of JSON and raw bytes. Never a pickle.

A frame is two lengths, a JSON object and bytes, whose sizes are checked. Left out: values in them
(`engines.plain_values`), and what the frames mean (`broker`, `run`, `rank`).
"""

from __future__ import annotations

import json
import struct
from typing import Any, Literal

from worldsize.engines.plain_values import BadFrame

JobMode = Literal["call", "ranks", "group", "tensorflow", "cells", "play"]  # what a rank is asked for
FabricOp = Literal["post", "wait", "take", "compute"]  # what a rank's frame says to the broker
RankOp = Literal["done", "failed", "cell", "call"]  # what it says to the run

HEADER = struct.Struct("!II")
MAX_JSON_BYTES = 4_000_000
MAX_BLOB_BYTES = 32_000_000


def pack(message: dict[str, Any], blob: bytes | bytearray | memoryview = b"") -> bytes:
    """The bytes of one frame, as it goes in or out of a sandbox: two lengths, a JSON object and raw bytes."""
    text = json.dumps(message).encode()
    return b"".join((HEADER.pack(len(text), len(blob)), text, blob))


class Reader:
    """Frames out of a stream of bytes, with limits that hold before anything is kept."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.frame_bytes = 0  # of the frame before

    @property
    def kept_bytes(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> None:
        self._data += data

    def next(self) -> tuple[dict[str, Any], bytes] | None:
        """The next whole frame, None where it has not all come. Raises BadFrame."""
        if len(self._data) < HEADER.size:
            return None

        json_bytes, blob_bytes = HEADER.unpack_from(self._data)
        if json_bytes > MAX_JSON_BYTES or blob_bytes > MAX_BLOB_BYTES:
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
        return _object(text), blob


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"expected JSON, got {type(error).__name__}") from None

    if not isinstance(found, dict):
        raise BadFrame(f"expected an object, got {type(found).__name__}")
    return found
