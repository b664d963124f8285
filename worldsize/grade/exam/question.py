"""An exam question: its text, the numbers drawn for a student, and its answer, computed in two ways.

`answer` uses a formula of the course. `again` counts or adds up the same by hand, so that a test can compare the two.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

TOLERANCE = 0.02  # relative error that counts as right, so that three digits are enough
APART = 2.5 * TOLERANCE  # least relative distance of a slip from the right answer
_DRAWS = 1000


@dataclass(frozen=True)
class ExamQuestion:
    """A question on lab `lab`. `text` has the drawn numbers in braces; the answer is a number in `unit`.

    `why` explains the answer to the marker. `slips` are usual wrong answers: numbers for which one would count as right are
    drawn again, and so are numbers that `admits` rejects.
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
    """A question with one student's numbers: the text to ask, and the answer in `question.unit`."""

    question: ExamQuestion
    numbers: dict[str, Any]
    text: str
    answer: float

    @property
    def tolerance(self) -> float:
        """Return the accepted error of an answer, in the question's unit."""
        return abs(self.answer) * TOLERANCE


class Given(SimpleNamespace):
    """A question's drawn numbers as attributes: `given.ranks`."""


def variant(question: ExamQuestion, seed: str) -> Variant:
    """Draw one student's numbers for `question`; the same seed draws the same numbers.

    Raises RuntimeError if no draw keeps the slips apart from the right answer: then the question is wrong.
    """
    draws = random.Random(f"{seed}/{question.id}")
    for _ in range(_DRAWS):
        numbers = {name: draws.choice(values) for name, values in question.draw.items()}
        given = Given(**numbers)
        if not question.admits(given):
            continue

        answer = float(question.answer(given))
        slips = [float(slip(given)) for slip in question.slips]
        # a relative tolerance needs an answer that is not 0
        if answer != 0 and all(abs(wrong - answer) > APART * abs(answer) for wrong in slips):
            return Variant(question, numbers, question.text.format(**numbers), answer)
    raise RuntimeError(f"{question.id}: no draw of {_DRAWS} keeps its usual wrong answers apart from the right one")
