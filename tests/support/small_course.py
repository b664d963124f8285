"""A small release of the course for tests of laying: a lab or two, a text, a data set; and notebooks made of few words."""

import json
from pathlib import Path
from typing import Any

from worldsize.course import shipped_files

Cell = dict[str, Any]
FIRST, RING = "labs/00_start_here.ipynb", "labs/06_ring_all_reduce.ipynb"


def prose(name: str, text: str) -> Cell:
    """A cell of text with the id `name`."""
    return {"id": name, "cell_type": "markdown", "metadata": {}, "source": text}


def code(name: str, text: str, *outputs: str) -> Cell:
    """A cell of code with the id `name`; with `outputs` it has been run."""
    shown = [{"output_type": "stream", "name": "stdout", "text": text} for text in outputs]
    count = len(outputs) or None
    return {"id": name, "cell_type": "code", "metadata": {}, "source": text, "outputs": shown, "execution_count": count}


def exercise(name: str, text: str) -> Cell:
    """An exercise's cell, into which a student writes an answer."""
    return code(name, text) | {"metadata": {"nbgrader": {"grade_id": name, "solution": True}}}


def notebook(*cells: Cell) -> bytes:
    """A notebook's file."""
    return (json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n").encode()


def cells_of(notebook: str | bytes | Path) -> list[Cell]:
    """The cells of a notebook, by its text or its path."""
    return json.loads(notebook.read_bytes() if isinstance(notebook, Path) else notebook)["cells"]


def sources(notebook: str | bytes | Path) -> list[str]:
    """The sources of a notebook's cells, in order."""
    return [cell["source"] for cell in cells_of(notebook)]


def answered(path: Path, name: str, text: str) -> None:
    """Write `text` into the cell `name` of a notebook's file, as a student does."""
    cells = cells_of(path)
    next(cell for cell in cells if cell["id"] == name)["source"] = text
    path.write_bytes(notebook(*cells))


def small_release(folder: Path, **changed: bytes | None) -> Path:
    """Write a release into `folder`: `changed` has other contents by name, or None for a file that it lacks."""
    lab = notebook(prose("opening", "# A lab"), exercise("ring", "# Exercise 6.1: a ring\nraise NotImplementedError"))
    content: dict[str, bytes | None] = {name: f"{name}\n".encode() for name in shipped_files.NAMED}
    content |= {"CHANGELOG.md": b"# Changelog\n\n## 0.2.0\n\n- **A ring**, new.\n- Small things.\n\n## 0.1.0\n\n- The first.\n"}
    content |= {FIRST: notebook(prose("hello", "# Lab 00")), RING: lab, "labs/scratch.ipynb": notebook(prose("here", "Try."))}
    content |= {"labs/covers/06.png": b"a picture", "datasets/bandwidths.json": b"[]"}
    for name, file in (content | changed).items():
        if file is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(file)
    return folder
