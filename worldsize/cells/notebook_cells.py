"""A notebook's cells as data: types, sources and names, read from JSON without trust.

None of a cell runs here. `as_python` reads a source as Python, `choice` decides which cells count.
"""

from dataclasses import dataclass
from typing import Any

from worldsize.cells.notebook_file import rows
from worldsize.units import text_of

MAX_CELL_BYTES = 500_000
_MOST_NAME = 200
_SHOWN = 60


@dataclass(frozen=True)
class NotebookCell:
    """A cell, as far as it could be read. `grade_id` and `id` are "" if absent, as in a kernel's history of what ran."""

    kind: str
    source: str
    id: str = ""
    grade_id: str = ""
    points: object = None
    graded: bool = False


@dataclass(frozen=True)
class AskedExercise:
    """An exercise whose cell is looked for in a notebook. `title` is "Exercise 6.3", `stub` the cell as released, "" if unknown.

    `functions` are the names that the exercise's check calls; the first is the one by which a cell without a name is found.
    """

    id: str
    title: str
    stub: str
    functions: tuple[str, ...]


def read(data: bytes) -> tuple[NotebookCell, ...]:
    """Return a notebook's cells, as data, from its file, of any format. Raises NoNotebook for what is not a notebook."""
    return tuple(map(_cell, rows(data)))


def _cell(row: dict[str, Any]) -> NotebookCell:
    about = _object(row.get("metadata"))
    ours = _object(about.get("nbgrader"))
    source = text_of(text(row) or text({"source": row.get("input", "")}), MAX_CELL_BYTES)
    points = ours.get("points")

    return NotebookCell(
        kind=text_of(row.get("cell_type"), _MOST_NAME),
        source=source.replace("\r\n", "\n").replace("\0", ""),
        id=text_of(row.get("id") or about.get("id"), _MOST_NAME),  # Colab keeps the id in the metadata
        grade_id=text_of(ours.get("grade_id"), _MOST_NAME),
        points=points if isinstance(points, (int, float, str, type(None))) else f"a {type(points).__name__}",
        graded=ours.get("grade") is True,
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def text(cell: dict[str, Any]) -> str:
    """Return a cell's source as one string; a notebook may store a string or a list of lines."""
    source = cell.get("source", "")
    if isinstance(source, list):
        return "".join(map(str, source))
    return source if isinstance(source, str) else ""


def lines_of(source: str) -> list[str]:
    """Return a cell's lines without trailing spaces and outer blank lines; equal lines mean the same cell."""
    return [line.rstrip() for line in source.strip().splitlines()]


def first_line(source: str) -> str:
    """Return a notebook cell's first line that is not blank, made printable."""
    return printable(next(filter(str.strip, source.splitlines()), ""))


def printable(line: str) -> str:
    """Return a line of a notebook's cell, shortened and with unprintable characters replaced."""
    return "".join(c if c.isprintable() else "?" for c in line.strip()[:_SHOWN])
