"""The questions that a lab's release asks, read from its calls of `lab.predict` by their syntax; nothing runs.

A class page shows these questions and units. A student's notebook supplies numbers alone, since it can hold any text.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from worldsize.grade.course import CourseLab
from worldsize.lab.handed_predictions import HandedPrediction

_UNKNOWN = "…"  # in place of a value that the lab computes
_NUMBER = r"[-+−]?[0-9][0-9.,]{0,11}(?:e[-+]?[0-9]{1,3})?%?"  # the only text of a notebook that a question may keep
_MOST_GAPS = 6
_SMALLEST, _LARGEST = 1e-30, 1e30  # no lab measures anything beyond


@dataclass(frozen=True)
class ReleasedQuestion:
    """A question's fixed `parts`, between which the lab puts values, and its unit."""

    parts: tuple[str, ...]
    unit: str

    def as_asked(self, question: str) -> str:
        """Return `question` if it is this one with numbers in the gaps, else this one with "…" in them."""
        pattern = _NUMBER.join(map(re.escape, self.parts))
        if len(self.parts) <= _MOST_GAPS and re.fullmatch(pattern, question):
            return question
        return _UNKNOWN.join(self.parts)


def released_questions(lab: CourseLab) -> dict[str, ReleasedQuestion]:
    """Return the lab's questions by id."""
    questions = {}
    for source in lab.code:
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue  # a cell with magics

        texts: dict[str, ast.expr] = {}
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=text):
                    texts[name] = text
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="lab"), attr="predict"),
                    args=[ast.Constant(value=str(name)), asked, ast.Constant(value=str(unit)), *_],
                ):
                    questions[name] = ReleasedQuestion(_parts(asked, texts), unit)
    return questions


def _parts(asked: ast.expr, texts: Mapping[str, ast.expr]) -> tuple[str, ...]:
    """Return a released question's fixed parts. `texts` has the expressions that the cell gives names to."""
    parts = [""]
    pieces = [asked]
    while pieces:
        piece = pieces.pop(0)
        if isinstance(piece, ast.FormattedValue):
            piece = piece.value
            if isinstance(piece, ast.Name):
                piece = texts.get(piece.id, piece)
            if not _is_text(piece):
                parts.append("")
                continue

        match piece:
            case ast.Constant(value=str(text)):
                parts[-1] += text
            case ast.JoinedStr(values=values):
                pieces[:0] = values
            case ast.Name(id=name) if _is_text(texts.get(name)):
                pieces.insert(0, texts[name])
            case _:
                parts.append("")
    return tuple(parts)


def _is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def answers_of(
    lab: str, questions: Mapping[str, ReleasedQuestion], handed: Iterable[HandedPrediction]
) -> list[HandedPrediction]:
    """Return the handed predictions that answer a question of this lab, with the release's words and unit.

    Others are dropped: of another lab or unit, of an unknown id, and numbers that nobody measures.
    """
    answers = []
    for prediction in handed:
        asked = questions.get(prediction.id)
        if asked is None or prediction.lab != lab[:2] or prediction.unit != asked.unit:
            continue
        if _is_plausible(prediction.predicted) and _is_plausible(prediction.measured):
            answers.append(replace(prediction, question=asked.as_asked(prediction.question)))
    return answers


def _is_plausible(number: float) -> bool:
    return number == 0 or _SMALLEST <= abs(number) <= _LARGEST
