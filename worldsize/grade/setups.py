"""What a notebook has in place of the release's set-up cells, in words: they are graded with the release's, so a line that
a student added there is missing in a grade, and has to be named.

Left out: the exercise cells and their checks (`submission`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

_SHOWN_LINES, _SHOWN_CHARACTERS = 3, 60


def changes(setups: Sequence[str], sources: Iterable[str]) -> list[str]:
    """Words for each set-up cell of the release that is changed or missing, and for each that it does not have."""
    found = [_lines(source) for source in sources]
    given = [_lines(setup) for setup in setups]
    strangers = [lines for lines in found if lines[:1] == ["# Set-up"] and lines not in given]
    words = []
    for number, lines in enumerate(given, 1):
        if lines in found:
            continue
        name = f"set-up cell {number} ({_first(lines)})"
        theirs = max(strangers, key=lambda other: _common(lines, other), default=None)
        if theirs is None or not _common(lines, theirs):
            words.append(f"{name} is missing: the release's own was used")
            continue
        strangers.remove(theirs)
        words.append(f"{name} was changed: the release's own was used{_added(lines, theirs)}")
    own = "does not count: what an exercise needs belongs in its own cell"
    return [*words, *(f"a set-up cell that the release does not have ({_first(lines)}) {own}" for lines in strangers)]


def _lines(source: str) -> list[str]:
    return [line.rstrip() for line in source.strip().splitlines()]


def _common(one: list[str], other: list[str]) -> int:
    return len(set(filter(None, one[1:])) & set(other[1:]))


def _first(lines: list[str]) -> str:
    return next(_shown(lines[1:]), "with nothing in it")


def _added(given: list[str], theirs: list[str]) -> str:
    kept = set(given)
    added = [line for line in dict.fromkeys(theirs) if line not in kept]
    if not added:
        return ""
    shown = list(_shown(added))
    more = f" and {len(added) - _SHOWN_LINES} more" if len(added) > _SHOWN_LINES else ""
    return f"; what was added does not count: {', '.join(shown[:_SHOWN_LINES])}{more}"


def _shown(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        plain = "".join(c if c.isprintable() else "?" for c in line.strip()[:_SHOWN_CHARACTERS])
        if plain:
            yield f"`{plain}`"
