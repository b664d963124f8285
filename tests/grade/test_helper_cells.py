"""Own cells in the sandbox: what fails costs what uses it, and what does not go along is named to whom it concerns."""

import json
from pathlib import Path

import pytest

from tests.grade.honest import RING, START, TITLE, notebook, ring, ring_notebook
from tests.support.graded_arena import mark_here
from worldsize.cells import LeftBehind
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import rows
from worldsize.grade.marking.rows import ExerciseRow, GradeRow
from worldsize.grade.outside.boxes import Sandbox
from worldsize.grade.reports import feedback_page, table

pytestmark = pytest.mark.timeout(300)

ALL_GATHER = ring().exercises[3]
SCALED = TITLE + "def pass_right(fabric, x):\n    return x * scale\n"
# one that never ends waits it out; what the others lose to a busy machine is not counted
LIMITS = Limits(case_s=2, wall_s=60, cpu_s=60, memory_bytes=1_000_000_000)


def using(name: str) -> dict[str, str]:
    """Lab 06 with an all-gather that uses a name and a reduce-scatter that does not; the others are not yet written."""
    lines = ALL_GATHER.reference.splitlines()
    place = next(k for k, line in enumerate(lines) if line.startswith("def "))
    gathers = "\n".join([*lines[: place + 1], f"    print({name})", *lines[place + 1 :]])
    stubs = {exercise.id: exercise.stub for exercise in ring().exercises if exercise.id != "reduce_scatter"}
    return {**stubs, ALL_GATHER.id: gathers}


NOTEBOOKS = {
    "never_ends": (RING, ring_notebook(using("K"), "K = 10**10**10")),
    "beyond_memory": (RING, ring_notebook(using("K"), "K = 'a' * 10**12\nM = 3")),
    "beside_one_that_is_used": (RING, ring_notebook(using("M"), "import einops_that_is_not_here as K\nM = 3\nprint(K)")),
    "left_behind": (START, notebook(SCALED, above="for scale in range(3):\n    pass")),
}


@pytest.fixture(scope="module")
def found(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, GradeRow]:
    folder: Path = tmp_path_factory.mktemp("helpers")
    rows = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sandbox, "limits", LIMITS)
        for name, (lab, made) in NOTEBOOKS.items():
            path = folder / f"{name}.ipynb"
            path.write_text(json.dumps(made))
            rows[name] = mark_here(sandbox, path, lab, name)
    return rows


@pytest.mark.parametrize("name", ["never_ends", "beyond_memory"])
def test_a_constant_that_cannot_be_made_costs_the_exercise_that_uses_it(found, name):
    row = found[name]
    handed_in = {e.id: e for e in row.exercises if e.state != "not yet"}
    assert {name: e.points for name, e in handed_in.items()} == {"reduce_scatter": 1.5, "all_gather": 0.0}
    assert "It uses cell" in handed_in["all_gather"].mismatch


def test_a_statement_that_fails_costs_nothing_beside_it(found):
    assert found["beside_one_that_is_used"].points == 2.5


def test_a_row_names_what_does_not_go_along(found):
    row = found["left_behind"]
    (exercise,) = row.exercises
    (one,) = exercise.left
    assert (one.name, one.maker, one.line) == ("scale", "loop", "for scale in range(3):")
    assert rows.from_dict(json.loads(json.dumps(rows.to_dict(row)))) == row


def test_the_page_of_feedback_says_what_to_do_about_it(found):
    page = feedback_page.page(found["left_behind"], {}, {})
    assert "<code>" not in "".join(feedback_page.steps(found["left_behind"], {}))
    assert "made by a loop in another cell: the grader does not run it" in page


def test_the_table_says_why_it_may_have_passed_in_the_notebook(found):
    assert "uses `scale` from a cell that does not count" in table.table([found["left_behind"]])


def test_a_row_of_a_version_that_named_nothing_is_read(found):
    data = json.loads(json.dumps(rows.to_dict(found["left_behind"])))
    for exercise in data["exercises"]:
        del exercise["left"]
    assert rows.from_dict(data).exercises[0].left == ()


@pytest.mark.quick
def test_the_page_says_what_a_cell_was_graded_without():
    exercise = ExerciseRow("pass_right", "Exercise 0.1", "pass", 4.0, 4.0, taken_out=("files = !ls",))
    page = feedback_page.page(GradeRow("anna", START, "anna.ipynb", "graded", 4.0, 4.0, (exercise,)), {}, {})
    assert "only a notebook can run `files = !ls`" in page


@pytest.mark.quick
@pytest.mark.parametrize("maker", ["loop", "nothing that is known"])
def test_every_way_to_make_a_name_has_a_sentence(maker):
    assert LeftBehind("scale", maker, 3).sentence.endswith("Define it in the exercise's cell.")
