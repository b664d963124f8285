"""A notebook's cell as Python: IPython's extra syntax, read by IPython's own transformer, and execution with `await`.

The notebook's check and the grader both read cells here, so that both see the same text. Reading runs no code of the cell.
`choice` decides which cells count; `own_cells`, which statements go along.
"""

import ast
import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import CodeType
from typing import Any

from typing_extensions import override

MAX_CELL_CHARACTERS = 100_000
DOES_NOT_PARSE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)
_KEPT_CHARACTERS = 20_000  # longest cell that the cache remembers
_MOST_READ = 300_000  # characters: IPython reads a cell anew for each piece of its syntax
_MOST_HELP = 1_000  # characters of an expression before a question mark: IPython's pattern takes quadratic time
_MOST_NESTED = 4  # cell magics above each other
_RUN_THEIR_CELL = frozenset(("time", "timeit", "capture", "prun"))
_HELP = {"pinfo": "?", "pinfo2": "??", "psearch": "?"}


@dataclass(frozen=True)
class PythonCell:
    """A cell's Python, and the pieces taken out of it, as a notebook shows them (`!ls`)."""

    text: str
    taken_out: tuple[str, ...] = ()


def python_cell(source: str) -> PythonCell:
    """Return a cell as the Python that a rank can run. Plain Python stays as it is.

    `%time f()` becomes `f()`. Other magics, shell commands and help requests are taken out: `pass` replaces a statement, None or
    [] a value. A cell that IPython cannot read, or of over `MAX_CELL_CHARACTERS`, is returned unchanged.
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    if len(source) > MAX_CELL_CHARACTERS:
        return PythonCell(source)
    read = _remembered if len(source) <= _KEPT_CHARACTERS else _read
    return read(source, _MOST_NESTED)


def tree_of(source: str) -> ast.Module | None:
    """Return the syntax tree of a cell's Python, or None if it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except DOES_NOT_PARSE:
        return None


def _read(source: str, room: int) -> PythonCell:
    """Read a cell as Python; `room` is the number of nested magics still allowed."""
    below = source.lstrip("\n")
    blank = source[: len(source) - len(below)]  # the transformer would drop these lines
    try:
        text = blank + _transformer()().transform_cell(below)
    except Exception:  # a notebook then also runs the cell as it stands, and shows Python's error
        text = source

    if text == f"{source}\n":
        text = source
    if "get_ipython" not in text:
        return PythonCell(text)

    tree = tree_of(text)
    if tree is None:
        return PythonCell(text)

    call = None
    match tree.body:
        case [ast.Expr(value=value)]:
            call = _shell_call(value)
    if call is None or call.method != "run_cell_magic":
        return _without_calls(text, tree, room)

    name, _, body = call.words
    if name not in _RUN_THEIR_CELL or room == 0:
        return PythonCell("", (call.shown,))  # below any other cell magic there is nothing for a rank
    inner = _read(body, room - 1)
    return PythonCell("\n" * call.node.lineno + inner.text, inner.taken_out)


_remembered = lru_cache(maxsize=128)(_read)


@cache
def _transformer() -> Callable[[], Any]:
    """Return IPython's transformer with bounds for untrusted cells; imported late, since ranks do not need it."""
    from IPython.core.inputtransformer2 import HelpEnd, TransformerManager

    class ShortHelpEnd(HelpEnd):
        @override
        def transform(self, lines: list[str]) -> list[str]:
            if sum(map(len, lines[self.start_line : self.q_line + 1])) > _MOST_HELP:
                raise SyntaxError("a request for help that is too long")
            return super().transform(lines)

    class BoundedTransformer(TransformerManager):
        def __init__(self) -> None:
            super().__init__()
            self.token_transformers = [ShortHelpEnd if one is HelpEnd else one for one in self.token_transformers]
            self._room = _MOST_READ

        @override
        def do_token_transforms(self, lines: list[str]) -> list[str]:
            # text that Python can parse has no syntax that is found by tokens
            return lines if tree_of("".join(lines)) is not None else super().do_token_transforms(lines)

        @override
        def do_one_token_transform(self, lines: list[str]) -> tuple[bool, list[str]]:
            self._room -= sum(map(len, lines))
            if self._room < 0:
                raise ValueError("a cell with too much of IPython's syntax")
            return super().do_one_token_transform(lines)

    return BoundedTransformer


@dataclass(frozen=True)
class _ShellCall:
    """A call such as `get_ipython().run_line_magic("time", "f()")`, IPython's translation of its own syntax."""

    node: ast.Call
    method: str
    words: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The shell call as the notebook's cell shows it."""
        if self.method in ("system", "getoutput"):
            return f"!{self.words[0]}"

        name, line = self.words[:2]
        if name in _HELP:
            return f"{line}{_HELP[name]}"
        percent = "%%" if self.method == "run_cell_magic" else "%"
        return f"{percent}{name} {line}".rstrip()


_WORDS = {"run_line_magic": 2, "run_cell_magic": 3, "system": 1, "getoutput": 1}


def _shell_call(node: ast.AST) -> _ShellCall | None:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="get_ipython")), attr=method), args=args):
            words = tuple(word.value for word in args if isinstance(word, ast.Constant) and isinstance(word.value, str))
            if _WORDS.get(method) == len(words):
                return _ShellCall(node, method, words)
    return None


def _without_calls(text: str, tree: ast.Module, room: int) -> PythonCell:
    """Return the cell with each shell call replaced by Python; no line moves."""
    calls = []
    statements = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            statements.add(node.value)
        call = _shell_call(node)
        if call is not None:
            calls.append((call, node in statements))  # ast.walk yields a statement before its value
    calls.sort(key=lambda one: (one[0].node.lineno, one[0].node.col_offset))

    lines = list(map(str.encode, text.split("\n")))
    taken_out = []
    for call, is_statement in reversed(calls):
        node = call.node
        if node.lineno != node.end_lineno:  # IPython writes each call on one line
            continue

        instead = _instead(call, is_statement, room)
        if instead is None:
            taken_out.append(call.shown)
            instead = "pass" if is_statement else "[]" if call.method == "getoutput" else "None"
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line[: node.col_offset] + instead.encode() + line[node.end_col_offset :]
    return PythonCell(b"\n".join(lines).decode(), tuple(reversed(taken_out)))


def _instead(call: _ShellCall, is_statement: bool, room: int) -> str | None:
    """Return the Python that `%time` runs, on one line; None for a call that no rank can run."""
    if call.method != "run_line_magic" or call.words[0] != "time" or room == 0:
        return None

    text = _read(call.words[1], room - 1).text.strip()
    tree = tree_of(text)
    if "\n" in text or tree is None or not tree.body:
        return None
    if is_statement:
        return text
    match tree.body:
        case [ast.Expr()]:
            return f"({text})"
    return None


def compile_cell(text: str, file: str) -> CodeType:
    """Compile a cell's Python, which may use `await` at its top level. Raises SyntaxError and ValueError."""
    return compile(text, file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def run_cell(code: CodeType, namespace: dict[str, Any]) -> None:
    """Run a notebook cell's compiled Python, and wait for its coroutine if it has one. Raises the cell's exceptions."""
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

    with ThreadPoolExecutor(1) as beside:  # the notebook's own loop is busy with the calling cell
        beside.submit(asyncio.run, waiting).result()


def taken_out_sentence(taken_out: Sequence[str]) -> str:
    """Return a sentence that tells a student which pieces of a cell a rank leaves out as no Python."""
    shown = ", ".join(f"`{one}`" for one in dict.fromkeys(taken_out))
    return f"only a notebook can run {shown}: the exercise's cell is graded without it."
