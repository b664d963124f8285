"""A lab's answers as a module that other programs import: exercises, and what they use of the notebook's other cells.

Cells are found and read as for a grade, and nothing of them is run; what ran in the notebook beside definitions stays
behind. Left out: whether an answer is right (`marking`), and where the course's notebooks are (`lab.course_folder`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import worldsize
from worldsize.grade.box import stub_front
from worldsize.grade.course import CourseLab, Exercise, load
from worldsize.grade.marking.exercise_cell import FoundCell, NotebookCell, found_cell
from worldsize.grade.marking.submission import lab_of, read_notebook
from worldsize.lab.own_cells import CellOfNotebook, OwnCells, TakenAlong
from worldsize.lab.python_cell import DOES_NOT_PARSE, python_cell, taken_out_sentence
from worldsize.lab.released import EXERCISES
from worldsize.lab.statements import Statement, statements
from worldsize.titles import title_of

FRONT = "worldsize.notebook"
_MARKER = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION[ \t]*\n?", re.MULTILINE)
_STARTS = frozenset(("launch", "quiet_launch", "simulate", "open_ranks", "open_lab", "terminal", "knobs", "warm"))


@dataclass(frozen=True)
class AnswersModule:
    """The text of a module, the exercises in it by function, those of them not yet written, and notes for a person."""

    text: str
    functions: tuple[str, ...]
    not_yet: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Answer:
    """An exercise's part of the module: its title's line, its code, what else of its cell was left behind."""

    exercise: Exercise
    head: str
    code: str
    is_written: bool
    notes: tuple[str, ...] = ()


def answers_module(notebook: Path, course: Path) -> AnswersModule:
    """The answers in a notebook of one of the course's labs, as a module. `course` is the folder with its `labs/`.

    Raises ValueError for a file that is no notebook, one without an exercise, and a cell that Python cannot read.
    """
    cells = read_notebook(notebook).cells
    lab = lab_of(cells, load(course).values())
    if lab is None:
        raise ValueError(f"{notebook}: expected a notebook with exercises of one of the labs, got one with none. Name a lab's.")

    code = [cell for cell in cells if cell.kind == "code"]
    names = {name for exercise in lab.exercises for name in (exercise.id, f"check_{exercise.id}")}
    places = {exercise.id: found_cell(exercise, code, names) for exercise in lab.exercises}
    taken = _taken_along(lab, code, places, names)

    answers = {exercise.id: _answer(notebook, exercise, places[exercise.id]) for exercise in lab.exercises}
    parts = _parts(lab, places, taken, answers)
    notes = [f"note: {note}" for note in _notes(notebook, lab, code, taken, answers.values())]
    module = _module(notebook, lab, parts, [answer for answer in answers.values() if answer.is_written])
    not_yet = [name for name, answer in answers.items() if not answer.is_written]
    return AnswersModule(module, tuple(answers), tuple(not_yet), tuple(dict.fromkeys(notes)))


# ---- what goes in ------------------------------------------------------------------------------


def _taken_along(
    lab: CourseLab, code: Sequence[NotebookCell], places: Mapping[str, FoundCell], names: set[str]
) -> dict[str, TakenAlong]:
    """By exercise, what it uses of all other cells: those of the set-up count as the student's own do."""
    functions: dict[int, tuple[str, ...]] = {}
    sources: dict[int, str] = {}
    apart: set[int] = set()
    for exercise in lab.exercises:
        found = places[exercise.id]
        apart |= {*found.parts[1:], *found.copies}
        if found.parts:
            functions[found.parts[0]] = functions.get(found.parts[0], ()) + exercise.functions
            sources[found.parts[0]] = found.source or ""

    rows = []
    for k, cell in enumerate(code):
        if k in functions:
            rows.append(CellOfNotebook(k + 1, sources[k], functions[k]))
        elif k not in apart and not {cell.id, cell.grade_id} & names:
            rows.append(CellOfNotebook(k + 1, _without_front(cell.source)))

    own = OwnCells(rows, stub_front.names())
    return {exercise.id: own.taken_along(exercise.functions[0]) for exercise in lab.exercises}


def _without_front(source: str) -> str:
    """A cell without the line that imports everything of the notebook's front, whose names are known."""
    return re.sub(rf"^from {re.escape(FRONT)} import \*[^\n]*$", "pass", source, flags=re.MULTILINE)


def _answer(notebook: Path, exercise: Exercise, found: FoundCell) -> _Answer:
    """An exercise's definitions. Raises ValueError for a cell that Python cannot read."""
    source = exercise.stub if found.source is None else found.source
    title = title_of(exercise.stub)
    read = python_cell(source)
    text = _MARKER.sub("", read.text).strip("\n")
    _need_python(notebook, exercise, text)

    rows = statements(text) or []
    kept = _needed(rows, exercise.functions)
    notes = [f"{exercise.title}: {taken_out_sentence(read.taken_out)}"] if read.taken_out else []
    for one in rows:
        if one not in kept and one.maker is not None:
            notes.append(f"{exercise.title}: left out what runs in its cell: `{one.text.splitlines()[0][:60]}`")

    head, code = "", text
    if len(kept) < len(rows) or title_of(text) is None:
        head = title.line if title else ""
    if len(kept) < len(rows):
        code = _spaced(kept)
    return _Answer(exercise, head, code, found.source is not None and not _is_stub(text), tuple(notes))


def _need_python(notebook: Path, exercise: Exercise, text: str) -> None:
    why = _why(text)
    if why:
        raise ValueError(
            f"{notebook}: expected Python in the cell of {exercise.title}, got what Python cannot read: {why}. Mend it, save the "
            f"notebook, and do this again."
        )


def _is_stub(text: str) -> bool:
    """Whether an exercise's cell still raises NotYet."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(raised, ast.Name) and raised.id == "NotYet":
                return True
    return False


def _needed(rows: Sequence[Statement], functions: Sequence[str]) -> list[Statement]:
    """Of a cell's statements the definitions, and what else makes a name that its functions use; no run of anything."""
    wanted = set(functions)
    kept: set[Statement] = set()
    grows = True
    while grows:
        grows = False
        for one in rows:
            makes = one.binds & wanted and not one.now & _STARTS
            if one not in kept and (makes or one.maker is None):
                kept.add(one)
                wanted |= one.now | one.later
                grows = True
    return [one for one in rows if one in kept]


# ---- the module --------------------------------------------------------------------------------


def _parts(
    lab: CourseLab, places: Mapping[str, FoundCell], taken: Mapping[str, TakenAlong], answers: Mapping[str, _Answer]
) -> list[str | list[Statement]]:
    """What stands in the module below each other: an exercise comes after all that it takes along."""
    parts: list[str | list[Statement]] = []
    written: set[tuple[int, Statement]] = set()
    placed = sorted(lab.exercises, key=lambda one: (places[one.id].parts or (len(places) * 1_000,))[0])
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


def _module(notebook: Path, lab: CourseLab, parts: Iterable[str | list[Statement]], written: Sequence[_Answer]) -> str:
    """The module's text: imports first, then all else in its order."""
    futures: list[str] = []
    imports: list[str] = []
    below: list[str] = []
    for part in parts:
        if isinstance(part, str):
            below.append(part)
            continue
        for one in part:
            if one.is_future:
                futures.append(one.text)
            elif one.text.startswith(("import ", "from ")):
                imports.append(one.text)
        rest = [one for one in part if not one.text.startswith(("import ", "from "))]
        if rest:
            below.append(_spaced(rest))

    body = "\n\n\n".join(below)
    functions = [exercise.functions[0] for exercise in lab.exercises]
    public = "\n".join(["__all__ = [", *(f'    "{name}",' for name in functions), "]"])
    head = [_docstring(notebook, lab, written), *dict.fromkeys(futures)]
    imports += _front_imports(f"{body}\n" + "\n".join(imports))
    given = "\n".join(sorted(dict.fromkeys(imports), key=_place_of_import))
    return "\n\n".join(filter(None, ["\n".join(head), given, public])) + f"\n\n\n{body}\n"


def _place_of_import(text: str) -> tuple[bool, bool, str]:
    """Python's and other people's modules before the course's, `import` before `from`."""
    return "worldsize" in text, text.startswith("from "), text


def _docstring(notebook: Path, lab: CourseLab, written: Sequence[_Answer]) -> str:
    of = f"{len(written)} of {len(lab.exercises)} exercises are written"
    heading = (lab.heading or lab.stem).rstrip(".").replace("\\", "").replace('"', "'")
    return f'"""Answers to {heading}.\n\nWritten by `worldsize answers` from {notebook.name}; {of}.\n"""'


def _spaced(rows: Sequence[Statement]) -> str:
    """Statements below each other, with two blank lines round functions and classes."""
    text = ""
    before_is_block = False
    for one in rows:
        is_block = "\n" in one.text and not one.text.startswith(("import ", "from "))
        if text:
            text += "\n\n\n" if is_block or before_is_block else "\n"
        text += one.text
        before_is_block = is_block
    return text


def _front_imports(text: str) -> Iterator[str]:
    """The imports of those names of the notebook's front that the module uses, each from where the front has it.

    The front itself starts the course's agent when it is imported.
    """
    tree = ast.parse(text)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & set(stub_front.names())
    used -= {name for one in statements(text) or () for name in one.binds}
    found: dict[str, list[str]] = {}
    for node in _front_tree().body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) in used:
                    found.setdefault(node.module, []).append(alias.name)
    for module, names in sorted(found.items()):
        yield f"from {module} import {', '.join(sorted(names))}"


def _front_tree() -> ast.Module:
    return ast.parse((Path(worldsize.__file__).parent / "notebook.py").read_text(encoding="utf-8"))


# ---- what a person is told ---------------------------------------------------------------------


def _notes(
    notebook: Path, lab: CourseLab, code: Sequence[NotebookCell], taken: Mapping[str, TakenAlong], answers: Iterable[_Answer]
) -> Iterator[str]:
    """What a module does without. Raises ValueError where an exercise uses what stands in a cell that is no Python."""
    known = {exercise.id for exercise in lab.exercises}
    for name, line in EXERCISES.get(lab.number, {}).items():
        if name not in known:
            yield f"{line.removeprefix('# ')} is not in this notebook"

    for answer in answers:
        yield from answer.notes
        for one in taken[answer.exercise.id].left:
            if one.maker == "no Python":
                why = _why(python_cell(code[one.cell - 1].source).text)
                raise ValueError(
                    f"{notebook}: {answer.exercise.title} uses `{one.name}` of code cell {one.cell}, expected Python there, got "
                    f"what Python cannot read: {why}. Mend it, save the notebook, and do this again."
                )
            yield (
                f"{answer.exercise.title} uses `{one.name}`, which code cell {one.cell} makes as it runs (`{one.line}`): "
                f"the module has no such name"
            )


def _why(text: str) -> str:
    """What Python says of a cell that it cannot read, with the line; "" of one that it can."""
    try:
        compile(text, "<cell>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}, {error.msg}"
    except DOES_NOT_PARSE as error:
        return str(error)
    return ""
