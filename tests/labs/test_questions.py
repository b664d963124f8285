"""No lab states a run's result before the run: what stands over a picture is a question, and the picture answers it."""

import ast

import pytest

from tests.support.lab_pictures import ASKED, SOURCES, assigned, calls, code_cells, followed, question


def ends(words: ast.expr, names: dict[str, list[ast.Assign]]) -> str:
    """The last characters of a string as they stand in the source; a variable is followed to where it was written."""
    words = followed(words, names)
    if isinstance(words, ast.JoinedStr):
        words = words.values[-1]
    assert isinstance(words, ast.Constant), f"line {words.lineno}: the question's end is not written here"
    return str(words.value)


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


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_picture_that_stands_alone_is_the_last_line_of_its_cell(source):
    """Anywhere else Jupyter draws it and shows nothing."""
    hidden = []
    for cell in code_cells(source):
        for line in cell.body[:-1]:
            if isinstance(line, ast.Expr) and ast.unparse(line.value).startswith("figures."):
                hidden.append(ast.unparse(line)[:60])
    assert hidden == []
