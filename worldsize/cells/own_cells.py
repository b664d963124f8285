"""The parts of a student's own cells that an exercise takes along: one rule for the notebook's check and for a grade.

Own cells are those that are neither set-up, exercise nor check. An exercise takes along the imports, functions, classes and
constants that it uses, directly or through each other; nothing else of an own cell runs. A name means what it means in the
notebook from top to bottom: its last binding above the exercise counts, else the last one below. Names that are used but cannot
go along are reported. `choice` says which cells are own ones; `cell_statements`, what a statement binds and uses.
"""

import builtins
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from worldsize.cells.cell_statements import Statement, parsed, statements
from worldsize.cells.choice import ChosenCells
from worldsize.cells.notebook_cells import AskedExercise, printable

MOST_OWN_CHARACTERS = 1_000_000
MOST_TAKEN = 1_000
_MOST_LEFT = 20
_EVERYWHERE = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__", "get_ipython", "In", "Out", "display"}
_MADE_BY = {
    "loop": "by a loop in another cell",
    "with": "by a `with` block in another cell",
    "call": "by a call in another cell",
    "change": "or changed by an assignment in another cell",
    "del": "and deleted in another cell",
    "expression": "inside an expression in another cell",
    "global": "by a function that says `global`",
    "block": "by a statement of another cell that does more than define it",
    "star": "by an `import *` in another cell",
    "limit": "in another cell, and there are too many such names",
    "no Python": "in another cell that Python cannot read",
}


@dataclass(frozen=True)
class CellOfNotebook:
    """A code cell: `number` counts from 1; `functions` are the exercise functions that the cell is for."""

    number: int
    source: str
    functions: tuple[str, ...] = ()


@dataclass(frozen=True)
class OwnCell:
    """The statements that an exercise takes along from one own cell, in the cell's order."""

    number: int
    statements: tuple[Statement, ...]

    @property
    def title(self) -> str:
        return f"cell {self.number}"

    @property
    def source(self) -> str:
        """The statements as one cell, each on the lines where it stands in the notebook."""
        lines: list[str] = []
        for statement in self.statements:
            texts = statement.text.split("\n")

            if len(lines) >= statement.line:  # it follows another statement's semicolon
                lines[-1] += "; " + texts.pop(0)
            else:
                lines += [""] * (statement.line - 1 - len(lines))
            lines += texts
        return "\n".join(lines)

    def one_by_one(self) -> list[tuple[str, str]]:
        """Return [(title, source)], each statement as its own cell, so that a failing statement does not cost the others."""
        futures = tuple(statement for statement in self.statements if statement.is_future)
        cells = []
        for statement in self.statements:
            if not statement.is_future:
                cell = replace(self, statements=(*futures, statement))
                cells.append((f"{self.title}, line {statement.line}", cell.source))
        return cells


@dataclass(frozen=True)
class LeftBehind:
    """A name that an exercise uses and that cannot go along: what makes the name, in which cell, and the text of that line."""

    name: str
    maker: str
    cell: int
    line: str = ""

    @property
    def sentence(self) -> str:
        how = _MADE_BY.get(self.maker, "in another cell")
        return f"`{self.name}` is made {how}: the grader does not run it. Define it in the exercise's cell."


@dataclass(frozen=True)
class TakenAlong:
    """The own cells' parts that go along with an exercise, and the names that it uses but that cannot."""

    cells: tuple[OwnCell, ...] = ()
    left: tuple[LeftBehind, ...] = ()


@dataclass(frozen=True)
class _Placed:
    """A statement of a student's own cell, and its place: (the cell's number, the statement's index in the cell)."""

    place: tuple[float, int]
    statement: Statement
    functions: tuple[str, ...]


def taken_along(choice: ChosenCells, exercises: Sequence[AskedExercise], given: Iterable[str]) -> dict[str, TakenAlong]:
    """Return what each exercise takes along of the own cells and of other exercises' cells, by the exercise's id.

    `given` are names that are there beforehand, such as set-up cells' names, and so are not taken along. A cell's number is 1
    plus its index in the choice.
    """
    rows = dict(choice.own)
    functions: dict[int, tuple[str, ...]] = {}
    for cell in choice.exercises.values():
        for k in (*cell.parts[1:], *cell.copies):
            rows.pop(k, None)

    for exercise in exercises:
        cell = choice.exercises.get(exercise.title)
        if cell is not None and cell.parts:
            functions[cell.parts[0]] = functions.get(cell.parts[0], ()) + exercise.functions
            rows[cell.parts[0]] = cell.source or ""

    cells = [CellOfNotebook(k + 1, rows[k], functions.get(k, ())) for k in sorted(rows)]
    own = OwnCells(cells, given, choice.ran)

    taken = {}
    for exercise in exercises:
        has_cell = exercise.title in choice.exercises and choice.exercises[exercise.title].parts
        taken[exercise.id] = own.taken_along(exercise.functions[0]) if has_cell else TakenAlong()
    return taken


class OwnCells:
    """The names of a notebook's code cells, own cells among them, in the order in which they stand or ran.

    `given` are the names that set-up cells make; these keep their meaning. With `ran`, the cells are in the order in which they
    ran, so the last binding counts, wherever the exercise is.
    """

    def __init__(self, cells: Iterable[CellOfNotebook], given: Iterable[str], ran: bool = False) -> None:
        self._cells = tuple(cells)
        self.given = frozenset(given)
        self._ran = ran

    def taken_along(self, function: str) -> TakenAlong:
        """Return everything that goes along with the exercise of this function. Raises nothing, whatever the cells hold."""
        return _Search(self, function).found()

    @cached_property
    def placed(self) -> dict[int, list[_Placed]]:
        """The statements of each readable cell, by the cell's number."""
        by_cell: dict[int, list[_Placed]] = {}
        room = MOST_OWN_CHARACTERS
        for cell in self._cells:
            if not cell.functions:
                room -= len(cell.source)
                if room < 0:
                    continue

            rows = enumerate(statements(cell.source))
            by_cell[cell.number] = [_Placed((cell.number, k), row, cell.functions) for k, row in rows]
        return by_cell

    @cached_property
    def binders(self) -> dict[str, list[_Placed]]:
        by_name: dict[str, list[_Placed]] = {}
        for rows in self.placed.values():
            for placed in rows:
                for name in placed.statement.binds:
                    by_name.setdefault(name, []).append(placed)
        return by_name

    @cached_property
    def unread(self) -> list[CellOfNotebook]:
        """The own cells that Python cannot parse."""
        return [cell for cell in self._cells if not cell.functions and parsed(cell.source) is None]

    @cached_property
    def own(self) -> list[_Placed]:
        """The statements of the own cells, which are for no exercise."""
        return [one for rows in self.placed.values() for one in rows if not one.functions]

    @cached_property
    def by_global(self) -> dict[str, _Placed]:
        return {name: one for one in self.own for name in one.statement.by_global}

    @cached_property
    def functions(self) -> dict[str, CellOfNotebook]:
        """The exercises' cells, by each of their functions, beside the own cells."""
        return {name: cell for cell in self._cells for name in cell.functions}

    @cached_property
    def star(self) -> _Placed | None:
        """The last star import of an own cell whose names are unknown."""
        return next((one for one in reversed(self.own) if one.statement.star), None)

    def bound(self, name: str, above: tuple[float, int]) -> _Placed | None:
        """Return the cells' statement that binds `name` for code at `above`: the last binding above, else the last of all."""
        every = self.binders.get(name, [])
        if self._ran:
            return every[-1] if every else None

        above_it = bisect_left(every, above, key=lambda one: one.place)
        return every[(above_it or len(every)) - 1] if every else None


class _Search:
    """The search for everything in own cells that one exercise uses."""

    def __init__(self, notebook: OwnCells, function: str) -> None:
        self._notebook = notebook
        self._function = function
        self._taken: dict[tuple[float, int], _Placed] = {}
        self._left: dict[str, LeftBehind] = {}
        self._todo: list[tuple[str, tuple[float, int]]] = []
        self._seen: set[tuple[str, tuple[float, int]]] = set()
        self._exercises: set[int] = set()

    def found(self) -> TakenAlong:
        cell = self._notebook.functions.get(self._function)
        if cell is not None:
            self._enter(cell)
        while self._todo:
            self._find(*self._todo.pop())

        rows: dict[int, list[Statement]] = {}  # by the cell's number
        for place in sorted(self._taken):
            rows.setdefault(int(place[0]), []).append(self._taken[place].statement)

        cells = []
        for number, taken in rows.items():
            # `from __future__ import …` goes along with anything else from its cell
            futures = [row.statement for row in self._notebook.placed[number] if row.statement.is_future]
            cells.append(OwnCell(number, tuple(dict.fromkeys([*futures, *taken]))))
        left = [self._left[name] for name in sorted(self._left)]
        return TakenAlong(tuple(cells), tuple(left[:_MOST_LEFT]))

    def _enter(self, cell: CellOfNotebook) -> None:
        """Ask the own cells for every name that an exercise's cell uses and does not make itself."""
        if cell.number in self._exercises:
            return
        self._exercises.add(cell.number)

        rows = self._notebook.placed.get(cell.number, [])
        needed = _needed(rows, cell.functions)
        bound_before: set[str] = set()
        bound = {name for placed in rows for name in placed.statement.binds if placed.statement.maker != "change"}

        for placed in rows:
            if placed.place in needed:
                self._ask(placed.statement.now - bound_before, placed.place)
                self._ask(placed.statement.later - bound, (cell.number, -1))
            bound_before |= placed.statement.binds

    def _ask(self, names: Iterable[str], above: tuple[float, int]) -> None:
        for name in names:
            if (name, above) not in self._seen:
                self._seen.add((name, above))
                self._todo.append((name, above))

    def _find(self, name: str, above: tuple[float, int]) -> None:
        notebook = self._notebook
        for placed in notebook.binders.get(name, []):
            if placed.statement.dotted and not placed.functions:  # `import name.more` adds a part of `name`
                self._take(placed, above)

        if name in notebook.given:
            return
        if name in notebook.functions:
            self._enter(notebook.functions[name])
            return

        placed = notebook.bound(name, above)
        if placed is None:
            self._explain(name)
        elif placed.functions:
            if placed.place[0] != above[0]:
                self._enter(notebook.functions[placed.functions[0]])
        elif placed.statement.maker:
            self._leave(name, placed.statement.maker, placed)
        elif len(self._taken) >= MOST_TAKEN:
            self._leave(name, "limit", placed)
        else:
            self._take(placed, above)

    def _take(self, placed: _Placed, above: tuple[float, int]) -> None:
        if placed.place not in self._taken and len(self._taken) < MOST_TAKEN:
            self._taken[placed.place] = placed
            self._ask(placed.statement.now, placed.place)
            self._ask(placed.statement.later - placed.statement.binds, above)

    def _explain(self, name: str) -> None:
        """Record where a name may come from that no cell binds at its top level."""
        if name in self._notebook.by_global:
            self._leave(name, "global", self._notebook.by_global[name])
            return
        if name in _EVERYWHERE:
            return
        if self._notebook.star:
            self._leave(name, "star", self._notebook.star)
            return

        plain = re.escape(name)
        for cell in self._notebook.unread:
            found = re.search(rf"^[ \t]*(?:(?:def|class)\s+{plain}\b|{plain}\s*=).*", cell.source, re.MULTILINE)
            if found:
                self._left[name] = LeftBehind(name, "no Python", cell.number, printable(found[0]))

    def _leave(self, name: str, maker: str, placed: _Placed) -> None:
        self._left[name] = LeftBehind(name, maker, int(placed.place[0]), printable(placed.statement.text.partition("\n")[0]))


def _needed(rows: Sequence[_Placed], functions: Sequence[str]) -> set[tuple[float, int]]:
    """Return the places of the statements that an exercise's functions need, and of all that run before the last of these.

    A call below, to try the function out, is not included: nothing is lost if it fails.
    """
    wanted = set(functions)
    needed: set[tuple[float, int]] = set()
    grows = True
    while grows:
        grows = False
        for placed in rows:
            if placed.place not in needed and placed.statement.binds & wanted:
                needed.add(placed.place)
                wanted |= placed.statement.now | placed.statement.later
                grows = True

    last = max(needed, default=(0, -1))
    return needed | {placed.place for placed in rows if placed.place < last}
