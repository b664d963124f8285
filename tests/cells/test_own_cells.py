"""What an exercise takes along from the student's own cells, and what it cannot."""

import pytest

from worldsize.cells import TakenAlong, names_bound
from worldsize.cells.cell_statements import MOST_STATEMENTS
from worldsize.cells.own_cells import CellOfNotebook, OwnCells

pytestmark = pytest.mark.quick

GIVEN = ("torch", "split")


def taken(exercise: str, *above: str, below: tuple[str, ...] = (), ran: bool = False) -> TakenAlong:
    """What goes along with `f`, whose cell is `exercise`."""
    cells = [CellOfNotebook(k, source) for k, source in enumerate(above, 1)]
    cells.append(CellOfNotebook(len(cells) + 1, exercise, ("f",)))
    cells += [CellOfNotebook(len(cells) + k, source) for k, source in enumerate(below, 1)]
    return OwnCells(cells, GIVEN, ran).taken_along("f")


def pieces(found: TakenAlong) -> list[str]:
    return [one.text for cell in found.cells for one in cell.statements]


def left(found: TakenAlong) -> list[tuple[str, str, int]]:
    return [(one.name, one.maker, one.cell) for one in found.left]


USE = "def f(x):\n    return K + x"
CONSTANTS = [
    "K = 3", "K: int = 3", "K, L = 1, 2", "K = L = 2", "K = 2 * np.pi", "K = torch.float32", "K = dict(a=1)",
    "K = [k for k in range(3)]", "K = {'a': (1, 2)}['a']", "K = Link('1 Gbit/s')", "K = lambda: launch()", "K = f'{2:>3}'",
    "K = torch.tensor([1.0])", "K = np.arange(3) * 2", "K = partial(print, 1)", "K = -1 if True else None", "K = 10**10**10",
    "import K", "from a import b as K", "def K(): launch()", "async def K(): pass", "class K: pass", "@deco(1)\nclass K: pass",
    "try:\n    import K\nexcept ImportError:\n    K = None", "if True:\n    K = 1\nelse:\n    K = 2",
]  # fmt: skip


@pytest.mark.parametrize("source", CONSTANTS)
def test_what_only_defines_goes_along(source):
    found = taken(USE, f"print(1)\n{source}\nlaunch(3)")
    assert pieces(found) == [source] and not left(found)


MADE = {
    "for K in range(3): pass": "loop",
    "while True:\n    K = 1\n    break": "loop",
    "with open('a') as K: pass": "with",
    "K = compute()": "call",
    "K = [compute() for _ in range(3)]": "call",
    "K = torch.load('a.pt')": "call",
    "K = lambda x=compute(): x": "call",
    "K = 1\nK += 1": "change",
    "K = {}\nK['a'] = 1": "change",
    "K = Box()\nK.size = 2": "change",
    "print(K := 3)": "expression",
    "def set_it():\n    global K\n    K = 1\nset_it()": "global",
    "from math import *": "star",
    "K = 1\ndel K": "del",
    "if launch():\n    K = 1": "block",
    "K = [1]\nfor K[0] in range(3): pass\nfor K in range(2): pass": "loop",
    "K = await compute()": "expression",
}


@pytest.mark.parametrize("source", MADE)
def test_what_does_more_than_define_is_named_and_does_not_go_along(source):
    found = taken(USE, source)
    assert (pieces(found), left(found)) == ([], [("K", MADE[source], 1)])


def test_the_sentence_says_what_makes_a_name_and_what_to_do():
    (one,) = taken("def f(x):\n    return scale", "for scale in range(3):\n    pass").left
    assert one.sentence == (
        "`scale` is made by a loop in another cell: the grader does not run it. Define it in the exercise's cell."
    )
    assert (one.cell, one.line) == (1, "for scale in range(3):")


def test_what_helpers_use_goes_along_too():
    helper, deeper = "def g(x, by=M):\n    return math.pi + h(x)", "def h(x): return Box"
    found = taken("def f(x): return g(x)", "M = 2\nimport math", helper, below=(deeper,))
    assert pieces(found) == ["M = 2", "import math", helper, deeper]


def test_the_last_binding_above_the_exercise_counts():
    assert pieces(taken(USE, "K = 1", "K = 2", below=("K = 3",))) == ["K = 2"]
    assert pieces(taken(USE, below=("K = 3", "K = 4"))) == ["K = 4"]


def test_of_cells_that_ran_the_last_binding_counts_wherever_the_exercise_was():
    assert pieces(taken(USE, "K = 1", below=("K = 3",), ran=True)) == ["K = 3"]


def test_a_constant_of_a_constant_means_the_one_above_it():
    assert pieces(taken("def f(x): return M", "K = 1", "M = K", "K = launch()")) == ["K = 1", "M = K"]


@pytest.mark.parametrize("source", ["def f(x): return torch.ones(3)", "def f(split): return split", "def f(x): return len(x)"])
def test_set_up_locals_and_builtins_mean_what_they_are(source):
    assert taken(source, "torch = None\nsplit = 3\nx = 4", "for x in y: pass") == TakenAlong()


def test_an_own_cell_never_stands_for_an_exercise():
    exercises = [CellOfNotebook(2, "def f(x): return g(x)", ("f",)), CellOfNotebook(3, "", ("g",))]
    cells = [CellOfNotebook(1, "def f(x): pass\ndef g(x): pass"), *exercises]
    assert OwnCells(cells, ()).taken_along("f") == TakenAlong()


def test_what_another_exercise_uses_goes_along_with_who_calls_it():
    cells = [
        CellOfNotebook(1, "K = 1\nM = 2"), CellOfNotebook(2, "def g(x): return K", ("g",)),
        CellOfNotebook(3, "def f(x): return g(x)", ("f",)),
    ]  # fmt: skip
    assert pieces(OwnCells(cells, ()).taken_along("f")) == ["K = 1"]


def test_a_call_below_the_function_asks_for_nothing():
    assert taken("def f(x): return x\nprint(runs[0])", "runs = launch()") == TakenAlong()


def test_a_statement_above_the_function_asks_for_what_it_uses():
    assert left(taken("n = runs[0]\ndef f(x): return x", "runs = launch()")) == [("runs", "call", 1)]


def test_magics_do_not_hinder():
    assert pieces(taken(USE, "%time\n!pip install this\nK = 1\n%%x")) == ["K = 1"]


@pytest.mark.parametrize("magic", ["%%ranks 4", "%%ranks", "%%rank 2"])
def test_a_cell_of_the_ranks_binds_nothing_in_the_notebook(magic):
    assert pieces(taken(USE, "K = 1", f"{magic}\nK = 2")) == ["K = 1"]


def test_statements_stay_on_their_lines():
    source = "print(1)\n\nK = [1,\n  2]; print(); L = 2\n@deco\ndef g(x):\n    return x"
    (cell,) = taken("def f(x): return g(K) + L", source).cells
    assert cell.source == "\n\nK = [1,\n  2]; L = 2\n@deco\ndef g(x):\n    return x"
    assert cell.one_by_one()[2] == ("cell 1, line 5", "\n\n\n\n@deco\ndef g(x):\n    return x")


def test_from_future_goes_along_with_the_whole_cell():
    (cell,) = taken(USE, "from __future__ import annotations\nM = 1\ndef K(x: Nowhere): pass").cells
    assert cell.one_by_one() == [("cell 1, line 3", "from __future__ import annotations\n\ndef K(x: Nowhere): pass")]


HARD = [
    "(" * 5000, "-" * 100_000 + "1", "1" + "+1" * 40_000, "a" + ".b" * 30_000, "'\0'", "1" * 9_000, "lambda: " * 5_000 + "1",
    "f(" * 150, "'''", "{" * 90 + "}" * 90,
]  # fmt: skip


@pytest.mark.parametrize("value", HARD, ids=range(len(HARD)))
def test_a_cell_that_python_can_hardly_read_hinders_no_other(value):
    assert "M = 1" in pieces(taken("def f(x): return M + K", f"K = {value}", "M = 1"))


def test_of_a_cell_of_very_many_statements_nothing_goes_along():
    assert taken(USE, "\n".join(["K = 1"] * (MOST_STATEMENTS + 1))) == TakenAlong()


def test_no_more_goes_along_than_anybody_uses():
    chain = ["K0 = 1", *(f"K{k} = K{k - 1}" for k in range(1, 1_500))]
    found = taken("def f(x): return K1499", "\n".join(chain))
    assert (len(pieces(found)), left(found)) == (1_000, [("K499", "limit", 1)])


def test_names_of_set_up_cells_are_read_not_run():
    setups = ["# Set-up\nimport os.path\nfrom worldsize.notebook import *\n1 / 0\ndef split(): pass", "if x:"]
    assert set(names_bound(setups, {"worldsize.notebook": ["launch"]})) == {"os", "launch", "split"}
