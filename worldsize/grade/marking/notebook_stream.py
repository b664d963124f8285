"""A notebook's file read as a stream: the cells' type, source, id and metadata, never what stands beside them.

Outputs, attachments and the notebook's own metadata may have any size: they are passed over, a chunk at a time, and
never held. Of what is passed over only the brackets and the quotes are looked at; what is kept is read by `json`.
Left out: what a cell means (`submission`).
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
_MOST_STEPS = 8_000_000  # through lists in lists: no notebook has as many, and it takes seconds
_MOST_KEY_BYTES = 400
_MOST_BYTES = {"cell_type": 2_000, "id": 2_000, "metadata": 200_000, "source": 4_000_000, "input": 4_000_000}

# CPython before 3.11.5 leaves what is repeated possessively in the middle of its last, failed turn (gh-106052); a last way
# that fails at once takes it back to where that turn began
_BACK = rb"|(?!)"
_INSIDE = rb'[^"\\]*+(?:\\.[^"\\]*+' + _BACK + rb")*+"  # of a string, up to its end or the chunk's
_STRING = rb'"' + _INSIDE + rb'"'
_PLAIN = rb'[^"\[\]{}]++|' + _STRING


def _with_lists(inside: bytes) -> bytes:
    return rb"(?:" + _PLAIN + rb"|[\[{]" + inside + rb"[\]}]" + _BACK + rb")*+"


_FLAT = rb"(?:" + _PLAIN + _BACK + rb")*+"
_PASSED = re.compile(rb"(?s)" + _with_lists(_with_lists(_with_lists(_FLAT))))  # lists up to three deep in one step
_OPENED = re.compile(rb"[\[{]++")
_CLOSED = re.compile(rb"[\]}]++")
_IN_STRING = re.compile(rb"(?s)" + _INSIDE)
_SCALAR = re.compile(rb'[^\s,:"\[\]{}]*+')
_SPACE = re.compile(rb"[ \t\r\n]*+")


class NoNotebook(ValueError):
    """What came is no notebook; the message says why."""


def rows(file: BinaryIO) -> list[dict[str, Any]]:
    """The cells of a notebook of any format, each as an object with the keys that count and no others.

    Of a key whose value is too long or too deep there is none. Raises NoNotebook where this is no notebook.
    """
    text = _Scanner(file)
    if text.peek() == b"":
        raise NoNotebook("the file is empty: it is no notebook, or only a part of one")

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
    text.expect_end()

    if found is None:
        found = older
    if found is None:
        raise NoNotebook("the file is JSON, but it has no list of cells: it is no notebook")
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
            raise NoNotebook(f"the file has more than {MOST_CELLS} cells: it is no notebook of the course")
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
            kept_bytes += len(raw or b"")
            if kept_bytes > MOST_KEPT_BYTES:
                raise NoNotebook(f"the file has more than {MOST_KEPT_BYTES / 1e6:.0f} MB of cells beside its outputs")
            row[key] = None if raw is None else _loaded(raw)
        found.append(row)
    return found


def _loaded(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        raise NoNotebook(_not_json(error)) from None
    except (ValueError, RecursionError):  # a number that is too long, lists in lists
        return None


def _not_json(error: Exception) -> str:
    return f"the file is no JSON ({type(error).__name__}): it is no notebook, or only a part of one"


class _Scanner:
    """The text of a JSON file, of which a chunk is held at a time."""

    def __init__(self, file: BinaryIO) -> None:
        self._chunks = _in_utf_8(file)
        self._text = b""
        self._at = 0
        self._steps = 0
        self._kept: list[bytes] | None = None  # what is being kept of a value, piece by piece
        self._room = 0

    # ---- values ------------------------------------------------------------------------------

    def peek(self) -> bytes:
        """The next byte that is no space, b"" at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()
            if self._at < len(self._text):
                return self._text[self._at : self._at + 1]
            if not self._more():
                return b""

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here; after each the caller takes its value."""
        self._take(b"{")
        while self.peek() != b"}":
            if self.peek() != b'"':
                raise self._wrong()

            raw = self.value(_MOST_KEY_BYTES)
            key = "" if raw is None else _loaded(raw)
            self._take(b":")
            yield key
            if not self._comma(b"}"):
                break
        self._take(b"}")

    def items(self) -> Iterator[None]:
        """Once for each item of the list that begins here; each time the caller takes it."""
        self._take(b"[")
        while self.peek() != b"]":
            yield None
            if not self._comma(b"]"):
                break
        self._take(b"]")

    def value(self, most_bytes: int) -> bytes | None:
        """The value that begins here, as it stands; None where it is longer."""
        self._kept, self._room = [], most_bytes
        self._pass()
        kept, self._kept = self._kept, None
        return None if kept is None else b"".join(kept)

    def skip(self) -> None:
        """Pass over the value that begins here."""
        self._kept = None
        self._pass()

    def expect_end(self) -> None:
        if self.peek() not in (b"", b"\0"):
            raise self._wrong()

    # ---- how -----------------------------------------------------------------------------------

    def _comma(self, end: bytes) -> bool:
        if self.peek() == end:
            return False
        self._take(b",")
        return True

    def _take(self, byte: bytes) -> None:
        if self.peek() != byte:
            raise self._wrong()
        self._at += 1

    def _wrong(self) -> NoNotebook:
        return NoNotebook(_not_json(json.JSONDecodeError("", "", 0)))

    def _pass(self) -> None:
        begins = self.peek()
        if begins == b'"':
            self._pass_string()
        elif begins in (b"[", b"{"):
            self._pass_brackets()
        else:
            self._pass_scalar()

    def _to(self, place: int) -> None:
        if self._kept is not None and place > self._at:
            self._room -= place - self._at
            if self._room < 0:
                self._kept = None
            else:
                self._kept.append(self._text[self._at : place])
        self._at = place

    def _pass_scalar(self) -> None:
        length = 0
        while True:
            end = _SCALAR.match(self._text, self._at).end()
            length += end - self._at
            self._to(end)
            if end < len(self._text) or not self._more():
                break
        if length == 0:
            raise self._wrong()

    def _pass_string(self) -> None:
        self._to(self._at + 1)
        while True:
            self._to(_IN_STRING.match(self._text, self._at).end())
            if self._text[self._at : self._at + 1] == b'"':
                self._to(self._at + 1)
                return
            if not self._more():  # what is left may be half of an escape
                raise self._wrong()

    def _pass_brackets(self) -> None:
        depth = 0
        while True:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise NoNotebook("the file has more lists in lists than any notebook: it is no notebook of the course")

            if depth:
                self._to(_PASSED.match(self._text, self._at).end())
            if self._at == len(self._text):
                if not self._more():
                    raise self._wrong()
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
            else:  # a string that goes on in the next chunk
                self._pass_string()

    def _more(self) -> bool:
        chunk = next(self._chunks, b"")
        self._text = self._text[self._at :] + chunk
        self._at = 0
        return chunk != b""


def _in_utf_8(file: BinaryIO) -> Iterator[bytes]:
    """The file in chunks, without its byte order mark, in UTF-8 where that says UTF-16."""
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
