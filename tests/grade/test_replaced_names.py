"""Cheats replace functions of the package. One whose function has moved would replace nothing, and so could not fail."""

import inspect
import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
IMPORTED = re.compile(r"\bfrom (worldsize[\w.]*) import ([\w, ]+)")
REPLACED = re.compile(r"(?<![\w.])([\w.]+)\.(\w+)\s*=(?!=)|\bsetattr\(([\w.]+), \"(\w+)\"")


def replaced_in(text: str) -> list[tuple[object, str]]:
    """Return (module or class, attribute) of each assignment to an attribute of something imported from the package.

    A file holds several sources, so the import above that is nearest says what a name stands for.
    """
    imports: list[tuple[int, str, str, str]] = []
    for match in IMPORTED.finditer(text):
        for one in match[2].split(","):
            name, *_, alias = one.split() * 2
            imports.append((match.start(), alias, match[1], name))

    found = []
    for match in REPLACED.finditer(text):
        head, *path = (match[1] or match[3]).split(".")
        above = [home for at, alias, *home in imports if alias == head and at < match.start()]
        if above:
            found.append((_owner(*above[-1], path), match[2] or match[4]))
    return found


def _owner(module: str, name: str, path: list[str]) -> object | None:
    """Return what the dotted name stands for, None if the package has no such thing."""
    try:
        home = import_module(module)
        start = getattr(home, name) if hasattr(home, name) else import_module(f"{module}.{name}")
        return reduce(getattr, path, start)
    except (AttributeError, ModuleNotFoundError):
        return None


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_what_a_cheat_replaces_is_there(path):
    gone = []
    for owner, attribute in replaced_in(path.read_text()):
        if owner is None or not (hasattr(owner, attribute) or _names(owner, attribute)):
            gone.append((owner, attribute))
    assert gone == []


def _names(owner: object, attribute: str) -> bool:
    """Tell whether the source of the owner's module has the name: an attribute of objects, or one that a cheat adds."""
    return bool(re.search(rf"\b{attribute}\b", inspect.getsource(inspect.getmodule(owner))))


def test_a_name_that_is_gone_is_found():
    text = "from worldsize.grade.inside import played_case as box, server\nbox._told = 1\nserver.gone = 2\nbox.gone.more = 3\n"
    assert [(getattr(owner, "__name__", owner), name) for owner, name in replaced_in(text)] == [
        ("worldsize.grade.inside.played_case", "_told"), ("worldsize.grade.inside.server", "gone"), (None, "more"),
    ]  # fmt: skip
