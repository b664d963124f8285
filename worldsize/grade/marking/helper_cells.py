"""The student's own cells beside one submission's exercises in the sandbox: which run, in which order, which failed.

An exercise runs with what it takes along and no more. An own cell that fails is taken apart, so that a statement costs
what uses it; one that ends the process, or never ends, is left out. Left out here: what an exercise takes (`own_cells`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from worldsize.engines.plain_values import text_of
from worldsize.grade.course import CourseLab, Exercise
from worldsize.grade.host.arena import Cells
from worldsize.grade.marking.submission import Submission
from worldsize.lab.own_cells import LeftBehind, OwnCell, TakenAlong
from worldsize.lab.statements import Statement

MOST_DROPPED = 4  # each may have cost a case's time
_MOST_SAID = 300


class HelperCells:
    """What goes along with the exercises of one submission."""

    def __init__(self, lab: CourseLab, handed_in: Submission) -> None:
        self._lab = lab
        self._taken = handed_in.taken
        self._places = handed_in.places
        self._apart: set[int] = set()  # numbers of cells whose statements run one by one
        self._dropped: set[str] = set()  # titles
        self._errors: dict[str, str] = {}  # by title
        self._of_exercises: dict[str, str] = {}

    def of(self, checked: Exercise | None) -> dict[str, Cells]:
        """The cells that run before each exercise, for a check of `checked`, or those of all where it is None.

        They run in the notebook's order; those from below an exercise that uses them run before it.
        """
        if len(self._dropped) > MOST_DROPPED:
            return {}

        exercises = list(self._lab.exercises) if checked is None else [checked]
        above: dict[int, int] = {}
        rows: dict[int, list[Statement]] = {}
        for exercise in exercises:
            place = self._places.get(exercise.id, 0)
            for cell in self._of(exercise).cells:
                above[cell.number] = min(above.get(cell.number, cell.number), place)
                rows.setdefault(cell.number, []).extend(cell.statements)

        found: dict[str, Cells] = {}
        for exercise in self._lab.exercises:
            place = self._places.get(exercise.id, 0)
            ready = [number for number in sorted(rows) if above[number] <= place]
            for number in ready:
                entries = self._entries(OwnCell(number, _in_order(rows.pop(number))))
                found.setdefault(exercise.id, []).extend(entries)
        return found

    def _of(self, exercise: Exercise) -> TakenAlong:
        return self._taken.get(exercise.id, TakenAlong())

    def _entries(self, cell: OwnCell) -> Cells:
        entries = cell.one_by_one() if cell.number in self._apart else [(cell.title, cell.source)]
        return [[title, source] for title, source in entries if title not in self._dropped]

    # ---- what went wrong -------------------------------------------------------------------------

    def note_errors(self, errors: Any) -> None:
        """What each cell said that failed, by title, as the sandbox told it: it decides about own cells alone."""
        if not isinstance(errors, dict):
            return
        self._of_exercises = {e.id: text_of(errors.get(e.title, ""), _MOST_SAID) for e in self._lab.exercises}
        for cell in self._every():
            said = errors.get(cell.title)
            if isinstance(said, str):
                self._apart.add(cell.number)
                self._errors[cell.title] = said

    def drop(self, title: str, message: str) -> None:
        """The cell of that title ends the process, or does not end."""
        for cell in self._every():
            if cell.title == title and len(cell.statements) > 1 and cell.number not in self._apart:
                self._apart.add(cell.number)
                return
        self._errors[title] = message
        self._dropped.add(title)

    def _every(self) -> Iterable[OwnCell]:
        for exercise in self._lab.exercises:
            yield from self._of(exercise).cells

    def error_of(self, exercise: Exercise) -> str:
        """What the exercise's own cell said where it failed; "" where it did not."""
        return self._of_exercises.get(exercise.id, "")

    # ---- of one exercise -------------------------------------------------------------------------

    def left(self, exercise: Exercise) -> tuple[LeftBehind, ...]:
        """What it uses and cannot take along."""
        return self._of(exercise).left

    def text(self, exercise: Exercise) -> str:
        """What it takes along, as text in which a name can be looked for."""
        return "".join(f"\n{cell.source}" for cell in self._of(exercise).cells)

    def errors(self, exercise: Exercise) -> str:
        """What went wrong in cells that it uses, for people; "" where nothing did."""
        said = []
        for cell in self._of(exercise).cells:
            for title, message in self._errors.items():
                if title == cell.title or title.startswith(f"{cell.title}, "):
                    said.append(text_of(f"It uses {title} of your notebook, which failed: {message}", _MOST_SAID))
        return "\n".join(said[:3])


def _in_order(rows: list[Statement]) -> tuple[Statement, ...]:
    every = dict.fromkeys(rows)
    return tuple(sorted(every, key=lambda one: one.line))
