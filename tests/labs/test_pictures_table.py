"""What somebody read off each picture of a lab, in tables of `tests/labs/pictures/`: a row for every picture, and no other.

A row: the figure's function, the question over it as it stands in the source, what one reads in five seconds, and "yes" or what
was changed so that one does. A question of a picture that is asked none in the source is the author's, in brackets. A picture
that no cell calls for, such as a deadlock's, has a row without backticks, which nothing holds.
"""

import ast
from pathlib import Path

import pytest

from tests.support.lab_pictures import ASKED, SOURCES, assigned, calls, followed, question

TABLES = sorted((Path(__file__).parent / "pictures").glob("[0-9][0-9].md"))
HEAD = ["picture", "question", "read in five seconds", "yes, or what was changed"]
every_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)


def rows(table: Path) -> list[list[str]]:
    """The cells of a table's rows, head and rule first."""
    lines = [line for line in table.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def written(words: ast.expr, names: dict[str, list[ast.Assign]]) -> str:
    """A string as it stands in the source, with the code of what is put in; a variable is followed to where it was written."""
    words = followed(words, names)
    if isinstance(words, ast.Constant):
        return words.value

    assert isinstance(words, ast.JoinedStr)
    parts = []
    for part in words.values:
        parts.append(part.value if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}")
    return "".join(parts)


def drawn(source: Path) -> list[tuple[str, str]]:
    """Each picture of a lab from top to bottom: its function, and its question, empty where it is asked none."""
    names = assigned(source)
    found = []
    for name, call in sorted(calls(source), key=lambda one: one[1].lineno):
        if name.isidentifier() and name[0].islower() and name != "not_yet":
            asks = question(name, call) if name in ASKED else None
            found.append((name, "" if asks is None else written(asks, names)))
    return found


def listed(table: Path) -> list[tuple[str, str]]:
    found = []
    for name, asks, *_ in rows(table)[2:]:
        own = asks.startswith("(") and asks.endswith(")")
        if name.startswith("`"):
            found.append((name.strip("`"), "" if own else asks))
    return found


@every_table
def test_every_picture_of_a_lab_has_a_row_and_no_row_is_stale(table: Path) -> None:
    [source] = [source for source in SOURCES if source.stem.startswith(table.stem)]
    assert listed(table) == drawn(source)


@every_table
def test_a_row_says_what_one_reads_and_what_was_changed(table: Path) -> None:
    head, _, *found = rows(table)
    assert head == HEAD
    assert [row for row in found if len(row) != len(HEAD) or not all(row)] == []
