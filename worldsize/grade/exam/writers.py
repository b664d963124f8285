"""An exam as files: text with a sheet of answers, Moodle's XML, and a zip of QTI for Canvas.

Moodle's format is that of its documentation, "Moodle XML format", a numerical question. QTI comes from text2qti, whose own text
format is written here. Left out: what is asked (`question`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from xml.etree import ElementTree

from worldsize.grade.exam.question import TOLERANCE, Variant

HINT = f"Three significant digits are enough: answers within {100 * TOLERANCE:g} % count as right."


def as_text(title: str, variants: Sequence[Variant], answers: bool = False) -> str:
    """The exam to print, or with `answers` the sheet of whoever marks it: each answer, what it comes from, and its lab."""
    lines = [title, "=" * len(title), "", HINT, ""]
    for number, one in enumerate(variants, 1):
        lines.append(f"{number}. {one.text}{_in(one)}")
        if answers:
            lines.append(f"   {answer_words(one)} (lab {one.question.lab}): {one.question.why}")
        lines.append("")
    return "\n".join(lines)


def answer_words(one: Variant) -> str:
    """The answer with its unit, to four digits."""
    return f"{one.answer:,.4g} {one.question.unit}".rstrip()


def as_moodle(category: str, exams: Sequence[Sequence[Variant]]) -> str:
    """Moodle's XML: a numerical question for each variant, in a category for each question of the exam.

    Take one random question from each category, and every student gets numbers of their own.
    """
    quiz = ElementTree.Element("quiz")
    for variants in zip(*exams, strict=True):
        place = ElementTree.SubElement(ElementTree.SubElement(quiz, "question", type="category"), "category")
        _text(place, f"$course$/{category}/{variants[0].question.lab} {variants[0].question.id}")
        for number, one in enumerate(variants, 1):
            _moodle_question(quiz, one, number)
    ElementTree.indent(quiz)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(quiz, encoding="unicode") + "\n"


def _moodle_question(quiz: ElementTree.Element, one: Variant, number: int) -> None:
    asked = ElementTree.SubElement(quiz, "question", type="numerical")
    _text(ElementTree.SubElement(asked, "name"), f"{one.question.lab} {one.question.id} {number}")
    _text(ElementTree.SubElement(asked, "questiontext", format="plain_text"), f"{one.text}{_in(one)} {HINT}")
    _text(ElementTree.SubElement(asked, "generalfeedback", format="plain_text"), f"{answer_words(one)}: {one.question.why}")
    ElementTree.SubElement(asked, "defaultgrade").text = "1"
    answer = ElementTree.SubElement(asked, "answer", fraction="100", format="plain_text")
    ElementTree.SubElement(answer, "text").text = f"{one.answer:.10g}"
    ElementTree.SubElement(answer, "tolerance").text = f"{one.tolerance:.10g}"


def _text(parent: ElementTree.Element, words: str) -> None:
    ElementTree.SubElement(parent, "text").text = words


def as_qti(title: str, exams: Sequence[Sequence[Variant]]) -> bytes:
    """A zip of QTI 1.2, as Canvas imports it: a group for each question of the exam, from which a student gets one variant."""
    from text2qti.config import Config
    from text2qti.qti import QTI
    from text2qti.quiz import Quiz

    lines = [f"Quiz title: {title}", f"Quiz description: {HINT}", ""]
    for variants in zip(*exams, strict=True):
        lines += ["GROUP", "pick: 1", "points per question: 1", ""]
        for one in {one.text: one for one in variants}.values():  # it refuses a question that is there twice
            lines += [f"1.  {_escaped(one.text)}{_in(one)}", f"=   {one.answer:.10g} +- {100 * TOLERANCE:g}%", ""]
        lines += ["END_GROUP", ""]

    config = Config()
    config.load()
    out = io.BytesIO()
    QTI(Quiz("\n".join(lines), config=config)).write(out)
    return out.getvalue()


def _in(one: Variant) -> str:
    unit = one.question.unit
    said = unit in ("", "%", "times") or unit in _words(one.text) or unit.split()[0] in one.text
    return "" if said else f" (in {unit})"


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w%µ]+", text))


def _escaped(text: str) -> str:
    """A text without Markdown's signs: what is between two stars or underscores would be emphasised."""
    return re.sub(r"([*_`$\\])", r"\\\1", text)
