"""Progress over the course: what is counted, what comes next, and where it is read."""

import pytest

from worldsize.cells.released import EXERCISES
from worldsize.checks import CHECKS
from worldsize.lab.course_folder import labs_folder, notebook_of
from worldsize.lab.lab import Lab
from worldsize.lab.progress import course_progress, progress_in
from worldsize.lab.state import RETIRED

pytestmark = pytest.mark.quick


class Earned:
    def __init__(self, exercise, points, possible):
        self.exercise, self.points, self.possible = exercise, points, possible
        self.state = "pass" if points == possible else "fail"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLDSIZE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("WORLDSIZE_HEADLESS", "1")
    return tmp_path / "state"


def of(number, folder):
    return next(lab for lab in progress_in(folder).labs if lab.number == number)


def test_a_lab_that_keeps_nothing_is_to_be_begun(folder):
    assert (of("06", folder).next_step, of("06", folder).begun) == ("begin", False)


def test_points_and_predictions_are_counted_and_the_first_open_exercise_is_next(folder):
    lab = Lab("06")
    lab.predict("a", "A?", "s", answer=1)
    lab.predict("b", "B?", "s")
    first, *_ = EXERCISES["06"]
    lab.record(Earned(first, 1, 1))
    seen = of("06", folder)
    assert (seen.earned, seen.possible, seen.predicted, seen.asked) == (1, 6, 1, 2)
    assert seen.next_step.startswith("Exercise 6.2: ")


def test_a_lab_keeps_its_own_title_while_an_exercise_of_it_is_open(folder):
    lab = Lab("06")
    lab.predict("a", "A?", "s", answer=1)
    assert of("06", folder).open_exercise
    assert of("06", folder).title == lab.title


def test_points_of_an_exercise_that_a_later_release_took_out_count_no_more(folder):
    first, *_ = EXERCISES["01"]
    Lab("01").record(Earned("amdahl_fit", 1.5, 1.5))
    Lab("01").record(Earned(first, 1, 1.5))
    assert Lab("01").points == 1
    assert of("01", folder).earned == 1


def test_no_exercise_of_today_counts_as_taken_out():
    assert RETIRED.isdisjoint(CHECKS)


def test_an_exercise_with_points_missing_is_next_even_where_a_later_one_is_whole(folder):
    first, second, *_ = EXERCISES["06"]
    Lab("06").record(Earned(first, 0.5, 1))
    Lab("06").record(Earned(second, 1, 1))
    assert of("06", folder).next_step.startswith("Exercise 6.1: ")


def test_an_optional_exercise_is_never_next(folder):
    lab = Lab("11")
    for exercise, line in EXERCISES["11"].items():
        if not line.endswith("(optional)"):
            lab.record(Earned(exercise, 1, 1))
    assert of("11", folder).next_step == "done"


def test_after_the_exercises_come_the_predictions_and_then_nothing(folder):
    lab = Lab("06")
    for exercise in EXERCISES["06"]:
        lab.record(Earned(exercise, 1, 1))
    lab.predict("a", "A?", "s")
    assert of("06", folder).next_step == "predictions left: 1"
    lab.predict("a", "A?", "s", answer=2)
    assert of("06", folder).next_step == "done"


def test_a_damaged_file_is_named_and_left_as_it_is(folder):
    folder.mkdir()
    (folder / "lab_06.json").write_text("{")
    assert "damaged" in of("06", folder).next_step
    assert [path.name for path in folder.iterdir()] == ["lab_06.json"]
    assert (folder / "lab_06.json").read_text() == "{"


def test_the_total_is_that_of_the_labs(folder):
    Lab("00").record(Earned("pass_right", 4, 4))
    Lab("06").record(Earned("parameter_server", 1, 1))
    assert progress_in(folder).earned == 5


def test_it_is_read_beside_the_labs_from_any_folder_of_the_course(tmp_path, monkeypatch):
    monkeypatch.delenv("WORLDSIZE_STATE_DIR")
    (tmp_path / "labs" / "deeper").mkdir(parents=True)
    (tmp_path / "labs" / "00_start_here.ipynb").touch()
    monkeypatch.chdir(tmp_path / "labs")
    Lab("00").record(Earned("pass_right", 4, 4))
    for place in (tmp_path, tmp_path / "labs", tmp_path / "labs" / "deeper"):
        monkeypatch.chdir(place)
        assert (course_progress().earned, labs_folder()) == (4, tmp_path / "labs")


def test_a_lab_is_found_by_its_number_and_not_by_half_a_name(tmp_path, monkeypatch):
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs" / "06_ring_all_reduce.ipynb").touch()
    monkeypatch.chdir(tmp_path)
    assert notebook_of("6").name == notebook_of("06").name == "06_ring_all_reduce.ipynb"
    with pytest.raises(ValueError, match="The labs are: 06_ring_all_reduce"):
        notebook_of("06_ring")
