"""Small faults for the package, drawn from a seed: what a test suite is worth is how many of them it finds.

A fault is one edit of one line of a function that two checkouts have in common, so that their suites can be compared. Left
out: running the tests (`power`), and faults in words, colours, time limits and annotations, which no behaviour shows.
The operators are those of mutation testing: R. A. DeMillo, R. J. Lipton and F. G. Sayward, Computer 11(4), 1978.
"""

import ast
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

# a room: what it is of `worldsize/`, and which tests are its own
ROOMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "vocabulary": (
        ("arrays", "data", "failures", "files", "links", "machine", "report", "titles", "trace", "units", "errors", "doctor"),
        ("tests/test_trace.py", "tests/test_links.py", "tests/test_report.py", "tests/test_data.py", "tests/test_files.py",
         "tests/test_titles.py", "tests/test_doctor.py", "tests/launch"),
    ),
    "formulas": (("formulas",), ("tests/formulas",)),
    "fabric": (("fabric",), ("tests/fabric",)),
    "pytorch": (("pytorch",), ("tests/pytorch",)),
    "engines": (("engines",), ("tests/engines", "tests/hosts")),
    "hosts": (("hosts", "engines/remote"), ("tests/hosts",)),
    "launch": (("launch",), ("tests/launch",)),
    "simulate": (("simulate",), ("tests/simulate",)),
    "tf": (("tf",), ("tests/tf",)),
    "figures": (("figures",), ("tests/figures",)),
    "cells": (("cells",), ("tests/cells",)),
    "checks": (("checks",), ("tests/checks",)),
    "live": (("live",), ("tests/live",)),
    "lab": (("lab",), ("tests/lab",)),
    "notebook": (("notebook",), ("tests/test_notebook.py", "tests/lab")),
    "authoring": (("authoring",), ("tests/authoring", "tests/labs")),
    "grade": (("grade",), ("tests/grade",)),
    "cli": (("cli",), ("tests/test_cli.py", "tests/test_instructors.py")),
    "course": (("course",), ("tests/course",)),
    "ranks": (("ranks",), ("tests/ranks",)),
    "pages": (("pages",), ("tests/pages",)),
}  # fmt: skip

_QUIET_FUNCTION = re.compile(r"__repr__|__str__|words|message|caption|alt|render|log|progress|show|tell|style|colou?r")
_QUIET_CALL = re.compile(r"print|write|log|warn|info|debug|sleep|suppress|note|echo|__init__")
_QUIET_NAME = re.compile(r"(_s|_px|_ms|timeout|limit|width|height|size|indent|digits|retries|colou?r|alpha|pad|gap|dx|dy|x|y)$")
_LOUD = ("return", "arguments")  # any test that executes the line finds them
# lines that end processes or change files of others: a fault there may reach beyond the test
_RISKY = re.compile(r"kill|rmtree|unlink|remove|rmdir|chmod|chown|rename|replace\(|mount|signal|fork|setrlimit")
_MOST_CONSTANT = 16  # one more of 1,000 is seldom another behaviour
_FLIPPED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in", ast.NotIn: "in",
    ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_OTHER_OPERATION = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Mod: "//"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Fault:
    """One edit: `old` becomes `new` in line `line` of the body of the function `name`, docstring left out, at column `column`."""

    room: str
    path: str
    name: str
    kind: str
    line: int
    column: int
    old: str
    new: str
    at: int  # the line in the file from which it was drawn

    @override
    def __str__(self) -> str:
        return f"{self.path}:{self.at} ({self.kind}) {self.old} → {self.new}"

    def edited(self, source: str) -> str:
        """Return the source with the fault in it. Raises ValueError where the line is not what it was when it was drawn."""
        function = dict(_functions(ast.parse(source))).get(self.name)
        rows = source.splitlines(keepends=True)
        number = _body_starts(function) - 1 + self.line if function else 0
        row, end = rows[number].encode(), self.column + len(self.old.encode())
        if function is None or row[self.column : end].decode(errors="replace") != self.old:
            raise ValueError(f"{self}: expected {self.old!r} there")
        rows[number] = (row[: self.column] + self.new.encode() + row[end:]).decode()
        return "".join(rows)


def choose(one: Path, other: Path, seed: int, a_room: int, executed: dict[str, set[int]] | None = None) -> list[Fault]:
    """Draw `a_room` faults a room from the functions that both checkouts have, each in a function of its own.

    `executed` {path: lines of `one`} leaves out what no test of `one` executes.
    """
    found = []
    for room, (places, _) in ROOMS.items():
        draw = random.Random(f"{seed}/{room}")
        by_function = _candidates(room, _files(one, room, places), one, other, executed)
        names = sorted(by_function)
        draw.shuffle(names)
        kinds: Counter[str] = Counter()
        for name in names:
            if kinds.total() == a_room:
                break
            fault = _one_of(by_function[name], kinds, draw)
            if fault is not None and changes(one, fault):
                kinds[fault.kind] += 1
                found.append(fault)
    return found


def plant(checkout: Path, fault: Fault) -> None:
    """Write the fault into the checkout's file. Raises ValueError as `edited` does."""
    path = checkout / fault.path
    _write(path, fault.edited(path.read_text()))


def restore(checkout: Path, originals: dict[str, str]) -> None:
    for name, source in originals.items():
        _write(checkout / name, source)


_latest_s = [0]


def _write(path: Path, source: str) -> None:
    """Write a source with a time of its own: Python tells a stale `.pyc` by whole seconds and the size."""
    path.write_text(source)
    _latest_s[0] = max(_latest_s[0] + 1, int(time.time()) - 1_000_000)
    os.utime(path, (_latest_s[0], _latest_s[0]))


def _one_of(faults: list[Fault], kinds: Counter[str], draw: random.Random) -> Fault | None:
    """Draw a fault of a kind that the room has least of; a room has one of the loud kinds at most."""
    has_loud = any(kinds[kind] for kind in _LOUD)
    wanted = [fault for fault in faults if not (fault.kind in _LOUD and has_loud)]
    if not wanted:
        return None
    fewest = min(kinds[fault.kind] for fault in wanted)
    kind = draw.choice(sorted({fault.kind for fault in wanted if kinds[fault.kind] == fewest}))
    return draw.choice([fault for fault in wanted if fault.kind == kind])


def _files(checkout: Path, room: str, places: tuple[str, ...]) -> Iterator[Path]:
    for place in places:
        folder = checkout / "worldsize" / place
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
        yield from (file for file in files if file.exists() and not (room == "engines" and "hosts" in file.parts))


def _candidates(
    room: str, files: Iterator[Path], one: Path, other: Path, executed: dict[str, set[int]] | None
) -> dict[str, list[Fault]]:
    """{file and function: its faults}, of the functions that do the same in both checkouts."""
    found = {}
    for file in files:
        path = file.relative_to(one).as_posix()
        theirs = other / path
        if not theirs.exists():
            continue

        source, their_source = file.read_text(), theirs.read_text()
        others = dict(_functions(ast.parse(their_source)))
        for name, function in _functions(ast.parse(source)):
            twin = others.get(name)
            if not twin or _body(function, source) != _body(twin, their_source) or _QUIET_FUNCTION.search(function.name):
                continue
            faults = [
                Fault(room, path, name, kind, line - _body_starts(function), column, old, new, line)
                for kind, line, column, old, new in _edits(function, source)
                if executed is None or line in executed.get(path, ())
            ]
            if faults:
                found[f"{path}::{name}"] = faults
    return found


def _functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{within}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{within}{node.name}", node


def _body_starts(function: Function) -> int:
    """Return the number of the function's first line after its docstring."""
    return function.body[-1 if len(function.body) == 1 else ast.get_docstring(function) is not None].lineno


def _body(function: Function, source: str) -> tuple[str, list[str]]:
    """Return the function's arguments and the lines of its body: all that it does, whatever its docstring says."""
    return ast.dump(function.args), source.splitlines()[_body_starts(function) - 1 : function.end_lineno]


def _edits(function: Function, source: str) -> Iterator[tuple[str, int, int, str, str]]:
    """(kind, line, column, old, new) of every fault on one line that the function's body may have."""
    for kind, node, new in (edit for statement in function.body for edit in _of(statement)):
        row = source.splitlines()[node.lineno - 1].encode()
        if node.lineno == node.end_lineno and not _RISKY.search(row.decode()):
            yield kind, node.lineno, node.col_offset, row[node.col_offset : node.end_col_offset].decode(), new


def changes(checkout: Path, fault: Fault) -> bool:
    """Whether the fault is valid Python, and another program."""
    source = (checkout / fault.path).read_text()
    try:
        return ast.dump(ast.parse(fault.edited(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _of(node: ast.AST) -> Iterator[tuple[str, ast.stmt | ast.expr, str]]:
    """The faults of a node and of what it holds, but for words, assertions and annotations."""
    quiet = (ast.Raise, ast.Assert, ast.JoinedStr, ast.FunctionDef, ast.Import, ast.ImportFrom)
    if isinstance(node, quiet) or _is_quiet_call(node):
        return

    yield from _own(node)
    for name, value in ast.iter_fields(node):
        if name == "annotation" or (name in ("args", "decorator_list") and isinstance(node, ast.Lambda)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _names_a_quantity(node, child):
                yield from _of(child)


def _own(node: ast.AST) -> Iterator[tuple[str, ast.stmt | ast.expr, str]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
        yield "comparison", node, f"{left} {_FLIPPED[type(node.ops[0])]} {right}"
    elif isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield "and or or", node, "(" + word.join(f"({ast.unparse(value)})" for value in node.values) + ")"
    elif isinstance(node, ast.BinOp) and type(node.op) in _OTHER_OPERATION and not isinstance(node.left, ast.Constant):
        yield "operation", node, f"({ast.unparse(node.left)} {_OTHER_OPERATION[type(node.op)]} {ast.unparse(node.right)})"
    elif isinstance(node, (ast.If, ast.IfExp)):
        yield "condition", node.test, f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, ast.Constant) and type(node.value) is int and node.value <= _MOST_CONSTANT:
        yield "constant", node, str(node.value + 1)
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "return", node, "return None"
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield "statement", node, "pass"
    elif isinstance(node, ast.Call) and len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args):
        first, second = (ast.unparse(given) for given in node.args[:2])
        rest = [ast.unparse(given) for given in [*node.args[2:], *node.keywords]]
        yield "arguments", node, f"{ast.unparse(node.func)}({', '.join([second, first, *rest])})"


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, "")


def _is_quiet_call(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else node
    if isinstance(call, ast.Constant):
        return isinstance(call.value, str)
    return isinstance(call, ast.Call) and bool(_QUIET_CALL.search(ast.unparse(call.func).rpartition(".")[2]))


def _names_a_quantity(node: ast.AST, child: ast.AST) -> bool:
    """Whether `child` is the value of something like a time limit or a width: another number there is no other behaviour."""
    if isinstance(node, ast.keyword):
        return bool(_QUIET_NAME.search(node.arg or "")) and isinstance(child, ast.Constant)
    if isinstance(node, ast.Assign) and child is node.value:
        return isinstance(child, ast.Constant) and bool(_QUIET_NAME.search(ast.unparse(node.targets[0])))
    return False
