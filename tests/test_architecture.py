"""The rules of the house that a program can check: order of imports, sizes, docstrings, what importing costs."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
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
MOST_AT_THE_TOP, MOST_IN_A_ROOM = 16, 24
# What a lab may import; a name with a dot and a star stands for the modules below it.
FACES = re.compile(
    r"worldsize\.(notebook|tf|launch|machine|data|simulate|hosts|fabric)|"
    r"worldsize\.(formulas|pytorch|tf)\.\w+|worldsize\.fabric\.(watched|collectives|background)"
)
# Tests that belong to no single room: a browser, GPUs, hosts, long campaigns, the course's notebooks; and what tests share.
OF_NO_ROOM = {"browser", "gpu", "soak", "labs", "support", "hosts"}
# What every process of a course may import, a kernel, a grader, a page of a report: there no framework is wanted.
LIGHT = ["cli", "checks", "checks.arena", "fabric", "figures", "formulas", "launch", "links", "tf", "trace"]
# Modules that only users of several machines, makers of the site, or instructors run, and so may import what these extras bring.
FOR_CLUSTERS = ("worldsize/engines/hosts/ways/",)
FOR_THE_SITE = ("worldsize/authoring/site/",)
FOR_INSTRUCTORS = ("worldsize/authoring/", "worldsize/grade/nbgrader/", "worldsize/grade/reports/similarity")
# Words that belong to one person's machine or network, not to the project.
PRIVATE = ("/home/", "/root/", "pypi" ".org", "index-url", "find-links")


def _name(module: Path) -> str:
    return str(module.relative_to(ROOT))


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _modules_imported(program: Path) -> list[str]:
    """The modules that a program may import, as far as its text tells: in `from a import b`, `a` and `a.b`."""
    found: list[str] = []
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def _imported(module: Path) -> set[str]:
    """Top-level names that a module imports, anywhere in it."""
    return {name.partition(".")[0] for name in _modules_imported(module)}


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
    extras += ["site"] if _name(module).startswith(FOR_THE_SITE) else []
    extras += ["cluster"] if _name(module).startswith(FOR_CLUSTERS) else []
    assert _undeclared(module, *extras) == []


@pytest.mark.parametrize("source", SOURCES, ids=_name)
def test_what_a_lab_imports_is_a_dependency(source: Path) -> None:
    assert _undeclared(source) == []


@pytest.mark.parametrize("program", PROGRAMS, ids=_name)
def test_what_a_test_or_a_bench_imports_is_a_dependency(program: Path) -> None:
    assert _undeclared(program, "cluster", "instructor", "dev") == []


def test_no_room_is_crowded() -> None:
    files = Counter(_name(module.parent) for module in MODULES)
    assert files.pop("worldsize") <= MOST_AT_THE_TOP
    assert {room: count for room, count in files.items() if count > MOST_IN_A_ROOM} == {}


def test_a_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(_name(module))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_tests_stand_in_the_rooms_of_what_they_test() -> None:
    rooms = {path.name for path in (ROOT / "worldsize").iterdir() if (path / "__init__.py").is_file()}
    folders = {path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").is_file()}
    assert folders - OF_NO_ROOM <= rooms


@pytest.mark.parametrize("program", PROGRAMS, ids=_name)
def test_no_test_imports_another(program: Path) -> None:
    assert [name for name in _modules_imported(program) if name.rpartition(".")[2].startswith("test_")] == []


@pytest.mark.parametrize("source", SOURCES, ids=_name)
def test_a_lab_imports_faces_only(source: Path) -> None:
    lines = re.findall(r"^ *(from worldsize[\w.]* import [\w*, ]+|import worldsize[\w.]*)", source.read_text(), re.MULTILINE)
    assert [line for line in lines if not _of_a_face(line)] == []


def _of_a_face(line: str) -> bool:
    """`from worldsize.formulas import cost` is a face's as `from worldsize.formulas.cost import message` is."""
    _, module, _, names = line.split(maxsplit=3)
    return FACES.fullmatch(module) is not None or all(
        FACES.fullmatch(f"{module}.{name.split()[0]}") for name in names.split(", ")
    )


def test_a_check_draws_from_what_its_arena_hands_in() -> None:
    """So that a grading can be replayed: no other source of chance, but a generator made from one."""
    drawn = {}
    for module in (ROOT / "worldsize" / "checks").glob("*/**/*.py"):
        modules = _imported(module) & {"secrets", "uuid"}
        calls = re.findall(r"\brandom\.(?!Random\b|Generator\b|default_rng\()\w+\(", _code(module))
        without_a_seed = re.findall(r"\b(?:Random|default_rng)\(\)", _code(module))
        if modules or calls or without_a_seed:
            drawn[_name(module)] = [*modules, *calls, *without_a_seed]
    assert drawn == {}


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


@pytest.mark.parametrize("module", LIGHT)
def test_a_face_brings_no_framework_into_a_process(module: str) -> None:
    loaded = _python(f"import sys, worldsize.{module}; print(*({{'torch', 'tensorflow'}} & set(sys.modules)))")
    assert loaded.split() == []


def test_a_picture_a_formula_and_the_lab_bring_no_framework_into_a_process() -> None:
    rooms = ("figures", "formulas", "lab", "live")
    names = [".".join(module.relative_to(ROOT).with_suffix("").parts) for module in MODULES]
    modules = [name for name in names if name.startswith(tuple(f"worldsize.{room}." for room in rooms))]
    loaded = _python(f"import sys, {', '.join(modules)}; print(*({{'torch', 'tensorflow'}} & set(sys.modules)))")
    assert len(modules) > 30 and loaded.split() == []


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
