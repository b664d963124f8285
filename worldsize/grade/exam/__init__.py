"""Exam questions over all labs, with numbers drawn for each student and answers from the course's formulas.

`exam` draws an exam. `formats` writes it as text, for Moodle, and as QTI for Canvas and others.
"""

import random

from worldsize.grade.exam import questions_on_memory_and_scale, questions_on_messages, questions_on_training
from worldsize.grade.exam.question import ExamQuestion, Variant, variant

_QUESTIONS = (*questions_on_messages.QUESTIONS, *questions_on_training.QUESTIONS, *questions_on_memory_and_scale.QUESTIONS)
QUESTIONS: tuple[ExamQuestion, ...] = tuple(sorted(_QUESTIONS, key=lambda question: question.lab))

__all__ = ["QUESTIONS", "ExamQuestion", "Variant", "exam", "variant"]


def exam(labs: tuple[str, ...], count: int | None, seed: str, student: str = "") -> list[Variant]:
    """Draw `count` questions on `labs` (none: all labs) with one student's numbers, in the order of the labs.

    `seed` chooses the questions, `seed` and `student` the numbers. `count` None takes every question. Raises ValueError for
    a lab without questions, and for more questions than there are.
    """
    known = sorted({question.lab for question in QUESTIONS})
    for lab in labs:
        if lab not in known:
            raise ValueError(f"--lab: expected one of {', '.join(known)}, got {lab!r}.")

    questions = [question for question in QUESTIONS if not labs or question.lab in labs]
    if count is not None:
        if not 1 <= count <= len(questions):
            raise ValueError(f"--questions: expected 1 to {len(questions)}, the number of questions on these labs, got {count}.")
        chosen = random.Random(f"{seed}/choice").sample(range(len(questions)), count)
        questions = [questions[place] for place in sorted(chosen)]
    return [variant(question, f"{seed}/{student}") for question in questions]
