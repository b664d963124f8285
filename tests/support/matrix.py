"""The matrix of versions: its corners, the record of each one's last run in `tests/matrix/`, and the table in docs/platforms.md.

`noxfile.py` runs the corners. `python -m tests.support.matrix` writes the table from the records. Left out: labs 07 to 09, which
`make soak` runs with the one version of TensorFlow in constraints.txt.
"""

import json
import platform
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = "docs/platforms.md"
RECORDS = "tests/matrix"
ROOMS = ("tests/launch", "tests/fabric", "tests/ranks", "tests/pytorch", "tests/simulate")
LABS = ("00", "02", "06", "10", "11", "12")
SHOWN = ("torch", "tensorflow", "numpy", "ipython", "ipykernel", "ipywidgets", "cloudpickle")
PACKAGES = """\
import importlib.metadata, json, platform
packages = {found.name.lower(): found.version for found in importlib.metadata.distributions()}
print(json.dumps({"python": platform.python_version(), **packages}))
"""

NOT_RUN = "not run"

_BEGIN, _END = "<!-- the matrix: written by python -m tests.support.matrix -->", "<!-- end of the matrix -->"


@dataclass(frozen=True)
class Corner:
    """One combination of versions.

    `torch` is a version specifier, `constrained` whether the rest has the versions of constraints.txt, `host` a requirements file
    of an environment that is there first and must stay as it is. `quick` are the paths of `make quick` there, all if empty.
    """

    name: str
    what: str
    python: str
    torch: str = ""
    constrained: bool = False
    host: str = ""
    quick: tuple[str, ...] = ()

    def versions(self, constraints: str) -> str:
        """Return the text of constraints.txt as far as it holds here; "" without constraints."""
        if not self.constrained:
            return ""
        lines = constraints.splitlines(keepends=True)
        return "".join(line for line in lines if not (self.torch and line.startswith("torch==")))


# Each Python that pyproject.toml admits. `newest` has no constraints: what a dependency's release breaks shows there first.
CORNERS = (
    Corner("oldest", "the oldest PyTorch", "3.11", torch="==2.9.*", constrained=True),
    Corner("constraints", "the versions of constraints.txt", "3.12", constrained=True),
    Corner("newest", "no constraints: the newest of everything", "3.13"),
    Corner("next", "the newest Python, without TensorFlow", "3.14", constrained=True),
    Corner(
        "colab", "Colab's packages, which stay as they are", "3.12", host="tests/colab_requirements.txt",
        # the other rooms' quick tests need the tools of contributors
        quick=(*ROOMS, "tests/engines", "tests/lab", "tests/live"),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Install:
    """An install: its seconds, None into an environment that was there, its MB, and what it changed of what was to stay."""

    seconds: float | None
    megabytes: int
    changed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Suite:
    """A run of pytest: how many tests passed, failed and were skipped, and which failed."""

    passed: int
    failed: list[str]
    skipped: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """A corner's run; None for what was left out. `labs` has "4 of 4" for each lab, or the last line of its error."""

    corner: str
    date: str
    system: str
    versions: dict[str, str]
    install: Install
    quick: Suite | None
    rooms: Suite | None
    labs: dict[str, str]
    labs_seconds: float

    @classmethod
    def of(cls, corner: Corner, packages: dict[str, str], **parts: Any) -> Self:
        """Return the result of a run that ends now, on this machine; `parts` are the other fields."""
        versions = {"python": packages["python"]} | {name: packages[name] for name in SHOWN if name in packages}
        date = datetime.now(UTC).date().isoformat()
        system = f"{platform.system()} {platform.machine()}"
        return cls(corner.name, date, system, versions, **parts)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the result that `record` wrote."""
        row = json.loads(text)
        suites = {name: row[name] and Suite(**row[name]) for name in ("quick", "rooms")}
        return cls(**row | suites | {"install": Install(**row["install"])})

    def wrong(self) -> list[str]:
        """Return a line for everything that is not as it should be; empty if all is well."""
        lines = [f"changed by the install: {change}" for change in self.install.changed]
        lines += [f"failed: {name}" for suite in (self.quick, self.rooms) if suite for name in suite.failed]
        return lines + [f"lab {lab}: {points}" for lab, points in self.labs.items() if not all_points(points)]


def all_points(points: str) -> bool:
    """Return whether "4 of 4" is all of them."""
    earned, _, possible = points.partition(" of ")
    return bool(possible) and earned == possible


def read_packages(text: str) -> dict[str, str]:
    """Return {package: version} from what PACKAGES prints, among whatever else is printed."""
    return json.loads(text.strip().splitlines()[-1])


def read_tests(report: str, seconds: float) -> Suite:
    """Return what a JUnit report of pytest says."""
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    names = sorted({f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}" for case in failed})
    return Suite(len(cases) - len(failed) - len(skipped), names, len(skipped), round(seconds))


def read_points(output: str) -> str:
    """Return "4 of 4" from what `worldsize run` prints, or its last line if it failed, without this machine's path in it."""
    points = re.search(r"^points: ([\d.]+ of [\d.]+)$", output, re.MULTILINE)
    last = (output.strip().splitlines() or ["printed nothing"])[-1]
    return points[1] if points else re.sub(r" Read \S+, which holds the outputs so far.*", "", last)


def megabytes(folder: Path) -> int:
    """Return the size of a folder's files, each file once."""
    sizes = {(stat.st_dev, stat.st_ino): stat.st_size for path in folder.rglob("*") if (stat := path.lstat())}
    return round(sum(sizes.values()) / 1e6)


def records(root: Path) -> dict[str, Result]:
    """Return {corner: its last result}."""
    found = [Result.from_json(path.read_text()) for path in sorted((root / RECORDS).glob("*.json"))]
    return {result.corner: result for result in found}


def record(root: Path, result: Result) -> None:
    """Write a corner's result, and the table anew."""
    folder = root / RECORDS
    folder.mkdir(exist_ok=True)
    (folder / f"{result.corner}.json").write_text(json.dumps(asdict(result), indent=1) + "\n")
    write_table(root)


def table(results: dict[str, Result]) -> str:
    """Return the matrix as a table in Markdown, a row for each corner."""
    lines = [
        "| corner | Python | PyTorch | TensorFlow | install | `make quick` | engine's rooms | six labs | last run |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for corner in CORNERS:
        name = f"`{corner.name}`: {corner.what}"
        result = results.get(corner.name)
        if result is None:
            lines.append(f"| {name} | {corner.python} | {corner.torch.removeprefix('==')} | | | | | | never |")
            continue
        versions = result.versions
        install = f"{result.install.megabytes:,} MB"
        if result.install.seconds is not None:
            install += f", {_minutes(result.install.seconds)}"
        if corner.host:
            install += f"; changed: {', '.join(result.install.changed) or 'nothing'}"
        short = [lab for lab, points in result.labs.items() if not all_points(points)]
        labs = f"all points but in {', '.join(short)}" if short else f"all points, {_minutes(result.labs_seconds)}"
        if not result.labs:
            labs = NOT_RUN
        cells = [
            name, versions["python"], versions["torch"], versions.get("tensorflow", "–"), install,
            _counts(result.quick), _counts(result.rooms), labs, result.date,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _counts(tests: Suite | None) -> str:
    if tests is None:
        return NOT_RUN
    failed = f"{len(tests.failed)} failed, " if tests.failed else ""
    return f"{failed}{tests.passed:,} passed, {_minutes(tests.seconds)}"


def _minutes(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))} min"


def with_table(document: str, results: dict[str, Result]) -> str:
    """Return the document with the table of these results. Raises ValueError without its two marks."""
    before, begin, rest = document.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"{DOCUMENT}: expected the lines {_BEGIN} and {_END}, got a document without them.")
    return f"{before}{begin}\n\n{table(results)}\n\n{end}{after}"


def write_table(root: Path) -> None:
    """Write the table into the document."""
    path = root / DOCUMENT
    path.write_text(with_table(path.read_text(), records(root)))


if __name__ == "__main__":
    write_table(ROOT)
