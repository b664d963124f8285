"""A class of lab 06 as Canvas hands it over: forty people's files, honest and odd, one `worldsize grade`, and what each gets.

Each hand-in is the solved notebook with what some student did to it. Nothing here is an attack (`tests/grade/test_cheats`).
"""

import copy
import csv
import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.journeys import class_of_three
from tests.journeys.class_of_three import LABS, SOLVED
from tests.journeys.doors import Entered
from tests.journeys.person import Person
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.marking import rows
from worldsize.grade.marking.rows import GradeRow

STEM, OTHER = "06_ring_all_reduce", "00_start_here"
LAB = LABS[STEM]
WORTH = {exercise.id: exercise.points for exercise in LAB.exercises}
LIMIT_S = 1800.0
DOORS = ["worldsize grade"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(LIMIT_S + 60)]

Notebook = dict
Change = Callable[[Notebook], None]


def solved() -> Notebook:
    return copy.deepcopy(class_of_three.notebook(LAB, SOLVED))


def cell(notebook: Notebook, exercise: str) -> dict:
    """The exercise's cell."""
    return next(one for one in notebook["cells"] if one["metadata"].get("nbgrader", {}).get("grade_id") == exercise)


def code(source: str) -> dict:
    """A cell of a student's own."""
    return {"cell_type": "code", "id": f"own{abs(hash(source)) % 10**9}", "metadata": {}, "execution_count": None,
            "outputs": [], "source": source}  # fmt: skip


def place(notebook: Notebook, exercise: str) -> int:
    return notebook["cells"].index(cell(notebook, exercise))


def edit(exercise: str, *pairs: tuple[str, str]) -> Change:
    def change(notebook: Notebook) -> None:
        one = cell(notebook, exercise)
        for old, new in pairs:
            assert old in one["source"], (exercise, old)
            one["source"] = one["source"].replace(old, new, 1)

    return change


def above(exercise: str, source: str) -> Change:
    def change(notebook: Notebook) -> None:
        notebook["cells"].insert(place(notebook, exercise), code(source))

    return change


def below(exercise: str, source: str) -> Change:
    def change(notebook: Notebook) -> None:
        notebook["cells"].insert(place(notebook, exercise) + 1, code(source))

    return change


def first_line(exercise: str) -> str:
    return next(one for one in LAB.exercises if one.id == exercise).reference.partition("\n")[0]


def begins(exercise: str, lines: str) -> Change:
    """Put lines below the exercise's title."""
    return edit(exercise, (first_line(exercise), f"{first_line(exercise)}\n{lines}"))


def left_open(exercise: str) -> Change:
    def change(notebook: Notebook) -> None:
        cell(notebook, exercise)["source"] = next(one for one in LAB.exercises if one.id == exercise).stub

    return change


def never_nbgrader(notebook: Notebook) -> None:
    """As Colab saves it."""
    for one in notebook["cells"]:
        one["metadata"] = {}


def without_ids(notebook: Notebook) -> None:
    notebook["nbformat_minor"] = 2
    for one in notebook["cells"]:
        one.pop("id", None)


def ids_of_another_editor(notebook: Notebook) -> None:
    for number, one in enumerate(notebook["cells"]):
        one["id"] = f"#W{number}sZmlsZQ"


def shuffled(notebook: Notebook) -> None:
    notebook["cells"].reverse()


def only_answers(notebook: Notebook) -> None:
    notebook["cells"] = [cell(notebook, exercise) for exercise in WORTH]


def with_plots(notebook: Notebook) -> None:
    notebook["cells"].append(code("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()"))


def with_output(count: int) -> Change:
    def change(notebook: Notebook) -> None:
        one = code(f"print('x' * {count})")
        one["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * count}]
        notebook["cells"].append(one)

    return change


def alias(notebook: Notebook) -> None:
    """The function has another name in the exercise's cell, and the right one in the next."""
    one = cell(notebook, "ring_all_reduce")
    one["source"] = one["source"].replace("def ring_all_reduce(", "def my_ring(")
    below("ring_all_reduce", "ring_all_reduce = my_ring")(notebook)


def cut(notebook: Notebook) -> None:
    """A split cell: its upper half keeps the title, its lower half the name."""
    one = cell(notebook, "parameter_server")
    lines = one["source"].splitlines(keepends=True)
    half = next(k for k, line in enumerate(lines) if line.startswith("def ")) + 2
    notebook["cells"].insert(place(notebook, "parameter_server"), code("".join(lines[:half]).rstrip("\n")))
    one["source"] = "".join(lines[half:])


def as_lambda(notebook: Notebook) -> None:
    one = cell(notebook, "ring_all_reduce")
    inner = one["source"].replace("def ring_all_reduce(", "def _ring(")
    one["source"] = f"{inner}\nring_all_reduce = lambda fabric, x: _ring(fabric, x)"


def as_object(notebook: Notebook) -> None:
    one = cell(notebook, "ring_all_reduce")
    one["source"] = one["source"].replace("def ring_all_reduce(", "def _ring(") + (
        "\nclass Ring:\n    def __call__(self, fabric, x):\n        return _ring(fabric, x)\n\nring_all_reduce = Ring()"
    )


def with_tabs(notebook: Notebook) -> None:
    for exercise in WORTH:
        one = cell(notebook, exercise)
        one["source"] = re.sub(r"^( {4})+", lambda m: "\t" * (len(m[0]) // 4), one["source"], flags=re.MULTILINE)


def decorated(notebook: Notebook) -> None:
    """Helpers with types, a decorator, and one that is asynchronous, in a cell of their own."""
    cached = "import functools\n\n@functools.cache\ndef server() -> int:\n    return 0"
    above("parameter_server", f"{cached}\n\nasync def waits() -> None:\n    pass")(notebook)
    begins("parameter_server", "_server: int = server()")(notebook)


@dataclass(frozen=True)
class HandIn:
    """What one student hands in, and what the row must say."""

    name: str
    change: Change = lambda notebook: None
    points: float = LAB.possible
    state: str = "graded"
    file: str = f"{STEM}.ipynb"
    data: Callable[[Notebook], bytes] = lambda notebook: json.dumps(notebook).encode()
    says: str = ""  # in the reason, or in the mismatch of an exercise


def without(*exercises: str) -> float:
    return LAB.possible - sum(WORTH[exercise] for exercise in exercises)


BEGINS = "(fabric, x):"


def first_in(exercise: str, statement: str) -> Change:
    """Put a statement first in the exercise's function."""
    return edit(exercise, (BEGINS, f"{BEGINS}\n    {statement}"))


def another_lab(notebook: Notebook) -> None:
    notebook.update(class_of_three.notebook(LABS[OTHER], SOLVED))


def emptied(notebook: Notebook) -> None:
    notebook["cells"] = []


HAND_INS = [
    HandIn("plain"),
    HandIn("ünalçem"),
    HandIn(unicodedata.normalize("NFD", "éloïse")),
    HandIn("late_LATE"),
    HandIn("again", file=f"{STEM}-1.ipynb"),
    HandIn("nothing", data=lambda notebook: b"", points=0, state="ungradable"),
    HandIn("truncated", data=lambda notebook: json.dumps(notebook).encode()[:-500], points=0, state="ungradable"),
    HandIn("bom", data=lambda notebook: b"\xef\xbb\xbf" + json.dumps(notebook).encode()),
    HandIn("crlf", data=lambda notebook: json.dumps(notebook, indent=1).replace("\n", "\r\n").encode()),
    HandIn("noids", without_ids),
    HandIn("colab", never_nbgrader),
    HandIn("vscode", ids_of_another_editor),
    HandIn("shuffled", shuffled),
    HandIn("onlyanswers", only_answers, state="tampered"),
    HandIn("imports", begins("ring_all_reduce", "import math, collections\nfrom itertools import count")),
    HandIn("pip", begins("reduce_scatter", "!pip install nothing-of-this-name")),
    HandIn("timed", above("reduce_scatter", "%%time\nsum(range(10))")),
    HandIn("bash", above("reduce_scatter", "%%bash\necho hello")),
    HandIn("asks", above("reduce_scatter", "name = input('your name? ')")),
    HandIn("plots", with_plots),
    HandIn("output", with_output(40_000_000)),
    HandIn("flood", with_output(60_000_000), 0, "ungradable", says="Clear its outputs"),
    HandIn("endlesscell", above("reduce_scatter", "import time\nwhile True:\n    time.sleep(1)")),
    HandIn("endless", first_in("parameter_server", "while True:\n        pass"), without("parameter_server"), "timeout"),
    HandIn("memory", first_in("parameter_server", "torch.ones(8_000_000_000)"), without("parameter_server")),
    HandIn("alias", alias, state="tampered"),  # split over two cells, which a person should see
    HandIn("cut", cut, state="tampered"),
    HandIn("helpers", decorated),
    HandIn("lambda", as_lambda),
    HandIn("object", as_object),
    HandIn("tabs", with_tabs),
    HandIn("emoji", begins("ring_all_reduce", 'DONE = "🎉"  # 你好')),
    HandIn("untitled", file="Untitled7 (1).ipynb"),
    HandIn("=cmd|calc"),
    HandIn("open64", left_open("all_gather"), without("all_gather")),
    HandIn(
        "breakpoint", first_in("parameter_server", "breakpoint()"), without("parameter_server"), says="a breakpoint was left in"
    ),
    HandIn("otherlab", another_lab, 0, "ungradable", says="lab 00"),
    HandIn("emptied", emptied, 0, "ungradable", says="empty"),
]  # fmt: skip


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory, entered: Entered) -> dict[str, GradeRow]:
    """{a student's name: the row}, by the command that an instructor types."""
    try:
        best_mode()
    except NoSandbox as refused:
        entered.skip(DOORS, str(refused))
    folder = tmp_path_factory.mktemp("messy")
    (folder / "submitted").mkdir()
    for number, one in enumerate(HAND_INS):
        notebook = solved()
        one.change(notebook)
        path = folder / "submitted" / f"{one.name}_{4711 + number}_88006_{one.file}"
        path.write_bytes(one.data(notebook))
    Person(folder, entered).types("worldsize grade submitted --out grades", limit_s=LIMIT_S)
    found = [rows.read(path) for path in (folder / "grades" / "rows").iterdir()]
    by_number = {int(row.student.rpartition("_")[2]): row for row in found}
    assert len(by_number) == len(HAND_INS) and _lines(folder) == len(HAND_INS)
    return {one.name: by_number[4711 + number] for number, one in enumerate(HAND_INS)}


def _lines(folder: Path) -> int:
    with (folder / "grades" / "table.csv").open(newline="") as file:
        return len(list(csv.DictReader(file)))


@pytest.mark.parametrize("name", [one.name for one in HAND_INS])
def test_a_hand_in_has_the_points_and_the_state_that_it_should(graded: dict[str, GradeRow], name: str) -> None:
    expected, row = next(one for one in HAND_INS if one.name == name), graded[name]
    why = [row.reason, row.tamper, [(e.id, e.state, e.mismatch) for e in row.exercises if e.state != "pass"]]
    assert (row.state, row.points) == (expected.state, expected.points), why
    assert expected.says in " ".join([row.reason, *(e.mismatch for e in row.exercises)]), why


def test_every_declared_door_was_entered(entered: Entered) -> None:
    entered.check()
