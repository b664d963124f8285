"""`worldsize sample-class`: who is in the class, and what each of them hands in."""

import json
from pathlib import Path

import pytest

from worldsize.cells import text
from worldsize.checks import CHECKS
from worldsize.grade import course
from worldsize.grade.sample_class import MISTAKES, hand_in

ROOT = Path(__file__).resolve().parents[2]
LABS = course.stems(ROOT)


def answers(path: Path) -> dict[str, str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    named = {cell["metadata"].get("nbgrader", {}).get("grade_id"): cell for cell in cells}
    return {name: text(cell) for name, cell in named.items() if name in CHECKS}


@pytest.mark.parametrize("stem", LABS)
def test_one_student_has_every_answer_and_the_next_ones_have_not(stem, tmp_path):
    references = {exercise.id: exercise.reference for exercise in course.load(ROOT)[stem].exercises}
    all_of_it, mistaken, half = (answers(one.path) for one in hand_in(tmp_path / "class", ROOT, stem, 3))
    assert all_of_it == references
    assert sum(mistaken[name] != references[name] for name in references) == 1
    assert half != references


@pytest.mark.parametrize("lab", MISTAKES)
def test_a_mistake_is_one_of_an_exercise_of_its_lab(lab):
    stem = course.stem_of(ROOT, lab, "test")
    assert MISTAKES[lab][0] in {exercise.id for exercise in course.load(ROOT)[stem].exercises}


def test_what_it_says_of_a_student_is_what_the_notebook_holds(tmp_path):
    made = hand_in(tmp_path / "class", ROOT, "06_ring_all_reduce", 4)
    assert [one.answers for one in made] == [
        "every answer",
        "every answer, with a mistake in Exercise 6.5",
        "3 of 5 answers",
        "every answer",
    ]


def test_forty_students_have_forty_names(tmp_path):
    made = hand_in(tmp_path / "class", ROOT, LABS[0], 40)
    assert len({one.student for one in made}) == 40 and all(one.path.is_file() for one in made)


def test_a_folder_that_is_there_is_refused_and_keeps_what_it_has(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="expected a new folder, got an existing one"):
        hand_in(tmp_path, ROOT, LABS[0], 3)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_no_student_at_all_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected 1 student or more, got 0"):
        hand_in(tmp_path / "class", ROOT, LABS[0], 0)


def test_a_course_without_solutions_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs" / f"{LABS[0]}.ipynb").write_bytes((ROOT / "labs" / f"{LABS[0]}.ipynb").read_bytes())
    with pytest.raises(ValueError, match="expected the course's answers"):
        hand_in(tmp_path / "class", tmp_path, LABS[0], 3)
    assert not (tmp_path / "class").exists()
