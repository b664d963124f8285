"""Where an answer stands that a grade cannot take: in another cell, under another name, in prose, above a stub, or in a
cell that is no Python. It earns nothing there, and the row, the page of feedback and the list for people say where it is.

A cell is text here. Left out: finding the exercise's own cell (`exercise_cell`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from worldsize.grade.course import CourseLab, Exercise
from worldsize.grade.marking.exercise_cell import FoundCell, NotebookCell
from worldsize.lab.graded_cells import defines, lines_of
from worldsize.lab.own_cells import printable
from worldsize.lab.statements import statements

ElsewhereKind = Literal["another cell", "another name", "no code", "twice", "no Python"]
_MOST_FOUND = 3
_SHOWN = 60
_ALIKE = 0.8  # of two names, by difflib
_NO_PYTHON = ("SyntaxError", "IndentationError", "TabError")


@dataclass(frozen=True)
class AnswerElsewhere:
    """A place with an answer to `function`. `cell` is its number among the code cells, 0 of one that is no code.

    `line` is the first line of the cell, `found` the other name, the cell's kind, or what Python says of the cell.
    """

    kind: ElsewhereKind
    function: str
    cell: int
    line: str
    found: str = ""

    @property
    def place(self) -> str:
        cell = f"code cell {self.cell}" if self.cell else f"a {self.found} cell"
        return f"{cell} (`{self.line}`)"

    @property
    def sentence(self) -> str:
        """What a student is told: where it is, why it does not count, and what to do."""
        match self.kind:
            case "another cell":
                return (
                    f"`{self.function}` is defined in {self.place} too. Only the exercise's own cell is graded: move your answer "
                    f"there, in the place of what it holds."
                )
            case "another name":
                return (
                    f"`{self.found}` in {self.place} may be your answer. The grader looks for `{self.function}` in the "
                    f"exercise's own cell: give it that name there."
                )
            case "no code":
                return f"{self.place} has the text of `{self.function}`. Only a code cell is graded: make it one."
            case "twice":
                return f"{self.place} defines `{self.function}` more than once, and the last one counts: remove the others."
            case "no Python":
                return (
                    f"{self.place} cannot be read by Python: {self.found}. Mend that line, restart the kernel, and run all "
                    f"cells: a check looks at the last version that ran."
                )


def elsewhere_from_json(data: dict[str, Any]) -> AnswerElsewhere:
    """Read what a row has of it. Raises TypeError, KeyError and ValueError for something else."""
    if data["kind"] not in get_args(ElsewhereKind):
        raise ValueError(f"expected a place of an answer, got {data['kind']!r:.40}")
    return AnswerElsewhere(**data)


def answers_elsewhere(
    exercise: Exercise, lab: CourseLab, cells: Sequence[NotebookCell], own: FoundCell, used: Collection[str]
) -> tuple[AnswerElsewhere, ...]:
    """Find answers to an exercise outside its `own` cell, and what hides one inside. `used` are names that it takes along."""
    found = list(_found(exercise, lab, cells, own, used))
    return tuple(dict.fromkeys(found))[:_MOST_FOUND]


def no_python(exercise: Exercise, cell: int, source: str, said: str) -> AnswerElsewhere | None:
    """The place of an exercise's cell that Python refused, by what a rank `said` of it; None where it said something else."""
    if not said.startswith(_NO_PYTHON):
        return None
    return AnswerElsewhere("no Python", exercise.functions[0], cell, first_line(source), said)


def first_line(source: str) -> str:
    """The first line of a cell that is not blank, as it can be shown."""
    return printable(next(filter(str.strip, source.splitlines()), ""))


def _found(
    exercise: Exercise, lab: CourseLab, cells: Sequence[NotebookCell], own: FoundCell, used: Collection[str]
) -> Iterator[AnswerElsewhere]:
    name = exercise.functions[0]
    given = {tuple(lines_of(source)) for source in lab.given}
    source = own.source or ""
    code = [cell for cell in cells if cell.kind == "code"]
    others = [(k, cell.source) for k, cell in enumerate(code) if k not in own.parts and tuple(lines_of(cell.source)) not in given]

    if _functions(source).count(name) > 1:
        yield AnswerElsewhere("twice", name, own.parts[0] + 1, first_line(source))
    for k, text in others:
        if defines(text, name):
            yield AnswerElsewhere("another cell", name, k + 1, first_line(text))

    is_answered = defines(source, name) and lines_of(source) != lines_of(exercise.stub)
    if not is_answered:
        taken = {*used, *(function for one in lab.exercises for function in one.functions)}
        mine = [(own.parts[0], source)] if own.parts and not defines(source, name) else []
        for k, text in mine:
            yield from (AnswerElsewhere("another name", name, k + 1, first_line(text), other) for other in _functions(text))
        for k, text in others:
            for other in _functions(text):
                if other not in taken and _is_like(other, name):
                    yield AnswerElsewhere("another name", name, k + 1, first_line(text), other)

    for cell in cells:
        if cell.kind != "code" and tuple(lines_of(cell.source)) not in given:
            if re.search(rf"^\s*def\s+{re.escape(name)}\s*\(", cell.source, re.MULTILINE):
                yield AnswerElsewhere("no code", name, 0, first_line(cell.source), cell.kind[:20])


def _functions(source: str) -> list[str]:
    """The names of the functions and classes at the top of a cell, as often as it defines them."""
    found: list[str] = []
    for one in statements(source) or []:
        if re.match(r"(async\s+)?def\s|class\s|@", one.text):
            found += sorted(one.binds)
    return [name[:_SHOWN] for name in found]


def _is_like(other: str, name: str) -> bool:
    """Whether somebody may have meant `name`: `pass_right_2`, `my_pass_right`, `pass_rigth`."""
    plain, wanted = other.lower(), name.lower()
    return wanted in plain or difflib.SequenceMatcher(None, plain, wanted).ratio() >= _ALIKE
