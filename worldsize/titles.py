"""The first line of a cell that has a name: `# Exercise 6.3: reduce-scatter round the ring`, `# Example 6.1`, `# Set-up`.

A student may have changed the line, so it is read with tolerance: spaces more or fewer, another name or none. Who
demands the exact form compares with `Title.line`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

TitleKind = Literal["Set-up", "Exercise", "Example"]

# few digits: what a student wrote there must never be a number that is too long to read
_TITLE = re.compile(
    r"\s*#\s*(?:(?P<setup>Set-up)|(?P<kind>Exercise|Example)\s+(?P<lab>[0-9]{1,3})\.(?P<number>[0-9]{1,3}))\b"
    r"(?:[ \t]*:[ \t]*(?P<name>\S.*))?"
)


@dataclass(frozen=True)
class Title:
    """A cell's title. A set-up cell has no numbers; `name` is what stands after the colon, "" where nothing does."""

    kind: TitleKind
    lab: int = 0
    number: int = 0
    name: str = ""

    def __str__(self) -> str:
        return "Set-up" if self.kind == "Set-up" else f"{self.kind} {self.lab}.{self.number}"

    @property
    def whole(self) -> str:
        """ "Exercise 6.3: reduce-scatter round the ring"."""
        return f"{self}: {self.name}" if self.name else str(self)

    @property
    def line(self) -> str:
        """The exact first line of a cell with this title."""
        return f"# {self.whole}"


def title_of(source: str) -> Title | None:
    """The title in the first line of a cell's `source` that is not blank; None where that line is none."""
    found = _TITLE.match(source)
    if found is None:
        return None

    name = (found["name"] or "").rstrip()
    if found["setup"]:
        return Title("Set-up", name=name)
    return Title(cast(TitleKind, found["kind"]), int(found["lab"]), int(found["number"]), name)
