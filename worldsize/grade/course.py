"""The release that grading needs: each lab's set-up cells, and its exercises with stub, check, points and reference.

The sources are the generated notebooks: `labs/` is what students were given, `solutions/` has the references. A reference
leaves the grader only for an exercise that builds on another one.
"""

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

import worldsize
from worldsize.cells import AskedExercise, text
from worldsize.checks import CHECKS
from worldsize.titles import title_of

_MARKER = re.compile(r"^\s*### (BEGIN|END) SOLUTION\s*$\n?", re.MULTILINE)


@dataclass(frozen=True)
class Exercise(AskedExercise):
    """An exercise of the release, with the source of its check's cell."""

    check: str
    points: float
    reference: str | None = None


@dataclass(frozen=True)
class CourseLab:
    """A lab of the release. `modules` are the imports of its set-up cells, and torch.optim if the lab trains.

    `given` has the sources of all its cells, `code` of its code cells.
    """

    stem: str  # "06_ring_all_reduce"
    setups: tuple[str, ...]
    exercises: tuple[Exercise, ...]
    modules: tuple[str, ...]
    heading: str = ""  # "Lab 06. Parameter server and ring all-reduce"
    given: tuple[str, ...] = ()
    code: tuple[str, ...] = ()

    @property
    def number(self) -> str:
        return self.stem[:2]

    @property
    def possible(self) -> float:
        return sum(exercise.points for exercise in self.exercises)


def default_root() -> Path:
    """Return the folder with the course's `labs/`: this package's checkout, or else the working directory.

    Raises ValueError if the working directory is another checkout: either could be meant.
    """
    checkout = Path(worldsize.__file__).resolve().parents[1]
    here = Path.cwd()
    other = here / "worldsize" / "__init__.py"

    if (here / "labs").is_dir() and other.is_file() and not other.samefile(worldsize.__file__):
        raise ValueError(
            f"{here}: expected the checkout whose package is running, {checkout}, got another one. Name the course with "
            "--course, or install this one's package (pip install -e .)."
        )

    return checkout if (checkout / "labs").is_dir() else Path.cwd()


def load(root: Path) -> dict[str, CourseLab]:
    """Return the course's labs under `root` by stem, read from the release's notebooks. Raises ValueError if there are none."""
    return {stem: _lab(root, stem) for stem in stems(root)}


def stems(root: Path) -> list[str]:
    """Return the stems of the course's labs under `root`. Raises ValueError if there are none."""
    paths = sorted((root / "labs").glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise ValueError(
            f"{root}: expected the course's notebooks in labs/, got none. Run this from the root of the repository, "
            f"or name it with --course."
        )
    return [path.stem for path in paths]


def stem_of(root: Path, lab: str, where: str) -> str:
    """Return the stem of the lab "06" or "06_ring_all_reduce". Raises ValueError if there is none; `where` names the caller."""
    labs = stems(root)
    found = [stem for stem in labs if lab in (stem, stem[:2])]
    if not found:
        raise ValueError(f"{where}: expected a lab of the course ({', '.join(labs)}), got {lab!r}.")
    return found[0]


def _lab(root: Path, stem: str) -> CourseLab:
    every = json.loads((root / "labs" / f"{stem}.ipynb").read_text(encoding="utf-8"))["cells"]
    prose = "\n".join(text(cell) for cell in every if cell["cell_type"] == "markdown")
    heading = re.search(r"^# +(.+)", prose, re.MULTILINE)

    cells = [cell for cell in every if cell["cell_type"] == "code"]
    setups = tuple(source for source in map(text, cells) if source.startswith("# Set-up"))

    references = {}
    solution = root / "solutions" / f"{stem}.ipynb"
    if solution.is_file():
        for cell in json.loads(solution.read_text(encoding="utf-8"))["cells"]:
            if name := _id(cell):
                references[name] = _MARKER.sub("", text(cell))

    answers = "\n".join(references.values())
    # sandboxes preload `modules`; answers that train need torch.optim too
    trains = ["torch.optim"] if "optim." in answers or ".backward(" in answers else []

    by_id = {_id(cell): cell for cell in cells}
    exercises = []
    for name, cell in by_id.items():
        check = by_id.get(f"check_{name}")
        if check is None or name not in CHECKS:
            continue

        source, asked = text(cell), text(check)
        exercises.append(
            Exercise(
                id=name,
                title=str(title_of(source) or name),
                stub=source,
                check=asked,
                points=float(check["metadata"]["nbgrader"]["points"]),
                functions=_functions(asked, name),
                reference=references.get(name),
            )
        )

    return CourseLab(
        stem=stem,
        setups=setups,
        exercises=tuple(exercises),
        modules=(*_imports(setups), *trains),
        heading=heading[1] if heading else "",
        given=tuple(map(text, every)),
        code=tuple(map(text, cells)),
    )


def _functions(check: str, name: str) -> tuple[str, ...]:
    """Return ("shards", "more") for a release's check cell with `check.shards(shards, more)`."""
    for node in ast.walk(ast.parse(check)):
        match node:
            case ast.Call(func=ast.Attribute(attr=called), args=given) if called == name:
                return tuple(one.id for one in given if isinstance(one, ast.Name))
    return (name,)


def _imports(sources: tuple[str, ...]) -> list[str]:
    """Return the modules that the release's sources import, with this package's own modules that they import by name."""
    package = Path(worldsize.__file__).parents[1]
    modules: set[str] = set()
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                modules.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module)
                folder = package.joinpath(*node.module.split("."))
                for alias in node.names if node.module.partition(".")[0] == "worldsize" else ():
                    if (folder / f"{alias.name}.py").is_file() or (folder / alias.name).is_dir():
                        modules.add(f"{node.module}.{alias.name}")
    return sorted(modules - {"worldsize", "worldsize.notebook"})


def _id(cell: dict) -> str:
    return cell.get("metadata", {}).get("nbgrader", {}).get("grade_id", "")


def titles_of(lab: CourseLab | None) -> dict[str, str]:
    """Return {exercise: "Exercise 6.3: reduce-scatter"} from the first lines of the lab's stubs; "" has the lab's title."""
    if lab is None:
        return {}

    titles = {"": lab.heading}
    for exercise in lab.exercises:
        title = title_of(exercise.stub)
        titles[exercise.id] = title.whole if title else exercise.title
    return titles
