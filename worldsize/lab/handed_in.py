"""A student's function as it would be handed in: rebuilt from the cells that count, with notes on what would not come along.

`cells` decides which cells count and what goes along; the namespace that these make alone shows what a grader will see. `checker`
runs the checks.
"""

import builtins
import dis
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, MappingProxyType
from typing import Any

from worldsize.cells import (
    AskedExercise,
    ChosenCells,
    NotebookCell,
    PythonCell,
    TakenAlong,
    changed_setups,
    chosen,
    compile_cell,
    names_bound,
    python_cell,
    run_cell,
    taken_along,
    taken_out_sentence,
)
from worldsize.failures import UNTITLED
from worldsize.launch.execute import cell_sources
from worldsize.titles import Title


def note_changed_setups(released: Iterable[str]) -> None:
    """Print a note for each set-up cell that ran and whose digest is not in `released`: a grade uses the release's own."""
    shell = notebook_shell()
    if shell is None or not released:
        return

    ran = [NotebookCell("code", source) for source in shell.user_ns.get("In", ())]
    for line in changed_setups(chosen(ran, (), ran=True).setups, released):
        print(
            f"note: the set-up cell that begins `{line[:60]}` differs from the lab's. The grader runs the lab's: move "
            f"your additions to the exercise's cell. If you have changed the set-up cell back, restart the kernel."
        )


def as_handed_in(fn: Callable, exercise: str, titles: Mapping[str, Title | None]) -> Callable:
    """Rebuild the handed-in function from the cells that count, so that a pass here is a pass in a grade.

    `exercise` is the id of the exercise, `titles` holds the titles of all exercises of the lab by id.
    """
    shell = notebook_shell()
    if shell is None or not hasattr(fn, "__code__"):
        return fn

    name, title = fn.__name__, titles.get(exercise)
    read = _that_ran(shell)
    asked = [AskedExercise(exercise, str(title), "", (name, exercise))] if title else []
    choice = chosen([NotebookCell("code", cell.text) for cell in read], asked, ran=True)
    files = _files(shell, read)
    taken = _taken_along(choice, asked, titles)
    namespace = rebuild(_sources(choice, taken, read, files), files)

    for omission in taken.left:
        print(f"note: {omission.sentence}")
    own = choice.exercises.get(str(title))
    if own is not None and read[own.parts[0]].taken_out:
        print(f"note: {taken_out_sentence(read[own.parts[0]].taken_out)}")

    rebuilt = namespace.get(name)
    if rebuilt is None or not hasattr(rebuilt, "__code__"):
        if taken.left:  # the exercise's cell failed where it used one of these names
            return fn
        print(f"note: `{name}` is not in a cell that starts with `{_first_line(title)}`: only such cells are handed in.")
        return fn

    if str(title) in choice.broken:
        error = choice.broken[str(title)]
        print(
            f"note: the cell of {title} has a syntax error (line {error.lineno}: {error.msg}). The last version that ran "
            f"was checked; the grader reads the cell as it is now."
        )
    elif own is not None and own.by == "what it says":
        UNTITLED[rebuilt.__code__.co_filename] = title
        print(f"note: the cell of `{name}` has lost its first line. Put it back: `{_first_line(title)}`")
    elif _is_another(fn, rebuilt):
        print(
            f"note: `{name}` was defined again elsewhere; the one in the exercise's own cell was checked. If the other cell "
            f"holds your answer, it has lost its first line: put `{_first_line(title)}` back."
        )

    left_names = {omission.name for omission in taken.left}
    missing = missing_names(rebuilt, namespace)
    outside = [f"`{other}`" for other in missing if other in shell.user_ns and other not in left_names]
    if outside:
        names = ", ".join(outside)
        print(f"note: `{name}` uses {names} from a cell that is not handed in: move it into the exercise's own cell.")
    return rebuilt


def notebook_shell() -> Any:
    from IPython import get_ipython

    return get_ipython()


def _that_ran(shell: Any) -> list[PythonCell]:
    """Return the cells that ran, In[1] first, to be handed in; IPython does not count blank lines above a cell."""
    sources = list(shell.user_ns.get("In", ()))  # IPython's transformed text
    typed = getattr(getattr(shell, "history_manager", None), "input_hist_raw", ())[: len(sources)]
    sources[: len(typed)] = typed
    return [python_cell(source.lstrip("\n")) for source in sources[1:]]


def _files(shell: Any, read: list[PythonCell]) -> dict[str, str]:
    """Return, for what is handed in, the file name of each cell that ran, by its text without trailing whitespace."""
    by_source = {source.rstrip(): file for file, source in cell_sources()}
    names = {}
    for source, cell in zip(shell.user_ns.get("In", ())[1:], read, strict=False):
        if source.rstrip() in by_source:
            names[cell.text.rstrip()] = by_source[source.rstrip()]
    return names


def _taken_along(choice: ChosenCells, asked: list[AskedExercise], titles: Mapping[str, Title | None]) -> TakenAlong:
    """Return the parts of other cells to be handed in along with the exercise that is asked, if it is one of the lab's."""
    if not asked:
        return TakenAlong()

    others = [AskedExercise(name, str(title), "", (name,)) for name, title in titles.items() if name != asked[0].id]
    front = getattr(sys.modules.get("worldsize.notebook"), "__all__", ())
    given = names_bound(choice.setups, {"worldsize.notebook": front})
    return taken_along(choice, [*others, *asked], given)[asked[0].id]


def _sources(choice: ChosenCells, taken: TakenAlong, read: list[PythonCell], files: dict[str, str]) -> list[str]:
    """Return the cells that count when handed in, with the parts that go along; `files` gets the cell of each part."""
    sources = list(choice.setups)
    for cell in taken.cells:
        for _, source in cell.one_by_one():
            sources.append(source)
            files[source.rstrip()] = files.get(read[cell.number - 1].text.rstrip(), "<cell>")
    return sources + [cell.source or "" for cell in choice.exercises.values()]


def rebuild(sources: Iterable[str], files: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Return the namespace that the handed-in cells make by themselves, run in order.

    A cell that fails leaves the names it made so far. `files` maps a cell's text, without trailing whitespace, to its file name
    in the notebook.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for source in sources:
        try:
            run_cell(compile_cell(source, files.get(source.rstrip(), "<cell>")), namespace)
        except Exception:
            continue  # its error shows when the function that needs it is called
    return namespace


def missing_names(fn: Callable, namespace: dict[str, Any]) -> list[str]:
    """Return the names that `fn` needs and that the handed-in cells do not define.

    Functions of `namespace` that `fn` calls are searched too.
    """
    missing: set[str] = set()
    seen: set[CodeType | None] = {None}  # None stands for a value without code
    todo = [getattr(fn, "__code__", None)]
    while todo:
        code = todo.pop()
        if code in seen:
            continue

        seen.add(code)
        todo += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for instruction in dis.get_instructions(code):
            if instruction.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
                continue

            name = instruction.argval
            if name not in namespace:
                missing.add(name)
            elif getattr(namespace[name], "__module__", None) == "__main__":
                todo.append(getattr(namespace[name], "__code__", None))
    return sorted(name for name in missing if not hasattr(builtins, name))

def _first_line(title: Title | None) -> str:
    return title.line if title else "# Exercise …"


def _is_another(fn: Callable, rebuilt: Callable) -> bool:
    """Return True if the notebook's function and the one in the exercise's cell are written differently."""
    mine, theirs = _source(fn), _source(rebuilt)
    if mine is None or theirs is None:  # no cell shows its source: made by exec, or under %%time
        return _instructions(fn.__code__) != _instructions(rebuilt.__code__)
    return mine != theirs


def _instructions(code: CodeType) -> tuple:
    """Return a function's instructions, to compare it with what is handed in, wherever it is written."""
    constants = [_instructions(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, tuple(constants)


def _source(fn: Callable) -> list[str] | None:
    try:
        return [line.rstrip() for line in inspect.getsource(fn.__code__).rstrip().splitlines()]
    except (OSError, TypeError):
        return None
