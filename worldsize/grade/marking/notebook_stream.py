"""Read a notebook's file as a stream: the cells' type, source, id and metadata, and nothing else.

Outputs, attachments and the notebook's own metadata may have any size. They are skipped chunk by chunk, by brackets and
quotes alone; the values that are kept are parsed by `json`.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

CHUNK_BYTES = 1 << 20
MOST_CELLS = 20_000
MOST_KEPT_BYTES = 20_000_000  # of all cells together
_MOST_STEPS = 8_000_000  # through nested brackets, which take seconds; no real notebook has as many
_MOST_KEY_BYTES = 400
_MOST_BYTES = {"cell_type": 2_000, "id": 2_000, "metadata": 200_000, "source": 4_000_000, "input": 4_000_000}

# before CPython 3.11.5, a possessive repeat stops in the middle of its last, failed iteration (gh-106052); an alternative
# that always fails takes it back to where that iteration began
_BACK = rb"|(?!)"
_INSIDE = rb'[^"\\]*+(?:\\.[^"\\]*+' + _BACK + rb")*+"  # a string, up to its end or the chunk's
_STRING = rb'"' + _INSIDE + rb'"'
_PLAIN = rb'[^"\[\]{}]++|' + _STRING


def _with_lists(inside: bytes) -> bytes:
    return rb"(?:" + _PLAIN + rb"|[\[{]" + inside + rb"[\]}]" + _BACK + rb")*+"


_FLAT = rb"(?:" + _PLAIN + _BACK + rb")*+"
_PASSED = re.compile(rb"(?s)" + _with_lists(_with_lists(_with_lists(_FLAT))))  # one match skips lists up to three deep
_OPENED = re.compile(rb"[\[{]++")
_CLOSED = re.compile(rb"[\]}]++")
_IN_STRING = re.compile(rb"(?s)" + _INSIDE)
_SCALAR = re.compile(rb'[^\s,:"\[\]{}]*+')
_SPACE = re.compile(rb"[ \t\r\n]*+")
_NOT_JSON = "the file is not JSON (JSONDecodeError): it is not a notebook, or only part of one"


class NoNotebook(ValueError):
    """A file that is not a notebook; the message says why."""


def rows(file: BinaryIO) -> list[dict[str, Any]]:
    """Return the cells of a notebook of any format, each as an object with the keys of `_MOST_BYTES` alone.

    A value that is too long or nested too deep is None. Raises NoNotebook for a file that is too large or not a
    notebook.
    """
    text = _Scanner(file)
    if text.peek() == b"":
        raise NoNotebook("the file is empty: it is not a notebook, or only part of one")

    found: list[dict[str, Any]] | None = None
    older: list[dict[str, Any]] | None = None
    if text.peek() == b"{":
        for key in text.members():
            if key == "cells" and text.peek() == b"[":
                found = _cells(text)
            elif key == "worksheets" and text.peek() == b"[":  # formats before 4
                older = _of_worksheets(text)
            else:
                text.skip()
    else:
        text.skip()
    if text.peek() not in (b"", b"\0"):
        raise NoNotebook(_NOT_JSON)

    if found is None:
        found = older
    if found is None:
        raise NoNotebook("the file is JSON, but it has no list of cells: it is not a notebook")
    return found


def _of_worksheets(text: _Scanner) -> list[dict[str, Any]] | None:
    found = None
    for number, _ in enumerate(text.items()):
        if number or text.peek() != b"{":
            text.skip()
            continue

        for key in text.members():
            if key == "cells" and text.peek() == b"[":
                found = _cells(text)
            else:
                text.skip()
    return found


def _cells(text: _Scanner) -> list[dict[str, Any]]:
    found = []
    kept_bytes = 0
    for number, _ in enumerate(text.items()):
        if number == MOST_CELLS:
            raise NoNotebook(f"the file has more than {MOST_CELLS} cells: it is not a notebook of the course")
        if text.peek() != b"{":
            text.skip()
            continue

        row = {}
        for key in text.members():
            most = _MOST_BYTES.get(key)
            if most is None:
                text.skip()
                continue

            raw = text.value(most)
            if raw is None:
                row[key] = None
                continue

            kept_bytes += len(raw)
            if kept_bytes > MOST_KEPT_BYTES:
                raise NoNotebook(f"the file has more than {MOST_KEPT_BYTES / 1e6:.0f} MB of cells besides its outputs")
            row[key] = _loaded(raw)
        found.append(row)
    return found


def _loaded(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "replace"))
    except json.JSONDecodeError:
        raise NoNotebook(_NOT_JSON) from None
    except (ValueError, RecursionError):  # a number that is too long, lists nested too deep
        return None


class _Scanner:
    """The text of a JSON file, held one chunk at a time."""

    def __init__(self, file: BinaryIO) -> None:
        self._chunks = _in_utf_8(file)
        self._text = b""
        self._at = 0
        self._steps = 0
        self._kept: list[bytes] | None = None  # pieces of the current value; None while skipping
        self._room = 0

    # ---- values ------------------------------------------------------------------------------

    def peek(self) -> bytes:
        """Return the next byte that is not white space, b"" at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()
            if self._at < len(self._text):
                return self._text[self._at : self._at + 1]
            if not self._more():
                return b""

    def members(self) -> Iterator[str]:
        """Yield the keys of the object that begins here; after each, the caller takes the value."""
        self._take(b"{")
        while self.peek() != b"}":
            if self.peek() != b'"':
                raise NoNotebook(_NOT_JSON)

            raw = self.value(_MOST_KEY_BYTES)
            key = "" if raw is None else _loaded(raw)
            self._take(b":")
            yield key
            if not self._comma(b"}"):
                break
        self._take(b"}")

    def items(self) -> Iterator[None]:
        """Yield once for each item of the list that begins here; each time, the caller takes the item."""
        self._take(b"[")
        while self.peek() != b"]":
            yield None
            if not self._comma(b"]"):
                break
        self._take(b"]")

    def value(self, most_bytes: int) -> bytes | None:
        """Return the raw value that begins here, None if it is longer than `most_bytes`."""
        self._kept, self._room = [], most_bytes
        self._pass()
        kept, self._kept = self._kept, None
        return None if kept is None else b"".join(kept)

    def skip(self) -> None:
        """Skip the value that begins here."""
        self._kept = None
        self._pass()

    # ---- scanning ------------------------------------------------------------------------------

    def _comma(self, end: bytes) -> bool:
        if self.peek() == end:
            return False
        self._take(b",")
        return True

    def _take(self, byte: bytes) -> None:
        if self.peek() != byte:
            raise NoNotebook(_NOT_JSON)
        self._at += 1

    def _pass(self) -> None:
        begins = self.peek()
        if begins == b'"':
            self._pass_string()
            return
        if begins in (b"[", b"{"):
            self._pass_brackets()
            return

        length = 0  # of a number or a word
        while True:
            end = _SCALAR.match(self._text, self._at).end()
            length += end - self._at
            self._to(end)
            if end < len(self._text) or not self._more():
                break
        if length == 0:
            raise NoNotebook(_NOT_JSON)

    def _to(self, place: int) -> None:
        if self._kept is not None and place > self._at:
            self._room -= place - self._at
            if self._room < 0:
                self._kept = None
            else:
                self._kept.append(self._text[self._at : place])
        self._at = place

    def _pass_string(self) -> None:
        self._to(self._at + 1)
        while True:
            self._to(_IN_STRING.match(self._text, self._at).end())
            if self._text[self._at : self._at + 1] == b'"':
                self._to(self._at + 1)
                return
            if not self._more():  # the rest may be half of an escape
                raise NoNotebook(_NOT_JSON)

    def _pass_brackets(self) -> None:
        depth = 0
        while True:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise NoNotebook("the file has more nested lists than any notebook: it is not a notebook of the course")

            if depth:
                self._to(_PASSED.match(self._text, self._at).end())
            if self._at == len(self._text):
                if not self._more():
                    raise NoNotebook(_NOT_JSON)
                continue

            opened = _OPENED.match(self._text, self._at)
            closed = _CLOSED.match(self._text, self._at)
            if opened:
                depth += opened.end() - self._at
                self._to(opened.end())
            elif closed:
                taken = min(depth, closed.end() - self._at)
                depth -= taken
                self._to(self._at + taken)
                if depth == 0:
                    return
            else:  # a string that continues in the next chunk
                self._pass_string()

    def _more(self) -> bool:
        chunk = next(self._chunks, b"")
        self._text = self._text[self._at :] + chunk
        self._at = 0
        return chunk != b""


def _in_utf_8(file: BinaryIO) -> Iterator[bytes]:
    """Yield the file in chunks of UTF-8, without its byte order mark; a UTF-16 mark has it recoded."""
    chunk = file.read(CHUNK_BYTES)
    if chunk[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        chunk = chunk.removeprefix(codecs.BOM_UTF8)
        while chunk:
            yield chunk
            chunk = file.read(CHUNK_BYTES)
        return

    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    while chunk:
        text = decoder.decode(chunk).encode("utf-8", "replace")
        if text:
            yield text
        chunk = file.read(CHUNK_BYTES)
