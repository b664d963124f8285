"""A lab's questions on its page: the cells that answer each, its measurement, and the place of its field.

Questions and answers are read from the run's printed output (`Lab.predict` and `Lab.measure`). The page's script makes the
fields and covers the answers; without a script everything is open.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from nbformat import NotebookNode

from worldsize import pages
from worldsize.authoring.folding import PREDICTION

# printed for a question by a run without a reader
UNANSWERED = re.compile(r"^(.+) no prediction$", re.MULTILINE)
_NUMBER = re.compile(r"(-?[\d.,]+(?:e[+-]?\d+)?)(?: (.*))?")


@dataclass(frozen=True)
class Question:
    """A question in a cell, and the run's measurement, as text such as "0.51 s". `answered_in`: places of code cells."""

    text: str
    asked_in: int
    measured: str
    answered_in: tuple[int, ...]

    @property
    def value(self) -> float:
        return float(self._parts()[0].replace(",", ""))

    @property
    def unit(self) -> str:
        return self._parts()[1]

    def _parts(self) -> tuple[str, str]:
        found = _NUMBER.fullmatch(self.measured)
        if found is None:
            raise ValueError(f"site: expected a number and its unit for {self.text!r}, got {self.measured!r}")
        return found[1], found[2] or ""

    def html(self, number: int) -> str:
        """Return the place of the field of a page's question `number`."""
        return (
            f'<div class="ws-question" data-question="{number}" data-value="{self.value!r}"'
            f' data-unit="{html.escape(self.unit)}" data-measured="{html.escape(self.measured)}">'
            f'<p id="question-{number}">{pages.inline_code(self.text)}</p></div>'
        )


def questions_of(cells: Sequence[NotebookNode]) -> list[Question]:
    """Return the questions that these cells of a page ask and whose answer they measure, in order.

    A question is answered by the following code cells, up to the next heading or question below its measurement.
    """
    questions = []
    for place, cell in enumerate(cells):
        for text in UNANSWERED.findall(_printed(cell)):
            measured = _measured(text, cells[place + 1 :])
            if measured is None:
                continue

            last, measurement = measured
            answers = []
            for at, below in enumerate(cells[place + 1 :], place + 1):
                begins_a_part = below.source.startswith("#" if below.cell_type == "markdown" else PREDICTION)
                if at > place + 1 + last and begins_a_part:
                    break
                if below.get("outputs") and not UNANSWERED.search(_printed(below)):
                    answers.append(at)
            questions.append(Question(text, place, measurement, tuple(answers)))
    return questions


def _printed(cell: NotebookNode) -> str:
    """Return the text that a page's cell printed, such as a question."""
    return "".join(output.text for output in cell.get("outputs", []) if output.output_type == "stream")


def _measured(question: str, cells: Sequence[NotebookNode]) -> tuple[int, str] | None:
    """Return the place of the first cell that prints the result of `question`, and the result."""
    says = re.compile(rf"^{re.escape(question)}\n  it was (.+)$", re.MULTILINE)
    for place, cell in enumerate(cells):
        found = says.search(_printed(cell))
        if found and _NUMBER.fullmatch(found[1]):
            return place, found[1]
    return None
