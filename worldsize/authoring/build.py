"""Notebooks from solutions: `solutions/NN_topic.py` gives `solutions/NN_topic.ipynb` and `labs/NN_topic.ipynb`.

The student's version goes through the preprocessors of nbgrader's GenerateAssignment, called from Python without a database, so
that nbgrader knows its cells by their metadata. The same source gives the same bytes on every machine: no outputs, no times, no
tool versions. A build also writes the minutes from `minutes` into a source's first cell and the documents of `tables`;
`worldsize/cells/released.py`, by which a check in a notebook recognizes changed set-up cells; and `worldsize/checks/index.py`,
by which a check is found.
"""

import ast
import copy
import json
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.preprocessors import CheckCellMetadata, ClearOutput, ClearSolutions, ComputeChecksums, LockCells

from worldsize.authoring import folding
from worldsize.authoring.minutes import true_minutes, workload
from worldsize.authoring.source import BEGIN, END, BuildError, SourceCell, read_source, set_ups, stub
from worldsize.authoring.tables import with_true_minutes
from worldsize.cells import digest
from worldsize.course.shipped_files import BY_HAND
from worldsize.files import write_whole

__all__ = ["BuildError", "build", "notebooks"]

_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def build(root: Path, check: bool = False) -> list[Path]:
    """Rebuild every stale notebook, `released.py` and the checks' `index.py` from the sources under `root`.

    Returns the paths written: sources and documents with corrected minutes, notebooks, `released.py` and `index.py`. With
    `check` it writes nothing and returns the stale paths: sources and documents with wrong minutes, generated files that are
    missing or different, and notebooks without a source. Raises BuildError before anything is written.
    """
    sources = _sources(root)
    index = root / "worldsize" / "checks" / "index.py"
    wanted = {index: _index(index.parent)} if index.is_file() else {}
    untrue = {source: text for source in sources if (text := true_minutes(source))}
    if not check:
        for source, text in untrue.items():
            write_whole(source, text)

    for source in sources:
        solution, lab = notebooks(source)
        wanted[source.with_suffix(".ipynb")] = solution
        wanted[root / "labs" / f"{source.stem}.ipynb"] = lab

    record = root / "worldsize" / "cells" / "released.py"
    if record.is_file():
        wanted[record] = _record(sources)
    wanted |= with_true_minutes(root, {source.stem[:2]: workload(read_source(source)).minutes for source in sources})

    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_bytes() != text.encode()]
    if check:
        there = {*(root / "solutions").glob("*.ipynb"), *(root / "labs").glob("*.ipynb")}
        return [*untrue, *stale, *sorted(there - {root / name for name in BY_HAND} - wanted.keys())]

    for path in stale:
        if has_been_run(path):  # it may hold a student's work
            raise BuildError(
                f"{path.parent.name}/{path.name}: expected a generated notebook, got one that has been run;"
                " nothing was written. Copy it elsewhere if its work matters, delete it, and build again."
            )
    for path in stale:
        write_whole(path, wanted[path])
    return [*untrue, *stale]


def notebooks(source: Path) -> tuple[str, str]:
    """Return the text of the solution notebook and of the student's notebook built from one `source`."""
    make = {
        "code": nbformat.v4.new_code_cell,
        "markdown": nbformat.v4.new_markdown_cell,
        "raw": nbformat.v4.new_raw_cell,
    }

    cells = [make[c.kind](folding.titled(c), id=c.id, metadata=_cell_metadata(c)) for c in read_source(source).cells]
    solution = nbformat.from_dict({"cells": cells, "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5})
    return _text(solution), _text(_for_students(solution))


def _record(sources: list[Path]) -> str:
    """Return the text of `worldsize/cells/released.py`."""
    setups = ["# digests of its set-up cells, by which a check knows a changed one", "SETUPS = {"]
    exercises = ["# the first lines of its exercises' cells", "EXERCISES = {"]
    for source in sources:
        number = source.stem[:2]
        digests = "".join(f'"{digest(text)}", ' for text in set_ups(source)).strip()
        setups.append(f'    "{number}": ({digests}),')

        exercises.append(f'    "{number}": {{')
        for cell in read_source(source).cells:
            if cell.exercise:
                first_line = cell.text.splitlines()[0].rstrip()
                exercises.append(f"        {json.dumps(cell.exercise)}: {json.dumps(first_line, ensure_ascii=False)},")
        exercises.append("    },")

    head = '"""Written by `worldsize build`: what every lab\'s notebook was when it was released, by the lab\'s number."""\n'
    return "\n".join([head, *setups, "}", "", *exercises, "}"]) + "\n"


def _index(checks: Path) -> str:
    """Return the text of `worldsize/checks/index.py`. Raises BuildError for an exercise with two checks."""
    modules: dict[str, str] = {}
    for path in sorted(checks.glob("*/*.py")):
        text = path.read_text(encoding="utf-8")
        if "@exercise(" not in text:
            continue
        for node in ast.parse(text).body:
            if not isinstance(node, ast.FunctionDef) or not _is_declared(node):
                continue
            if node.name in modules:
                raise BuildError(f"{path}: expected one check of {node.name}, got another in {modules[node.name]}")
            modules[node.name] = f"{path.parent.name}.{path.stem}"

    head = '"""Written by `worldsize build`: the module of each exercise\'s check, which `@exercise` declares."""\n'
    return "\n".join([head, "CHECKS = {", *(f'    "{name}": "{module}",' for name, module in modules.items()), "}"]) + "\n"


def _is_declared(function: ast.FunctionDef) -> bool:
    """Return whether `@exercise(…)` declares a function a check, to build the checks' index."""
    called = (each.func for each in function.decorator_list if isinstance(each, ast.Call))
    return any(isinstance(decorator, ast.Name) and decorator.id == "exercise" for decorator in called)


def _cell_metadata(cell: SourceCell) -> dict:
    metadata: dict = {}
    if cell.tags:
        metadata["tags"] = list(cell.tags)
    if folding.is_folded(cell):
        metadata["jupyter"] = {"source_hidden": True}

    if cell.exercise or cell.check:
        graded = cell.check is not None
        metadata["nbgrader"] = {
            "grade": graded,
            "grade_id": cell.id,
            "locked": graded,
            "schema_version": 3,
            "solution": not graded,
            "task": False,
        }
        if graded:
            metadata["nbgrader"]["points"] = cell.points

    return metadata


class _PutStubs(ClearSolutions):
    """nbgrader's ClearSolutions with a stub that names the exercise."""

    def __init__(self) -> None:
        super().__init__(begin_solution_delimeter=BEGIN, end_solution_delimeter=END)

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict, cell_index: int
    ) -> tuple[NotebookNode, dict]:
        self.code_stub = {"python": stub(cell.source)}
        return super().preprocess_cell(cell, resources, cell_index)


def _for_students(solution: NotebookNode) -> NotebookNode:
    notebook = copy.deepcopy(solution)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":  # a cover's path, made relative to the labs' folder
            cell.source = cell.source.replace("](../labs/covers/", "](covers/")

    # GenerateAssignment's order. Its other steps are for hidden tests, mark schemes and generated tests, which no source may
    # hold, for headers, which we lack, and for the database.
    for step in (LockCells, _PutStubs, ClearOutput, CheckCellMetadata, ComputeChecksums, CheckCellMetadata):
        notebook, _ = step().preprocess(notebook, {})
    return notebook


def _text(notebook: NotebookNode) -> str:
    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"


def _sources(root: Path) -> list[Path]:
    sources = sorted((root / "solutions").glob("*.py"))
    if not sources:
        raise BuildError(
            f"{root}: expected sources such as solutions/06_ring_all_reduce.py, got none;"
            " run this from the root of the repository, or name it."
        )

    first_of: dict[str, Path] = {}
    for source in sources:
        first = first_of.setdefault(source.name[:2], source)
        if first != source:
            raise BuildError(
                f"solutions/{source.name}: expected one source for each lab, got {source.name[:2]} again"
                f" (solutions/{first.name} has it); give one of them another number."
            )

    return sources


def has_been_run(path: Path) -> bool:
    """Return True if the notebook to rebuild has been run; False if it is missing or invalid, such as with merge markers."""
    try:
        cells = nbformat.reads(path.read_text(encoding="utf-8"), as_version=nbformat.NO_CONVERT).cells
    except (FileNotFoundError, ValueError, AttributeError):
        return False
    return any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
