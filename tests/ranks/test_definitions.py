"""What goes along from a notebook with a cell on ranks, and what becomes of it there."""

import json
import math
import os
from types import SimpleNamespace

import pytest
import torch

from worldsize.errors import RankFailed
from worldsize.ranks.definitions import Cell, along
from worldsize.report import report

ADD = "def add(x):\n    return x + OFFSET\n"
CLASS = "class Net(torch.nn.Module):\n    def forward(self, x):\n        return add(x)\n"


def space_of(*texts: str) -> tuple[dict, list[Cell]]:
    """A notebook in which these cells ran."""
    space: dict = {"__name__": "__main__"}
    for text in texts:
        exec(text, space)
    return space, [Cell(text, f"cell{place}.py") for place, text in enumerate(texts)]


def names(found) -> list[tuple[str, ...]]:
    return [definition.names for definition in found.definitions]


pytestmark = []
quick = pytest.mark.quick


@quick
def test_a_function_that_is_named_goes_along_with_what_it_names_in_turn():
    space, cells = space_of("import torch", ADD, CLASS, "def unused(): return 1")
    found = along("net = Net()", space, cells)
    assert set(names(found)) == {("torch",), ("add",), ("Net",)}
    assert names(found).index(("torch",)) < names(found).index(("Net",))


@quick
def test_the_newest_definition_counts():
    space, cells = space_of("def f():\n    return 1\n", "x = 3\ndef f():\n    return 2\n")
    (found,) = along("f()", space, cells).definitions
    assert (found.text, found.file, found.line) == ("def f():\n    return 2\n", "cell1.py", 2)


@quick
def test_data_stays_and_is_named():
    space, cells = space_of("offset = 3\nwords = ['a']", ADD.replace("OFFSET", "offset"))
    found = along("add(1); words; later; print", space, cells)
    assert names(found) == [("add",)] and found.in_notebook == {"offset", "words"}


@quick
@pytest.mark.parametrize("value", ["3", "-1.5", "'ab' + 'c'", "(1, 2)", "{'a': [None, True]}", "torch.bfloat16", "ONE * 4"])
def test_a_constant_in_capitals_goes_along_with_the_function_that_names_it(value):
    space, cells = space_of("import torch\nONE = 1", f"OFFSET = {value}", ADD)
    found = along("add(1)", space, cells)
    assert ("OFFSET",) in names(found) and names(found).index(("OFFSET",)) < names(found).index(("add",))


@quick
@pytest.mark.parametrize("later", ["OFFSET += 1", "OFFSET = OFFSET + [2]", "OFFSET.append(2)", "OFFSET = tuple(OFFSET)"])
def test_a_constant_that_the_notebook_has_changed_is_data(later):
    begins = "OFFSET = [1]" if "+= 1" not in later else "OFFSET = 1"
    space, cells = space_of(begins, ADD)
    exec(later, space)
    assert along("add(1)", space, [*cells, Cell(later, "later.py")]).in_notebook == {"OFFSET"}


@quick
@pytest.mark.parametrize("value", ["len('abc')", "[k for k in range(3)]"])
def test_a_constant_that_had_to_be_computed_is_data(value):
    space, cells = space_of(f"OFFSET = {value}", ADD)
    assert along("add(1)", space, cells).in_notebook == {"OFFSET"}


GUARDED = """\
try:
    from no_such_package import bar
except ImportError:
    def bar(steps):
        return steps
"""


@quick
def test_an_import_with_a_stand_in_goes_along_whole():
    space, cells = space_of("import math", GUARDED, "if math:\n    def f(): return bar(1)\nelse:\n    f = None\n")
    found = along("f()", space, cells)
    assert names(found) == [("math",), ("bar",), ("f",)] and found.definitions[1].text == GUARDED


@quick
def test_a_block_that_does_more_than_define_stays():
    space, cells = space_of("if True:\n    def f(): return 1\n    print(f())\n")
    assert along("f()", space, cells).in_notebook == {"f"}


@quick
def test_what_is_imported_goes_as_an_import_from_where_it_is_defined():
    space = {"js": json, "report": report, "pi": math.pi, "path": os.path, "Adam": torch.optim.Adam, "log": math.log}
    cells = [Cell("from worldsize.notebook import *\nfrom math import pi", "cell0.py")]
    found = along("js, report, pi, path, Adam, log", space, cells)
    assert sorted(definition.text for definition in found.definitions) == [
        "from math import log as log",
        "from math import pi",
        f"from {torch.optim.Adam.__module__} import Adam as Adam",
        "from worldsize.report import report as report",
        "import json as js",
        "import posixpath as path",
    ]


@quick
def test_a_decorated_function_goes_with_its_decorator():
    text = "import functools\n\n@functools.cache\ndef f():\n    return 1\n"
    space, cells = space_of(text)
    found = along("f()", space, cells)
    assert [d.text for d in found.definitions] == ["import functools", "@functools.cache\ndef f():\n    return 1\n"]
    assert found.definitions[1].line == 3


@quick
@pytest.mark.parametrize(
    "text",
    [
        "import tensorflow as tf",
        "from keras import layers",
        "def f():\n    import tf_keras",
        "from worldsize.tf import launch",
        "tf.ones(3)",
        "step()",
    ],
)
def test_tensorflow_is_refused_with_words(text):
    tf = SimpleNamespace()
    space, cells = space_of("def step():\n    import tensorflow\n")
    space["tf"] = type(os)("tensorflow")
    assert tf is not None
    with pytest.raises(ValueError, match="open ranks run torch only.*from worldsize.tf import Cluster, launch"):
        along(text, space, cells)


@quick
@pytest.mark.parametrize("text", ["def (", "x = 'ä\n", "a\x00b"])
def test_a_cell_that_is_no_python_needs_nothing(text):
    space, cells = space_of(ADD)
    assert along(text, space, [*cells, Cell(text, "bad.py")]).definitions == ()


def run(world, text: str, *cells: str, **values):
    space, ran = space_of(*cells)
    space.update(values)
    return world.run(text, along=along(text, space, ran))


def test_a_function_finds_the_data_of_its_rank(four):
    four.run("OFFSET = rank * 10")
    run(four, "found = add(1)", ADD)
    assert four["found"] == [1, 11, 21, 31]


def test_a_changed_constant_goes_again_and_the_rank_s_own_stays(four):
    run(four, "first = SIZE", "SIZE = 3")
    run(four, "second = SIZE", "SIZE = 3", "SIZE = 4")
    four.run("SIZE = 10 + rank")
    run(four, "third = SIZE", "SIZE = 5")
    assert four["(first, second, third)"] == [(3, 4, 10 + rank) for rank in range(4)]


def test_a_changed_function_goes_again_and_a_like_one_stays_the_same_object(four):
    first = "def f():\n    return 1\n"
    run(four, "f(); before = f", first)
    run(four, "f(); same = f is before", first)
    run(four, "value = f(); other = f is not before", first, "def f():\n    return 2\n")
    assert four["(same, value, other)"] == [(True, 2, True)] * 4


def test_what_a_cell_of_the_ranks_binds_is_theirs(four):
    four.run("def mine():\n    return 'ranks'")
    run(four, "whose = mine()", "def mine():\n    return 'notebook'\n")
    assert four["whose"] == ["ranks"] * 4


def test_an_error_in_a_function_shows_its_line_in_the_notebook(four):
    import linecache

    text = "\n\ndef fails():\n    raise KeyError('loss')\n"
    file = "ipykernel_1/fails.py"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space: dict = {"__name__": "__main__"}
    exec(text, space)
    with pytest.raises(RankFailed) as told:
        four.run("fails()", along=along("fails()", space, [Cell(text, file)]))
    (frame,) = [frame for frame in told.value.failure.frames if frame.function == "fails"]
    assert (frame.file, frame.line, frame.text) == (file, 4, "raise KeyError('loss')")
