"""A student's notebook merged with a newer release of its lab, cell by cell: no answer is lost, all text is new.

A cell is known by its id. The digests of the cells as laid tell what the student has changed: a three-way merge without the
oldest text. `start_and_update.py` handles the files.
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, Literal

from worldsize.course.record import digest
from worldsize.titles import title_of

CellFate = Literal["new", "same", "answer", "kept", "note"]
Cell = dict[str, Any]
_NOTE = "# Your version of a cell that the new release has changed. It does not run: copy from it what you need.\n"


@dataclass(frozen=True)
class MergedLab:
    """The merged notebook's text, and counts of the student's parts in it.

    `answers` counts exercises; `revised` has the titles of those whose text the release changed; `own` counts the student's own
    cells; `notes` counts changed cells of the course that now stand below the new ones and do not run.
    """

    text: str
    answers: int
    revised: tuple[str, ...]
    own: int
    notes: int


def cell_digests(notebook: bytes) -> dict[str, str]:
    """Return the digest of each cell of a released notebook by the cell's id."""
    return {cell["id"]: _digest(cell) for cell in json.loads(notebook)["cells"]}


def merged_lab(theirs: bytes, new: bytes, laid: dict[str, str]) -> MergedLab | None:
    """Merge the student's notebook `theirs` with the release's `new`; `laid` has the digests of the cells as laid before.

    Returns None if the student's file is not a notebook with cells whose ids were laid.
    """
    mine = _cells(theirs)
    if mine is None or not laid.keys() & mine.keys():
        return None

    notebook = json.loads(new)
    _find_retyped(mine, notebook["cells"], laid)
    below = _cells_of_their_own(mine, notebook["cells"], laid)

    counts: Counter[str] = Counter()
    revised, together = [], list(below[""])

    for cell in notebook["cells"]:
        name, yours = cell["id"], mine.get(cell["id"])
        fate = _fate(cell, yours, laid.get(name))
        counts[fate] += 1

        if fate == "answer" and laid.get(name) != _digest(cell):
            revised.append(str(title_of(_source(cell)) or name))
        together.append(_taken(cell, yours) if fate in ("same", "answer", "kept") else cell)
        if fate == "note":
            together.append(_note(yours))
        together += below[name]

    own = 0
    for theirs_below in below.values():
        for cell in theirs_below:
            if cell["id"] in mine:
                own += 1
            else:  # a changed cell that the release dropped
                counts["note"] += 1

    notebook["cells"] = together
    text = json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    return MergedLab(text, counts["answer"], tuple(revised), own, counts["note"])


def _fate(cell: Cell, yours: Cell | None, laid: str | None) -> CellFate:
    """Return a released cell's fate in a merged lab where the student has `yours`; `laid` is the cell's digest as laid before."""
    if yours is None or _digest(yours) == laid != _digest(cell):
        return "new"
    if _digest(yours) == _digest(cell):
        return "same"

    if yours["cell_type"] != cell["cell_type"]:
        return "note"
    if _is_answer(cell):
        return "answer"
    return "kept" if _digest(cell) == laid else "note"


def _cells(notebook: bytes) -> dict[str, Cell] | None:
    """Return a student's cells, to be merged, by their ids, in order; None if the file is no notebook, or ids are missing."""
    try:
        cells = json.loads(notebook)["cells"]
        known = {cell["id"]: cell for cell in cells}
        for cell in cells:
            _digest(cell)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None

    if len(known) < len(cells) or not all(isinstance(name, str) for name in known):
        return None
    return known


def _find_retyped(mine: dict[str, Cell], new: list[Cell], laid: dict[str, str]) -> None:
    """Give, to merge, a cell that the student made anew, under an exercise's title, the id of the unanswered exercise."""
    titled = {}
    for name, cell in mine.items():
        if name in laid or cell["cell_type"] != "code":
            continue
        if title := title_of(_source(cell)):
            titled[str(title)] = name

    for cell in filter(_is_answer, new):
        name, other = cell["id"], titled.get(str(title_of(_source(cell))))
        if other is None:
            continue
        if name not in mine or _digest(mine[name]) == laid.get(name):
            mine.pop(name, None)
            mine[name] = {**mine.pop(other), "id": name}


def _cells_of_their_own(mine: dict[str, Cell], new: list[Cell], laid: dict[str, str]) -> defaultdict[str, list[Cell]]:
    """Return the cells below each released cell: the student's own, and changed cells that the release dropped."""
    released = {cell["id"] for cell in new}
    below: defaultdict[str, list[Cell]] = defaultdict(list)
    above = ""

    for name, cell in mine.items():
        if name in released:
            above = name
        elif name not in laid:
            below[above].append(cell)
        elif _digest(cell) != laid[name]:
            below[above].append(_note(cell))
    return below


def _taken(cell: Cell, yours: Cell) -> Cell:
    """Return the merged cell, the released one with the student's source and outputs, under the release's title."""
    taken = cell | {key: yours[key] for key in ("source", "outputs", "execution_count", "attachments") if key in yours}

    title, before = title_of(_source(cell)), title_of(_source(yours))
    if title and before and str(title) != str(before):
        _, _, rest = _source(yours).lstrip().partition("\n")
        taken["source"] = f"{title.line}\n{rest}"
    return taken


def _note(yours: Cell) -> Cell:
    """Return a merged lab's cell that keeps the student's text of a dropped or changed cell: prose as is, code as raw text."""
    name = f"yours-{digest((yours['id'] + _digest(yours)).encode())}"
    if yours["cell_type"] == "markdown":
        return {"id": name, "cell_type": "markdown", "metadata": {}, "source": _source(yours)}
    return {"id": name, "cell_type": "raw", "metadata": {}, "source": _NOTE + _source(yours)}


def _is_answer(cell: Cell) -> bool:
    return bool(cell.get("metadata", {}).get("nbgrader", {}).get("solution"))


def _source(cell: Cell) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _digest(cell: Cell) -> str:
    return digest(f"{cell['cell_type']}\n{_source(cell)}".encode())
