"""The course's own answers, in the place of a student's failed one: what builds on it counts, and no reference is shown."""

import json

import pytest

from tests.grade.cheats import ROOT, cell
from tests.support.graded_arena import SEED, mark_here
from worldsize.grade import course
from worldsize.grade.frames import UNSEEN
from worldsize.grade.isolation.limits import Meter
from worldsize.grade.outside.arena import SandboxArena, Submitted

pytestmark = pytest.mark.timeout(600)

RING = "06_ring_all_reduce"


def solved(stem: str, *only: str) -> dict:
    """A lab's notebook with the course's own answers in its exercises, or in these alone."""
    notebook = json.loads((ROOT / "labs" / f"{stem}.ipynb").read_text())
    for exercise in course.load(ROOT)[stem].exercises:
        if not only or exercise.id in only:
            cell(notebook, exercise.id)["source"] = exercise.reference
    return notebook


def test_an_exercise_that_builds_on_a_wrong_one_is_checked_with_the_reference(sandbox, tmp_path):
    wrong = solved(RING, "all_gather", "ring_all_reduce")
    cell(wrong, "reduce_scatter")["source"] = "# Exercise 6.3: reduce-scatter\ndef reduce_scatter(fabric, x):\n    return 0, 0\n"
    (tmp_path / f"{RING}.ipynb").write_text(json.dumps(wrong))
    made = mark_here(sandbox, tmp_path / f"{RING}.ipynb", RING)
    found = {e.id: e for e in made.exercises}
    assert (found["reduce_scatter"].state, found["ring_all_reduce"].state) == ("fail", "pass")
    assert found["ring_all_reduce"].helped == ("reduce_scatter",)
    assert (found["ring_all_reduce"].ranks, found["ring_all_reduce"].run) == (3, 1)  # the student's own, not the reference's
    assert found["ring_all_reduce"].mismatch.startswith("With the course's own `reduce_scatter` in place of yours: 1.5 points.")
    helped = found["ring_all_reduce"].possible + found["all_gather"].possible
    assert made.points == helped + sum(p.points for p in found["reduce_scatter"].properties if p.passed)


def test_a_reference_is_never_shown(sandbox, tmp_path):
    """Where a run with the course's own answer fails, the words are those of the run with the student's."""
    tells = solved(RING, "all_gather")
    cell(tells, "reduce_scatter")["source"] = "# Exercise 6.3: x\ndef reduce_scatter(fabric, x):\n    return None\n"
    cell(tells, "ring_all_reduce")["source"] = (
        "# Exercise 6.5: x\nimport inspect\ndef ring_all_reduce(fabric, x):\n"
        "    raise ValueError(inspect.getsource(reduce_scatter) + repr(reduce_scatter.__code__.co_names))\n"
    )
    (tmp_path / f"{RING}.ipynb").write_text(json.dumps(tells))
    made = mark_here(sandbox, tmp_path / f"{RING}.ipynb", RING, "eve")
    assert "isend" not in made.exercises[-1].mismatch and "handle" not in made.exercises[-1].mismatch


def test_an_exercise_that_calls_one_that_is_not_written_is_checked_with_the_reference(sandbox, tmp_path):
    (tmp_path / f"{RING}.ipynb").write_text(json.dumps(solved(RING, "reduce_scatter", "ring_all_reduce")))
    made = mark_here(sandbox, tmp_path / f"{RING}.ipynb", RING)
    found = {e.id: e for e in made.exercises}
    assert (found["all_gather"].state, found["ring_all_reduce"].state) == ("not yet", "pass")
    assert found["ring_all_reduce"].helped == ("all_gather",)
    assert made.points == found["reduce_scatter"].possible + found["ring_all_reduce"].possible


def test_a_wrong_answer_that_calls_one_that_is_not_written_is_not_called_unwritten(sandbox, tmp_path):
    wrong = solved(RING, "reduce_scatter")
    calls = "def ring_all_reduce(fabric, x):\n    all_gather(fabric, 0, x)\n"
    cell(wrong, "ring_all_reduce")["source"] = f"# Exercise 6.5: x\n{calls}"
    (tmp_path / f"{RING}.ipynb").write_text(json.dumps(wrong))
    last = mark_here(sandbox, tmp_path / f"{RING}.ipynb", RING).exercises[-1]
    assert (last.state, last.points) == ("fail", 0.0)
    assert last.mismatch.startswith("It calls an exercise that is not written yet (Exercise 6.4")


def test_the_lines_of_a_reference_are_not_in_its_process(sandbox):
    lines_of = "import linecache\ndef lines_of(k):\n    return linecache.getlines(f'<Exercise 1.{k}>')\n"
    tells = f"{lines_of}def told(x):\n    return lines_of(1) + lines_of(2)"
    cells = [["Exercise 1.1", "def reference(x):\n    return x", UNSEEN], ["Exercise 1.2", tells]]
    arena = SandboxArena(sandbox, Meter(sandbox.limits), cells, SEED)
    (lines,) = arena.call(Submitted("told"), 1).returned
    assert "".join(lines) == tells
