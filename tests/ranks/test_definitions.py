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
    space, cells = space_of("OFFSET = 3\nwords = ['a']", ADD)
    found = along("add(1); words; later; print", space, cells)
    assert names(found) == [("add",)] and found.in_notebook == {"OFFSET", "words"}


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
