"""The calls of pictures in the labs' sources, and the questions over them as they stand there. Left out: what is drawn."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from worldsize import figures

SOURCES = sorted((Path(__file__).parents[2] / "solutions").glob("[0-9]*.py"))
ASKED = {
    name: list(inspect.signature(getattr(figures, name)).parameters)
    for name in figures.__all__
    if "asks" in inspect.signature(getattr(figures, name)).parameters
}


def calls(source: Path) -> list[tuple[str, ast.Call]]:
    """Each call of a picture that takes a question, with the picture's name."""
    text = "\n".join("pass" if line.lstrip().startswith(("%", "!")) else line for line in source.read_text().splitlines())
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("figures."):
            found.append((ast.unparse(node.func).removeprefix("figures."), node))
    return found


def question(name: str, call: ast.Call) -> ast.expr | None:
    by_name = {keyword.arg: keyword.value for keyword in call.keywords}
    place = ASKED[name].index("asks")
    if "asks" in by_name or place >= len(call.args):
        return by_name.get("asks")
    return call.args[place]


def assigned(source: Path) -> dict[str, ast.expr]:
    found = {}
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
    return found
