"""Where the course's notebooks are, from any folder inside it, and which notebook a number means.

Left out: what is in a notebook, and where a lab keeps its state (`state`).
"""

from __future__ import annotations

import re
from pathlib import Path

_NOTEBOOKS = "[0-9][0-9]_*.ipynb"
_NUMBER = re.compile(r"\d{1,2}|\d\d_\w+")


def labs_folder(start: Path | None = None) -> Path | None:
    """The folder with the labs' notebooks: `start` or one above it, or `labs/` in one of them; None where there is none.

    `start` is the current directory unless another is given.
    """
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        for place in (folder / "labs", folder):
            if any(place.glob(_NOTEBOOKS)):
                return place

    return None


def notebooks_in(folder: Path) -> dict[str, Path]:
    """The labs' notebooks in `folder` by number, such as {"06": …/06_ring_all_reduce.ipynb}."""
    return {path.name[:2]: path for path in sorted(folder.glob(_NOTEBOOKS))}


def is_lab_name(text: str) -> bool:
    """Whether `text` names a lab as people do, `6`, `06` or `06_ring_all_reduce`, and not a file."""
    return _NUMBER.fullmatch(text) is not None


def notebook_of(lab: str, start: Path | None = None) -> Path:
    """The notebook of a lab that is named `6`, `06` or `06_ring_all_reduce`, in the course in which `start` lies.

    `start` is the current directory unless another is given. Raises ValueError where no course is there or above, and for
    a lab that it does not have.
    """
    folder = labs_folder(start)
    if folder is None:
        raise ValueError(
            f"{lab}: expected to stand in the course's folder, or in one below it, got {start or Path.cwd()}, where no labs/ is. "
            f"Go there, or give the path of a notebook."
        )

    there = notebooks_in(folder)
    found = there.get(lab[:2].zfill(2))
    if found is None or lab not in (found.stem, found.stem[:2], found.stem[:2].lstrip("0"), "0"):
        names = ", ".join(path.stem for path in there.values())
        raise ValueError(f"{lab}: expected one of the labs in {folder}, got another. There are: {names}.")
    return found
