"""Marks as Canvas's and Moodle's CSV: whose, of which lab, and nothing in it that a spreadsheet would run."""

import csv
import io
from dataclasses import replace

import pytest

from worldsize.grade.marking.rows import ExerciseRow, GradeRow
from worldsize.grade.marking.tamper import Tamper, sentence
from worldsize.grade.reports import canvas_csv, moodle_csv, needs_a_person
from worldsize.grade.reports.mark_sheet import MarkSheet

pytestmark = pytest.mark.quick
RING, START = "06_ring_all_reduce", "00_start_here"


def row(student: str, lab: str = RING, points: float = 4.5, state: str = "graded", **more: object) -> GradeRow:
    return GradeRow(student, lab, f"{student}/{lab}.ipynb", state, points, 6.0, **more)


def lines(sheet: MarkSheet) -> list[list[str]]:
    return list(csv.reader(io.StringIO(sheet.text)))


def test_canvas_gets_a_column_a_lab_and_the_possible_points_under_the_heads():
    heads, possible, *students = lines(canvas_csv.export([row("doejane_12"), row("doejane_12", START, 4)]))
    assert heads == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", START, RING]
    assert possible == ["    Points Possible", "", "", "", "", "6", "6"]
    assert students == [["doejane", "12", "", "", "", "4", "4.5"]]


def test_a_lab_that_a_student_did_not_hand_in_stays_empty_in_canvas():
    *_, one, other = lines(canvas_csv.export([row("a_1"), row("b_2", START, 3)]))
    assert (one[5:], other[5:]) == (["", "4.5"], ["3", ""])


def test_moodle_gets_its_identifier_and_one_labs_marks():
    heads, student = lines(moodle_csv.export([row("Jane Doe_4711"), row("Jane Doe_4711", START, 1)], RING))
    assert heads == ["Identifier", "Full name", "Grade", "Maximum grade", "Last modified (grade)", "Feedback comments"]
    assert student[:5] == ["Participant 4711", "Jane Doe", "4.5", "6", "-"]


def test_moodles_comment_says_what_each_exercise_earned_and_the_first_mismatch():
    exercise = ExerciseRow("ring", "Exercise 6.5: the ring", "fail", 0.5, 1.5, mismatch="rank 2: expected 12, got 7")
    *_, student = lines(moodle_csv.export([row("Jane_1", exercises=(exercise,))], RING))
    told = "World Size, 06_ring_all_reduce<br>4.5 of 6 points.<br>Exercise 6.5: the ring: 0.5 of 1.5. rank 2: expected 12, got 7"
    assert student[5] == told


def test_moodles_comment_says_of_an_exercise_left_open_that_it_is_not_written():
    exercise = ExerciseRow("ring", "Exercise 6.5", "not yet", 0.0, 1.5, mismatch="Exercise 6.5: a ring")
    *_, student = lines(moodle_csv.export([row("Jane_1", exercises=(exercise,))], RING))
    assert student[5].endswith("<br>Exercise 6.5: 0 of 1.5. Not written yet.")


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1+1", "-1+1", "@SUM(A1)", "\t=1", " =1", "\r=1"])
def test_a_name_that_a_spreadsheet_would_run_gets_an_apostrophe(name):
    *_, student = lines(moodle_csv.export([row(f"{name}_1")], RING))
    assert student[1] == f"'{name}"


def test_a_mismatch_that_a_spreadsheet_would_run_never_begins_a_comment():
    exercise = ExerciseRow("ring", "=1+1", "fail", 0, 1)
    *_, student = lines(moodle_csv.export([row("Jane_1", reason="=1+1", exercises=(exercise,))], RING))
    assert student[5].startswith("World Size") and "=1+1" in student[5]


def test_quotes_commas_and_line_breaks_survive():
    *_, student = lines(moodle_csv.export([row('Jane "JJ", Doe_1', reason="two\nlines")], RING))
    assert student[1] == 'Jane "JJ", Doe' and student[5].endswith("<br>two<br>lines")


def test_every_field_is_quoted():
    sheet = canvas_csv.export([row("doejane_12")])
    assert all(part.startswith('"') and part.endswith('"') for part in sheet.text.strip().split("\r\n"))


@pytest.mark.parametrize("name", ["jane", "submission_4711"])
def test_a_student_without_a_number_is_named_and_left_out(name):
    sheet = canvas_csv.export([row(name), row("doe_12")])
    assert sheet.unknown == (name,) and len(lines(sheet)) == 3


def test_what_could_not_be_graded_stays_empty():
    sheet = canvas_csv.export([row("doe_12", points=0, state="ungradable", reason="no notebook")])
    assert lines(sheet)[-1][5] == ""


def unsure(*rows: GradeRow) -> list[str]:
    return [need.words for need in needs_a_person.unsure(rows)]


LOST = Tamper("exercise missing", "Exercise 6.1", "parameter_server")
REASONS = [
    ({"unsafe": True, "tamper": (LOST,)}, "graded without a sandbox"),
    ({"tamper": (LOST,)}, sentence(LOST)),
    ({"tamper": (LOST, LOST)}, "2 exercises missing"),
    ({"tamper": (LOST,), "reason": "the time was up"}, "the time was up"),
]


@pytest.mark.parametrize(("more", "why"), REASONS)
def test_what_a_person_should_look_at_is_named(more, why):
    assert unsure(row("doe_12", **more)) == [f"doe_12, {RING}: {why}"]


def test_a_lab_that_nobody_handed_in_is_refused():
    with pytest.raises(ValueError, match=rf"expected a lab that was graded \({RING}\), got '07'"):
        moodle_csv.export([row("doe_12")], "07")


def test_a_folder_without_a_grading_is_refused():
    with pytest.raises(ValueError, match="got none. Name the folder that `worldsize grade` wrote"):
        canvas_csv.export([])


DOUBLED = [
    ([("eve_4711", RING), ("victim_4711", RING)], "number 4711 is the number of 'eve_4711' and of 'victim_4711'"),
    ([("eve_04711", RING), ("victim_4711", START)], "number 4711 is the number of 'eve_04711' and of 'victim_4711'"),
    ([("eve_0", RING), ("victim_00", RING)], "number 0 is the number of 'eve_0' and of 'victim_00'"),
    ([(f"eve_{'9' * 200}", RING), (f"victim_{'9' * 200}", RING)], f"number {'9' * 200} is the number of"),
    ([("Eve_7", RING), ("eve_7", RING)], "number 7 is the number of 'Eve_7' and of 'eve_7'"),
    ([("eve_7", RING), ("eve_7", RING)], f"number 7 is the number of 'eve_7' (twice {RING})"),
    ([("e\nve_7", RING), ("eve_7", RING)], "number 7 is the number of 'e\\nve_7' and of 'eve_7'"),
]


@pytest.mark.parametrize(("students", "words"), DOUBLED)
@pytest.mark.parametrize("lab", ["", RING])
def test_a_number_that_two_have_is_in_no_line_and_is_named_with_the_next_step(students, words, lab):
    rows = [*(row(student, of, k) for k, (student, of) in enumerate(students)), row("doe_12")]
    if lab:
        rows = [replace(one, lab=RING) for one in rows]
    sheet = moodle_csv.export(rows, lab) if lab else canvas_csv.export(rows)
    names = [line[1] if lab else line[0] for line in lines(sheet)[1 if lab else 2 :]]
    assert names == ["doe"]
    (told,) = sheet.doubled
    assert told.startswith(words) and told.endswith("and grade again") or lab


def test_a_number_that_two_have_in_other_labs_is_one_students_in_moodles_sheet_of_one_lab():
    sheet = moodle_csv.export([row("jane_7", START), row("janet_7", RING)], RING)
    assert (lines(sheet)[-1][1], sheet.doubled) == ("janet", ())


def test_one_with_several_labs_is_not_doubled():
    assert canvas_csv.export([row("jane_7", START), row("jane_7", RING), row("jane_7", "")]).doubled == ()


@pytest.mark.parametrize("points", [0, 4.5])
def test_what_the_grader_lost_is_no_mark_in_any_sheet_and_is_named(points):
    lost = row("doe_12", points=points, state="lost", reason="it was killed")
    canvas, moodle = canvas_csv.export([lost]), moodle_csv.export([lost], RING)
    assert (lines(canvas)[-1][5], lines(moodle)[-1][2]) == ("", "")
    assert unsure(lost) == [f"doe_12, {RING}: no mark, the grader lost it: it was killed. Run `worldsize grade` again"]


@pytest.mark.parametrize("name", ["\u202eeoD", "Do\ne", "Zoë 2", "=1+1"])
def test_every_line_of_a_sheet_has_all_its_columns_whatever_a_name_says(name):
    sheet = canvas_csv.export([row(f"{name}_1"), row("doe_12")])
    assert {len(line) for line in lines(sheet)} == {6}


def test_a_number_in_other_digits_is_none():
    assert canvas_csv.export([row("eve_\u0664\u0667")]).unknown == ("eve_\u0664\u0667",)
