"""No lab states a run's result before the run: what stands over a picture is a question, and the picture answers it."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

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


def ends(words: ast.expr, names: dict[str, ast.expr]) -> str:
    """The last characters of a string as they stand in the source; a variable is followed to where it was written."""
    if isinstance(words, ast.Name):
        words = names[words.id]
    if isinstance(words, ast.JoinedStr):
        words = words.values[-1]
    assert isinstance(words, ast.Constant), f"line {words.lineno}: the question's end is not written here"
    return str(words.value)


def assigned(source: Path) -> dict[str, ast.expr]:
    found = {}
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
    return found


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_what_stands_over_a_picture_is_a_question(source):
    names = assigned(source)
    for name, call in calls(source):
        assert "title" not in {keyword.arg for keyword in call.keywords}, f"{source.name}:{call.lineno}"
        words = question(name, call) if name in ASKED else None
        if words is not None:
            assert ends(words, names).rstrip().endswith("?"), f"{source.name}:{call.lineno}"


def test_most_pictures_of_the_labs_are_asked_something():
    asked = [call for source in SOURCES for name, call in calls(source) if name in ASKED and question(name, call) is not None]
    assert len(asked) > 60
