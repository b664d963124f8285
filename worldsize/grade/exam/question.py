"""A question of an exam: its text, the numbers that are drawn for a student, and its answer, computed in two ways.

`answer` is a formula of the course; `again` counts or adds up the same by hand, so that a test can compare the two. `slips` are
wrong answers that students give: a drawn variant in which one of them would count as right is drawn anew. Left out: how an
exam is put together and written (`exam`, `writers`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

TOLERANCE = 0.02  # relative: what counts as right, so that three digits are enough
APART = 2.5 * TOLERANCE  # a usual wrong answer stays this far from the right one
_DRAWS = 1000

Numbers = Mapping[str, Any]


@dataclass(frozen=True)
class ExamQuestion:
    """One question of lab `lab`. `text` has the drawn numbers in braces; the answer is a number in `unit`.

    `why` explains the answer in a sentence, for whoever marks or reviews the exam.
    """

    id: str
    lab: str
    text: str
    unit: str
    draw: Mapping[str, tuple]
    answer: Callable[[Any], float]
    again: Callable[[Any], float]
    why: str
    slips: tuple[Callable[[Any], float], ...] = ()
    admits: Callable[[Any], bool] = lambda given: True


@dataclass(frozen=True)
class Variant:
    """A question with one student's numbers: the text that is asked, and the answer in `question.unit`."""

    question: ExamQuestion
    numbers: dict[str, Any]
    text: str
    answer: float

    @property
    def tolerance(self) -> float:
        """Return how far off an answer may be, in the question's unit."""
        return abs(self.answer) * TOLERANCE


class Given:
    """Drawn numbers by name: `given.ranks`."""

    def __init__(self, numbers: Numbers) -> None:
        self.__dict__.update(numbers)


def variant(question: ExamQuestion, seed: str) -> Variant:
    """Draw the numbers of one student's `question`; the same seed draws the same numbers.

    Raises RuntimeError where no draw keeps the usual wrong answers apart from the right one, which is a mistake of the question.
    """
    draws = random.Random(f"{seed}/{question.id}")
    for _ in range(_DRAWS):
        numbers = {name: draws.choice(values) for name, values in question.draw.items()}
        given = Given(numbers)
        if not question.admits(given):
            continue
        answer = float(question.answer(given))
        if answer != 0 and all(_apart(answer, float(slip(given))) for slip in question.slips):
            return Variant(question, numbers, question.text.format(**numbers), answer)
    raise RuntimeError(f"{question.id}: no draw of {_DRAWS} keeps its usual wrong answers apart from the right one")


def _apart(right: float, wrong: float) -> bool:
    return abs(wrong - right) > APART * abs(right)
