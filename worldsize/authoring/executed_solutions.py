"""Executed solutions: kept from an earlier full run where the source is the same, else run now. The site shows them."""

from collections.abc import Callable, Iterable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from worldsize.authoring import headless
from worldsize.authoring.build import notebooks

RUN_TIMEOUT_S = 3600.0  # ends a run that hangs: nobody waits at such a notebook, and the machine may be busy


def all_executed(root: Path, sources: Iterable[Path], progress: Callable[[str], None] | None = None) -> dict[Path, NotebookNode]:
    """Return the executed solution of each lab in `sources`, running those without a kept run; `progress(stem)` as each begins.

    A lab that fails does not end the others, whose runs are kept for the next time. Raises NotebookFailed, which names all.
    """
    runs: dict[Path, NotebookNode] = {}
    failures: list[headless.NotebookFailed] = []
    for source in sources:
        if progress:
            progress(source.stem)
        try:
            runs[source] = executed(root, source)
        except headless.NotebookFailed as failed:
            failures.append(failed)

    if failures:
        raise headless.NotebookFailed("\n".join(map(str, failures)), failures[0].out)
    return runs


def executed(root: Path, source: Path, run: bool = True) -> NotebookNode | None:
    """Return the executed solution of a lab's `source`, running it if need be (without `run`, None instead)."""
    kept = root / "build" / "executed" / f"{source.stem}.ipynb"
    text = notebooks(source)[0]
    if kept.is_file():
        notebook = nbformat.read(kept, as_version=4)
        if _is_whole(notebook) and _code(notebook) == _code(nbformat.reads(text, as_version=4)):
            return notebook
    if not run:
        return None

    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = kept.with_name(f"{source.stem}.new.ipynb")
    fresh.write_text(text, encoding="utf-8")
    try:
        return nbformat.read(headless.run(fresh, kept, {}, RUN_TIMEOUT_S, knobs_beforehand=True).out, as_version=4)
    finally:
        fresh.unlink()


def _is_whole(notebook: NotebookNode) -> bool:
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
