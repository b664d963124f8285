"""Set-up cells: their lines, their digest, and which of a notebook's differ from the release's."""

import hashlib
from collections.abc import Iterable

from worldsize.cells.notebook_cells import lines_of
from worldsize.titles import title_of

SETUP = "Set-up"


def setup_lines(source: str) -> list[str]:
    """Return the lines of a set-up cell, its title reduced to the kind; [] for any other cell."""
    title = title_of(source)
    if title is None or title.kind != SETUP:
        return []
    return [f"# {SETUP}", *lines_of(source)[1:]]


def digest(setup: str) -> str:
    """Return a short hash of a set-up cell's lines; the rest of its title does not count."""
    text = "\n".join(setup_lines(setup))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()


def changed_setups(setups: Iterable[str], released: Iterable[str]) -> list[str]:
    """Return the changed cells among a notebook's `setups`, each by its first nonblank line after the title.

    A cell is changed if its digest is not in `released`.
    """
    known = set(released)
    changed = []
    for source in setups:
        if digest(source) not in known:
            below = (line.strip() for line in source.splitlines()[1:])
            changed.append(next(filter(None, below), "nothing"))
    return changed
