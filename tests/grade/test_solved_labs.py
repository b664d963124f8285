"""Every lab with the course's own answers earns every point in the sandbox, and as it was released nothing."""

from __future__ import annotations

import json

import pytest

from tests.grade.cheats import ROOT, cell
from tests.support.graded_arena import mark_here
from worldsize.grade import course
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.marking.batch import grade
from worldsize.grade.marking.rows import GradeRow

pytestmark = pytest.mark.timeout(600)

RING = "06_ring_all_reduce"
LABS = sorted(path.stem for path in (ROOT / "labs").glob("[0-9]*.ipynb"))
UNTOUCHED = ("06_ring_all_reduce", "07_tensorflow_by_hand")  # one of each framework; the soak has every lab


def solved(stem: str) -> dict:
    """A lab's notebook with the course's own answers in its exercises."""
    notebook = json.loads((ROOT / "labs" / f"{stem}.ipynb").read_text())
    for exercise in course.load(ROOT)[stem].exercises:
        cell(notebook, exercise.id)["source"] = exercise.reference
    return notebook


def each(student: str, usual: tuple[str, ...]) -> pytest.MarkDecorator:
    rows = [pytest.param(student, stem, id=stem, marks=[pytest.mark.soak] * (stem not in usual)) for stem in LABS]
    return pytest.mark.parametrize(("student", "stem"), rows)


@pytest.fixture(scope="module")
def every_lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], GradeRow]:
    """{(student, lab): row} of the labs that tests of this run ask for, "solved" and "untouched", from one batch."""
    try:
        best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))

    folder = tmp_path_factory.mktemp("labs")
    asked = [item.callspec.params for item in request.session.items if "every_lab" in item.fixturenames]
    for student, stem in {(one["student"], one["stem"]) for one in asked}:
        untouched = (ROOT / "labs" / f"{stem}.ipynb").read_text()
        (folder / "submitted" / student).mkdir(parents=True, exist_ok=True)
        text = json.dumps(solved(stem)) if student == "solved" else untouched
        (folder / "submitted" / student / f"{stem}.ipynb").write_text(text)
    rows = grade(folder / "submitted", folder / "out", jobs=2, root=ROOT, seed=7).rows
    return {(made.student, made.lab): made for made in rows}


@each("solved", tuple(LABS))
def test_a_solved_lab_earns_every_point(every_lab, student, stem):
    made = every_lab[student, stem]
    assert [(e.id, e.state, e.mismatch) for e in made.exercises if e.state != "pass"] == []
    assert (made.state, made.points, made.possible) == ("graded", made.possible, course.load(ROOT)[stem].possible)


@each("untouched", UNTOUCHED)
def test_a_lab_as_it_was_released_earns_nothing(every_lab, student, stem):
    made = every_lab[student, stem]
    assert (made.state, made.points) == ("graded", 0)
    assert {e.state for e in made.exercises} == {"not yet"}


# ---- references --------------------------------------------------------------------------------


def test_an_exercise_that_builds_on_a_wrong_one_is_checked_with_the_reference(sandbox, tmp_path):
    wrong = solved(RING)
    cell(wrong, "reduce_scatter")["source"] = "# Exercise 6.3: reduce-scatter\ndef reduce_scatter(fabric, x):\n    return 0, 0\n"
    (tmp_path / f"{RING}.ipynb").write_text(json.dumps(wrong))
    made = mark_here(sandbox, tmp_path / f"{RING}.ipynb", RING)
    found = {e.id: e for e in made.exercises}
    assert (found["reduce_scatter"].state, found["ring_all_reduce"].state) == ("fail", "pass")
    assert found["ring_all_reduce"].helped == ("reduce_scatter",)
    assert (found["ring_all_reduce"].ranks, found["ring_all_reduce"].run) == (3, 1)  # the student's own, not the reference's
    assert found["ring_all_reduce"].mismatch.startswith("With the course's own `reduce_scatter` in place of yours: 1.5 points.")
    assert made.points == 4.5 + sum(p.points for p in found["reduce_scatter"].properties if p.passed)


def test_a_reference_is_never_shown(sandbox, tmp_path):
    """Where a run with the course's own answer fails, the words are those of the run with the student's."""
    tells = solved(RING)
    cell(tells, "reduce_scatter")["source"] = "# Exercise 6.3: x\ndef reduce_scatter(fabric, x):\n    return None\n"
    cell(tells, "ring_all_reduce")["source"] = (
        "# Exercise 6.5: x\nimport inspect\ndef ring_all_reduce(fabric, x):\n"
        "    raise ValueError(inspect.getsource(reduce_scatter) + repr(reduce_scatter.__code__.co_names))\n"
    )
    (tmp_path / f"{RING}.ipynb").write_text(json.dumps(tells))
    made = mark_here(sandbox, tmp_path / f"{RING}.ipynb", RING, "eve")
    assert "isend" not in made.exercises[-1].mismatch and "handle" not in made.exercises[-1].mismatch
