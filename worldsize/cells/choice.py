"""The cells that count: of a saved notebook, which the grader has, and of the cells that ran, which a notebook's check has.

Both have one result, `ChosenCells`. In a saved notebook an exercise's cell is found by its name, title or function, and a cell
that was split is rejoined: cells belong together if their joined text parses and defines the exercise's functions.

A kernel keeps the cells that ran as text, in their order, so some rules differ on purpose. It has no names, so titles decide.
A cell that was edited ran in several versions, of which the last that Python can parse counts: its function is the one that the
notebook has. Set-up cells count as they ran, since nothing else made the notebook's names; a grade runs the release's.
"""

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from worldsize.cells.as_python import MAX_CELL_CHARACTERS, python_cell
from worldsize.cells.cell_statements import defines, parsed
from worldsize.cells.notebook_cells import AskedExercise, NotebookCell, lines_of
from worldsize.cells.setups import SETUP
from worldsize.titles import title_of

_MOST_NEIGHBOURS = 3

FoundBy = Literal["name", "title", "what it says", "nothing"]


@dataclass(frozen=True)
class FoundCell:
    """The parts of the cell that counts for an exercise, by index among the notebook's code cells; () if there is no such cell.

    `copies` are further cells with its name or title.
    """

    parts: tuple[int, ...]
    source: str | None
    by: FoundBy
    copies: tuple[int, ...] = ()


@dataclass(frozen=True)
class ChosenCells:
    """The cells of a notebook that count, and the student's own.

    `exercises` has exercises' cells by title, and `own` the sources of the student's own cells by index among the code cells.
    Of cells that `ran`, `exercises` has every cell with an exercise's title, by number; `setups` has the set-up cells, each once;
    and `broken` has the syntax error of each title whose latest version does not compile, so that an earlier version counts.
    """

    exercises: Mapping[str, FoundCell]
    own: Mapping[int, str]
    ran: bool = False
    setups: tuple[str, ...] = ()
    broken: Mapping[str, SyntaxError] = field(default_factory=dict)


def chosen(cells: Sequence[NotebookCell], exercises: Sequence[AskedExercise], ran: bool = False) -> ChosenCells:
    """Return the cells that count for `exercises`, of a saved notebook or of the cells that `ran`, in their order.

    Of cells that ran, every cell with an exercise's title counts; a cell of one of the `exercises` counts also without a title.
    """
    code = [cell for cell in cells if cell.kind == "code"]
    if ran:
        return _chosen_of_ran([cell.source for cell in code], exercises)

    names = names_of(exercises)
    own = {}
    for k, source in unnamed(code, exercises).items():
        title = title_of(source)
        if title is None or title.kind not in (SETUP, "Exercise"):
            own[k] = source
    return ChosenCells({exercise.title: _found(exercise, code, names) for exercise in exercises}, own)


def unnamed(code: Sequence[NotebookCell], exercises: Sequence[AskedExercise]) -> dict[int, str]:
    """Return, beside the chosen, the sources of the code cells without the name of an exercise or of its check, by index."""
    names = names_of(exercises)
    return {k: cell.source for k, cell in enumerate(code) if not {cell.id, cell.grade_id} & names}


def names_of(exercises: Sequence[AskedExercise]) -> set[str]:
    """Return the ids of exercises and of their checks, by which nbgrader's metadata and the cells' ids name them."""
    names = set()
    for exercise in exercises:
        names |= {exercise.id, f"check_{exercise.id}"}
    return names


def title_text(source: str) -> str:
    """Return "Exercise 6.3" for a cell that may count with that title, also below a cell magic; "" for a cell without a title."""
    if source.lstrip().startswith("%%"):
        source = python_cell(source).text
    title = title_of(source)
    return str(title) if title else ""


def _chosen_of_ran(sources: Sequence[str], exercises: Sequence[AskedExercise]) -> ChosenCells:
    latest: dict[str, FoundCell] = {}
    broken: dict[str, SyntaxError] = {}
    setups: list[str] = []
    untitled: dict[int, str] = {}

    for k, source in enumerate(sources):
        title = title_of(source)
        if title is None or title.kind == "Example":
            untitled[k] = source
            continue
        if title.kind == SETUP:
            if source not in setups:  # else the same set-up cell, run again
                setups.append(source)
            continue

        name = str(title)
        error = _syntax_error(source)
        if error is not None and name in latest:
            broken[name] = error
            continue

        broken.pop(name, None)
        latest[name] = FoundCell((k,), source, "title")

    by_function: set[str] = set()
    for exercise in exercises:
        for k in reversed(untitled if exercise.title not in latest else ()):
            source = untitled[k]
            if defines(source, exercise.functions[0]) and _syntax_error(source) is None:
                latest[exercise.title] = FoundCell((k,), source, "what it says")
                by_function.add(source)
                break

    return ChosenCells(
        exercises=dict(sorted(latest.items(), key=lambda entry: _number(entry[0]))),
        own={k: source for k, source in untitled.items() if source not in by_function},
        ran=True,
        setups=tuple(setups),
        broken=broken,
    )


def _number(name: str) -> tuple[int, int]:
    """Return (6, 3) for "Exercise 6.3", to see which exercise a cell counts for."""
    title = title_of(f"# {name}")
    return (title.lab, title.number) if title else (0, 0)


def _syntax_error(source: str) -> SyntaxError | None:
    try:
        ast.parse(source)
    except SyntaxError as error:
        return error
    except ValueError:  # a null byte
        return SyntaxError("it holds a null byte")
    return None


def _found(exercise: AskedExercise, code: Sequence[NotebookCell], names: Collection[str]) -> FoundCell:
    """Find the exercise's cell among a notebook's `code` cells. `names` are the ids of the lab's exercises and checks."""
    function = exercise.functions[0]
    titles = [title_text(cell.source) for cell in code]
    named, titled, nameless = [], [], set()
    for k, cell in enumerate(code):
        if exercise.id in (cell.grade_id, cell.id):
            named.append(k)
        if titles[k] == exercise.title:
            titled.append(k)
        if not {cell.id, cell.grade_id}.intersection(names):
            nameless.add(k)

    by: FoundBy = "name"
    if not named:
        by, named = "title", titled
    if not named:
        by = "what it says"
        named = [k for k, cell in enumerate(code) if defines(cell.source, function)]
    if not named:
        return FoundCell((), None, "nothing")

    # when a cell is split, the upper half has the title and the lower half the name
    halves = nameless.intersection(titled)
    named = sorted({*named, *(k for k in halves if not defines(code[k].source, function))})
    free = {*halves, *(k for k in nameless if not titles[k])} - set(named)

    parts = _together(exercise, code, named)
    if not _whole(exercise, _joined(code, parts)):
        parts = _with_neighbours(exercise, code, parts, free)
    parts = _with_what_goes_on(code, parts, free)
    return FoundCell(tuple(parts), _joined(code, parts), by, tuple(k for k in named if k not in parts))


def _together(exercise: AskedExercise, code: Sequence[NotebookCell], named: list[int]) -> list[int]:
    """Return, of the cells that may count, all of one name if they are halves of one cell, else the best of the copies."""
    whole = [k for k in named if defines(code[k].source, exercise.functions[0])]
    if len(named) > 1 and len(whole) <= 1 and _whole(exercise, _joined(code, named)):
        return named

    def worth(k: int) -> tuple[bool, bool, int]:
        """Return a sort key: an edited cell is best, then the cell with the exercise's own id, then the last."""
        return lines_of(code[k].source) not in ([], lines_of(exercise.stub)), code[k].id == exercise.id, k

    return [max(whole or named, key=worth)]


def _with_neighbours(exercise: AskedExercise, code: Sequence[NotebookCell], parts: list[int], free: set[int]) -> list[int]:
    """Return `parts` of a cell that counts with the fewest adjacent cells that complete them, or alone if none do."""
    after = _run_of(range(parts[-1] + 1, len(code)), free)
    before = _run_of(range(parts[0] - 1, -1, -1), free)
    ways = [(a, b) for a in range(len(after) + 1) for b in range(len(before) + 1)]
    for a, b in sorted(ways, key=sum):
        longer = [*before[:b][::-1], *parts, *after[:a]]
        if _whole(exercise, _joined(code, longer)):
            return longer
    return parts


def _with_what_goes_on(code: Sequence[NotebookCell], parts: list[int], free: set[int]) -> list[int]:
    """Add, to a cell that counts, the cells below that do not parse alone, but do as its end."""
    for k in _run_of(range(parts[-1] + 1, len(code)), free):
        source = code[k].source
        is_no_cell = source.strip() and (source.startswith((" ", "\t")) or not _parses(source))  # IPython strips an indent
        if not (is_no_cell and _parses(_joined(code, [*parts, k]))):
            break
        parts = [*parts, k]
    return parts


def _run_of(places: range, free: set[int]) -> list[int]:
    run = []
    for k in places[:_MOST_NEIGHBOURS]:
        if k not in free:
            break
        run.append(k)
    return run


def _joined(code: Sequence[NotebookCell], parts: Sequence[int]) -> str:
    return "\n".join(code[k].source for k in parts)


def _whole(exercise: AskedExercise, source: str) -> bool:
    return _parses(source) and all(defines(source, name) for name in exercise.functions)


def _parses(source: str) -> bool:
    # a cell over the limit is not parsed, and is taken as it is
    return len(source) > MAX_CELL_CHARACTERS or parsed(source) is not None
