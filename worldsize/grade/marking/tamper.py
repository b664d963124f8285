"""Changes to parts of a notebook that are not a student's to change, as data, and their sentences."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from worldsize.units import count

TamperKind = Literal[
    "set-up changed", "set-up missing", "set-up added",
    "exercise missing", "exercise without its name", "exercise repeated", "exercise split",
    "check missing", "check repeated", "check changed", "check of other points",
    "points claimed",  # by a cell that is not in the release
    "more",  # changes than a row keeps
]  # fmt: skip
SETUP_KINDS: tuple[TamperKind, ...] = ("set-up changed", "set-up missing", "set-up added")
_IN_SHORT: dict[TamperKind, tuple[str, str]] = {  # the noun that is counted, and what was done to it
    "set-up changed": ("set-up cell", "changed"), "set-up missing": ("set-up cell", "missing"),
    "set-up added": ("set-up cell", "added"), "exercise missing": ("exercise", "missing"),
    "exercise without its name": ("exercise", "without a name"), "exercise repeated": ("exercise", "repeated"),
    "exercise split": ("exercise", "split"), "check missing": ("check", "missing"), "check repeated": ("check", "repeated"),
    "check changed": ("check", "changed"), "check of other points": ("check", "of other points"),
    "points claimed": ("cell", "that claims points"), "more": ("other change", ""),
}  # fmt: skip
_OWN_USED = "the grader used the release's own"
_NOT_COUNTED = "does not count"
MOST_LINES = 3  # shown of the added lines


@dataclass(frozen=True)
class Tamper:
    """A change that tampers with a notebook. The fields after `place` are "", 0 or () if its kind does not use them."""

    kind: TamperKind
    place: str = ""  # the title of an exercise, the number of a set-up cell, the name of a cell that claims points
    exercise: str = ""  # the exercise's id
    first_line: str = ""  # of a set-up cell, after its title
    found: str = ""  # instead: a cell's type, or the points a cell claims
    points: float = 0.0  # of the check in the release
    count: int = 0  # cells of one name, added lines, or changes beyond a row's limit
    lines: tuple[str, ...] = ()  # the first added lines


def sentence(tamper: Tamper) -> str:
    """Return a tampering's sentence, which students see on their page, and instructors in a table."""
    exercise = f"{tamper.place} ({tamper.exercise})"
    check = f"the check of {tamper.place}"
    first_line = f"`{tamper.first_line}`" if tamper.first_line else "empty"
    setup = f"set-up cell {tamper.place} ({first_line})"

    match tamper.kind:
        case "set-up changed":
            changed = f"{setup} was changed: {_OWN_USED}"
            if tamper.count == 0:
                return changed
            shown = ", ".join(f"`{line}`" for line in tamper.lines)
            if tamper.count > MOST_LINES:
                shown += f" and {tamper.count - MOST_LINES} more"
            return f"{changed}; the addition {_NOT_COUNTED}: {shown}"
        case "set-up missing":
            return f"{setup} is missing: {_OWN_USED}"
        case "set-up added":
            own = f"{_NOT_COUNTED}: put what an exercise needs in its own cell"
            return f"a set-up cell that the release does not have ({first_line}) {own}"
        case "exercise missing":
            other = f"; a cell of that name is {tamper.found}, not code" if tamper.found else ""
            return f"{exercise}: its cell is missing{other}; the release's stub takes its place"
        case "exercise without its name":
            return f"{exercise}: its cell lost its name; the grader found it by its content"
        case "exercise repeated":
            return f"{exercise}: {tamper.count} cells have its name"
        case "exercise split":
            return f"{exercise}: its cell was split into {tamper.count}; the grader joined them"
        case "check missing":
            return f"{check} is missing: {_OWN_USED}"
        case "check repeated":
            return f"{check} appears {tamper.count} times"
        case "check changed":
            return f"{check} was changed: {_OWN_USED}"
        case "check of other points":
            return f"{check} claims {tamper.found} points; it is worth {tamper.points:g}"
        case "points claimed":
            return f"cell {tamper.place!r} claims points ({tamper.found}): the release has no such cell"
        case "more":
            return f"and {tamper.count} more changes"


def in_short(changes: Sequence[Tamper]) -> str:
    """Return a phrase that counts tampering by kind: "5 checks missing, 2 set-up cells missing"; one alone has its sentence."""
    if len(changes) == 1:
        return sentence(changes[0])

    counts: Counter[TamperKind] = Counter()
    for one in changes:
        counts[one.kind] += one.count if one.kind == "more" else 1
    return ", ".join(_counted(counts))


def _counted(counts: Counter[TamperKind]) -> Iterator[str]:
    for kind, number in counts.most_common():
        noun, what = _IN_SHORT[kind]
        yield f"{count(number, noun)} {what}".rstrip()
