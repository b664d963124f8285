"""A notebook's cell as Python: what IPython accepts beside Python, read by IPython's own transformer, and run with `await`.

The notebook's check and the grader read a cell here, so that both see the same text. Nothing of it is run while it is
read. Left out: which cells count (`graded_cells`), and what a statement may do (`statements`).
"""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import CodeType
from typing import Any

MAX_CELL_CHARACTERS = 100_000
DOES_NOT_PARSE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)
_KEPT_CHARACTERS = 20_000  # of a cell that is remembered
_MOST_READ = 300_000  # characters: IPython reads a cell anew for each piece of its syntax
_MOST_HELP = 1_000  # characters of an expression before a question mark: IPython's pattern takes their square
_MOST_NESTED = 4  # cell magics above each other
_RUN_THEIR_CELL = frozenset(("time", "timeit", "capture", "prun"))
_HELP = {"pinfo": "?", "pinfo2": "??", "psearch": "?"}


@dataclass(frozen=True)
class PythonCell:
    """A cell's Python, and what was taken out of it, as a notebook has it (`!ls`)."""

    text: str
    taken_out: tuple[str, ...] = ()


def python_cell(source: str) -> PythonCell:
    """Return a cell as the Python that a rank can run. What is Python already stays as it is.

    `%time f()` becomes `f()`. Another magic, a command of the shell and a question for help are taken out: `pass` stands
    for a statement, None or [] for a value. A cell that IPython cannot read, or of over `MAX_CELL_CHARACTERS`, is
    returned unchanged.
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    if len(source) > MAX_CELL_CHARACTERS:
        return PythonCell(source)
    return _remembered(source) if len(source) <= _KEPT_CHARACTERS else _read(source, _MOST_NESTED)


@lru_cache(maxsize=128)
def _remembered(source: str) -> PythonCell:
    return _read(source, _MOST_NESTED)


def tree_of(source: str) -> ast.Module | None:
    """Return the tree of some Python; None where Python cannot read it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except DOES_NOT_PARSE:
        return None


# ---- reading -----------------------------------------------------------------------------------


def _read(source: str, room: int) -> PythonCell:
    """`room`: how many magics may still stand around each other."""
    below = source.lstrip("\n")
    text = source[: len(source) - len(below)] + _transformed(below)  # which would take the blank lines off
    if text == f"{source}\n":
        text = source
    if "get_ipython" not in text:
        return PythonCell(text)

    tree = tree_of(text)
    if tree is None:
        return PythonCell(text)
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        call = _shell_call(tree.body[0].value)
        if call is not None and call.method == "run_cell_magic":
            return _cell_of_magic(call, "\n" * (call.node.lineno - 1), room)
    return _without_calls(text, tree, room)


def _transformed(source: str) -> str:
    try:
        return _transformer()().transform_cell(source)
    except Exception:  # a notebook, too, then runs the cell as it stands, and says what Python says of it
        return source


@cache
def _transformer() -> Callable[[], Any]:
    """Return IPython's transformer with bounds for cells of strangers; imported late, since a rank has no use for it."""
    from IPython.core.inputtransformer2 import HelpEnd, TransformerManager

    class ShortHelpEnd(HelpEnd):
        def transform(self, lines: list[str]) -> list[str]:
            if sum(map(len, lines[self.start_line : self.q_line + 1])) > _MOST_HELP:
                raise SyntaxError("a question for help that is too long")
            return super().transform(lines)

    class BoundedTransformer(TransformerManager):
        def __init__(self) -> None:
            super().__init__()
            self.token_transformers = [ShortHelpEnd if one is HelpEnd else one for one in self.token_transformers]
            self._room = _MOST_READ

        def do_token_transforms(self, lines: list[str]) -> list[str]:
            # what Python can read holds none of the syntax that is found by tokens
            return lines if tree_of("".join(lines)) is not None else super().do_token_transforms(lines)

        def do_one_token_transform(self, lines: list[str]) -> tuple[bool, list[str]]:
            self._room -= sum(map(len, lines))
            if self._room < 0:
                raise ValueError("a cell with too much of IPython's syntax")
            return super().do_one_token_transform(lines)

    return BoundedTransformer


@dataclass(frozen=True)
class _ShellCall:
    """A call such as `get_ipython().run_line_magic("time", "f()")`, which IPython writes for its own syntax."""

    node: ast.Call
    method: str
    words: tuple[str, ...]

    @property
    def shown(self) -> str:
        """As the notebook has it."""
        if self.method in ("system", "getoutput"):
            return f"!{self.words[0]}"

        name, line = self.words[:2]
        if name in _HELP:
            return f"{line}{_HELP[name]}"
        percent = "%%" if self.method == "run_cell_magic" else "%"
        return f"{percent}{name} {line}".rstrip()


_WORDS = {"run_line_magic": 2, "run_cell_magic": 3, "system": 1, "getoutput": 1}


def _shell_call(node: ast.AST) -> _ShellCall | None:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call)):
        return None

    shell = node.func.value.func
    words = tuple(word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str))
    is_ours = isinstance(shell, ast.Name) and shell.id == "get_ipython" and _WORDS.get(node.func.attr) == len(words)
    return _ShellCall(node, node.func.attr, words) if is_ours else None


def _cell_of_magic(call: _ShellCall, above: str, room: int) -> PythonCell:
    """A cell under `%%time` or such is the lines below it; under any other cell magic it holds nothing for a rank.

    `above` are the blank lines before the magic.
    """
    name, _, body = call.words
    if name not in _RUN_THEIR_CELL or room == 0:
        return PythonCell("", (call.shown,))
    inner = _read(body, room - 1)
    return PythonCell(f"{above}\n{inner.text}", inner.taken_out)


def _without_calls(text: str, tree: ast.Module, room: int) -> PythonCell:
    """The cell with Python in the place of each call of the shell; no line moves."""
    lines = [line.encode() for line in text.split("\n")]
    taken_out = []
    for call, is_statement in reversed(list(_shell_calls(tree))):
        node = call.node
        if node.lineno != node.end_lineno:  # IPython writes each on one line
            continue

        instead = _instead(call, is_statement, room)
        if instead is None:
            taken_out.append(call.shown)
            instead = "pass" if is_statement else "[]" if call.method == "getoutput" else "None"
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line[: node.col_offset] + instead.encode() + line[node.end_col_offset :]
    return PythonCell(b"\n".join(lines).decode(), tuple(reversed(taken_out)))


def _shell_calls(tree: ast.Module) -> Iterator[tuple[_ShellCall, bool]]:
    """Each call of the shell from top to bottom, and whether it is a whole statement."""
    found = []
    statements = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            statements.add(node.value)
        call = _shell_call(node)
        if call is not None:
            found.append((call, node in statements))  # a statement comes before its value
    yield from sorted(found, key=lambda one: (one[0].node.lineno, one[0].node.col_offset))


def _instead(call: _ShellCall, is_statement: bool, room: int) -> str | None:
    """The Python that `%time` runs, on one line; None of what no rank can run."""
    if call.method != "run_line_magic" or call.words[0] != "time" or room == 0:
        return None

    text = _read(call.words[1], room - 1).text.strip()
    tree = tree_of(text)
    if "\n" in text or tree is None or not tree.body:
        return None
    if is_statement:
        return text
    return f"({text})" if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr) else None


# ---- running -----------------------------------------------------------------------------------


def compiled(text: str, file: str) -> CodeType:
    """Compile a cell's Python, in which `await` may stand at the top. Raises SyntaxError and ValueError."""
    return compile(text, file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def run(code: CodeType, namespace: dict[str, Any]) -> None:
    """Run a compiled cell, to the end of what it waits for. Raises what the cell raises."""
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, namespace)
        return

    import asyncio

    waiting = eval(code, namespace)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(waiting)
        return

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as beside:  # the notebook's own loop is at work on the cell that called this
        beside.submit(asyncio.run, waiting).result()


def taken_out_sentence(taken_out: Sequence[str]) -> str:
    """Tell a student what a rank does without."""
    shown = ", ".join(f"`{one}`" for one in dict.fromkeys(taken_out))
    return f"a notebook alone can run {shown}: the exercise's cell is graded without it."
