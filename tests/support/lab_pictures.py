"""The calls of pictures in the labs' sources, and the questions over them as they stand there. Left out: what is drawn."""

import ast
import inspect
import re
from pathlib import Path

from worldsize import figures

# words and numbers for a picture: they draw none
ANSWERS = {"answered", "at_work", "first", "growing", "in_step", "middle_step", "quicker", "same"}
SOURCES = sorted((Path(__file__).parents[2] / "solutions").glob("[0-9]*.py"))
ASKED = {
    name: list(inspect.signature(getattr(figures, name)).parameters)
    for name in figures.__all__
    if "asks" in inspect.signature(getattr(figures, name)).parameters
}


def calls(source: Path) -> list[tuple[str, ast.Call]]:
    """Each call of a picture that takes a question, with the picture's name."""
    found = []
    for node in ast.walk(ast.parse(_python(source.read_text()))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("figures."):
            name = ast.unparse(node.func).removeprefix("figures.")
            if name not in ANSWERS:
                found.append((name, node))
    return found


def code_cells(source: Path) -> list[ast.Module]:
    """The code of each cell of a source; empty for a cell of prose."""
    return [ast.parse(_python(cell)) for cell in re.split(r"^# %%.*$", source.read_text(), flags=re.MULTILINE)]


def _python(text: str) -> str:
    """A source without its magics."""
    return "\n".join("pass" if line.lstrip().startswith(("%", "!")) else line for line in text.splitlines())


def question(name: str, call: ast.Call) -> ast.expr | None:
    """What a picture is asked, without the answer that its cell computed."""
    by_name = {keyword.arg: keyword.value for keyword in call.keywords}
    place = ASKED[name].index("asks")
    if "asks" in by_name or place >= len(call.args):
        return _asked(by_name.get("asks"))
    return _asked(call.args[place])


def _asked(words: ast.expr | None) -> ast.expr | None:
    if isinstance(words, ast.Call) and ast.unparse(words.func) == "figures.answered":
        return words.args[0]
    return words


def assigned(source: Path) -> dict[str, list[ast.Assign]]:
    """The assignments to each name of a source, from top to bottom."""
    found: dict[str, list[ast.Assign]] = {}
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node)
    return {name: sorted(each, key=lambda node: node.lineno) for name, each in found.items()}


def followed(words: ast.expr, names: dict[str, list[ast.Assign]]) -> ast.expr:
    """What a name stands for: its last assignment before, or of a function's parameter the first one after."""
    if not isinstance(words, ast.Name):
        return words
    before = [node for node in names[words.id] if node.lineno < words.lineno]
    return _asked(before[-1].value if before else names[words.id][0].value)
