"""Functions, classes and imports that a cell names, which travel from the notebook to the ranks with that cell.

Definitions travel as source text and are executed on the ranks, with the ranks' own data. The newest cell that defines a
name counts; whatever a definition names travels too. Data does not travel: push it.
"""

import ast
import builtins
import functools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from worldsize.engines.ranks.cell_work import Definition

_TENSORFLOW = ("tensorflow", "keras", "tf_keras")
_FRONT = "worldsize.notebook"  # it starts processes: ranks import the original modules instead


@dataclass(frozen=True)
class Cell:
    """A cell that ran in the notebook: its text, and its file name as Python knows it."""

    text: str
    file: str


@dataclass(frozen=True)
class Along:
    """The definitions that travel with a cell, in the notebook's order, and the names of data it uses that stay behind."""

    definitions: tuple[Definition, ...] = ()
    in_notebook: frozenset[str] = frozenset()


def along(text: str, space: Mapping[str, Any], cells: Sequence[Cell]) -> Along:
    """Return what the cell `text` needs from a notebook with namespace `space`, in which `cells` ran, newest last.

    Raises ValueError if that includes TensorFlow. Text that is not Python needs nothing: the ranks report the error.
    """
    _refuse_tensorflow(imported_in(text))
    known = _definitions(tuple(cells))
    chosen: dict[str, tuple[int, Definition]] = {}
    data: set[str] = set()

    todo = sorted(names_used(text))
    seen = set(todo)
    while todo:
        name = todo.pop()
        row = _definition_of(name, space, known)
        if row is None:
            if name in space and not hasattr(builtins, name):
                data.add(name)
            continue

        chosen[name] = row
        more = names_used(row[1].text) - seen
        seen |= more
        todo += sorted(more)

    rows = sorted(chosen.values(), key=lambda row: row[0])
    unique = list(dict.fromkeys(definition for _, definition in rows))
    return Along(tuple(unique), frozenset(data))


def _definition_of(
    name: str, space: Mapping[str, Any], known: Mapping[str, tuple[int, Definition]]
) -> tuple[int, Definition] | None:
    if name not in space:
        return None

    value, statement = space[name], ""
    home = getattr(value, "__module__", None)
    if isinstance(value, ModuleType):
        home = value.__name__
        statement = f"import {home}" if home == name else f"import {home} as {name}"
    elif isinstance(value, (FunctionType, BuiltinFunctionType, type)):
        own_name = getattr(value, "__qualname__", "")
        by_name = home not in (None, "__main__") and own_name.isidentifier()
        if by_name and getattr(sys.modules.get(home), own_name, None) is value:
            statement = f"from {home} import {own_name} as {name}"

    if statement:
        _refuse_tensorflow({home})
        return -1, Definition((name,), statement, "<import>", 1)  # -1: imports come before every definition of a cell

    row = known.get(name)
    if row is None or _FRONT in row[1].text:
        return None
    _refuse_tensorflow(imported_in(row[1].text))
    return row


@functools.lru_cache(maxsize=4)
def _definitions(cells: tuple[Cell, ...]) -> dict[str, tuple[int, Definition]]:
    """Return, by name, the newest top-level definition in the notebook's cells, with its position."""
    definitions: dict[str, tuple[int, Definition]] = {}
    place = 0
    for cell in cells:
        for definition in _of_cell(cell):
            place += 1
            definitions.update(dict.fromkeys(definition.names, (place, definition)))
    return definitions


@functools.lru_cache(maxsize=500)
def _of_cell(cell: Cell) -> tuple[Definition, ...]:
    try:
        tree = ast.parse(cell.text)
    except (SyntaxError, ValueError):
        return ()

    lines = cell.text.splitlines(keepends=True)
    rows: list[Definition] = []

    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            text = "".join(lines[first - 1 : node.end_lineno])
            rows.append(Definition((node.name,), text, cell.file, first))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                statement = f"import {alias.name} as {alias.asname}" if alias.asname else f"import {alias.name}"
                if isinstance(node, ast.ImportFrom):
                    statement = f"from {'.' * node.level}{node.module or ''} {statement}"
                rows.append(Definition((bound,), statement, cell.file, node.lineno))
    return tuple(rows)


@functools.lru_cache(maxsize=500)
def names_used(text: str) -> frozenset[str]:
    """Return the names that a text reads, inside functions and classes too; none if it is not valid Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return frozenset()

    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


def imported_in(text: str) -> frozenset[str]:
    """Return the modules that a text imports, at any level."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return frozenset()

    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
    return frozenset(modules)


def _refuse_tensorflow(modules: frozenset[str] | set[str]) -> None:
    for module in sorted(modules):
        if module.partition(".")[0] in _TENSORFLOW or module.startswith("worldsize.tf"):
            raise ValueError(
                f"open ranks run torch only: expected a cell without TensorFlow, got one that needs {module}. Launch "
                f"TensorFlow's tasks: from worldsize.tf import Cluster, launch"
            )
