"""The cells that count: a submission is its set-up cells and its exercise cells, and nothing else of the notebook.

A cell counts where its first line says so: `# Set-up` or `# Exercise 6.2: title`. Rebuilding the namespace from their
sources alone shows in the notebook what a grader will see. Left out: running a check.
"""

from __future__ import annotations

import builtins
import dis
import hashlib
import re
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

_TITLE = re.compile(r"#\s*(Set-up|Exercise\s+(\d+)\.(\d+))\b")


def counting(sources: Iterable[str]) -> dict[str, str]:
    """{title: source} of a lab notebook's graded cells, those that count in a submission.

    The latest version of each: set-up first, exercises by number.
    """
    latest: dict[str, str] = {}
    setups = 0
    for source in sources:
        found = _TITLE.match(source.lstrip())
        if found is None:
            continue
        title = found[1]
        if title == "Set-up":
            if source in latest.values():
                continue  # the same set-up cell, run again
            setups += 1
            title = f"Set-up {setups}"
        latest[title] = source
    return dict(sorted(latest.items(), key=lambda item: _order(item[0])))


def _order(title: str) -> tuple[int, int, int]:
    found = _TITLE.match(f"# {title}")
    if found and found[2]:
        return (1, int(found[2]), int(found[3]))
    return (0, 0, int(title.split()[-1]))


def digest(source: str) -> str:
    """A short hash of a graded cell's source, whatever spaces stand at the ends of its lines."""
    lines = [line.rstrip() for line in source.strip().splitlines()]
    return hashlib.blake2b("\n".join(lines).encode("utf-8", "replace"), digest_size=6).hexdigest()


def changed_setups(sources: dict[str, str], released: Iterable[str]) -> list[str]:
    """Beside the graded cells of a lab notebook: set-up cells that were changed, each by its first line after the title.

    Changed is a cell whose digest is not among those `released`.
    """
    known = set(released)
    changed = [s for title, s in sources.items() if title.startswith("Set-up") and digest(s) not in known]
    return [next((line.strip() for line in s.splitlines()[1:] if line.strip()), "nothing") for s in changed]


def rebuild(sources: dict[str, str], file_of: Callable[[str], str] = lambda source: "<cell>") -> dict[str, Any]:
    """The namespace that a lab notebook's graded cells make by themselves, run in order.

    A cell that fails leaves what it made so far.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for source in sources.values():
        try:
            exec(compile(source, file_of(source), "exec"), namespace)
        except Exception:
            continue  # it shows when the function that needs it is called
    return namespace


def missing_names(fn: Callable, namespace: dict[str, Any]) -> list[str]:
    """Names that a function in a lab notebook needs and that its graded cells alone do not define.

    `fn` needs them, or a function of `namespace` that it calls; the namespace does not have them.
    """
    missing: set[str] = set()
    seen: set[CodeType] = set()
    todo = [code for code in [getattr(fn, "__code__", None)] if code]
    while todo:
        code = todo.pop()
        if code in seen:
            continue
        seen.add(code)
        todo += [c for c in code.co_consts if isinstance(c, CodeType)]
        for name in _globals_of(code):
            if name in namespace:
                inner = getattr(namespace[name], "__code__", None)
                if inner is not None and getattr(namespace[name], "__module__", None) == "__main__":
                    todo.append(inner)
            elif not hasattr(builtins, name):
                missing.add(name)
    return sorted(missing)


def _globals_of(code: CodeType) -> set[str]:
    return {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
