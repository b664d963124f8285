"""The course's notebooks, found from any folder inside the course, and by number.

`state.py` finds a lab's state.
"""

import re
from pathlib import Path

_NOTEBOOKS = "[0-9][0-9]_*.ipynb"
_NUMBER = re.compile(r"\d{1,2}|\d\d_\w+")


def labs_folder(start: Path | None = None) -> Path | None:
    """Return the folder with the labs' notebooks: `start` or a folder above, or `labs/` in one of them; None if there is none.

    `start` defaults to the current directory.
    """
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        for place in (folder / "labs", folder):
            if any(place.glob(_NOTEBOOKS)):
                return place

    return None


def notebooks_in(folder: Path) -> dict[str, Path]:
    """Return the labs' notebooks in `folder` by number, such as {"06": …/06_ring_all_reduce.ipynb}."""
    return {path.name[:2]: path for path in sorted(folder.glob(_NOTEBOOKS))}


def is_lab_name(text: str) -> bool:
    """Return True if `text` names a lab of the course as people do, `6`, `06` or `06_ring_all_reduce`, and not a file."""
    return _NUMBER.fullmatch(text) is not None


def notebook_of(lab: str, start: Path | None = None) -> Path:
    """Return the notebook of a lab named `6`, `06` or `06_ring_all_reduce`, in the course around `start`.

    `start` defaults to the current directory. Raises ValueError if there is no course there or above, and for a lab that the
    course does not have.
    """
    folder = labs_folder(start)
    if folder is None:
        raise ValueError(
            f"{lab}: expected the course's folder, or one below it, got {start or Path.cwd()}, which has no labs/. "
            f"Change to the course's folder, or give the path of a notebook."
        )

    there = notebooks_in(folder)
    notebook = there.get(lab[:2].zfill(2))
    if notebook is None or lab not in (notebook.stem, notebook.stem[:2], notebook.stem[:2].lstrip("0"), "0"):
        names = ", ".join(path.stem for path in there.values())
        raise ValueError(f"{lab}: expected one of the labs in {folder}, got another. The labs are: {names}.")
    return notebook
