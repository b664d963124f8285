"""The title line of a cell: `# Exercise 6.3: reduce-scatter round the ring`, `# Example 6.1`, `# Set-up`.

A student may have changed the line, so the parser tolerates other spaces and another or no name. Code that needs the exact form
compares with `Title.line`.
"""

import re
from dataclasses import dataclass
from typing import Literal, cast

from typing_extensions import override

TitleKind = Literal["Set-up", "Exercise", "Example"]

# few digits: a student's text must never become a number that is too long to parse
_TITLE = re.compile(
    r"\s*#\s*(?:(?P<setup>Set-up)|(?P<kind>Exercise|Example)\s+(?P<lab>[0-9]{1,3})\.(?P<number>[0-9]{1,3}))\b"
    r"(?:[ \t]*:[ \t]*(?P<name>\S.*))?"
)


@dataclass(frozen=True)
class Title:
    """A cell's title. A set-up cell has no numbers; `name` is the text after the colon, "" if there is none."""

    kind: TitleKind
    lab: int = 0
    number: int = 0
    name: str = ""

    @override
    def __str__(self) -> str:
        return "Set-up" if self.kind == "Set-up" else f"{self.kind} {self.lab}.{self.number}"

    @property
    def whole(self) -> str:
        """The title with its name, such as "Exercise 6.3: reduce-scatter round the ring"."""
        return f"{self}: {self.name}" if self.name else str(self)

    @property
    def line(self) -> str:
        """The exact first line of a cell with this title."""
        return f"# {self.whole}"


def title_of(source: str) -> Title | None:
    """Return the title in the first nonblank line of a cell's `source`; None if that line is no title."""
    match = _TITLE.match(source)
    if match is None:
        return None

    name = (match["name"] or "").rstrip()
    if match["setup"]:
        return Title("Set-up", name=name)
    return Title(cast(TitleKind, match["kind"]), int(match["lab"]), int(match["number"]), name)
