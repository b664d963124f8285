"""Find an exercise's cell in a submitted notebook by its name, title or function, and rejoin a cell that was split.

Cells belong together if their joined text parses and defines the exercise's functions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from worldsize.grade.course import Exercise
from worldsize.lab.graded_cells import defines, lines_of
from worldsize.lab.python_cell import MAX_CELL_CHARACTERS, python_cell
from worldsize.lab.statements import parsed
from worldsize.titles import title_of

_MOST_NEIGHBOURS = 3
_BREAKPOINT = re.compile(r"^[^#\n]*\b(?:breakpoint|set_trace)[ \t]*\(", re.MULTILINE)


@dataclass(frozen=True)
class NotebookCell:
    """A cell, as far as it could be read. `grade_id` and `id` are "" if absent."""

    kind: str
    source: str
    id: str
    grade_id: str
    points: object = None
    graded: bool = False


FoundBy = Literal["name", "title", "what it says", "nothing"]


@dataclass(frozen=True)
class FoundCell:
    """The parts of an exercise's cell, by index among the notebook's code cells; () if there is no such cell.

    `copies` are further cells with its name or title.
    """

    parts: tuple[int, ...]
    source: str | None
    by: FoundBy
    copies: tuple[int, ...] = ()


def found_cell(exercise: Exercise, code: Sequence[NotebookCell], names: Collection[str]) -> FoundCell:
    """Find the exercise's cell among a notebook's `code` cells. `names` are the ids of the lab's exercises and checks."""
    function = exercise.functions[0]
    titles = [title_text(cell.source) for cell in code]
    named, titled, unnamed = [], [], set()
    for k, cell in enumerate(code):
        if exercise.id in (cell.grade_id, cell.id):
            named.append(k)
        if titles[k] == exercise.title:
            titled.append(k)
        if not {cell.id, cell.grade_id}.intersection(names):
            unnamed.add(k)

    by: FoundBy = "name"
    if not named:
        by, named = "title", titled
    if not named:
        by = "what it says"
        named = [k for k, cell in enumerate(code) if defines(cell.source, function)]
    if not named:
        return FoundCell((), None, "nothing")

    # when a cell is split, the upper half has the title and the lower half the name
    halves = unnamed.intersection(titled)
    named = sorted({*named, *(k for k in halves if not defines(code[k].source, function))})
    free = {*halves, *(k for k in unnamed if not titles[k])} - set(named)

    parts = _together(exercise, code, named)
    if not _whole(exercise, _joined(code, parts)):
        parts = _with_neighbours(exercise, code, parts, free)
    parts = _with_what_goes_on(code, parts, free)
    return FoundCell(tuple(parts), _joined(code, parts), by, tuple(k for k in named if k not in parts))


def title_text(source: str) -> str:
    if source.lstrip().startswith("%%"):
        source = python_cell(source).text
    title = title_of(source)
    return str(title) if title else ""


def raises_not_yet(source: str) -> bool:
    """Return whether a cell itself raises NotYet, as a stub does; False if Python cannot parse it."""
    if len(source) > MAX_CELL_CHARACTERS:
        return False
    tree = parsed(source)
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.Raise(exc=ast.Name(id="NotYet") | ast.Call(func=ast.Name(id="NotYet"))):
                return True
    return False


def breakpoint_line(source: str) -> int:
    """Return the number of the first line with `breakpoint()` or `pdb.set_trace()`, 0 if there is none."""
    found = _BREAKPOINT.search(source)
    return source.count("\n", 0, found.start()) + 1 if found else 0


def _together(exercise: Exercise, code: Sequence[NotebookCell], named: list[int]) -> list[int]:
    """Return all cells of one name if they are halves of one cell, else the best of the copies."""
    whole = [k for k in named if defines(code[k].source, exercise.functions[0])]
    if len(named) > 1 and len(whole) <= 1 and _whole(exercise, _joined(code, named)):
        return named

    def worth(k: int) -> tuple[bool, bool, int]:
        """Return a sort key: an edited cell is best, then the cell with the exercise's own id, then the last."""
        return lines_of(code[k].source) not in ([], lines_of(exercise.stub)), code[k].id == exercise.id, k

    return [max(whole or named, key=worth)]


def _with_neighbours(exercise: Exercise, code: Sequence[NotebookCell], parts: list[int], free: set[int]) -> list[int]:
    """Add the fewest adjacent cells that complete `parts`; return `parts` if none do."""
    after = _run_of(range(parts[-1] + 1, len(code)), free)
    before = _run_of(range(parts[0] - 1, -1, -1), free)
    ways = [(a, b) for a in range(len(after) + 1) for b in range(len(before) + 1)]
    for a, b in sorted(ways, key=sum):
        longer = [*before[:b][::-1], *parts, *after[:a]]
        if _whole(exercise, _joined(code, longer)):
            return longer
    return parts


def _with_what_goes_on(code: Sequence[NotebookCell], parts: list[int], free: set[int]) -> list[int]:
    """Add the cells below that do not parse alone, but do as the end of this one."""
    for k in _run_of(range(parts[-1] + 1, len(code)), free):
        source = code[k].source
        is_no_cell = source.strip() and (source.startswith((" ", "\t")) or not _parses(source))  # IPython strips an indent
        if not (is_no_cell and _parses(_joined(code, [*parts, k]))):
            break
        parts = [*parts, k]
    return parts


def _run_of(places: range, free: set[int]) -> list[int]:
    found = []
    for k in places[:_MOST_NEIGHBOURS]:
        if k not in free:
            break
        found.append(k)
    return found


def _joined(code: Sequence[NotebookCell], parts: Sequence[int]) -> str:
    return "\n".join(code[k].source for k in parts)


def _whole(exercise: Exercise, source: str) -> bool:
    return _parses(source) and all(defines(source, name) for name in exercise.functions)


def _parses(source: str) -> bool:
    # a cell over the limit is not parsed, and is taken as it is
    return len(source) > MAX_CELL_CHARACTERS or parsed(source) is not None
