"""Read the cells of a notebook's bytes: type, source, id and metadata, and nothing else.

`json` reads a small file, with NaN and half characters. In a larger one msgspec passes over outputs, attachments and the
notebook's own metadata without holding them, so that 50 MB of outputs cost no memory beside the file's bytes.
"""

import codecs
import json
from typing import Any

import msgspec

MOST_CELLS = 20_000
CLEARED = (
    "Clear its outputs (in JupyterLab: Kernel > Restart Kernel and Clear Outputs of All Cells), save it, and hand it in again"
)
_SMALL_BYTES = 10_000_000  # `json` takes up to ten times a file's size
# of a large file: of each value, and of all together
_MOST_BYTES = {"cell_type": 2_000, "id": 2_000, "metadata": 200_000, "source": 4_000_000, "input": 4_000_000}
_MOST_KEPT_BYTES = 20_000_000
_TOO_DEEP = f"the file has lists in lists deeper than any notebook. {CLEARED}"


class NoNotebook(ValueError):
    """A file that is not a notebook; the message says why."""


class _Worksheet(msgspec.Struct):
    cells: list[msgspec.Raw] | None = None


class _LargeNotebook(msgspec.Struct):
    """A notebook with its cells not parsed yet; formats before 4 have them in `worksheets`."""

    cells: list[msgspec.Raw] | None = None
    worksheets: list[_Worksheet] | None = None


def rows(data: bytes) -> list[dict[str, Any]]:
    """Return the cells in a notebook file of any format, each as an object with the keys of `_MOST_BYTES` alone.

    In a large file, a value that is longer than `_MOST_BYTES` is None. Raises NoNotebook for what is not a notebook.
    """
    data = _in_utf_8(data)
    if not data:
        raise NoNotebook("the file is empty: it is not a notebook, or only part of one")

    try:
        cells = _of_small(data) if len(data) <= _SMALL_BYTES else _of_large(data)
    except RecursionError:
        raise NoNotebook(_TOO_DEEP) from None
    if cells is None:
        raise NoNotebook("the file is JSON, but it has no list of cells: it is not a notebook")
    if len(cells) > MOST_CELLS:
        raise NoNotebook(f"the file has more than {MOST_CELLS} cells: it is not a notebook of the course")
    return cells


def _in_utf_8(data: bytes) -> bytes:
    """Return a notebook file's text without byte order mark and end; a UTF-16 mark has it recoded."""
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        data = data.decode("utf-16", "replace").encode("utf-8", "replace")
    return data.removeprefix(codecs.BOM_UTF8).rstrip(b"\0 \t\r\n")


def _of_small(data: bytes) -> list[dict[str, Any]] | None:
    try:
        notebook = json.loads(data.decode("utf-8", "replace"))
    except ValueError as error:  # a JSONDecodeError, or a number of too many digits
        kind = type(error).__name__
        raise NoNotebook(f"the file is not JSON ({kind}): it is not a notebook, or only part of one") from None

    if not isinstance(notebook, dict):
        return None
    cells, worksheets = notebook.get("cells"), notebook.get("worksheets")
    if not isinstance(cells, list) and isinstance(worksheets, list) and worksheets and isinstance(worksheets[0], dict):
        cells = worksheets[0].get("cells")
    if not isinstance(cells, list):
        return None
    return [{key: cell[key] for key in _MOST_BYTES if key in cell} for cell in cells if isinstance(cell, dict)]


def _of_large(data: bytes) -> list[dict[str, Any]] | None:
    try:
        notebook = msgspec.json.decode(data, type=_LargeNotebook)
        cells = notebook.cells
        if cells is None and notebook.worksheets:
            cells = notebook.worksheets[0].cells
        if cells is None:
            return None
        kept = [_kept_of_cell(cell) for cell in map(memoryview, cells) if cell[:1] == b"{"]
        kept_bytes = sum(len(raw) for row in kept for raw in row.values())
        if kept_bytes <= _MOST_KEPT_BYTES:
            return [{key: json.loads(bytes(raw)) for key, raw in row.items()} for row in kept]
    except (msgspec.DecodeError, ValueError) as error:
        raise NoNotebook(
            f"the file has {len(data) / 1e6:.0f} MB and is not strict JSON ({type(error).__name__}): it is not a notebook, only "
            f"part of one, or an output holds NaN or half a character. {CLEARED}"
        ) from None
    raise NoNotebook(f"the file has {kept_bytes / 1e6:.0f} MB of cells besides its outputs: it is not a notebook of the course")


def _kept_of_cell(cell: memoryview) -> dict[str, memoryview]:
    """Return the values of a notebook file's cell that are kept, as JSON; null for one that is too long."""
    kept = {}
    values = msgspec.json.decode(cell, type=dict[str, msgspec.Raw])
    for key, most_bytes in _MOST_BYTES.items():
        if key in values:
            raw = memoryview(values[key])
            kept[key] = raw if len(raw) <= most_bytes else memoryview(b"null")
    return kept
