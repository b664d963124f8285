"""The minutes that a lab takes a student who meets it for the first time: one stated rule for all labs.

Optional parts (whose heading says "(optional)"), hints and folded cells do not count. Technical prose is read at 238 words a
minute at most (M. Brysbaert, "How many words do we read per minute?", Journal of Memory and Language 109, 2019); to be
understood, it is counted at half of that. The rates for code, predictions and exercises are this course's own choice. The rate
per answer line has the least squared error over seven labs whose first readers noted their time
(`tests/authoring/test_minutes.py`).

A lab of more than two hours takes two sittings. Its first cell says after which part to stop.
"""

import math
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from worldsize.authoring.folding import is_folded
from worldsize.authoring.source import Source, SourceCell, read_source, split_answer

WORDS_A_MINUTE = 120
CODE_LINES_A_MINUTE = 15
MINUTES_A_PREDICTION = 0.75
MINUTES_AN_EXERCISE = 5.0  # to understand the task, and to correct a first try
MINUTES_AN_ANSWER_LINE = 1.5
RUN_MINUTES = 1.5  # all cells of a lab, a few of them twice
ROUNDED_TO = 5
SITTING_MINUTES = 120  # of one sitting, at most
LINE_WIDTH = 128
OPTIONAL = "(optional)"

_DETAILS = re.compile(r"<details>.*?</details>", re.DOTALL)
_WORD = re.compile(r"\S*\w\S*")
_HEADING = re.compile(r"(#+) (.*)")
_PART = re.compile(r"## (.*)")
_SAID = re.compile(r"\*\*Minutes:\*\*\s+(\d+)(?:\s+\(two\s+sittings:[^)]*\))?")


@dataclass(frozen=True)
class Workload:
    """A lab's workload for a student: counts, over the parts that are not optional."""

    words: int = 0
    code_lines: int = 0
    predictions: int = 0
    exercises: int = 0
    answer_lines: int = 0

    @property
    def exact_minutes(self) -> float:
        """Minutes of the counted work, without running the cells, not rounded."""
        return (
            self.words / WORDS_A_MINUTE
            + self.code_lines / CODE_LINES_A_MINUTE
            + self.predictions * MINUTES_A_PREDICTION
            + self.exercises * MINUTES_AN_EXERCISE
            + self.answer_lines * MINUTES_AN_ANSWER_LINE
        )

    @property
    def minutes(self) -> int:
        return ROUNDED_TO * math.ceil((self.exact_minutes + RUN_MINUTES) / ROUNDED_TO)


@dataclass(frozen=True)
class TimedPart:
    """A part of a lab by its heading, `##` or an optional one below that: its workload and its exercises."""

    title: str
    optional: bool
    workload: Workload
    exercises: tuple[str, ...]


@dataclass(frozen=True)
class Sitting:
    """The first of a lab's two sittings: its minutes, and the title of the part before which it ends."""

    minutes: int
    ends_before: str


def workload(source: Source) -> Workload:
    """Return the workload of this source's lab, by the rule above."""
    return _asked(_to_be_done(source))


def first_sitting(source: Source) -> Sitting | None:
    """Return the first sitting of a lab too long for one, ending before the part nearest to half; None for a shorter lab."""
    whole = workload(source)
    if whole.minutes <= SITTING_MINUTES:
        return None

    cells = _to_be_done(source)
    starts = [k for k, cell in enumerate(cells) if cell.kind == "markdown" and _PART.match(cell.text)]
    before = {k: _asked(cells[:k]).exact_minutes for k in starts}
    stop = min(starts, key=lambda k: abs(before[k] - whole.exact_minutes / 2))
    return Sitting(ROUNDED_TO * round(before[stop] / ROUNDED_TO), _PART.match(cells[stop].text)[1])


def parts(source: Source) -> list[TimedPart]:
    """Return a lab's timed parts from top to bottom. Cells after an optional part inside a `##` count for that `##` again."""
    cells: dict[str, list[SourceCell]] = {}
    around = inside = ""
    level = 0
    for cell in source.cells:
        heading = _HEADING.match(cell.text) if cell.kind == "markdown" else None
        if heading:
            marks, title = heading.groups()
            if len(marks) == 2:
                around, inside = title, ""
            elif len(marks) <= level:
                inside = ""
            if len(marks) > 2 and OPTIONAL in title:
                inside, level = title, len(marks)
        if around:
            cells.setdefault(inside or around, []).append(cell)

    timed_parts = []
    for title, own in cells.items():
        exercises = tuple(cell.exercise for cell in own if cell.exercise)
        timed_parts.append(TimedPart(title.replace(OPTIONAL, "").strip(), OPTIONAL in title, _asked(own), exercises))
    return timed_parts


def said(source: Source) -> str:
    """Return the minutes as the lab's first cell states them."""
    minutes, first = workload(source).minutes, first_sitting(source)
    if first is None:
        return f"**Minutes:** {minutes}"
    rest = minutes - first.minutes
    return f"**Minutes:** {minutes} (two sittings: {first.minutes} up to “{first.ends_before}”, then {rest})"


def _asked(cells: list[SourceCell]) -> Workload:
    words = code_lines = predictions = exercises = answer_lines = 0
    for cell in cells:
        if cell.kind == "markdown":
            words += len(_WORD.findall(_SAID.sub("", _DETAILS.sub("", cell.text))))
            continue

        predictions += cell.text.count("lab.predict(")
        given, answer = split_answer(cell.text)
        exercises += cell.exercise is not None
        answer_lines += len(list(filter(str.strip, answer)))
        if not is_folded(cell):
            code_lines += len(list(filter(str.strip, given)))

    return Workload(words, code_lines, predictions, exercises, answer_lines)


def true_minutes(path: Path) -> str | None:
    """Return the text of the source at `path` with the correct minutes in its first cell; None if they are correct already."""
    source = read_source(path)
    sentence = _SAID.search(source.cells[0].text)
    if sentence is None or " ".join(sentence[0].split()) == said(source):
        return None

    text = path.read_text(encoding="utf-8")
    paragraph = next(part for part in text.split("\n#\n") if "**Minutes:**" in part)
    lines, *after = paragraph.partition("\n\n")
    joined = " ".join(line.removeprefix("# ") for line in lines.split("\n"))
    wrapped = textwrap.wrap(_SAID.sub(said(source), joined), LINE_WIDTH, break_long_words=False, break_on_hyphens=False)
    return text.replace(paragraph, "\n".join(f"# {line}" for line in wrapped) + "".join(after), 1)


def _to_be_done(source: Source) -> list[SourceCell]:
    """Return the cells outside optional parts, whose minutes count. A part ends at the next heading of its level or above."""
    kept = []
    optional_level = 0
    for cell in source.cells:
        heading = _HEADING.match(cell.text) if cell.kind == "markdown" else None
        if heading:
            level = len(heading[1])
            if level <= optional_level:
                optional_level = 0
            if not optional_level and OPTIONAL in heading[2]:
                optional_level = level
        if not optional_level:
            kept.append(cell)

    return kept
