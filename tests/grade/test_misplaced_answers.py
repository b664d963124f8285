"""An answer that stands where a grade cannot take it: row, page and list say where, and the page gives no idle advice."""

import json
from pathlib import Path

import pytest

from tests.grade.honest import BODY, RIGHT, ROOT, START, TITLE, notebook
from tests.support.graded_arena import mark_here
from worldsize.cells import AnswerElsewhere
from worldsize.grade import course
from worldsize.grade.marking import rows
from worldsize.grade.marking.grading_record import GradedFolder
from worldsize.grade.marking.rows import ExerciseRow, GradeRow
from worldsize.grade.marking.tamper import Tamper
from worldsize.grade.outside.boxes import Sandbox
from worldsize.grade.reports import feedback_page, needs_a_person, table

STUB = course.load(ROOT)[START].exercises[0].stub
FUNCTION = "def pass_right(fabric, x):\n" + BODY


def marked(sandbox: Sandbox, tmp_path: Path, made: dict) -> GradeRow:
    path = tmp_path / f"{START}.ipynb"
    path.write_text(json.dumps(made))
    return mark_here(sandbox, path, START)


def test_a_row_has_the_place_of_an_answer_and_no_points_for_it(sandbox, tmp_path):
    row = marked(sandbox, tmp_path, notebook(STUB, below=FUNCTION))
    (exercise,) = row.exercises
    assert (exercise.state, exercise.points) == ("not yet", 0.0)
    assert [(one.kind, one.line) for one in exercise.elsewhere] == [("another cell", "def pass_right(fabric, x):")]
    assert rows.from_dict(json.loads(json.dumps(rows.to_dict(row)))) == row


@pytest.mark.parametrize("line", ["    return received +", "return 1"], ids=["a parser", "a compiler"])
def test_a_row_has_the_place_of_a_cell_that_a_parser_or_a_compiler_refuses(sandbox, tmp_path, line):
    (exercise,) = marked(sandbox, tmp_path, notebook(f"{RIGHT}\n{line}")).exercises
    (one,) = exercise.elsewhere
    assert (one.kind, one.line) == ("no Python", TITLE.strip()) and one.found.startswith("SyntaxError: ")


def test_a_row_names_the_cell_of_a_helper_that_is_no_python(sandbox, tmp_path):
    helper = "x = 1\n" + FUNCTION.replace("pass_right", "exchange") + "\n    return +"
    made = notebook(f"{TITLE}def pass_right(fabric, x):\n    return exchange(fabric, x)", above=helper)
    row = marked(sandbox, tmp_path, made)
    (one,) = row.exercises[0].left
    assert (one.name, one.maker, one.line) == ("exchange", "no Python", "def exchange(fabric, x):")
    assert "no Python, code cell" in listed(row)


def test_a_right_answer_has_no_other_place(sandbox, tmp_path):
    (exercise,) = marked(sandbox, tmp_path, notebook(RIGHT, below=FUNCTION)).exercises
    assert (exercise.state, exercise.elsewhere) == ("pass", ())


PLACE = AnswerElsewhere("another cell", "pass_right", 12, "import math")


def row_of(state: str, **more: object) -> GradeRow:
    tamper = more.pop("tamper", ())
    exercise = ExerciseRow("pass_right", "Exercise 0.1", state, 0.0, 4.0, **more)
    return GradeRow("anna", START, "anna.ipynb", "graded", 0.0, 4.0, (exercise,), tamper)


def listed(row: GradeRow) -> str:
    return "".join(need.words for need in needs_a_person.needs(GradedFolder((row,))) if need.kind == "elsewhere")


@pytest.mark.quick
def test_row_page_and_list_say_the_cell_and_its_first_line():
    row = row_of("not yet", elsewhere=(PLACE,))
    place = "code cell 12 (`import math`)"
    assert place in table.table([row]) and place in feedback_page.page(row, {}, {}) and place in listed(row)


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["another cell", "another name", "no code", "twice", "no Python"])
def test_every_place_has_a_sentence_with_what_to_do(kind):
    sentence = AnswerElsewhere(kind, "pass_right", 0 if kind == "no code" else 3, "import math", "raw").sentence
    assert "(`import math`)" in sentence and sentence.endswith(".")


IDLE = {
    "an answer elsewhere": row_of("fail", elsewhere=(PLACE,)),
    "a stub and an answer elsewhere": row_of("not yet", elsewhere=(PLACE,)),
    "other set-up cells": row_of("fail", tamper=(Tamper("set-up changed", "1", count=1),)),
}


@pytest.mark.quick
@pytest.mark.parametrize("why", IDLE)
def test_the_page_does_not_advise_a_check_that_passes_already(why):
    steps = " ".join(feedback_page.steps(IDLE[why], {}))
    assert "run its check" not in steps and "NotYet" not in steps
    assert "restart the kernel" in steps or PLACE.sentence in steps


@pytest.mark.quick
def test_an_exercise_with_points_by_hand_is_off_the_list():
    graded = GradedFolder((row_of("not yet", elsewhere=(PLACE,)),))
    assert [need.kind for need in needs_a_person.needs(graded, {("anna", START): None})] == []
