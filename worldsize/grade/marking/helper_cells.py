"""The student's own cells that run beside the exercises in the sandbox: which cells, in which order, which failed.

An exercise runs only with what it takes along. A cell that fails is then run statement by statement, so that a failing
statement costs only what uses it; a cell that ends the process, or hangs, is left out.
"""

from typing import Any

from worldsize.cells import OwnCell, Statement, TakenAlong
from worldsize.grade.course import CourseLab, Exercise
from worldsize.grade.marking.submission import Submission
from worldsize.grade.outside.arena import Cells
from worldsize.units import text_of

MOST_DROPPED = 4  # each may have cost a case's whole time limit
_MOST_SAID = 300


class HelperCells:
    """The student's own cells that go along with the exercises of one submission."""

    def __init__(self, lab: CourseLab, handed_in: Submission) -> None:
        self._lab = lab
        self.taken = {e.id: handed_in.taken.get(e.id, TakenAlong()) for e in lab.exercises}  # by id
        self._cells: list[OwnCell] = []
        for taken in self.taken.values():
            self._cells += taken.cells

        self._places = handed_in.places
        self._apart: set[int] = set()  # numbers of cells whose statements run one by one
        self._dropped: set[str] = set()  # titles of cells left out
        self._errors: dict[str, str] = {}  # by title
        self.errors_of_exercises: dict[str, str] = {}  # of their own cells, by id; "" if a cell did not fail

    def of(self, checked: Exercise | None) -> dict[str, Cells]:
        """Return the cells to run before each exercise, for a check of `checked`, or of all exercises if None.

        Cells run in the notebook's order, but a cell below an exercise that uses it runs before that exercise.
        """
        if len(self._dropped) > MOST_DROPPED:
            return {}

        exercises = list(self._lab.exercises) if checked is None else [checked]
        above: dict[int, int] = {}
        rows: dict[int, list[Statement]] = {}
        for exercise in exercises:
            place = self._places.get(exercise.id, 0)
            for cell in self.taken[exercise.id].cells:
                above[cell.number] = min(above.get(cell.number, cell.number), place)
                rows.setdefault(cell.number, []).extend(cell.statements)

        cells_before: dict[str, Cells] = {}
        for exercise in self._lab.exercises:
            place = self._places.get(exercise.id, 0)
            ready = [number for number in sorted(rows) if above[number] <= place]
            for number in ready:
                statements = sorted(dict.fromkeys(rows.pop(number)), key=lambda one: one.line)
                cell = OwnCell(number, tuple(statements))
                entries = cell.one_by_one() if number in self._apart else [(cell.title, cell.source)]
                kept = [[title, source] for title, source in entries if title not in self._dropped]
                cells_before.setdefault(exercise.id, []).extend(kept)
        return cells_before

    # ---- what went wrong -------------------------------------------------------------------------

    def note_errors(self, errors: Any) -> None:
        """Store what each failing helper cell said, by title, as the sandbox reported it.

        A forged report changes only what happens to the student's own cells.
        """
        if not isinstance(errors, dict):
            return
        self.errors_of_exercises = {e.id: text_of(errors.get(e.title, ""), _MOST_SAID) for e in self._lab.exercises}
        for cell in self._cells:
            said = errors.get(cell.title)
            if isinstance(said, str):
                self._apart.add(cell.number)
                self._errors[cell.title] = said

    def drop(self, title: str, message: str) -> None:
        """Take apart the titled helper, since it ended or hung the process; leave it out if it cannot be taken apart."""
        for cell in self._cells:
            if cell.title == title and len(cell.statements) > 1 and cell.number not in self._apart:
                self._apart.add(cell.number)
                return
        self._errors[title] = message
        self._dropped.add(title)

    def errors(self, exercise: Exercise) -> str:
        """Return, for people, what went wrong in helper cells that the exercise uses; "" if nothing did."""
        messages = []
        for cell in self.taken[exercise.id].cells:
            for title, message in self._errors.items():
                if title == cell.title or title.startswith(f"{cell.title}, "):
                    messages.append(text_of(f"It uses {title} from your notebook, which failed: {message}", _MOST_SAID))
        return "\n".join(messages[:3])
