"""Functions, classes, imports and constants that a cell names, which travel from the notebook to the ranks with that cell.

Definitions travel as source text and are executed on the ranks, with the ranks' own data. The newest cell that defines a
name counts; whatever a definition names travels too. A constant is a name in capitals that still has the value written in its
cell (PEP 8, "Constants"). Other data does not travel: push it.
"""

import ast
import builtins
import functools
import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from worldsize.engines.ranks.cell_work import Definition

_TENSORFLOW = ("tensorflow", "keras", "tf_keras")
_WRITTEN = (
    ast.Constant, ast.Name, ast.Attribute, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.BinOp, ast.UnaryOp, ast.operator,
    ast.unaryop, ast.expr_context,
)  # fmt: skip
_FRONT = "worldsize.notebook"  # it starts processes: ranks import the original modules instead


@dataclass(frozen=True)
class Cell:
    """A cell that ran in the notebook, with definitions to travel: its text, and its file name as Python knows it."""

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
    if not _still_holds(name, row[1], space):
        return None
    _refuse_tensorflow(imported_in(row[1].text))
    return row


def _still_holds(name: str, definition: Definition, space: Mapping[str, Any]) -> bool:
    """Return False for a defined constant that the notebook has changed since."""
    statement = ast.parse(definition.text).body[0]
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return True
    try:
        written = eval(compile(ast.Expression(statement.value), "<constant>", "eval"), dict(space))
        return type(written) is type(space[name]) and bool(written == space[name])
    except Exception:  # a name of the constant is gone, or its values cannot be compared
        return False


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
        else:
            bound_here = _bound_by_block(node) if isinstance(node, (ast.If, ast.Try)) else _constants(node)
            if bound_here:
                text = "".join(lines[node.lineno - 1 : node.end_lineno])
                rows.append(Definition(tuple(bound_here), text, cell.file, node.lineno))
    return tuple(rows)


def _constants(node: ast.stmt) -> list[str]:
    """Return the names in capitals that a definition binds to a written value."""
    return [name for name in _assigned(node) if name.isupper()]


def _assigned(node: ast.stmt) -> list[str]:
    """Return the names that a definition assigns a written value, if it does no more than that."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        targets: list[ast.expr] = [node.target]
    elif isinstance(node, ast.Assign):
        targets = node.targets
    else:
        return []
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return names if len(names) == len(targets) and node.value is not None and _is_written(node.value) else []


def _is_written(value: ast.expr) -> bool:
    """Return whether a constant's definition is made of literals, constants and attributes such as `torch.bfloat16`; no call."""
    return all(isinstance(part, _WRITTEN) for part in ast.walk(value))


def _bound_by_block(node: ast.If | ast.Try) -> list[str]:
    """Return the names that a block binds, such as an import with a stand-in for where it fails; [] if the block does more."""
    names: list[str] = []
    blocks = [node.body, node.orelse]
    if isinstance(node, ast.Try):
        blocks += [*(handler.body for handler in node.handlers), node.finalbody]

    for statement in itertools.chain.from_iterable(blocks):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound = [statement.name]
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            bound = [alias.asname or alias.name.partition(".")[0] for alias in statement.names]
        elif isinstance(statement, (ast.If, ast.Try)):
            bound = _bound_by_block(statement)
        else:
            bound = _assigned(statement)
        if not bound and not isinstance(statement, ast.Pass):
            return []
        names += bound
    return list(dict.fromkeys(names))


@functools.lru_cache(maxsize=500)
def names_used(text: str) -> frozenset[str]:
    """Return the names that a cell's text reads, inside functions and classes too; none if it is not valid Python."""
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
    """Return the modules that a cell's text imports, at any level."""
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
