"""The student bundle: labs, package, data and environment in one zip; no solutions, no tests, nothing else.

An allow-list selects the files. A release is refused if a notebook differs from its source (an output, or a change made by
hand), or if a line of an answer is readable in a lab or an answer in the package. The same files make the same zip, byte for
byte.
"""

import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat

from worldsize.authoring import build
from worldsize.authoring.source import answer_lines, given_lines
from worldsize.course import shipped_files
from worldsize.files import write_whole

NAMED = (
    *(*shipped_files.NAMED, "Makefile", "README.md", "apt.txt", "constraints.txt"),
    *("environment.yml", "pyproject.toml", "setup.py"),
)
PATTERNS = (
    *(*shipped_files.PATTERNS, "worldsize/**/*.py", "worldsize/**/*.js", "worldsize/**/*.html", "worldsize/**/*.css"),
    *("worldsize/course/jupyter/**/*.json", "worldsize/course/jupyter/workspaces/*"),
)
Three = tuple[str, str, str]  # consecutive lines
TOP = "worldsize"  # the folder that the zip unpacks to
MIN_LEAK_CHARACTERS = 13
_MOMENT = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can store


class Refused(ValueError):
    """The student bundle would give something away, or is incomplete; the message names each place."""


def release(root: Path, out: Path) -> list[str]:
    """Check the repository `root`, then write its student bundle to `out`.

    Returns the names in it. Raises Refused, OSError.
    """
    files = bundle_files(root)
    package = {}
    for path in files:
        if path.suffix == ".py":
            text = path.read_text(encoding="utf-8")
            package[path] = set(_threes([_squeezed(line) for line in text.splitlines() if line.strip()]))

    wrong = stale(root)
    wrong += [f"{name} has been run: clear its outputs" for name in shipped_files.BY_HAND if build.has_been_run(root / name)]
    for source in sorted((root / "solutions").glob("*.py")):
        wrong += _given_away(root, source, package)
    if wrong:
        raise Refused("\n".join(["release: nothing was written, because", *wrong]))

    names = [path.relative_to(root).as_posix() for path in files]
    pack(out, [(f"{TOP}/{name}", (root / name).read_bytes(), 0o644) for name in names])
    return names


def stale(root: Path) -> list[str]:
    """Return a sentence for each notebook that differs from its source; any of them blocks a release."""
    return [f"{path} differs from its source: run `worldsize build`" for path in build.build(root, check=True)]


def pack(out: Path, entries: Iterable[tuple[str, bytes, int]]) -> None:
    """Write a release's zip, such as the student bundle, all or nothing.

    `entries` are (name, content, mode). The same entries make the same bytes.
    """
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as bundle:
        for name, content, mode in entries:
            entry = zipfile.ZipInfo(name, _MOMENT)  # no time of its own and no owner
            entry.external_attr = (0o100000 | mode) << 16
            entry.create_system = 3
            bundle.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)

    write_whole(out, whole.getvalue())


def bundle_files(root: Path) -> list[Path]:
    """Return the files of the student bundle, in order.

    Raises Refused if a required file is missing.
    """
    missing = [name for name in NAMED if not (root / name).is_file()]
    if not missing and not any(root.glob(shipped_files.LABS)):
        missing.append("labs/NN_topic.ipynb")
    if missing:
        raise Refused(
            f"release: expected the repository, with {', '.join(missing)}, got {root}. "
            f"Run it from the root of the repository, or name the root with --course."
        )

    return sorted(root / name for name in shipped_files.found(root, (*NAMED, *PATTERNS)))


def leaks(notebook: nbformat.NotebookNode, answers: dict[str, list[str]], given: list[str]) -> list[str]:
    """Return the answers' lines that a release would show in a student's notebook, in any cell or metadata.

    `given` has the lines of code outside the markers. A line that is also there gives nothing away, nor does a short one.
    """
    shown: list[str] = []
    for text in _strings(notebook):
        shown += map(_squeezed, text.split("\n"))

    messages = []
    for exercise, lines in answers.items():
        for secret in _secret(lines, given):
            if any(secret in line for line in shown):
                messages.append(f"{exercise}: {secret!r} can be read")
    return messages


def _given_away(root: Path, source: Path, package: dict[Path, set[Three]]) -> list[str]:
    """Return what the bundle would reveal of one lab's answers; `package` maps its modules to their triples of lines."""
    answers, given = answer_lines(source), given_lines(source)
    lab = root / "labs" / f"{source.stem}.ipynb"
    notebook = nbformat.read(lab, nbformat.NO_CONVERT)
    messages = [f"{lab.name}: {words}" for words in leaks(notebook, answers, given)]

    secrets = {}  # threes of lines of which none is short or given; pairs would match every loop that waits for handles
    for name, answer in answers.items():
        secret = set(_secret(answer, given))
        secrets[name] = set(filter(secret.issuperset, _threes(list(map(_squeezed, answer)))))
    for path, threes in package.items():
        for name, secret in secrets.items():
            if not threes.isdisjoint(secret):
                messages.append(f"{path}: the answer to {name}")
    return messages


def _threes(lines: list[str]) -> Iterator[Three]:
    return zip(lines, lines[1:], lines[2:], strict=False)


def _secret(lines: list[str], given: list[str]) -> list[str]:
    public = set(map(_squeezed, given))
    return [line for line in map(_squeezed, lines) if len(line) >= MIN_LEAK_CHARACTERS and line not in public]


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def _strings(node: object) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for value in node.values():
            yield from _strings(value)
    elif isinstance(node, list):
        for value in node:
            yield from _strings(value)
