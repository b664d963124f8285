"""The rules of the type checker: it finds nothing, it would have found each kind of mistake, and exceptions have reasons.

`pyproject.toml` has the rules. A further rule that mypy has no word for: a private name is overridden in its own room only.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "worldsize"
# What bit us, and its relatives: a line with a mistake names the mistake's kind, a line without is right.
MISTAKES = '''
"""A base class and a subclass."""
import worldsize.launch.no_such_module  # import-not-found
from typing_extensions import override
from worldsize.launch.run import NoSuchRun  # attr-defined
from worldsize.units import count


class Base:
    def begin(self, rank: int) -> None: ...

    def end(self) -> None: ...


class Subclass(Base):
    @override
    def begin(self, rank: int) -> None: ...

    def end(self) -> None: ...  # explicit-override

    @override
    def renamed_in_the_base(self) -> None: ...  # misc


class OtherSignature(Base):
    @override
    def begin(self, rank: int, host: str) -> None: ...  # override


def calls():
    Base().begin(1)
    Base().begin(1, 2)  # call-arg
    Base().begin(number=1)  # call-arg
    count(1)  # call-arg
    Base().begun  # attr-defined
    nowhere  # name-defined
    Base().begin(2)  # type: ignore[call-arg]  # unused-ignore
'''


def _mypy(*arguments: str | Path) -> str:
    """Run mypy by the house's rules, which stand in pyproject.toml; return its complaints, "" if there are none."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=ROOT)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def test_the_type_checker_finds_nothing() -> None:
    assert _mypy() == ""


def test_the_type_checker_would_find_each_kind_of_mistake_and_no_other_line(tmp_path: Path) -> None:
    program = tmp_path / "mistakes.py"
    program.write_text(MISTAKES)
    found = re.findall(r"mistakes\.py:(\d+): error: .*\[([\w-]+)\]$", _mypy(program), re.MULTILINE)

    lines = enumerate(MISTAKES.splitlines(), start=1)
    expected = [(str(number), line.rpartition("# ")[2]) for number, line in lines if re.search(r"  # [\w-]+$", line)]
    assert sorted(found, key=lambda one: int(one[0])) == expected


def test_an_exception_from_the_type_checker_has_its_reason_beside_it() -> None:
    without = []
    for program in (*PACKAGE.rglob("*.py"), *(ROOT / "tests" / "support").rglob("*.py")):
        for number, line in enumerate(program.read_text().splitlines(), start=1):
            if "# type: ignore" in line and not re.search(r"  # type: ignore\[[\w-]+\]  # \S.{5,}$", line):
                without.append(f"{program.relative_to(ROOT)}:{number}")
    assert without == []


class _Words(ast.NodeVisitor):
    """The strings of `Literal` types in what is visited, and all other strings."""

    def __init__(self) -> None:
        self.of_types: set[str] = set()
        self.others: set[str] = set()

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if ast.unparse(node.value) != "Literal":
            self.generic_visit(node)
            return
        for inner in ast.walk(node.slice):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                self.of_types.add(inner.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.others.add(node.value)


def test_every_word_of_a_literal_type_is_said_somewhere() -> None:
    """The type checker lets any string into a `Literal`: a misspelt word, or one that nothing says any more, shows here."""
    words = _Words()
    for module in PACKAGE.rglob("*.py"):
        words.visit(ast.parse(module.read_text()))
    assert words.of_types - words.others == set()


@dataclass(frozen=True)
class Heir:
    """A class of the package: its room, the names of its bases, and its private names.

    A name that ends in an underscore as well, such as `_repr_html_`, is a public one of IPython's.
    """

    room: str
    bases: tuple[str, ...]
    private: frozenset[str]


def _heirs(folder: Path) -> dict[str, Heir]:
    """Return every class below `folder` by its name, which no other class has."""
    found = {}
    for module in folder.rglob("*.py"):
        room = module.relative_to(folder).parts[0]
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = tuple(ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
                private = frozenset(name for name in _names(node) if name.startswith("_") and not name.endswith("_"))
                found[node.name] = Heir(room, bases, private)
    return found


def _names(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names that a class gives: its methods, its attributes, and the attributes that its methods set."""
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield statement.name
        elif isinstance(statement, ast.AnnAssign):
            yield ast.unparse(statement.target)
        elif isinstance(statement, ast.Assign):
            yield from (ast.unparse(target) for target in statement.targets)

    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and ast.unparse(inner.value) == "self":
            yield inner.attr


def _overridden_from_elsewhere(folder: Path) -> set[str]:
    """Return each private name that a class shares with a class above it in another room: "room.Class._name"."""
    heirs, found = _heirs(folder), set()
    for name, heir in heirs.items():
        above, bases = set(), list(heir.bases)
        while bases:
            base = bases.pop()
            if base in heirs and base not in above:
                above.add(base)
                bases += heirs[base].bases
        for base in above:
            if heirs[base].room != heir.room:
                found |= {f"{heir.room}.{name}.{private}" for private in heir.private & heirs[base].private}
    return found


def test_no_private_name_is_overridden_in_another_room() -> None:
    assert _overridden_from_elsewhere(PACKAGE) == set()


def test_a_private_name_overridden_in_another_room_would_be_found(tmp_path: Path) -> None:
    classes = {
        "launch/run": "class Base:\n    _kind = 0\n    def _new(self): ...\n    def _repr_html_(self): self._count = 0",
        "launch/near": "class Near(run.Base):\n    def _new(self): ...",
        "simulate/far": "class Far(Near):\n    _kind = 1\n    def _new(self): self._count = 1\n    def _repr_html_(self): ...",
        "simulate/apart": "class Apart(Base):\n    def _its_own(self): ...",
    }
    for module, text in classes.items():
        (tmp_path / module).parent.mkdir(exist_ok=True)
        (tmp_path / f"{module}.py").write_text(text)
    assert _overridden_from_elsewhere(tmp_path) == {"simulate.Far._count", "simulate.Far._kind", "simulate.Far._new"}
