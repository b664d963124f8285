"""Work for ranks that stay: run a cell, bind values, evaluate an expression, open the debugger.

Each kind is an object that travels as a payload; the rank calls its `do(rank)`. `worldsize.ranks.definitions` chooses the
definitions that travel with a cell.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from worldsize.failures import Frame, is_package

if TYPE_CHECKING:  # the notebook makes these objects without importing torch
    from worldsize.engines.ranks.open_rank import OpenRank

_UNKNOWN = object()  # which no name in a rank is bound to


@dataclass(frozen=True)
class Definition:
    """A function, class or import of the notebook for cells: the names that it binds, its text, and the text's file and line."""

    names: tuple[str, ...]
    text: str
    file: str
    line: int

    def take_to(self, rank: OpenRank) -> None:
        """Bind the names in the rank, unless the rank's own cells have bound one, or all are known with this text."""
        all_known = True
        for name in self.names:
            text, bound = rank.taken.get(name, (None, _UNKNOWN))
            if text != self.text:
                all_known = False
            if name in rank.space and rank.space[name] is not bound:
                return  # the rank's own cells bound the name, before or after it came from the notebook
        if all_known:
            return

        tree = ast.parse(self.text)
        ast.increment_lineno(tree, self.line - 1)
        exec(compile(tree, self.file, "exec"), rank.space)

        for name in self.names:
            rank.taken[name] = self.text, rank.space.get(name)


@dataclass(frozen=True)
class RunCell:
    """Runs a cell's `text`, and shows the value of its last expression. `in_notebook` names data of the notebook that the
    cell uses and that did not travel.
    """

    text: str
    file: str
    definitions: tuple[Definition, ...] = ()
    in_notebook: frozenset[str] = frozenset()
    answers: bool = False  # whether a person can type at a debugger's prompt

    def do(self, rank: OpenRank) -> None:
        rank.last_error = None  # it would keep its frames' objects alive
        sys.breakpointhook = functools.partial(_stop, rank, self.answers)

        try:
            for definition in self.definitions:
                definition.take_to(rank)
            self._run(rank)
        except NameError as error:
            name = error.name
            if name in self.in_notebook:
                error.add_note(f"`{name}` is in the notebook, but data does not go along: call world.push({name}={name})")
            raise
        finally:
            rank.output.show_figures()

    def _run(self, rank: OpenRank) -> None:
        # tracebacks read lines here, also of text outside a notebook
        linecache.cache[self.file] = (len(self.text), None, self.text.splitlines(True), self.file)

        tree = ast.parse(self.text, self.file)
        last = None  # the last expression, if a notebook would show its value
        end = tree.body[-1] if tree.body else None
        if isinstance(end, ast.Expr) and not self.text.rstrip().endswith(";"):
            del tree.body[-1]
            last = compile(ast.Expression(end.value), self.file, "eval")

        exec(compile(tree, self.file, "exec"), rank.space)
        if last is not None:
            value = eval(last, rank.space)
            if value is not None:
                rank.space["_"] = value
                rank.output.show(value)


@dataclass(frozen=True)
class Push:
    """Binds values in ranks that stay."""

    values: dict[str, Any]

    def do(self, rank: OpenRank) -> None:
        rank.space.update(self.values)


@dataclass(frozen=True)
class Value:
    """Returns the value of an expression in a rank that stays."""

    expression: str

    def do(self, rank: OpenRank) -> Any:
        return eval(compile(self.expression, "<expression>", "eval"), rank.space)


def _stop(rank: OpenRank, answers: bool, *_: Any, **__: Any) -> None:
    """Stop a rank's cell at its `breakpoint()`. Raises RuntimeError if nobody can answer."""
    if not answers:
        raise RuntimeError(NOBODY.format("breakpoint()"))
    rank.debugger().set_trace(sys._getframe(1))


NOBODY = (
    "{} opens a debugger, which waits for a person's commands: expected a notebook with a person, got a run without one. "
    "Open the notebook in Jupyter, or print the values that you want to see."
)


@dataclass(frozen=True)
class LookBack:
    """Opens the debugger where the rank's last cell raised. Raises ValueError if it did not."""

    def do(self, rank: OpenRank) -> None:
        error = rank.last_error
        if error is None or error.__traceback__ is None:
            raise ValueError(f"rank {rank.rank} raised nothing in its last cell")

        traceback = error.__traceback__
        while traceback.tb_next is not None and is_package(Frame(traceback.tb_frame.f_code.co_filename, 0, "")):
            traceback = traceback.tb_next
        rank.debugger().look_at(traceback)
