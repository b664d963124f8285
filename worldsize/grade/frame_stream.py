"""A stream of frames, the only data that crosses the wall of a sandbox. Nothing is ever unpickled.

A frame is two lengths, a JSON object and bytes (`engines.json_and_bytes` makes it); here both sizes are limited.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from worldsize.engines.json_and_bytes import HEADER, BadFrame

JobMode = Literal["call", "ranks", "group", "tensorflow", "cells", "play"]  # the work asked of a rank
FabricOp = Literal["post", "wait", "take", "compute"]  # from a rank to the broker
RankOp = Literal["done", "failed", "cell", "call"]  # from a rank to the run

UNSEEN = "unseen"  # the mark of a cell whose lines no traceback shows

MAX_JSON_BYTES = 4_000_000
MAX_BLOB_BYTES = 32_000_000


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
