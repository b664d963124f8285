"""Answers that stand where a grade cannot take them, and where each is found."""

import json

import pytest

from tests.grade.honest import BODY, RIGHT, ROOT, START, TITLE, cell, notebook
from worldsize.cells import answers_elsewhere, chosen, read, taken_along
from worldsize.grade import course

pytestmark = pytest.mark.quick

LABS = course.load(ROOT)
LAB = LABS[START]
STUB = LAB.exercises[0].stub
FUNCTION = "def pass_right(fabric, x):\n" + BODY
OTHER = FUNCTION.replace("pass_right", "my_pass_right")


def found(made: dict, lab: course.CourseLab = LAB) -> list[tuple[str, str, str]]:
    """(kind, first line, what is found) of each answer elsewhere in a notebook."""
    cells = read(json.dumps(made).encode())
    choice = chosen(cells, lab.exercises)
    places = answers_elsewhere(cells, choice, lab.exercises, lab.given, taken_along(choice, lab.exercises, ()))
    return [(one.kind, one.line, one.found) for several in places.values() for one in several]


def without_its_cell(**own: str) -> dict:
    made = notebook(STUB, **own)
    made["cells"].remove(cell(made, "pass_right"))
    return made


def as_prose(source: str) -> dict:
    made = notebook(source)
    cell(made, "pass_right")["cell_type"] = "raw"
    return made


NOTEBOOKS = {
    "in_another_cell": (notebook(STUB, below=f"import math\n{FUNCTION}"), [("another cell", "import math", "")]),
    "in_a_cell_above": (notebook(STUB, above=f"\n%%time\n{FUNCTION}"), [("another cell", "%%time", "")]),
    "under_another_name": (notebook(STUB, below=OTHER), [("another name", "def my_pass_right(fabric, x):", "my_pass_right")]),
    "under_another_name_above_a_stub_with_a_word_of_its_own": (
        notebook(f"{STUB}# later\n", above=OTHER), [("another name", "def my_pass_right(fabric, x):", "my_pass_right")],
    ),
    "misspelt_in_its_own_cell": (
        notebook(RIGHT.replace("pass_right", "pas_rigth")), [("another name", TITLE.strip(), "pas_rigth")],
    ),
    "above_a_stub_in_its_own_cell": (
        notebook(f"{RIGHT}\n{STUB.partition(chr(10))[2]}"), [("twice", TITLE.strip(), "")],
    ),
    "in_a_raw_cell": (as_prose(RIGHT), [("no code", TITLE.strip(), "raw")]),
    "nowhere": (notebook(STUB), []),
    "in_its_own_cell": (notebook(RIGHT, below="launch(pass_right, 3)"), []),
    "as_a_helper_that_it_calls": (notebook(f"{TITLE}def pass_right(f, x):\n    return my_pass_right(f, x)", above=OTHER), []),
    "by_a_decorator": (notebook(f"{RIGHT}\npass_right = torch.no_grad()(pass_right)"), []),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_an_answer_is_found_where_it_stands(name):
    made, expected = NOTEBOOKS[name]
    assert found(made) == expected


@pytest.mark.parametrize("kind", ["labs", "solutions"])
def test_no_notebook_of_the_course_has_an_answer_elsewhere(kind):
    for stem, lab in LABS.items():
        assert found(json.loads((ROOT / kind / f"{stem}.ipynb").read_text()), lab) == [], stem


def test_an_exercise_whose_cell_is_gone_is_found_by_what_defines_it():
    choice = chosen(read(json.dumps(without_its_cell(below=FUNCTION)).encode()), LAB.exercises)
    assert choice.exercises["Exercise 0.1"].source == FUNCTION
