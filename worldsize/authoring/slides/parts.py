"""The parts of a lab as its slides show them: under each heading a question, the picture that answers it, and a sentence.

Everything is found by structure; a cell tagged `slide` overrides the choice of a part's picture. `lab_page` has already removed
exercises' code and outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nbformat import NotebookNode

from worldsize.authoring.covers import TAG as COVER
from worldsize.authoring.site.lab_page import lab_page
from worldsize.authoring.site.questions import UNANSWERED, printed, questions_of
from worldsize.authoring.slides.pictures import Shown, shown_in
from worldsize.titles import title_of

TAG = "slide"
MOST_LEAD_WORDS = 60
MOST_PRINTED_LINES, MOST_PRINTED_LETTERS = 10, 78
OPTIONAL = " (optional)"

_HEADING = re.compile(r"^(#{2,3}) (.+)\n?")
_SUMMARY = re.compile(r"^lab\.summary\(", re.MULTILINE)
_SENTENCE = re.compile(r"\*\*In one sentence:\*\*\s*(?P<asked>.+?)(?=\n\n|\Z)", re.DOTALL)
_COMPARE = re.compile(r"<details>\s*<summary>Compare</summary>(?P<said>.*?)</details>", re.DOTALL)
_FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)
# the beginning of a paragraph that is no list, table, picture or formula
_WORDS = re.compile(r"(?!\* )[\w*`“\"(]")
# a launch's own line, and a prediction's result
_NOT_A_TABLE = re.compile(r"^.* · .*\n?|^.*\n  it was .*\n?", re.MULTILINE)
# a sentence that only makes sense beside the notebook's cells
_OF_THE_CELLS = re.compile(
    r"\b[Bb]elow(?:[,.]|\s+(?:is|are)\b)|\b[Tt]he\s+\w+\s+(?:above|below)\b|\bprinted\s+above\b"
    r"|\b(?:next|following)\s+cells?\b|\bclick\b|\bHere\s+(?:is\s+the|are)\b|:$"
    r"|\b[Tt]his\s+notebook\b|\bof\s+the\s+last\s+section\b|\bjust\s+now\b|\b[Tt]hat\s+arrow\b|^Write\b"
)
# the gap between two sentences
_NEXT = re.compile(r"(?<=[.?!])\s+(?=[A-Z*`“])")


@dataclass(frozen=True)
class AskedInClass:
    """A question in the cell at `place`, and the measurement as text such as "0.51 s"; "" if it is no number."""

    place: int
    text: str
    measured: str


@dataclass(frozen=True)
class Sentence:
    """A one-sentence explanation asked of a student in the cell at `place`, and a sentence to compare it with; Markdown."""

    place: int
    text: str
    compare: str


@dataclass(frozen=True)
class LabPart:
    """The `cells` below a heading of `level` 2 or 3, as the site shows them, and the questions `asked` in them."""

    heading: str
    level: int
    cells: tuple[NotebookNode, ...]
    asked: tuple[AskedInClass, ...]

    @property
    def is_optional(self) -> bool:
        return self.heading.endswith(OPTIONAL)

    @property
    def is_summary(self) -> bool:
        return any(_SUMMARY.search(cell.source) for cell in self.cells if cell.cell_type == "code")

    @property
    def pictures(self) -> list[tuple[int, Shown]]:
        """Every picture with its cell's place."""
        return [(place, shown) for place, cell in enumerate(self.cells) for shown in shown_in(cell)]

    def tagged(self, tag: str) -> list[tuple[int, Shown]]:
        """Return the pictures of cells with this tag, each with its cell's place."""
        return [(place, shown) for place, shown in self.pictures if tag in self.cells[place].metadata.get("tags", [])]

    @property
    def picture(self) -> tuple[int, Shown] | None:
        """The picture tagged as slide, else the lab's cover unless it stands above the first question, else the first below
        that question, else the last.

        A picture whose head asks a question goes before one without, such as a run's own record, and a still picture before a
        player.
        """
        pictures = self.pictures
        first = self.asked[0].place if self.asked else 0
        chosen = [*self.tagged(TAG), *((place, shown) for place, shown in self.tagged(COVER) if place >= first)]
        if chosen:
            return chosen[0]

        found = [(place, shown) for place, shown in pictures if not shown.is_player] or pictures
        below = [(place, shown) for place, shown in found if self.asked and place > first]
        for place, shown in below or reversed(found):
            if shown.asks:
                return place, shown
        if below:
            return below[0]
        return found[-1] if found else None

    @property
    def question(self) -> AskedInClass | None:
        """The first question of the last cell that asks above the picture, else the part's first; follow-ups ("And …") are
        skipped."""
        asked = [one for one in self.asked if not one.text.startswith("And ")] or list(self.asked)
        if not asked:
            return None

        at = self.picture[0] if self.picture else -1
        above = [one.place for one in asked if one.place < at]
        last = above[-1] if above else asked[0].place
        return next(one for one in asked if one.place == last)

    @property
    def sentence(self) -> Sentence | None:
        """The first sentence below the picture, else the last."""
        found = []
        for place, cell in self._prose():
            for asked in _SENTENCE.finditer(cell.source):
                compare = _COMPARE.search(cell.source, asked.end())
                found.append(Sentence(place, asked["asked"], compare["said"].strip() if compare else ""))

        at = self.picture[0] if self.picture else 0
        for sentence in found:
            if sentence.place > at:
                return sentence
        return found[-1] if found else None

    @property
    def printed(self) -> str:
        """The last lines that a cell below the question printed, at least two and at most as many as fit; "" if none."""
        most_lines = MOST_PRINTED_LINES // 2 if self.asked else MOST_PRINTED_LINES
        below = self.cells[self.question.place :] if self.question else self.cells
        for cell in reversed(below):
            lines = _NOT_A_TABLE.sub("", printed(cell)).strip("\n").splitlines()
            if 2 <= len(lines) <= most_lines and max(map(len, lines)) <= MOST_PRINTED_LETTERS:
                return "\n".join(lines)
        return ""

    @property
    def exercises(self) -> list[str]:
        """The exercises' titles, such as "Exercise 6.1: a parameter server"."""
        found = []
        for cell in self.cells:
            if cell.cell_type == "code" and "nbgrader" in cell.metadata:
                title = title_of(cell.source)
                if title and title.kind == "Exercise":
                    found.append(title.whole)
        return found

    @property
    def lead(self) -> str:
        """The first sentences of the first paragraph above the question, Markdown; "" if there are none.

        A sentence about the notebook's cells ends it; a paragraph that begins with one gives way to the next.
        """
        stop = self.question.place if self.question else len(self.cells)
        above = "\n\n".join(_unfolded(_HEADING.sub("", cell.source)) for place, cell in self._prose() if place < stop)
        paragraphs = [text for text in above.split("\n\n") if _WORDS.match(text) and not _SENTENCE.match(text)]
        return next(filter(None, map(_first_sentences, paragraphs)), "")

    def notes(self, start: int = 0, stop: int | None = None) -> str:
        """Return the prose of the cells from `start` to `stop`, without folded text except sentences to compare with."""
        texts = []
        within = range(len(self.cells))[start:stop]
        for place, cell in self._prose():
            if place in within:
                text = _COMPARE.sub(lambda compare: f"**Compare:** {compare['said'].strip()}", _HEADING.sub("", cell.source))
                texts.append(_unfolded(text))
        return "\n\n".join(filter(None, texts))

    def _prose(self) -> Iterator[tuple[int, NotebookNode]]:
        return ((place, cell) for place, cell in enumerate(self.cells) if cell.cell_type == "markdown")


def parts_of(lab: NotebookNode, executed: NotebookNode) -> tuple[list[NotebookNode], list[LabPart]]:
    """Return the cells above the first heading, and the parts, of a student's `lab` and its solution's `executed` notebook.

    Raises ValueError for a code cell that was not executed.
    """
    cells = lab_page(lab, executed).cells
    measured = {(question.asked_in, question.text): question.measured for question in questions_of(executed.cells)}
    asked = {}  # each cell's questions with their measurements
    for place, cell in enumerate(executed.cells):
        asked[cell.id] = [(text, measured.get((place, text), "")) for text in UNANSWERED.findall(printed(cell))]

    starts = [place for place, cell in enumerate(cells) if cell.cell_type == "markdown" and _HEADING.match(cell.source)]

    parts = []
    for start, stop in zip(starts, [*starts[1:], len(cells)], strict=True):
        marks, heading = _HEADING.match(cells[start].source).groups()
        within = cells[start:stop]
        questions = []
        for place, cell in enumerate(within):
            questions += [AskedInClass(place, *one) for one in asked.get(cell.id, [])]
        parts.append(LabPart(heading.strip(), len(marks), tuple(within), tuple(questions)))
    return cells[: starts[0]] if starts else list(cells), parts


def joined(parts: Sequence[LabPart]) -> list[LabPart]:
    """Return the parts of level 2, each with the parts of level 3 that follow it."""
    whole: list[LabPart] = []
    for part in parts:
        if part.level == 2 or not whole:
            whole.append(part)
            continue
        above = whole[-1]
        moved = [AskedInClass(len(above.cells) + asked.place, asked.text, asked.measured) for asked in part.asked]
        whole[-1] = LabPart(above.heading, above.level, (*above.cells, *part.cells), (*above.asked, *moved))
    return whole


def _unfolded(text: str) -> str:
    return _FOLDED.sub("", text).strip()


def _first_sentences(paragraph: str) -> str:
    kept: list[str] = []
    for sentence in _NEXT.split(paragraph):
        too_long = kept and len(" ".join([*kept, sentence]).split()) > MOST_LEAD_WORDS
        if too_long or _OF_THE_CELLS.search(sentence):
            break
        kept.append(sentence)
    return " ".join(kept)
