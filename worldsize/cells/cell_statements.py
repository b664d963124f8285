"""The top-level statements of a notebook's cell: the names that each binds and uses, and its right to go along.

A cell is text here and none of it runs. Only definitions go along: imports, functions, classes and constants (`plainly` has the
rule for constants). `own_cells` selects the statements that an exercise takes.
"""

import ast
import re
import symtable
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from worldsize.cells.as_python import DOES_NOT_PARSE, MAX_CELL_CHARACTERS, python_cell, tree_of

MOST_STATEMENTS = 2_000
_BREAKPOINT = re.compile(r"^[^#\n]*\b(?:breakpoint|set_trace)[ \t]*\(", re.MULTILINE)

# The reason why a name does not go along: what makes its value.
Maker = Literal["loop", "with", "call", "change", "del", "expression", "global", "block"]

# Calls that make a plain value, by the last part of their name. A capitalized name is a class.
CONSTRUCTORS = frozenset(
    "bool bytes complex dict float frozenset int list range set slice str tuple "
    "abs divmod enumerate len max min pow round sorted sum zip "
    "arange array device empty eye full linspace ones tensor zeros "
    "attrgetter compile field itemgetter namedtuple partial".split()
)
_PLAIN = (
    ast.Constant, ast.Name, ast.Lambda, ast.JoinedStr, ast.FormattedValue, ast.Attribute, ast.Subscript, ast.Slice,
    ast.Starred, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.List, ast.Tuple, ast.Set, ast.Dict,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.keyword, ast.expr_context,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_WHOLE_NAMES = (ast.Name, ast.Tuple, ast.List, ast.Starred, ast.expr_context)  # in an assignment's target
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_MAKERS: dict[type[ast.AST], Maker] = {
    ast.For: "loop", ast.AsyncFor: "loop", ast.While: "loop", ast.With: "with", ast.AsyncWith: "with",
    ast.AugAssign: "change", ast.Delete: "del", ast.Expr: "expression",
}  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """A top-level statement of a cell. `line` is its first, counted from 1; `text` begins at its column 0.

    `binds` has the names that the statement binds or whose parts it changes; `by_global` has the names that its functions bind by
    `global`. `now` has the names used when the statement runs, `later` the names that its functions use when called. `maker` is
    None if the statement may go along.
    """

    line: int
    text: str
    binds: frozenset[str]
    now: frozenset[str]
    later: frozenset[str]
    maker: Maker | None
    by_global: frozenset[str] = frozenset()
    star: bool = False  # an import of unknown names
    dotted: bool = False  # `import a.b`, which binds `a` and brings more than that

    @property
    def is_future(self) -> bool:
        return self.text.startswith("from __future__ ")


def parsed(source: str) -> ast.Module | None:
    """Return the tree of a cell's statements, without IPython's extra syntax; None if Python cannot parse it."""
    return tree_of(python_cell(source).text)


def statements(source: str) -> list[Statement]:
    """Return the top-level statements of a cell; [] if the cell cannot be parsed or is too long to go along."""
    if len(source) > MAX_CELL_CHARACTERS:
        return []

    source = python_cell(source).text.replace("\f", " ")
    tree = tree_of(source)
    if tree is None or len(tree.body) > MOST_STATEMENTS:
        return []

    lines = [line.encode("utf-8", "replace") for line in source.split("\n")]
    return [one for node in tree.body if (one := _statement(node, lines))]


def _statement(node: ast.stmt, lines: list[bytes]) -> Statement | None:
    """Return a cell's top-level statement; None if it parses but cannot be compiled, such as a top-level `return`."""
    line, text = _text(node, lines)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = symtable.symtable(text, "<cell>", "exec")
        maker = maker_of(node)
    except DOES_NOT_PARSE:
        return None

    binds, now, later = set(), set(), set()
    for symbol in table.get_symbols():
        if symbol.is_assigned() or symbol.is_imported():
            binds.add(symbol.get_name())
        if symbol.is_referenced():
            now.add(symbol.get_name())

    by_global = frozenset(_inner_names(table, later, now)) - binds
    if isinstance(node, (*_DEFINITIONS, ast.Try, ast.If, ast.For, ast.While, ast.With)):
        now -= binds  # the statement names itself, or something that it has just bound
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        now.add(node.target.id)

    return Statement(
        line=line,
        text=text,
        binds=frozenset(binds.union(_changed(node))),
        now=frozenset(now),
        later=frozenset(later - now),
        maker=maker,
        by_global=by_global,
        star=isinstance(node, ast.ImportFrom) and node.names[0].name == "*",
        dotted=isinstance(node, ast.Import) and any("." in a.name and not a.asname for a in node.names),
    )


def _text(node: ast.stmt, lines: list[bytes]) -> tuple[int, str]:
    """Return the number of a statement's first line, decorators included, and its text."""
    first = node.lineno
    start = node.col_offset
    for decorator in getattr(node, "decorator_list", ()):
        if decorator.lineno <= first:
            first, start = decorator.lineno, 0

    piece = lines[first - 1 : node.end_lineno]
    piece[-1] = piece[-1][: node.end_col_offset]
    piece[0] = piece[0][start:]
    return first, b"\n".join(piece).decode("utf-8", "replace")


def _inner_names(table: symtable.SymbolTable, later: set[str], now: set[str]) -> Iterator[str]:
    """Add the cell's names that inner functions and classes use to `now` or `later`; yield names bound by `global`."""
    todo = [(child, _runs_now(child)) for child in table.get_children()]
    while todo:
        inner, runs_now = todo.pop()
        for symbol in inner.get_symbols():
            if not symbol.is_global():
                continue
            if symbol.is_referenced():
                (now if runs_now else later).add(symbol.get_name())
            if symbol.is_declared_global() and symbol.is_assigned():
                later.add(symbol.get_name())
                yield symbol.get_name()
        todo += [(child, runs_now and _runs_now(child)) for child in inner.get_children()]


def _runs_now(table: symtable.SymbolTable) -> bool:
    return table.get_type() != "function" or table.get_name() in ("listcomp", "setcomp", "dictcomp", "genexpr")


def _changed(node: ast.stmt) -> Iterator[str]:
    """Yield the names whose parts an assignment statement changes: `table["a"] = 1`, `config.size = 2`."""
    targets: Iterable[ast.expr] = ()
    if isinstance(node, (ast.Assign, ast.Delete)):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]

    for target in targets:
        part = target
        while isinstance(part, (ast.Subscript, ast.Attribute)):
            part = part.value
        if part is not target and isinstance(part, ast.Name):
            yield part.id


def defines(source: str, name: str) -> bool:
    """Return True if a top-level statement of a cell defines `name`, by `def`, by `=` or otherwise."""
    if name not in source:
        return False

    escaped = re.escape(name)
    if re.search(rf"^def\s+{escaped}\s*\(|^{escaped}\s*=", source, re.MULTILINE):
        return True
    return any(name in one.binds for one in statements(source))


def raises_not_yet(source: str) -> bool:
    """Return whether one of a cell's own statements raises NotYet, as a stub does; False if Python cannot parse it."""
    if len(source) > MAX_CELL_CHARACTERS:
        return False
    tree = parsed(source)
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.Raise(exc=ast.Name(id="NotYet") | ast.Call(func=ast.Name(id="NotYet"))):
                return True
    return False


def breakpoint_line(source: str) -> int:
    """Return the number of a cell's first line with `breakpoint()` or `pdb.set_trace()`, 0 if there is none."""
    found = _BREAKPOINT.search(source)
    return source.count("\n", 0, found.start()) + 1 if found else 0


def names_bound(sources: Iterable[str], stars: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield the names that set-up cells make. `stars` holds the names of each module that may be imported with a star."""
    for source in sources:
        for statement in statements(source):
            yield from statement.binds
            if statement.star:
                for module, names in stars.items():
                    if statement.text.startswith(f"from {module} import"):
                        yield from names


def maker_of(node: ast.stmt) -> Maker | None:
    """Return None if the statement only defines something, else the kind of its other effect."""
    if isinstance(node, (ast.Import, *_DEFINITIONS, ast.Pass)) or type(node).__name__ == "TypeAlias":
        return None
    if isinstance(node, ast.ImportFrom):
        return None if node.names[0].name != "*" else "block"
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if not all(isinstance(part, _WHOLE_NAMES) for part in ast.walk(target)):
                return "change"
        return None if node.value is None else plainly(node.value)

    # `try: import …` and `if …:` around definitions alone only define, too
    if isinstance(node, ast.If):
        if plainly(node.test):
            return "block"
        return "block" if any(map(maker_of, [*node.body, *node.orelse])) else None
    if isinstance(node, ast.Try):
        inner = [*node.body, *node.orelse, *node.finalbody]
        for handler in node.handlers:
            inner += handler.body
        return "block" if any(map(maker_of, inner)) else None
    return _MAKERS.get(type(node), "block")


def plainly(value: ast.expr) -> Maker | None:
    """Return None if `value` is a constant, else the kind of expression that makes it.

    A constant consists of literals, names, attributes, subscripts, operators, containers, comprehensions, f-strings and
    lambdas. Its only calls are calls of a class (a capitalized name) and of `CONSTRUCTORS`. The body of a lambda is exempt,
    because it runs only when called.
    """
    todo: list[ast.AST] = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Lambda):
            todo += filter(None, [*node.args.defaults, *node.args.kw_defaults])
            continue
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))  # of `f(…)` and of `a.f(…)`
            if name not in CONSTRUCTORS and not name[:1].isupper():
                return "call"
        elif not isinstance(node, _PLAIN):
            return "expression"
        todo += ast.iter_child_nodes(node)
    return None
