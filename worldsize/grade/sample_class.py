"""A made-up class that hands in one lab, to try grading with.

Each student gets a folder with a notebook, as nbgrader lays them out. The answers are the course's own, so making a class
needs its `solutions/`.
"""

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
    every = {exercise.id: exercise.reference for exercise in lab.exercises}
    if None in every.values():
        raise ValueError(
            f"{root}: expected the course's answers in solutions/{stem}.ipynb, got none. Use a checkout of the course: the "
            "students' copy has no answers."
        )

    given = json.loads((root / "labs" / f"{stem}.ipynb").read_text(encoding="utf-8"))
    half = (len(every) + 1) // 2 if len(every) > 1 else 0
    first_half = dict(list(every.items())[:half])
    kinds = ((every, "every answer"), _one_mistake(lab, every), (first_half, f"{half} of {len(every)} answers"))
    made = []
    for k in range(count):
        answers, words = kinds[k % len(kinds)]
        cells = []
        for cell in given["cells"]:
            exercise = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
            cells.append({**cell, "source": answers[exercise]} if exercise in answers else cell)

        student = NAMES[k] if k < len(NAMES) else f"Student {k + 1:03}"
        name = f"{student.lower().replace(' ', '_')}_{FIRST_NUMBER + k}"
        path = folder / name / f"{stem}.ipynb"
        path.parent.mkdir(parents=True)
        write_whole(path, json.dumps({**given, "cells": cells}, indent=1), PRIVATE)
        made.append(SampleSubmission(name, path, words))

    return made


def _one_mistake(lab: CourseLab, every: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return a made-up student's answers, one wrong: the lab's mistake of `MISTAKES`, else the last exercise left unwritten."""
    last = lab.exercises[-1]
    name, wrong = MISTAKES.get(lab.number, (last.id, ""))
    title = next(exercise.title for exercise in lab.exercises if exercise.id == name)
    if wrong:
        return every | {name: wrong}, f"every answer, with a mistake in {title}"

    answers = dict(every)
    del answers[name]
    return answers, f"every answer but {title}, which is not written"
