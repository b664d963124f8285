"""Find answers that cannot be graded: in another cell, under another name, in prose, above a stub, or in a broken cell.

Such an answer earns nothing; the row, the feedback page and the instructor's list say where it is. Cells are treated as
text, and never run.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from worldsize.cells.as_python import python_cell
from worldsize.cells.cell_statements import defines
from worldsize.cells.choice import ChosenCells, FoundCell
from worldsize.cells.notebook_cells import AskedExercise, NotebookCell, first_line, lines_of
from worldsize.cells.own_cells import TakenAlong

ElsewhereKind = Literal["another cell", "another name", "no code", "twice", "no Python"]
_MOST_FOUND = 3
_MOST_NAMES = 2_000  # compared with the exercise's name
_SHOWN = 60
_ALIKE = 0.8  # difflib's ratio from which two names are alike
_DEFINITION = re.compile(r"^(?:>>> )?(?:async[ \t]+def|def|class)[ \t]+(\w+)", re.MULTILINE)
_NO_PYTHON = ("SyntaxError", "IndentationError", "TabError")


@dataclass(frozen=True)
class AnswerElsewhere:
    """A misplaced answer to `function`, and its place. `cell` is its number among the code cells, 0 if it is not a code cell.

    `line` is the cell's first line; `found` is the other name, the cell's type, or Python's error.
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
        """Return the sentence for the student: where the misplaced answer is, why it does not count, and what to do."""
        match self.kind:
            case "another cell":
                return (
                    f"`{self.function}` is also defined in {self.place}. Only the exercise's own cell is graded: replace its "
                    "content with your answer."
                )
            case "another name":
                return (
                    f"`{self.found}` in {self.place} may be your answer. The grader looks for `{self.function}` in the "
                    "exercise's own cell: put your answer there, under that name."
                )
            case "no code":
                return f"{self.place} has the text of `{self.function}`. Only code cells are graded: make it a code cell."
            case "twice":
                return f"{self.place} defines `{self.function}` more than once, and the last one counts: remove the others."
            case "no Python":
                return (
                    f"{self.place} is not valid Python: {self.found}. Fix that line, restart the kernel, and run all cells: a "
                    "check tests the last version that ran."
                )


def answers_elsewhere(
    cells: Sequence[NotebookCell],
    choice: ChosenCells,
    exercises: Sequence[AskedExercise],
    given: Iterable[str],
    taken: Mapping[str, TakenAlong],
) -> dict[str, tuple[AnswerElsewhere, ...]]:
    """Find misplaced answers, outside the exercises' own cells, and definitions that hide one inside, by the exercise's id.

    `given` has the sources of the release's cells, and `taken` what each exercise takes along; neither is an answer elsewhere.
    """
    released = {tuple(lines_of(source)) for source in given}
    others: list[tuple[int, str]] = []  # (number, source) of code cells
    prose: list[NotebookCell] = []
    number = 0
    for cell in cells:
        number += cell.kind == "code"
        if tuple(lines_of(cell.source)) in released:
            continue
        if cell.kind != "code":
            prose.append(cell)
        else:
            others.append((number, cell.source))

    functions = {name for exercise in exercises for name in exercise.functions}
    answers = {}
    for exercise in exercises:
        used = set(functions)
        for own in taken[exercise.id].cells:
            for statement in own.statements:
                used |= statement.binds
        answers[exercise.id] = _elsewhere(exercise, choice.exercises[exercise.title], others, prose, used)
    return answers


def _elsewhere(
    exercise: AskedExercise,
    own: FoundCell,
    code: Sequence[tuple[int, str]],
    prose: Sequence[NotebookCell],
    used: Collection[str],
) -> tuple[AnswerElsewhere, ...]:
    """Find answers to one exercise. `used` are names with a part of their own, which are no answers under another name."""
    others = [(number, source) for number, source in code if number - 1 not in own.parts]
    name, source = exercise.functions[0], own.source or ""
    answers = []
    functions = _functions(python_cell(source).text)
    if functions.count(name) > 1:
        answers.append(AnswerElsewhere("twice", name, own.parts[0] + 1, first_line(source)))
    elif not defines(source, name):
        for other in functions[:_MOST_FOUND]:
            answers.append(AnswerElsewhere("another name", name, own.parts[0] + 1, first_line(source), other))

    assigned = re.compile(rf"^{re.escape(name)}[ \t]*=(?!=)", re.MULTILINE)
    for number, other in others:
        if name in other and (name in _functions(other) or assigned.search(other)):
            answers.append(AnswerElsewhere("another cell", name, number, first_line(other)))

    if not defines(source, name) or "NotYet" in source:
        answers += _under_another_name(name, others, used)

    definition = re.compile(rf"^[ \t]*def[ \t]+{re.escape(name)}[ \t]*\(", re.MULTILINE)
    for cell in prose:
        if definition.search(cell.source):
            answers.append(AnswerElsewhere("no code", name, 0, first_line(cell.source), cell.kind[:20]))
    return tuple(dict.fromkeys(answers))[:_MOST_FOUND]


def no_python(exercise: AskedExercise, cell: int, source: str, message: str) -> AnswerElsewhere | None:
    """Return the exercise's cell as an answer that cannot be graded if a rank's `message` is a syntax error, else None."""
    if not message.startswith(_NO_PYTHON):
        return None
    return AnswerElsewhere("no Python", exercise.functions[0], cell, first_line(source), message)


def _under_another_name(name: str, others: Sequence[tuple[int, str]], taken: Collection[str]) -> Iterator[AnswerElsewhere]:
    """Yield misplaced definitions of a similar name: `pass_right_2`, `my_pass_right`, `pass_rigth`."""
    wanted = name.lower()
    functions = ((number, source, other) for number, source in others for other in _functions(source))
    for number, source, other in islice(functions, _MOST_NAMES):
        if other in taken:
            continue
        plain = other.lower()
        if wanted in plain or difflib.SequenceMatcher(None, plain, wanted).ratio() >= _ALIKE:
            yield AnswerElsewhere("another name", name, number, first_line(source), other)


def _functions(source: str) -> list[str]:
    """Return the names of a cell's top-level functions and classes, of which one may be a misplaced answer.

    A pattern matches lines: a notebook may have very many cells, and some that Python cannot parse.
    """
    return [name[:_SHOWN] for name in _DEFINITION.findall(source)]
