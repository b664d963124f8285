"""The rules of the house that a program can check: order of imports, sizes, docstrings, what importing costs."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "worldsize").rglob("*.py"))
SOURCES = sorted((ROOT / "solutions").glob("*.py"))
PROGRAMS = sorted(path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py"))
OURS = {path.stem for path in PROGRAMS} | {path.parent.name for path in PROGRAMS}
DISTRIBUTIONS = importlib.metadata.packages_distributions()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAX_LINES = 400
# Modules that only instructors or contributors run, and so may import what the extra `instructor` brings.
FOR_INSTRUCTORS = ("worldsize/authoring/", "worldsize/grade/nbgrader/", "worldsize/grade/reports/similarity")
# Words that belong to one person's machine or network, not to the project.
PRIVATE = ("/home/", "/root/", "pypi" ".org", "index-url", "find-links")


def _name(module: Path) -> str:
    return str(module.relative_to(ROOT))


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _imported(module: Path) -> set[str]:
    """Top-level names that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_imports_point_one_way() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--quiet", "."]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_a_module_is_read_in_one_sitting(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= MAX_LINES


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_a_module_says_what_it_is(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text())), f"{_name(module)} has no docstring"


def _undeclared(module: Path, *extras: str) -> list[str]:
    """What a module imports that is not ours, not Python's, and in no list that it may use."""
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    allowed = {canonicalize_name(Requirement(text).name) for texts in lists for text in texts}
    names = _imported(module) - sys.stdlib_module_names - {"worldsize", *OURS}
    # a name that is not installed is one that a test makes for itself, or it fails by itself
    brought_by = {n: {canonicalize_name(found) for found in DISTRIBUTIONS[n]} for n in names if n in DISTRIBUTIONS}
    return [name for name, found in brought_by.items() if not found & allowed]


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_what_a_module_imports_is_a_dependency(module: Path) -> None:
    extras = ["instructor"] if _name(module).startswith(FOR_INSTRUCTORS) else []
    assert _undeclared(module, *extras) == []


@pytest.mark.parametrize("source", SOURCES, ids=_name)
def test_what_a_lab_imports_is_a_dependency(source: Path) -> None:
    assert _undeclared(source) == []


@pytest.mark.parametrize("program", PROGRAMS, ids=_name)
def test_what_a_test_or_a_bench_imports_is_a_dependency(program: Path) -> None:
    assert _undeclared(program, "instructor", "dev") == []


def test_no_module_of_the_package_uses_pyplot() -> None:
    using = [_name(module) for module in MODULES if "pyplot" in _code(module)]
    assert using == []


def _code(module: Path) -> str:
    """The module's source without comments and docstrings, which may name what they forbid."""
    tree = ast.parse(module.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
    return ast.unparse(tree)


def test_importing_the_package_imports_nothing_else() -> None:
    loaded = _python("import sys; before = set(sys.modules); import worldsize; print(*(set(sys.modules) - before))")
    assert loaded.split() == ["worldsize"]


@pytest.mark.parametrize("heavy", ["torch", "tensorflow", "numpy", "matplotlib", "IPython", "papermill", "nbgrader"])
def test_the_command_line_starts_without(heavy: str) -> None:
    assert _python(f"import sys, worldsize.cli; print({heavy!r} in sys.modules)").strip() == "False"


def _files_of_the_repository() -> list[Path]:
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT)
    if listed.returncode:
        pytest.skip("this copy is no git repository")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_the_repository_names_no_private_place() -> None:
    texts = {".py", ".md", ".toml", ".txt", ".yml", ".js", ".ipynb", ""}
    found = [
        f"{_name(path)}: {word}"
        for path in _files_of_the_repository()
        if path.suffix in texts and path != Path(__file__).resolve()
        for word in PRIVATE
        if word in path.read_text(encoding="utf-8")
    ]
    assert found == []
