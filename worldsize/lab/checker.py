"""`check.<exercise>(fn)` in a notebook: the function as it would be handed in, its check, its points.

A student's function is rebuilt from the cells that count, before its check runs, so that a pass here is a pass in a grade.
Code that would not be handed in is named. `checks` holds the checks, `lab.py` keeps points, `verdict_view.py` shows the
verdict.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from typing_extensions import override

from worldsize.checks import CHECKS
from worldsize.checks.arena import Arena, ArenaResult, LaunchArena, Trial
from worldsize.checks.confirming_arena import confirmed_check
from worldsize.checks.verdict import Verdict
from worldsize.failures import UNTITLED
from worldsize.lab import graded_cells
from worldsize.lab.graded_cells import GradedCells
from worldsize.lab.lab import Lab
from worldsize.lab.own_cells import CellOfNotebook, OwnCells, TakenAlong, names_bound
from worldsize.lab.python_cell import PythonCell, python_cell, taken_out_sentence
from worldsize.lab.released import EXERCISES, SETUPS
from worldsize.launch.execute import cell_sources
from worldsize.titles import Title, title_of
from worldsize.units import count


class Checker:
    """The object behind `check.<exercise>(fn)`: runs the check, keeps its points in the lab, and shows the verdict."""

    def __init__(self, lab: Lab, says: Callable[[str], None] | None = None) -> None:
        """Keep points in `lab`, and call `says` with a sentence before each run."""
        self._lab = lab
        self._arena = LaunchArena()
        self._told: Callable[[Arena], Arena] = functools.partial(ToldArena, says=says) if says else lambda arena: arena

    @override
    def __dir__(self) -> list[str]:
        return sorted(CHECKS)

    def __getattr__(self, exercise: str) -> Callable[..., Verdict]:
        if exercise.startswith("_"):
            raise AttributeError(exercise)
        if exercise not in CHECKS:
            raise AttributeError(f"check.{exercise}: expected one of {', '.join(sorted(CHECKS))}")

        return functools.partial(self._run, exercise)

    def _run(self, exercise: str, fn: Callable, *more: Any) -> Verdict:
        if not callable(fn):
            raise ValueError(f"check.{exercise}: expected your function, got {type(fn).__name__}")

        # a grade uses the release's own set-up cells, so a pass with changed ones may fail there
        shell, released = notebook_shell(), SETUPS.get(self._lab.number)
        if shell is not None and released:
            counting = graded_cells.counting(shell.user_ns.get("In", ()))
            for line in graded_cells.changed_setups(counting, released):
                print(
                    f"note: the set-up cell that begins `{line[:60]}` differs from the lab's. The grader runs the lab's: move "
                    f"your additions to the exercise's cell. If you have changed the set-up cell back, restart the kernel."
                )

        titles = {name: title_of(line) for name, line in EXERCISES.get(self._lab.number, {}).items()}
        handed_in = [_as_handed_in(each, titles.get(exercise), titles) for each in (fn, *more)]
        verdict = confirmed_check(exercise, *handed_in, launches=self._arena, told=self._told)
        self._lab.record(verdict)
        return verdict


class ToldArena(Arena):
    """An arena that announces each run of `arena`: "run 3 of the check, 5 ranks"."""

    def __init__(self, arena: Arena, says: Callable[[str], None]) -> None:
        self.draws = arena.draws
        self._arena = arena
        self._says = says
        self._runs = 0

    @override
    def run(self, trial: Trial) -> ArenaResult:
        self._runs += 1
        ranks = "" if trial.way == "call" else f", {count(len(trial.inputs), 'rank')}"
        self._says(f"run {self._runs} of the check{ranks}")
        return self._arena.run(trial)


def _as_handed_in(fn: Callable, title: Title | None, titles: Mapping[str, Title | None]) -> Callable:
    """Rebuild the function from the cells that count, so that a pass here is a pass in a grade.

    `title` is the exercise's title, `titles` holds the titles of all exercises of the lab.
    """
    shell = notebook_shell()
    if shell is None or not hasattr(fn, "__code__"):
        return fn

    name = fn.__name__
    read = _that_ran(shell)
    ran = [cell.text for cell in read]
    cells = graded_cells.graded(ran, {name: title} if title else None)
    files = _files(shell, ran)
    taken = _taken_along(name, cells, ran, title, titles)
    namespace = graded_cells.rebuild(_with_own_cells(cells, taken, ran, files), files)
    for one in taken.left:
        print(f"note: {one.sentence}")
    for cell in read[::-1]:
        if cell.text == cells.sources.get(str(title)):
            if cell.taken_out:
                print(f"note: {taken_out_sentence(cell.taken_out)}")
            break

    rebuilt = namespace.get(name)
    if rebuilt is None or not hasattr(rebuilt, "__code__"):
        if taken.left:  # the exercise's cell failed where it used one of these names
            return fn
        print(f"note: `{name}` is not in a cell that starts with `{_first_line(title)}`: only such cells are handed in.")
        return fn

    if str(title) in cells.broken:
        error = cells.broken[str(title)]
        print(
            f"note: the cell of {title} has a syntax error (line {error.lineno}: {error.msg}). The last version that ran "
            f"was checked; the grader reads the cell as it is now."
        )
    elif name in cells.untitled:
        UNTITLED[rebuilt.__code__.co_filename] = title
        print(f"note: the cell of `{name}` has lost its first line. Put it back: `{_first_line(title)}`")
    elif _is_another(fn, rebuilt):
        print(
            f"note: `{name}` was defined again elsewhere; the one in the exercise's own cell was checked. If the other cell "
            f"holds your answer, it has lost its first line: put `{_first_line(title)}` back."
        )

    told = {one.name for one in taken.left}
    missing = graded_cells.missing_names(rebuilt, namespace)
    outside = [f"`{other}`" for other in missing if other in shell.user_ns and other not in told]
    if outside:
        names = ", ".join(outside)
        print(f"note: `{name}` uses {names} from a cell that is not handed in: move it into the exercise's own cell.")
    return rebuilt


def _that_ran(shell: Any) -> list[PythonCell]:
    """Return the cells that ran, In[0] first, as a grader reads them; IPython does not count blank lines above a cell."""
    sources = list(shell.user_ns.get("In", ()))  # IPython's transformed text
    typed = getattr(getattr(shell, "history_manager", None), "input_hist_raw", ())[: len(sources)]
    sources[: len(typed)] = typed
    return [python_cell(source.lstrip("\n")) for source in sources]


def _files(shell: Any, ran: list[str]) -> dict[str, str]:
    """Return the notebook's file name of each cell that `ran`, by its text without trailing whitespace."""
    by_source = {source.rstrip(): file for file, source in cell_sources()}
    found = {}
    for source, text in zip(shell.user_ns.get("In", ()), ran, strict=False):
        if source.rstrip() in by_source:
            found[text.rstrip()] = by_source[source.rstrip()]
    return found


def _taken_along(
    name: str, cells: GradedCells, ran: list[str], title: Title | None, titles: Mapping[str, Title | None]
) -> TakenAlong:
    """Return the parts of other cells that go along with the exercise whose function is `name`."""
    functions: dict[str, tuple[str, ...]] = {}
    for other, its in titles.items():
        source = cells.sources.get(str(its))
        if source is not None:
            functions[source] = (*functions.get(source, ()), other)
    source = cells.sources.get(str(title))
    if source is None:
        return TakenAlong()
    functions[source] = (*functions.get(source, ()), name)

    rows = []
    last = {source: k for k, source in enumerate(ran)}
    for k, source in enumerate(ran):
        found = title_of(source)
        if source in functions:
            if last[source] == k:
                rows.append(CellOfNotebook(k, source, functions[source]))
        elif found is None or found.kind not in (graded_cells.SETUP, "Exercise"):
            rows.append(CellOfNotebook(k, source))

    setups = [source for each, source in cells.sources.items() if each.startswith(graded_cells.SETUP)]
    front = getattr(sys.modules.get("worldsize.notebook"), "__all__", ())
    return OwnCells(rows, names_bound(setups, {"worldsize.notebook": front}), ran=True).taken_along(name)


def _with_own_cells(
    cells: GradedCells, taken: TakenAlong, ran: list[str], files: dict[str, str]
) -> dict[str, str]:
    """Return the graded cells plus the parts that go along; `files` gets the cell of each part."""
    found = {title: source for title, source in cells.sources.items() if title.startswith(graded_cells.SETUP)}
    for cell in taken.cells:
        for title, source in cell.one_by_one():
            found[title] = source
            files[source.rstrip()] = files.get(ran[cell.number].rstrip(), "<cell>")
    return found | cells.sources


def _first_line(title: Title | None) -> str:
    return title.line if title else "# Exercise …"


def _is_another(fn: Callable, rebuilt: Callable) -> bool:
    """Return True if the notebook's function and the one in the exercise's cell are written differently."""
    mine, theirs = _source(fn), _source(rebuilt)
    if mine is None or theirs is None:  # no cell shows its source: made by exec, or under %%time
        return _instructions(fn.__code__) != _instructions(rebuilt.__code__)
    return mine != theirs


def _instructions(code: CodeType) -> tuple:
    """Return a function's instructions, independent of where it is written."""
    constants = [_instructions(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, tuple(constants)


def _source(fn: Callable) -> list[str] | None:
    try:
        return [line.rstrip() for line in inspect.getsource(fn.__code__).rstrip().splitlines()]
    except (OSError, TypeError):
        return None


def notebook_shell() -> Any:
    from IPython import get_ipython

    return get_ipython()
