"""What code of a submission counts on in the package: a cheat that fails on a renamed function proves nothing."""

import ast
import pkgutil

PACKAGE = "worldsize"


def missing_names(source: str) -> list[str]:
    """The modules, functions and attributes of the package that `source` names, and that are not there.

    Names that are built at run time, and attributes of objects, are not seen. SyntaxError for what is no Python.
    """
    tree = ast.parse(source)
    bound = _imported(tree)
    wanted = set(bound.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if first in bound:
                wanted.add(f"{bound[first]}.{rest}")
    return sorted(name for name in wanted if not _is_there(name))


def _imported(tree: ast.AST) -> dict[str, str]:
    """{a name in the code: what of the package it stands for}."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    bound[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    if any(name.startswith(f"{PACKAGE}.") for name in bound):
        bound[PACKAGE] = PACKAGE
    return bound


def _is_there(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True
