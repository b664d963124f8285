"""A lab's source, parsed into cells with their ids, exercises and answers.

This module alone knows the markers of an answer and the tags of a cell, so it reports every mistake in them: one paragraph with
the file, the line and the cell. The format is jupytext's percent format. The markers are nbgrader's, in one exact spelling,
because nbgrader ignores a marker that it does not recognize and so ships the answer.
"""

import json
import math
import re
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from worldsize.titles import title_of

BEGIN = "### BEGIN SOLUTION"
END = "### END SOLUTION"

_FILE_NAME = re.compile(r"(\d\d)_[a-z0-9_]+\.py")
_HEADER = re.compile(r"# %%%*(\s|$)")
# "check_ring" is the name of the cell that checks "ring"
_ID = re.compile(r"(?!check_)[a-z][a-z0-9_]{0,50}")
# Three hashes and begin or end, or any hash before the words of nbgrader's markers.
_LIKE_A_MARKER = re.compile(
    r"#{3,}\s*(begin|end)(?![a-rt-z])|#\s*(begin|end)[\s_-]*(sol\w*\s*$|hidden|mark)", re.IGNORECASE
)
# Prose may have a heading "### Begin with two ranks", so lower case needs the second word.
_LIKE_A_MARKER_IN_PROSE = re.compile(r"#{3,}\s*(BEGIN|END)\b|#\s*(?i:(begin|end)[\s_-]*(solu|hidden|mark))")


class BuildError(ValueError):
    """A broken rule in a lab's source; the message says where, expected, got and the next step."""


@dataclass(frozen=True)
class SourceCell:
    """A cell of the source. `line` is the line of `text` in the file, None if unknown."""

    number: int
    line: int | None
    kind: str
    text: str
    tags: tuple[str, ...] = ()
    points: int | float | None = None
    id: str = ""

    def tagged(self, prefix: str) -> str | None:
        """Return the rest of this source cell's tag after `prefix:`, such as the id in `exercise:<id>`."""
        for tag in self.tags:
            if tag.startswith(f"{prefix}:"):
                return tag.partition(":")[2]
        return None

    @property
    def exercise(self) -> str | None:
        return self.tagged("exercise")

    @property
    def check(self) -> str | None:
        return self.tagged("check")


@dataclass(frozen=True)
class Source:
    """A lab's source that passed every check."""

    path: Path
    lab: str
    cells: tuple[SourceCell, ...]


def read_source(path: Path) -> Source:
    """Return the cells of the lab's source `path` with their ids. Raises BuildError for the first broken rule."""
    named = _FILE_NAME.fullmatch(path.name)
    if named is None:
        raise BuildError(
            f"{_short(path)}: expected a file name such as 06_ring_all_reduce.py, got"
            f" {path.name!r}; rename it: two digits, an underscore, a topic in lower case."
        )

    cells = _cells(path)
    for cell in cells:
        _check_markers(path, cell)
    _check_tags(path, cells)
    _check_exercises(path, cells, int(named[1]))
    _check_checks(path, cells)

    return Source(path, named[1], _with_ids(cells, named[1]))


def stub(text: str) -> str:
    """Return the line that replaces the source's answer in the exercise whose cell has this `text`."""
    title = text.split("\n", 1)[0].rstrip().removeprefix("# ")
    return f"raise NotYet({json.dumps(title, ensure_ascii=False)})"


def split_answer(text: str) -> tuple[list[str], list[str]]:
    """Split an exercise cell of a source at its markers into (given lines, answer lines); neither contains the markers."""
    given: list[str] = []
    answer: list[str] = []
    lines = given

    for line in text.split("\n"):
        if line.strip() == BEGIN:
            lines = answer
        elif line.strip() == END:
            lines = given
        else:
            lines.append(line)

    return given, answer


def answer_lines(source: Path) -> dict[str, list[str]]:
    """Return {exercise: the nonblank lines between its markers} of an authored source."""
    answers = {}
    for cell in read_source(source).cells:
        if cell.exercise:
            _, answer = split_answer(cell.text)
            answers[cell.exercise] = list(filter(str.strip, answer))

    return answers


def given_lines(source: Path) -> list[str]:
    """Return a source's lines of code outside the answers' markers, which a release may show."""
    lines: list[str] = []
    for cell in read_source(source).cells:
        if cell.kind == "code":
            given, _ = split_answer(cell.text)
            lines += given

    return lines


def points(source: Path) -> float:
    """Return the points of an authored source: the sum over its check cells."""
    return sum(cell.points or 0 for cell in read_source(source).cells)


def set_ups(source: Path) -> list[str]:
    """Return the text of each set-up cell of an authored source."""
    texts = []
    for cell in read_source(source).cells:
        if cell.kind == "code" and cell.text.startswith("# Set-up"):
            texts.append(cell.text)

    return texts


def _cells(path: Path) -> list[SourceCell]:
    import jupytext

    text = path.read_text(encoding="utf-8")
    parsed = jupytext.reads(text, fmt="py:percent").cells
    lines: list[int | None] = [n + 1 for n, line in enumerate(text.split("\n"), 1) if _HEADER.match(line)]
    if len(lines) != len(parsed):  # a header inside a string, or text before the first header: line numbers are unknown
        lines = [None] * len(parsed)

    cells = []
    for number, (cell, line) in enumerate(zip(parsed, lines, strict=True), 1):
        meta = cell.metadata
        read_cell = SourceCell(number, line, cell.cell_type, cell.source)
        if "incorrectly_encoded_metadata" in meta:
            got = meta["incorrectly_encoded_metadata"]
            expected = 'a header such as # %% tags=["check:ring"] points=2'
            _fail(path, read_cell, 0, expected, f"{got!r}", "fix the cell's header")
        cells.append(replace(read_cell, tags=tuple(meta.get("tags", ())), points=meta.get("points")))

    return cells


def _with_ids(cells: list[SourceCell], lab: str) -> tuple[SourceCell, ...]:
    slug = "top"
    counts: dict[str, int] = {}
    named = []
    for cell in cells:
        heading = re.search(r"^#{1,6} +(.+)$", cell.text, re.MULTILINE)
        if heading and cell.kind == "markdown":
            words = re.sub(r"[\W_]+", "-", unicodedata.normalize("NFKD", heading[1]).lower())
            words = words.encode("ascii", "ignore").decode().strip("-")
            slug = words[:50].strip("-") or "section"  # an id has at most 64 characters; lab and ordinal need a few

        if cell.exercise:
            name = cell.exercise
        elif cell.check:
            name = f"check_{cell.check}"
        else:
            counts[slug] = counts.get(slug, 0) + 1
            name = f"{lab}-{slug}-{counts[slug]}"
        named.append(replace(cell, id=name))

    return tuple(named)


def _short(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _fail(path: Path, cell: SourceCell, offset: int, expected: str, got: str, do: str) -> NoReturn:
    name, *_ = (*cell.tags, cell.kind)
    where = f"{_short(path)}, cell {cell.number} ({name}), line {offset + 1}"
    if cell.line is not None:
        where += f" (line {cell.line + offset} of the file)"
    raise BuildError(f"{where}: expected {expected}, got {got}; {do}.")


def _check_markers(path: Path, cell: SourceCell) -> None:
    like, opened = _LIKE_A_MARKER_IN_PROSE, None
    if cell.kind == "code":
        like = _LIKE_A_MARKER

    for offset, line in enumerate(cell.text.split("\n")):
        if not like.search(line):
            continue

        got = line.strip()
        if cell.kind != "code":
            do = "move the answer to a code cell, or reword the prose"
            _fail(path, cell, offset, f"no marker in a {cell.kind} cell", repr(got), do)

        if got not in (BEGIN, END):
            do = "write the marker alone on its line, in exactly these letters and spaces"
            _fail(path, cell, offset, f"{BEGIN!r} or {END!r}", repr(got), do)

        if got == BEGIN and opened is not None:
            expected = f"{END!r} for the region opened on line {opened + 1} of the cell"
            _fail(path, cell, offset, expected, f"{got!r} nested in it", "close the first one")
        if got == END and opened is None:
            do = "open the region, or remove this line"
            _fail(path, cell, offset, f"{BEGIN!r} above this line", f"a stray {got!r}", do)

        if cell.exercise is None:
            do = 'tag the cell "exercise:<id>", or remove the markers'
            _fail(path, cell, offset, "a marker only in an exercise cell", repr(got), do)
        opened = offset if got == BEGIN else None

    if opened is not None:
        _fail(path, cell, opened, f"{END!r} after this line", "the end of the cell", "close it")


def _check_tags(path: Path, cells: list[SourceCell]) -> None:
    for cell in cells:
        tags = [tag for tag in cell.tags if tag.startswith(("exercise:", "check:"))]
        for tag in tags:
            if len(tags) > 1 or cell.kind != "code":
                expected = "one tag exercise:<id> or check:<id>, on a code cell"
                got = f"{', '.join(tags)} on a {cell.kind} cell"
                _fail(path, cell, 0, expected, got, "split the cell or fix its tags")

            if not _ID.fullmatch(tag.split(":", 1)[1]):
                expected = "an id of lower-case letters, digits and underscores that does not begin with check_"
                _fail(path, cell, 0, expected, repr(tag), "rename it")


def _check_exercises(path: Path, cells: list[SourceCell], lab: int) -> None:
    ids: dict[str, SourceCell] = {}
    numbers: dict[str, SourceCell] = {}
    for cell in cells:
        if cell.exercise is None:
            continue

        _, answer = split_answer(cell.text)
        if not "".join(answer).strip():
            got = "none"
            if BEGIN in cell.text:
                got = "an empty region"
            do = "put the markers around the answer"
            _fail(path, cell, 0, f"an answer between {BEGIN!r} and {END!r}", got, do)

        first = cell.text.split("\n", 1)[0]
        title = title_of(first)
        if title is None or (title.kind, title.lab, title.line) != ("Exercise", lab, first.rstrip()) or not title.name:
            do = "number and name the exercise there"
            _fail(path, cell, 0, f"'# Exercise {lab}.<number>: <title>'", repr(first), do)

        for seen, key in ((ids, f"id {cell.exercise}"), (numbers, f"number {lab}.{title.number}")):
            if key in seen:
                got = f"{key} again, first used in cell {seen[key].number}"
                _fail(path, cell, 0, "a unique id and number", got, "rename one of them")
            seen[key] = cell


def _check_checks(path: Path, cells: list[SourceCell]) -> None:
    above: dict[str, bool] = {}  # each exercise so far, True if it has been checked
    for cell in cells:
        if cell.exercise:
            above[cell.exercise] = False
        if not cell.check:
            if cell.points is not None:
                do = "move the points to the check cell of an exercise"
                _fail(path, cell, 0, "points only on a check cell", f"points={cell.points!r}", do)
            continue

        if cell.check not in above:
            known = ", ".join(above) or "no exercise"
            do = "fix the id, or put the check below its exercise"
            _fail(path, cell, 0, f"an exercise above it ({known})", f"check:{cell.check}", do)

        if above[cell.check]:
            do = "keep one check for each exercise"
            _fail(path, cell, 0, "a single check", f"check:{cell.check} again", do)
        above[cell.check] = True

        is_number = isinstance(cell.points, (int, float)) and not isinstance(cell.points, bool)
        if not is_number or not 0 <= cell.points < math.inf:
            got = f"points={cell.points!r}"
            if cell.points is None:
                got = "none"
            do = "add points=<number> to the cell's header"
            _fail(path, cell, 0, "points of 0 or more", got, do)

    for cell in cells:
        if cell.exercise and not above[cell.exercise]:
            do = "add the check cell, with points=0 if it earns nothing"
            _fail(path, cell, 0, f"a cell tagged 'check:{cell.exercise}' below it", "none", do)
