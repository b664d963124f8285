"""The rules of the house that a program can check: order of imports, sizes, docstrings, what importing costs."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
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
MAX_LINES = 600
MOST_AT_THE_TOP, MOST_IN_A_ROOM = 16, 20
# What a lab may import; a name with a dot and a star stands for the modules below it.
FACES = re.compile(
    r"worldsize\.(notebook|ranks|tf|launch|machine|data|simulate|hosts|fabric)|"
    r"worldsize\.(formulas|pytorch|tf)\.\w+|worldsize\.fabric\.(watched|collectives|background|multi_ring)"
)
# Tests that belong to no single room: a browser, GPUs, hosts, long campaigns, notebooks, journeys; and what tests share.
OF_NO_ROOM = {"browser", "gpu", "soak", "labs", "journeys", "support", "hosts"}
# What every process of a course may import, a kernel, a grader, a page of a report: there no framework is wanted.
LIGHT = ["cli", "checks", "checks.arena", "fabric", "figures", "formulas", "launch", "links", "tf", "trace"]
# Packages that would make every command wait.
HEAVY = {"torch", "tensorflow", "numpy", "matplotlib", "IPython", "papermill", "nbgrader"}
# Modules that only users of several machines, of TensorFlow, makers of the site, or instructors run, and so may import what these
# extras bring.
FOR_CLUSTERS = ("worldsize/engines/remote/ways/",)
FOR_TENSORFLOW = (
    *("worldsize/tf/", "worldsize/engines/cluster_spec", "worldsize/engines/ranks/tensorflow_rank"),
    *("worldsize/checks/drivers/", "solutions/07", "solutions/08", "solutions/09"),
)
FOR_THE_SITE = ("worldsize/authoring/site/",)
FOR_INSTRUCTORS = (
    *("worldsize/authoring/", "worldsize/grade/nbgrader/"),
    *("worldsize/grade/reports/similarity", "worldsize/grade/exam/formats"),
)
# Words that belong to one person's machine or network, not to the project.
PRIVATE = ("/home/", "/root/", "pypi" ".org", "index-url", "find-links")


def _name(module: Path) -> str:
    return str(module.relative_to(ROOT))


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def _tree(program: Path) -> ast.Module:
    return ast.parse(program.read_text())


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Walk the statements below `node`; their expressions, which are most of a tree and import nothing, are left out."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, name, ()):
            yield child
            yield from _statements(child)


@cache
def _modules_imported(program: Path) -> list[str]:
    """Return the modules that a program may import, as far as its text tells: for `from a import b`, `a` and `a.b`."""
    found: list[str] = []
    for node in _statements(_tree(program)):
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


def test_a_module_is_read_in_one_sitting() -> None:
    lines = {_name(module): len(module.read_text().splitlines()) for module in MODULES}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def _listed_and_bound(module: Path) -> tuple[set[str], set[str]]:
    """(the names in a module's `__all__`, none where it makes names on demand; the names that its statements bind)."""
    listed: set[str] = set()
    bound: set[str] = set()
    for node in _tree(module).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            names = {target.id for target in ast.walk(node) if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)}
            bound |= names
            if names == {"__all__"} and node.value is not None:
                listed = {text.value for text in ast.walk(node.value) if isinstance(text, ast.Constant)}
    return (set() if "__getattr__" in bound else listed), bound


def test_every_name_that_a_module_lists_as_public_is_there() -> None:
    """In a file `__init__.py` ruff does not look."""
    found = {_name(module): _listed_and_bound(module) for module in MODULES}
    assert {name: listed - bound for name, (listed, bound) in found.items() if listed - bound} == {}
    assert sum(bool(listed) for listed, _ in found.values()) > 10


def test_a_module_says_what_it_is() -> None:
    assert [_name(module) for module in MODULES if not ast.get_docstring(_tree(module))] == []


@cache
def _allowed(*extras: str) -> set[str]:
    """Return the distributions that the project's list names, and those of some extras."""
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    return {canonicalize_name(Requirement(text).name) for texts in lists for text in texts}


def _undeclared(module: Path, *extras: str) -> list[str]:
    """Return what a module imports that is not ours, not Python's, and in no list that it may use: "file: name"."""
    allowed = _allowed(*extras)
    names = _imported(module) - sys.stdlib_module_names - {"worldsize", *OURS}
    # a name that is not installed is one that a test makes for itself, or it fails by itself
    brought_by = {n: {canonicalize_name(found) for found in DISTRIBUTIONS[n]} for n in names if n in DISTRIBUTIONS}
    return [f"{_name(module)}: {name}" for name, found in brought_by.items() if not found & allowed]


def _extras_of(module: Path) -> list[str]:
    extras = ["instructor"] if _name(module).startswith(FOR_INSTRUCTORS) else []
    extras += ["site"] if _name(module).startswith(FOR_THE_SITE) else []
    extras += ["cluster"] if _name(module).startswith(FOR_CLUSTERS) else []
    extras += ["tensorflow"] if _name(module).startswith(FOR_TENSORFLOW) else []
    return extras


def test_what_a_module_imports_is_a_dependency() -> None:
    assert [found for module in MODULES for found in _undeclared(module, *_extras_of(module))] == []


def test_what_a_lab_imports_is_a_dependency() -> None:
    assert [found for source in SOURCES for found in _undeclared(source, *_extras_of(source))] == []


def test_what_a_test_or_a_bench_imports_is_a_dependency() -> None:
    assert [found for program in PROGRAMS for found in _undeclared(program, "cluster", "instructor", "tensorflow", "dev")] == []


def test_no_room_is_crowded() -> None:
    files = Counter(_name(module.parent) for module in MODULES if module.name != "__init__.py")
    assert files.pop("worldsize") <= MOST_AT_THE_TOP
    assert {room: count for room, count in files.items() if count > MOST_IN_A_ROOM} == {}


def test_a_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for node in _statements(_tree(module)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(_name(module))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_tests_stand_in_the_rooms_of_what_they_test() -> None:
    rooms = {path.name for path in (ROOT / "worldsize").iterdir() if (path / "__init__.py").is_file()}
    folders = {path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").is_file()}
    assert folders - OF_NO_ROOM <= rooms


def test_no_test_imports_another() -> None:
    imported = [(program, name) for program in PROGRAMS for name in _modules_imported(program)]
    tests = [f"{_name(program)}: {name}" for program, name in imported if name.rpartition(".")[2].startswith("test_")]
    assert tests == []


def test_a_lab_imports_faces_only() -> None:
    pattern = re.compile(r"^ *(from worldsize[\w.]* import [\w*, ]+|import worldsize[\w.]*)", re.MULTILINE)
    lines = [(source, line) for source in SOURCES for line in pattern.findall(source.read_text())]
    assert [f"{_name(source)}: {line}" for source, line in lines if not _of_a_face(line)] == []


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
        calls = re.findall(r"\brandom\.(?!Random\b|Generator\b|default_rng\(|get_?state\()\w+\(", _code(module))
        without_a_seed = re.findall(r"\b(?:Random|default_rng)\(\)", _code(module))
        if modules or calls or without_a_seed:
            drawn[_name(module)] = [*modules, *calls, *without_a_seed]
    assert drawn == {}


def test_no_module_of_the_package_uses_pyplot() -> None:
    using = [_name(module) for module in MODULES if "pyplot" in module.read_text() and "pyplot" in _code(module)]
    assert using == ["worldsize/engines/ranks/rich_output.py"]  # which shows the figures that a student has open there


@cache
def _code(module: Path) -> str:
    """Return a module's source without comments and docstrings, which may name what they forbid."""
    tree = ast.parse(module.read_text())  # of its own: it is changed
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
    return ast.unparse(tree)


def test_importing_the_package_imports_nothing_else() -> None:
    loaded = _python("import sys; before = set(sys.modules); import worldsize; print(*(set(sys.modules) - before))")
    assert loaded.split() == ["worldsize"]


def _imported_with_a_framework(modules: list[str]) -> list[str]:
    """Import modules one after the other in one fresh process; return the first that brought a framework."""
    code = f"""if True:
        import importlib, sys
        for module in {modules!r}:
            importlib.import_module(module)
            found = {{'torch', 'tensorflow'}} & set(sys.modules)
            if found:
                sys.exit(print(module, *found))
    """
    return _python(code).split()


def test_a_face_brings_no_framework_into_a_process() -> None:
    assert _imported_with_a_framework([f"worldsize.{module}" for module in LIGHT]) == []


def test_a_picture_a_formula_cells_and_the_lab_bring_no_framework_into_a_process() -> None:
    rooms = ("cells", "figures", "formulas", "lab", "live")
    names = [".".join(module.relative_to(ROOT).with_suffix("").parts) for module in MODULES]
    modules = [name for name in names if name.startswith(tuple(f"worldsize.{room}." for room in rooms))]
    assert len(modules) > 30 and _imported_with_a_framework(modules) == []


def test_the_command_line_starts_without_a_heavy_package() -> None:
    loaded = _python(f"import sys, worldsize.cli; print(*({HEAVY!r} & set(sys.modules)))")
    assert loaded.split() == []


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
