"""How many minutes a lab takes a student who meets it for the first time: one stated rule for all labs.

Parts whose heading says "(optional)" do not count, and neither do hints, nor cells that are folded. The rates are this
course's own choice, not a measurement. Technical prose is read at 238 words a minute at most (M. Brysbaert, "How many words
do we read per minute?", Journal of Memory and Language 109, 2019); here it is meant to be understood, at half of that.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from worldsize.authoring.folding import is_folded
from worldsize.authoring.source import Source, SourceCell, read_source, split_answer

WORDS_A_MINUTE = 120
CODE_LINES_A_MINUTE = 15
MINUTES_A_PREDICTION = 0.75
MINUTES_AN_EXERCISE = 5.0  # to understand what is asked, and to mend a first try
MINUTES_AN_ANSWER_LINE = 0.7
RUN_MINUTES = 1.5  # all cells of a lab, a few of them twice
ROUNDED_TO = 5

_DETAILS = re.compile(r"<details>.*?</details>", re.DOTALL)
_WORD = re.compile(r"\S*\w\S*")
_HEADING = re.compile(r"(#+) (.*)")
_SAID = re.compile(r"\*\*Minutes:\*\* (\d+)")


@dataclass(frozen=True)
class Workload:
    """What a lab asks of a student: counts, of the parts that are not optional."""

    words: int = 0
    code_lines: int = 0
    predictions: int = 0
    exercises: int = 0
    answer_lines: int = 0

    @property
    def minutes(self) -> int:
        exact = (
            self.words / WORDS_A_MINUTE
            + self.code_lines / CODE_LINES_A_MINUTE
            + self.predictions * MINUTES_A_PREDICTION
            + self.exercises * MINUTES_AN_EXERCISE
            + self.answer_lines * MINUTES_AN_ANSWER_LINE
            + RUN_MINUTES
        )
        return ROUNDED_TO * math.ceil(exact / ROUNDED_TO)


def workload(source: Source) -> Workload:
    """What the lab of this source asks, by the rule above."""
    words = code_lines = predictions = exercises = answer_lines = 0
    for cell in _to_be_done(source):
        if cell.kind == "markdown":
            words += len(_WORD.findall(_DETAILS.sub("", cell.text)))
            continue

        predictions += cell.text.count("lab.predict(")
        given, answer = split_answer(cell.text)
        exercises += cell.exercise is not None
        answer_lines += len(list(filter(str.strip, answer)))
        if not is_folded(cell):
            code_lines += len(list(filter(str.strip, given)))

    return Workload(words, code_lines, predictions, exercises, answer_lines)


def stated_minutes(source: Source) -> int | None:
    """The minutes that the lab's first cell promises, None where it promises none."""
    said = _SAID.search(source.cells[0].text)
    return int(said[1]) if said else None


def true_minutes(path: Path) -> str | None:
    """The text of the source at `path` with the rule's minutes in its first cell; None where it has them already."""
    source = read_source(path)
    minutes = workload(source).minutes
    if stated_minutes(source) in (None, minutes):
        return None
    return _SAID.sub(f"**Minutes:** {minutes}", path.read_text(encoding="utf-8"), count=1)


def _to_be_done(source: Source) -> list[SourceCell]:
    """The cells outside optional parts. A part goes from its heading to the next one of its level or above."""
    kept = []
    optional_level = 0
    for cell in source.cells:
        heading = _HEADING.match(cell.text) if cell.kind == "markdown" else None
        if heading:
            level = len(heading[1])
            if optional_level and level <= optional_level:
                optional_level = 0
            if not optional_level and "(optional)" in heading[2]:
                optional_level = level
        if not optional_level:
            kept.append(cell)

    return kept
