"""A lab's answers as an importable module: the exercises, and what they use from the notebook's other cells.

Cells are found and read as for grading, and nothing runs. Cells that only ran something in the notebook are left out.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import worldsize
from worldsize.cells import (
    DOES_NOT_PARSE,
    ChosenCells,
    FoundCell,
    NotebookCell,
    Statement,
    TakenAlong,
    chosen,
    python_cell,
    raises_not_yet,
    statements,
    taken_along,
    taken_out_sentence,
    unnamed,
)
from worldsize.cells.released import EXERCISES
from worldsize.grade.course import CourseLab, Exercise, load
from worldsize.grade.inside import stub_front
from worldsize.grade.marking.submission import lab_of, read_notebook
from worldsize.titles import title_of

FRONT = "worldsize.notebook"
_MARKER = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)
# calls that start ranks or the course's agent: a module must not copy them
_STARTS = frozenset(("launch", "quiet_launch", "simulate", "open_ranks", "open_lab", "terminal", "knobs", "warm"))


@dataclass(frozen=True)
class AnswersModule:
    """A module's text, the ids of its exercises, the ids not yet written, and notes for a person."""

    text: str
    functions: tuple[str, ...]
    not_yet: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Answer:
    """An exercise's part of the module: its title line, its code, and notes on what its cell left behind."""

    exercise: Exercise
    head: str
    code: str
    is_written: bool
    notes: tuple[str, ...] = ()


def answers_module(notebook: Path, course: Path) -> AnswersModule:
    """Return the answers in a notebook of one of the course's labs, as a module. `course` is the folder with `labs/`.

    Raises ValueError if the file is not a notebook, has no exercise, or has a needed cell that Python cannot parse.
    """
    cells = read_notebook(notebook).cells
    lab = lab_of(cells, load(course).values())
    if lab is None:
        raise ValueError(f"{notebook}: expected a notebook with a lab's exercises, got one with none. Name a lab's notebook.")

    code = [cell for cell in cells if cell.kind == "code"]
    # the front's names are known, so its star import is none; set-up cells count like the student's own
    front = re.compile(rf"^from {re.escape(FRONT)} import \*[^\n]*$", re.MULTILINE)
    own = {k: front.sub("pass", source) for k, source in unnamed(code, lab.exercises).items()}
    choice = replace(chosen(code, lab.exercises), own=own)
    taken = taken_along(choice, lab.exercises, stub_front.names())

    answers = {exercise.id: _answer(notebook, exercise, choice.exercises[exercise.title]) for exercise in lab.exercises}
    parts = _parts(lab, choice, taken, answers)
    notes = [f"note: {note}" for note in _notes(notebook, lab, code, taken, answers.values())]
    not_yet = [name for name, answer in answers.items() if not answer.is_written]
    module = _module(notebook, lab, parts, len(answers) - len(not_yet))
    return AnswersModule(module, tuple(answers), tuple(not_yet), tuple(dict.fromkeys(notes)))


def _answer(notebook: Path, exercise: Exercise, cell: FoundCell) -> _Answer:
    """Return, for the module, an exercise's definitions. Raises ValueError if Python cannot parse its cell."""
    source = exercise.stub if cell.source is None else cell.source
    title = title_of(exercise.stub)
    read = python_cell(source)
    text = _MARKER.sub("", read.text).strip("\n")
    if why := _why(text):
        raise ValueError(
            f"{notebook}: expected Python in the cell of {exercise.title}, got code that Python cannot parse: {why}. Fix it, "
            "save the notebook, and run this again."
        )

    rows = statements(text)
    kept = _needed(rows, exercise.functions)
    notes = [f"{exercise.title}: {taken_out_sentence(read.taken_out)}"] if read.taken_out else []
    for statement in rows:
        if statement not in kept and statement.maker is not None:
            notes.append(f"{exercise.title}: left out a statement that runs in its cell: `{statement.text.splitlines()[0][:60]}`")

    head, code = "", text
    if len(kept) < len(rows) or title_of(text) is None:
        head = title.line if title else ""
    if len(kept) < len(rows):
        code = _spaced(kept)

    is_written = cell.source is not None and not raises_not_yet(text)
    return _Answer(exercise, head, code, is_written, tuple(notes))


def _needed(rows: Sequence[Statement], functions: Sequence[str]) -> list[Statement]:
    """Return, for the module, a cell's definitions and the statements that bind names they use, except those that start a run."""
    wanted = set(functions)
    kept: set[Statement] = set()

    grows = True
    while grows:
        grows = False
        for statement in rows:
            if statement in kept:
                continue
            makes = statement.binds & wanted and not statement.now & _STARTS
            if makes or statement.maker is None:
                kept.add(statement)
                wanted |= statement.now | statement.later
                grows = True

    return [statement for statement in rows if statement in kept]


def _parts(
    lab: CourseLab, choice: ChosenCells, taken: Mapping[str, TakenAlong], answers: Mapping[str, _Answer]
) -> list[str | list[Statement]]:
    """Return the module's parts in order: everything an exercise takes along comes before the exercise."""
    parts: list[str | list[Statement]] = []
    written: set[tuple[int, Statement]] = set()
    # an exercise without a cell sorts last
    last = len(lab.exercises) * 1_000
    placed = sorted(lab.exercises, key=lambda exercise: (choice.exercises[exercise.title].parts or (last,))[0])
    for exercise in placed:
        for cell in taken[exercise.id].cells:
            rows = [one for one in cell.statements if (cell.number, one) not in written and one.text != "pass"]
            written.update((cell.number, one) for one in rows)
            if rows:
                parts.append(rows)

        answer = answers[exercise.id]
        text = "\n".join(filter(None, (answer.head, answer.code)))
        if text not in parts:  # two exercises may share a cell
            parts.append(text)
    return parts


def _module(notebook: Path, lab: CourseLab, parts: Iterable[str | list[Statement]], written: int) -> str:
    """Return the module's text: imports first, then everything else in order."""
    futures: list[str] = []
    imports: list[str] = []
    below: list[str] = []
    for part in parts:
        if isinstance(part, str):
            below.append(part)
            continue

        rest = []
        for statement in part:
            if statement.is_future:
                futures.append(statement.text)
            elif statement.text.startswith(("import ", "from ")):
                imports.append(statement.text)
            else:
                rest.append(statement)
        if rest:
            below.append(_spaced(rest))

    heading = (lab.heading or lab.stem).rstrip(".").replace("\\", "").replace('"', "'")  # cannot end the docstring
    of = f"{written} of {len(lab.exercises)} exercises are written"
    docstring = f'"""Answers to {heading}.\n\nWritten by `worldsize answers` from {notebook.name}; {of}.\n"""'

    body = "\n\n\n".join(below)
    imports += _front_imports(f"{body}\n" + "\n".join(imports))
    # the course's modules after all others, `import` before `from`
    given = sorted(dict.fromkeys(imports), key=lambda text: ("worldsize" in text, text.startswith("from "), text))

    public = ["__all__ = [", *(f'    "{exercise.functions[0]}",' for exercise in lab.exercises), "]"]
    head = ["\n".join(lines) for lines in ([docstring, *dict.fromkeys(futures)], given, public) if lines]
    return "\n\n".join(head) + f"\n\n\n{body}\n"


def _spaced(rows: Sequence[Statement]) -> str:
    """Join a module's statements by newlines, with two blank lines around functions and classes."""
    text = ""
    before_is_block = False
    for statement in rows:
        is_block = "\n" in statement.text and not statement.text.startswith(("import ", "from "))
        if text:
            text += "\n\n\n" if is_block or before_is_block else "\n"
        text += statement.text
        before_is_block = is_block
    return text


def _front_imports(text: str) -> Iterator[str]:
    """Yield an import for each front name that the module uses, from the module where the front gets the name.

    Importing the front itself would start the course's agent.
    """
    tree = ast.parse(text)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & set(stub_front.names())
    for statement in statements(text):
        used -= statement.binds

    by_module: dict[str, list[str]] = {}
    front = (Path(worldsize.__file__).parent / "notebook.py").read_text(encoding="utf-8")
    for node in ast.parse(front).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) in used:
                    by_module.setdefault(node.module, []).append(alias.name)

    for module, names in sorted(by_module.items()):
        yield f"from {module} import {', '.join(sorted(names))}"


def _notes(
    notebook: Path, lab: CourseLab, code: Sequence[NotebookCell], taken: Mapping[str, TakenAlong], answers: Iterable[_Answer]
) -> Iterator[str]:
    """Yield notes on what the module lacks. Raises ValueError if an exercise uses a name from a cell that does not parse."""
    known = {exercise.id for exercise in lab.exercises}
    for name, line in EXERCISES.get(lab.number, {}).items():
        if name not in known:
            yield f"{line.removeprefix('# ')} is not in this notebook"

    for answer in answers:
        yield from answer.notes
        for dependency in taken[answer.exercise.id].left:
            if dependency.maker == "no Python":
                why = _why(python_cell(code[dependency.cell - 1].source).text)
                raise ValueError(
                    f"{notebook}: {answer.exercise.title} uses `{dependency.name}` from code cell {dependency.cell}: "
                    f"expected Python there, got code that Python cannot parse: {why}. Fix it, save the "
                    "notebook, and run this again."
                )
            yield (
                f"{answer.exercise.title} uses `{dependency.name}`, which code cell {dependency.cell} makes when it runs "
                f"(`{dependency.line}`): the module has no such name"
            )


def _why(text: str) -> str:
    """Return, for a note in the module, Python's error for a cell, with the line; "" if the cell compiles."""
    try:
        compile(text, "<cell>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}, {error.msg}"
    except DOES_NOT_PARSE as error:
        return str(error)
    return ""
