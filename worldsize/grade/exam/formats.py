"""Exams as files: text with an answer sheet, Moodle XML, and a QTI zip for Canvas.

Questions for Moodle are numerical ones of its "Moodle XML format". text2qti makes the QTI from text that is written here.
"""

import io
import re
from collections.abc import Sequence
from xml.etree import ElementTree

from worldsize.grade.exam.question import TOLERANCE, Variant

HINT = f"Three significant digits are enough: answers within {100 * TOLERANCE:g} % count as right."


def as_text(title: str, variants: Sequence[Variant], answers: bool = False) -> str:
    """Return the exam to print, or with `answers` the marker's sheet: each answer, its explanation and its lab."""
    lines = [title, "=" * len(title), "", HINT, ""]
    for number, one in enumerate(variants, 1):
        lines.append(f"{number}. {one.text}{_in(one)}")
        if answers:
            lines.append(f"   {answer_words(one)} (lab {one.question.lab}): {one.question.why}")
        lines.append("")
    return "\n".join(lines)


def answer_words(variant: Variant) -> str:
    """Return an exam's answer with its unit, to four digits."""
    return f"{variant.answer:,.4g} {variant.question.unit}".rstrip()


def as_moodle(category: str, exams: Sequence[Sequence[Variant]]) -> str:
    """Return Moodle's XML: a category for each question, with a numerical question for each variant.

    A quiz that takes one random question from each category gives every student numbers of their own.
    """
    quiz = ElementTree.Element("quiz")
    for variants in zip(*exams, strict=True):
        place = ElementTree.SubElement(ElementTree.SubElement(quiz, "question", type="category"), "category")
        _text(place, f"$course$/{category}/{variants[0].question.lab} {variants[0].question.id}")

        for number, variant in enumerate(variants, 1):
            asked = ElementTree.SubElement(quiz, "question", type="numerical")
            _text(ElementTree.SubElement(asked, "name"), f"{variant.question.lab} {variant.question.id} {number}")
            _text(ElementTree.SubElement(asked, "questiontext", format="plain_text"), f"{variant.text}{_in(variant)} {HINT}")
            why = f"{answer_words(variant)}: {variant.question.why}"
            _text(ElementTree.SubElement(asked, "generalfeedback", format="plain_text"), why)

            ElementTree.SubElement(asked, "defaultgrade").text = "1"
            answer = ElementTree.SubElement(asked, "answer", fraction="100", format="plain_text")
            _text(answer, f"{variant.answer:.10g}")
            ElementTree.SubElement(answer, "tolerance").text = f"{variant.tolerance:.10g}"

    ElementTree.indent(quiz)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(quiz, encoding="unicode") + "\n"


def _text(parent: ElementTree.Element, words: str) -> None:
    ElementTree.SubElement(parent, "text").text = words


def as_qti(title: str, exams: Sequence[Sequence[Variant]]) -> bytes:
    """Return a zip of QTI 1.2 for Canvas: a group for each question, from which a student gets one variant."""
    from text2qti.config import Config
    from text2qti.qti import QTI
    from text2qti.quiz import Quiz

    lines = [f"Quiz title: {title}", f"Quiz description: {HINT}", ""]
    for variants in zip(*exams, strict=True):
        lines += ["GROUP", "pick: 1", "points per question: 1", ""]
        for one in {one.text: one for one in variants}.values():  # text2qti refuses duplicate questions
            text = re.sub(r"([*_`$\\])", r"\\\1", one.text)  # text2qti would read Markdown's signs
            lines += [f"1.  {text}{_in(one)}", f"=   {one.answer:.10g} +- {100 * TOLERANCE:g}%", ""]
        lines += ["END_GROUP", ""]

    config = Config()
    config.load()
    out = io.BytesIO()
    QTI(Quiz("\n".join(lines), config=config)).write(out)
    return out.getvalue()


def _in(variant: Variant) -> str:
    """Return an exam's unit in brackets, "" if the question names it."""
    unit = variant.question.unit
    is_named = unit in ("", "%", "times") or unit.split()[0] in variant.text
    return "" if is_named else f" (in {unit})"
