"""Executed solutions: kept from an earlier full run where the source is the same, else run now. The site and slides show them."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat import NotebookNode

from worldsize.authoring import headless
from worldsize.authoring.build import notebooks


def executed(root: Path, source: Path, run: bool = True) -> NotebookNode | None:
    """Return the executed solution of a lab's `source`, running it if need be (without `run`, None instead)."""
    kept = root / "build" / "executed" / f"{source.stem}.ipynb"
    text = notebooks(source)[0]
    if kept.is_file():
        notebook = nbformat.read(kept, as_version=4)
        if is_whole(notebook) and _code(notebook) == _code(nbformat.reads(text, as_version=4)):
            return notebook
    if not run:
        return None

    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = kept.with_name(f"{source.stem}.new.ipynb")
    fresh.write_text(text, encoding="utf-8")
    try:
        return nbformat.read(headless.run(fresh, kept, {}, knobs_beforehand=True).out, as_version=4)
    finally:
        fresh.unlink()


def is_whole(notebook: NotebookNode) -> bool:
    """Return whether every code cell was run, and none ended in an error: a run that was stopped leaves a notebook too."""
    for cell in notebook.cells:
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        if cell.execution_count is None or any(output.output_type == "error" for output in cell.outputs):
            return False
    return True


def _code(notebook: NotebookNode) -> list[tuple[str, str]]:
    """Return each code cell's id and source; papermill adds a cell to a run with other parameters."""
    return [(cell.id, cell.source) for cell in notebook.cells if cell.cell_type == "code"]
