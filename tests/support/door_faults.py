"""Small faults where rooms join, drawn from a seed: do the tests go through the doors, or only through the parts?

A fault is one edit in one line of code that hands something on: an override that goes, a name that leaves a list, an argument or
a variable of the environment that is no longer passed, a key of a file's format that one side spells otherwise, an option that a
command ignores. `python -m tests.support.door_faults 7 40` lists forty. Left out: faults within a function (`planted_faults`),
and running the tests (`power`).
"""

import ast
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeGuard

from typing_extensions import override

from tests.support.planted_faults import ROOMS

# where rooms join: the command line, grading, the course's files, what makes them, what starts ranks
PLACES = (
    "cli", "grade/inside", "grade/outside", "grade/marking", "grade/isolation", "grade/reports", "grade/nbgrader",
    "grade/gradescope", "grade/exam", "course", "authoring", "engines", "launch", "lab", "ranks", "notebook.py",
    "checks/simulated_arena.py", "checks/confirming_arena.py", "checks/arena.py", "checks/__init__.py",
)  # fmt: skip
KINDS = ("override", "list of names", "argument", "environment", "format", "option")
_LIST_NAMES = re.compile(r"[\w./*-]{3,}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
_KEY = re.compile(r"[a-z][a-z_]{2,}")
# edits that change no behaviour, or that end processes and files of others
_QUIET = re.compile(r"help|title|label|alt|caption|words|color|style|timeout|limit_s|width|echo|noqa|kill|rmtree|unlink")


@dataclass(frozen=True)
class DoorFault:
    """One edit: `old` becomes `new` in line `line` of a file, from 1, at byte `column` of the line, from 0."""

    kind: str
    path: str
    line: int
    column: int
    old: str
    new: str

    @property
    def room(self) -> str:
        """The room of the file, as `planted_faults.ROOMS` names it."""
        inside = PurePosixPath(self.path).relative_to("worldsize").with_suffix("").as_posix()
        rows = [(place, room) for room, (places, _) in ROOMS.items() for place in places if f"{inside}/".startswith(f"{place}/")]
        return max(rows, key=lambda row: len(row[0]))[1]

    @property
    def name(self) -> str:
        """The module's name: a fault may stand outside of every function."""
        return PurePosixPath(self.path).stem

    @override
    def __str__(self) -> str:
        return f"{self.path}:{self.line} ({self.kind}) {self.old!r} → {self.new!r}"

    def edited(self, source: str) -> str:
        """Return the source with the fault in it. Raises ValueError where the line is not what it was."""
        rows = source.splitlines(keepends=True)
        row, end = rows[self.line - 1].encode(), self.column + len(self.old.encode())
        if row[self.column : end].decode(errors="replace") != self.old:
            raise ValueError(f"{self}: expected {self.old!r} there")
        rows[self.line - 1] = (row[: self.column] + self.new.encode() + row[end:]).decode()
        return "".join(rows)


def choose(checkout: Path, seed: int, count: int) -> list[DoorFault]:
    """Draw `count` faults, as many of each kind as of the others where there are enough, and one a file and kind at most."""
    by_kind: dict[str, list[DoorFault]] = {kind: [] for kind in KINDS}
    for path in _files(checkout):
        for fault in _faults(path.relative_to(checkout).as_posix(), path.read_text()):
            by_kind[fault.kind].append(fault)

    draw = random.Random(seed)
    for found in by_kind.values():
        draw.shuffle(found)
    chosen: list[DoorFault] = []
    used: Counter[tuple[str, str]] = Counter()
    while len(chosen) < count and any(by_kind.values()):
        for kind in KINDS:
            while by_kind[kind] and len(chosen) < count:
                fault = by_kind[kind].pop()
                if not used[kind, fault.path]:
                    used[kind, fault.path] += 1
                    chosen.append(fault)
                    break
    return chosen


def _files(checkout: Path) -> Iterator[Path]:
    for place in PLACES:
        path = checkout / "worldsize" / place
        if path.is_file():
            yield path
        yield from sorted(path.rglob("*.py"))


def _faults(path: str, source: str) -> Iterator[DoorFault]:
    tree = ast.parse(source)
    rows = source.splitlines()
    for node in ast.walk(tree):
        for kind, place, new in _edits(node, path):
            if place.lineno != place.end_lineno or _QUIET.search(rows[place.lineno - 1]):
                continue
            old = rows[place.lineno - 1].encode()[place.col_offset : place.end_col_offset].decode()
            fault = DoorFault(kind, path, place.lineno, place.col_offset, old, new)
            if _is_another_program(fault, source):
                yield fault


@dataclass(frozen=True)
class _Place:
    """A part of a line that is no node of its own."""

    lineno: int
    col_offset: int
    end_lineno: int
    end_col_offset: int


def _edits(node: ast.AST, path: str) -> Iterator[tuple[str, ast.expr | ast.stmt | _Place, str]]:
    """Yield (kind, the text's place, the new text) of every fault that a node may have."""
    if isinstance(node, ast.FunctionDef) and any(getattr(one, "id", "") == "override" for one in node.decorator_list):
        if len(node.args.args) == 1 and len(node.body) == 1 and isinstance(node.body[0], ast.Return):
            yield "override", node.body[0], "return super()." + node.name + "()"
        name = _Place(node.lineno, node.col_offset + len("def "), node.lineno, node.col_offset + len(f"def {node.name}"))
        yield "override", name, f"{node.name}_as_before"
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        texts = [one for one in node.elts if _is_text(one, _LIST_NAMES)]
        if len(texts) == len(node.elts) >= 3:
            for one in texts:
                yield "list of names", one, repr(one.value + "_")
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if _is_text(key, _VARIABLE):
                yield "environment", key, repr("NOT_" + key.value)
            elif _is_text(key, _KEY) and not isinstance(value, ast.Constant):
                yield "format", key, repr(key.value + "_")
    if isinstance(node, ast.Subscript) and _is_text(node.slice, _KEY) and isinstance(node.ctx, ast.Load):
        yield "format", node.slice, repr(node.slice.value + "_")
    if isinstance(node, ast.Call):
        for given in node.keywords:
            if given.arg and _VARIABLE.fullmatch(given.arg):
                name = _Place(given.lineno, given.col_offset, given.lineno, given.col_offset + len(given.arg))
                yield "environment", name, f"NOT_{given.arg}"
            elif given.arg and not isinstance(given.value, ast.Constant):
                kind = "option" if path.startswith("worldsize/cli/") else "argument"
                yield kind, given.value, "None"
        if path.startswith("worldsize/cli/") and isinstance(node.func, ast.Attribute):
            for one in node.args:
                if isinstance(one, ast.Name):
                    yield "option", one, "None"


def _is_text(node: ast.AST | None, pattern: re.Pattern[str]) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and pattern.fullmatch(node.value) is not None


def _is_another_program(fault: DoorFault, source: str) -> bool:
    try:
        return ast.dump(ast.parse(fault.edited(source))) != ast.dump(ast.parse(source))
    except (SyntaxError, ValueError):
        return False


if __name__ == "__main__":
    for each in choose(Path(__file__).resolve().parents[2], int(sys.argv[1]), int(sys.argv[2])):
        print(each)
