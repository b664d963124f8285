"""The cells that count: a submission is its set-up cells and its exercise cells, and nothing else of the notebook.

A cell counts by its first line: `# Set-up` or `# Exercise 6.2: title`. The namespace rebuilt from these sources alone shows a
student what a grader will see. `checker` runs the checks.
"""

from __future__ import annotations

import ast
import builtins
import dis
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import CodeType, MappingProxyType
from typing import Any

from worldsize.lab import python_cell
from worldsize.lab.statements import statements
from worldsize.titles import Title, title_of

SETUP = "Set-up"


@dataclass(frozen=True)
class GradedCells:
    """The cells of a notebook that count: `sources` by title, set-up first, exercises by number.

    `broken` has the syntax error of each title whose latest version does not compile, so that an earlier version counts.
    `untitled` has the functions whose cell lost its title and was found by its definition.
    """

    sources: dict[str, str]
    broken: dict[str, SyntaxError]
    untitled: frozenset[str] = frozenset()


def graded(sources: Iterable[str], exercises: Mapping[str, Title] | None = None) -> GradedCells:
    """Return the graded cells among the `sources` of all cells that ran, in running order.

    The latest version of each that Python can parse counts. `exercises` maps functions to titles, for cells that lost theirs.
    """
    latest: dict[str, str] = {}
    broken: dict[str, SyntaxError] = {}
    numbers: dict[str, tuple[int, int]] = {}
    unnamed: list[str] = []

    for source in sources:
        found = title_of(source)
        if found is None or found.kind == "Example":
            unnamed.append(source)
            continue

        name = str(found)
        if name == SETUP:
            if source in latest.values():
                continue  # the same set-up cell, run again
            name = f"{SETUP} {1 + sum(known.startswith(SETUP) for known in latest)}"

        error = _syntax_error(source)
        if error is not None and name in latest:
            broken[name] = error
            continue

        broken.pop(name, None)
        latest[name] = source
        numbers[name] = (found.lab, found.number)

    untitled = set()
    for function, title in (exercises or {}).items():
        if str(title) in latest:
            continue
        for source in reversed(unnamed):
            if defines(source, function) and _syntax_error(source) is None:
                latest[str(title)] = source
                numbers[str(title)] = (title.lab, title.number)
                untitled.add(function)
                break

    ordered = sorted(latest, key=numbers.__getitem__)  # set-up cells have no numbers, and keep their order
    return GradedCells({name: latest[name] for name in ordered}, broken, frozenset(untitled))


def counting(sources: Iterable[str]) -> dict[str, str]:
    """Return {title: source} of a lab notebook's graded cells."""
    return graded(sources).sources


def _syntax_error(source: str) -> SyntaxError | None:
    try:
        ast.parse(source)
    except SyntaxError as error:
        return error
    except ValueError:  # a null byte
        return SyntaxError("it holds a null byte")
    return None


def defines(source: str, name: str) -> bool:
    """Return True if a cell defines `name` at its top level, by `def`, by `=` or otherwise."""
    if name not in source:
        return False

    escaped = re.escape(name)
    if re.search(rf"^def\s+{escaped}\s*\(|^{escaped}\s*=", source, re.MULTILINE):
        return True
    return any(name in one.binds for one in statements(source))


def lines_of(source: str) -> list[str]:
    """Return a graded cell's lines without trailing spaces and outer blank lines; equal lines mean the same cell."""
    return [line.rstrip() for line in source.strip().splitlines()]


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


def changed_setups(sources: dict[str, str], released: Iterable[str]) -> list[str]:
    """Return the changed set-up cells, each by its first nonblank line after the title.

    A cell is changed if its digest is not in `released`.
    """
    known = set(released)
    changed = []
    for title, source in sources.items():
        if title.startswith(SETUP) and digest(source) not in known:
            below = (line.strip() for line in source.splitlines()[1:])
            changed.append(next(filter(None, below), "nothing"))
    return changed


def rebuild(sources: dict[str, str], files: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Return the namespace that the graded cells make by themselves, run in order.

    A cell that fails leaves the names it made so far. `files` maps a cell's text, without trailing whitespace, to its file name
    in the notebook.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for source in sources.values():
        try:
            python_cell.run(python_cell.compiled(source, files.get(source.rstrip(), "<cell>")), namespace)
        except Exception:
            continue  # its error shows when the function that needs it is called
    return namespace


def missing_names(fn: Callable, namespace: dict[str, Any]) -> list[str]:
    """Return the names that `fn` needs and that the graded cells alone do not define.

    Functions of `namespace` that `fn` calls are searched too.
    """
    missing: set[str] = set()
    seen: set[CodeType | None] = {None}  # None stands for a value without code
    todo = [getattr(fn, "__code__", None)]
    while todo:
        code = todo.pop()
        if code in seen:
            continue

        seen.add(code)
        todo += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for instruction in dis.get_instructions(code):
            if instruction.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
                continue

            name = instruction.argval
            if name not in namespace:
                missing.add(name)
            elif getattr(namespace[name], "__module__", None) == "__main__":
                todo.append(getattr(namespace[name], "__code__", None))
    return sorted(name for name in missing if not hasattr(builtins, name))
