"""Answers that are edits of others: what an edit has to say, and what is seen of the function that comes of it."""

import ast
import importlib.util
import inspect
import pickle
import re
import sys
import traceback

import pytest

from tests.checks.mutants import ring_all_reduce
from tests.support.answers import ANSWERS, FOLDER

MODULE = """
from tests.checks.mutants import Answers

answers = Answers("halves")


@answers.is_right
def plain(numbers):
    \"\"\"Half of the sum.\"\"\"
    total = 0
    for number in numbers:
        total += number
        total += 0
    return total / 2
"""


def module_with(tmp_path, edits: str):
    path = tmp_path / "edited_answers.py"
    path.write_text(MODULE + edits)
    spec = importlib.util.spec_from_file_location("edited_answers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ('{"sum(numbers)": "0"}', "wrong, an edit of plain: expected once in its source, found 0 times: 'sum\\(numbers\\)'"),
        ('{"total +=": "total -="}', "wrong, an edit of plain: expected once in its source, found 2 times: 'total \\+='"),
        ('{"total / 2": "total / 2"}', "wrong, an edit of plain: replaces 'total / 2' by itself"),
        ('{"\\ntotal = 0\\nreturn total / 2\\n": ""}', "found 0 times"),
    ],
)
def test_an_edit_that_does_not_fit_is_an_error(tmp_path, edits, words):
    with pytest.raises(ValueError, match=words):
        module_with(tmp_path, f'answers.mistake("wrong", {edits}, "words")\n')


def test_a_name_that_is_taken_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="plain, an edit of plain: edited_answers has this name already"):
        module_with(tmp_path, 'answers.mistake("plain", {"total / 2": "total"}, "words")\n')


def test_an_edit_is_noted_with_its_words_under_its_name(tmp_path):
    edits = 'answers.mistake("whole", {" / 2": ""}, "words", ("or", "these"), harmless_at=(2,), chance=True)\n'
    module = module_with(tmp_path, edits)
    assert module.answers.wrong == [(module.whole, ("words", ("or", "these")), (2,))]
    assert module.answers.edits == {"whole": {" / 2": ""}}
    assert (module.whole([1, 2]), module.answers.chance) == (3, {module.whole})


def test_an_edited_right_answer_is_a_right_one(tmp_path):
    module = module_with(tmp_path, 'answers.twin("by_numpy", {"total = 0": "total = 0.0"})\n')
    assert module.answers.right == [module.plain, module.by_numpy]


def test_an_edit_may_be_of_another_edit(tmp_path):
    first = 'answers.mistake("whole", {" / 2": ""}, "words")\n'
    second = 'answers.mistake("none", {"+= number": "+= 0"}, "words", of=whole)\n'
    assert module_with(tmp_path, first + second).none([1, 2]) == 0


def test_a_text_of_several_lines_takes_the_indentation_of_its_place(tmp_path):
    edits = '''answers.mistake("twice", {
        """
        total += number
        total += 0
        """: """
        for _ in range(2):
            total += number
        """,
    }, "words")\n'''
    module = module_with(tmp_path, edits)
    assert module.twice([1, 2]) == 3
    assert "        for _ in range(2):\n            total += number\n    return" in inspect.getsource(module.twice)


def test_a_line_of_which_nothing_is_left_goes(tmp_path):
    module = module_with(tmp_path, 'answers.mistake("shorter", {"total += 0": ""}, "words")\n')
    assert inspect.getsource(module.shorter).splitlines()[-2:] == ["        total += number", "    return total / 2"]


def test_the_source_that_is_shown_is_the_edited_one(tmp_path):
    module = module_with(tmp_path, 'answers.mistake("by_nought", {"total / 2": "total / 0"}, "words")\n')
    assert inspect.getsource(module.by_nought).startswith("def by_nought(numbers):\n")
    with pytest.raises(ZeroDivisionError) as raised:
        module.by_nought([1])
    (frame,) = [frame for frame in traceback.extract_tb(raised.tb) if frame.name == "by_nought"]
    assert frame.line == "return total / 0"


def test_an_edited_answer_travels_by_reference():
    fn = ring_all_reduce.averages
    assert pickle.loads(pickle.dumps(fn)) is fn is sys.modules[fn.__module__].averages


def test_no_answer_has_the_name_of_another():
    for answers in ANSWERS:
        names = [fn.__name__ for fn in (*answers.right, *(row[0] for row in (*answers.wrong, *answers.spoilt)))]
        assert len(set(names)) == len(names), answers.exercise


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_what_a_module_imports_it_or_one_of_its_edits_uses(path):
    """Ruff cannot tell: it does not look into the texts."""
    text = path.read_text()
    imports = [node for node in ast.parse(text).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    for node in imports:
        text = text.replace(ast.get_source_segment(path.read_text(), node), "")
    names = [(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names]
    assert [name for name in names if name != "annotations" and not re.search(rf"\b{name}\b", text)] == []
