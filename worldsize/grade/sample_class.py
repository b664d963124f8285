"""A made-up class that hands in one lab, to try grading with.

Each student gets a folder with a notebook, as nbgrader lays them out. The answers are the course's own, so making a class
needs its `solutions/`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from worldsize.files import PRIVATE, write_whole
from worldsize.grade import course
from worldsize.grade.course import CourseLab

NAMES = ("Ada Arnold", "Ben Bose", "Cleo Costa", "Dana Diaz", "Emre Eriksen", "Femi Fischer", "Gita Gomez", "Hugo Haddad")
FIRST_NUMBER = 4711  # an LMS identifies students by numbers, which exports need

# Each lab's mistake: the exercise, and the wrong source that its cell gets.
MISTAKES = {
    "00": ("pass_right", "def pass_right(fabric, x):\n    return x.clone()  # forgets to send it on\n"),
    "06": ("ring_all_reduce", "def ring_all_reduce(fabric, x):\n    return parameter_server(fabric, x)  # no ring at all\n"),
}


@dataclass(frozen=True)
class SampleSubmission:
    """A made-up submission: its student, its path, and its answers in plain words."""

    student: str
    path: Path
    answers: str


def hand_in(folder: Path, root: Path, stem: str, count: int) -> list[SampleSubmission]:
    """Write the notebooks of `count` students into the new folder `folder`, and return their submissions.

    Students in turn have every answer, one mistake, or the first half. Raises ValueError if the folder exists, for fewer
    than one student, and for a course without solutions.
    """
    if count < 1:
        raise ValueError(f"sample-class: expected 1 student or more, got {count}.")
    if folder.exists():
        raise ValueError(f"{folder}: expected a new folder, got an existing one. Name another, so that nothing is lost.")

    lab = course.load(root)[stem]
    if any(exercise.reference is None for exercise in lab.exercises):
        raise ValueError(
            f"{root}: expected the course's answers in solutions/{stem}.ipynb, got none. Use a checkout of the course: the "
            "students' copy has no answers."
        )

    given = json.loads((root / "labs" / f"{stem}.ipynb").read_text(encoding="utf-8"))
    kinds = (_every_answer(lab), _one_mistake(lab), _first_half(lab))
    made = []
    for k in range(count):
        answers, words = kinds[k % len(kinds)]
        student = NAMES[k] if k < len(NAMES) else f"Student {k + 1:03}"
        name = f"{student.lower().replace(' ', '_')}_{FIRST_NUMBER + k}"
        path = folder / name / f"{stem}.ipynb"
        path.parent.mkdir(parents=True)
        write_whole(path, json.dumps(_with_answers(given, answers), indent=1), PRIVATE)
        made.append(SampleSubmission(name, path, words))

    return made


def _with_answers(given: dict, answers: dict[str, str]) -> dict:
    """Return the lab's notebook with `answers` in its exercise cells."""
    cells = []
    for cell in given["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
        cells.append({**cell, "source": answers[name]} if name in answers else cell)
    return {**given, "cells": cells}


def _every_answer(lab: CourseLab) -> tuple[dict[str, str], str]:
    return {exercise.id: exercise.reference or "" for exercise in lab.exercises}, "every answer"


def _one_mistake(lab: CourseLab) -> tuple[dict[str, str], str]:
    """Return every answer but one: the lab's mistake of `MISTAKES`, or else the last exercise left unwritten."""
    answers, _ = _every_answer(lab)
    last = lab.exercises[-1]
    name, wrong = MISTAKES.get(lab.number, (last.id, ""))
    title = next(exercise.title for exercise in lab.exercises if exercise.id == name)
    if not wrong:
        del answers[name]
        return answers, f"every answer but {title}, which is not written"

    answers[name] = wrong
    return answers, f"every answer, with a mistake in {title}"


def _first_half(lab: CourseLab) -> tuple[dict[str, str], str]:
    count = (len(lab.exercises) + 1) // 2 if len(lab.exercises) > 1 else 0
    answers = {exercise.id: exercise.reference or "" for exercise in lab.exercises[:count]}
    return answers, f"{count} of {len(lab.exercises)} answers"
