"""A student's notebook and a newer release's: no answer is lost, and all that was not the student's is new."""

import json
from pathlib import Path

import pytest

from tests.support.small_course import cells_of, code, exercise, notebook, prose, sources
from worldsize.course.merged_lab import MergedLab, cell_digests, merged_lab
from worldsize.course.shipped_files import LABS

pytestmark = pytest.mark.quick

STUB = "# Exercise 6.1: a ring\nraise NotImplementedError"
ANSWER = "# Exercise 6.1: a ring\nreturn x"
OLD = notebook(prose("opening", "Old."), code("sizes", "ranks = 4"), exercise("ring", STUB), prose("end", "The end."))


def merged(theirs: bytes, new: bytes, laid: bytes = OLD) -> MergedLab:
    made = merged_lab(theirs, new, cell_digests(laid))
    assert made is not None
    return made


def with_cells(*pairs: tuple[str, dict]) -> bytes:
    """The old notebook with some cells in place of those of their ids."""
    changed = dict(pairs)
    return notebook(*(changed.get(cell["id"], cell) for cell in cells_of(OLD)))


MINE = with_cells(("ring", exercise("ring", ANSWER)))


def test_an_answer_stays_and_the_text_around_it_is_new() -> None:
    made = merged(MINE, with_cells(("opening", prose("opening", "New."))))
    assert sources(made.text) == ["New.", "ranks = 4", ANSWER, "The end."]
    assert (made.answers, made.revised) == (1, ())


def test_an_exercise_without_an_answer_is_the_new_one() -> None:
    new = "# Exercise 6.1: a ring\npass"
    made = merged(OLD, with_cells(("ring", exercise("ring", new))))
    assert new in sources(made.text) and made.answers == 0


def test_an_answer_to_an_exercise_whose_text_has_changed_stays_and_is_named() -> None:
    made = merged(MINE, with_cells(("ring", exercise("ring", "# Exercise 6.1: a ring\nraise NotImplementedError  # of chunks"))))
    assert ANSWER in sources(made.text) and made.revised == ("Exercise 6.1",)


def test_an_answer_stands_under_the_number_that_the_release_gives_its_exercise() -> None:
    made = merged(MINE, with_cells(("ring", exercise("ring", STUB.replace("6.1", "6.3")))))
    assert "# Exercise 6.3: a ring\nreturn x" in sources(made.text)


def test_a_cell_of_the_students_own_stays_below_the_one_that_it_followed() -> None:
    theirs = notebook(code("top", "mine"), *cells_of(OLD)[:2], code("own", "x = 1"), *cells_of(OLD)[2:])
    made = merged(theirs, notebook(prose("first", "New."), *cells_of(OLD)[1:]))
    assert sources(made.text) == ["mine", "New.", "ranks = 4", "x = 1", STUB, "The end."]
    assert made.own == 2


def test_a_size_that_the_student_has_changed_and_the_release_has_not_stays() -> None:
    theirs = with_cells(("sizes", code("sizes", "ranks = 8")))
    made = merged(theirs, with_cells(("opening", prose("opening", "New."))))
    assert sources(made.text)[:2] == ["New.", "ranks = 8"] and made.notes == 0


def test_a_cell_that_both_have_changed_is_the_new_one_and_the_students_stands_below_and_does_not_run() -> None:
    theirs = with_cells(("sizes", code("sizes", "ranks = 8")))
    made = merged(theirs, with_cells(("sizes", code("sizes", "ranks = 2"))))
    new, kept = cells_of(made.text)[1:3]
    assert new["source"] == "ranks = 2" and kept["source"].endswith("\nranks = 8")
    assert kept["cell_type"] == "raw" and made.notes == 1


def test_notes_that_a_student_wrote_into_a_text_that_has_changed_stay_as_text() -> None:
    theirs = with_cells(("opening", prose("opening", "Old. I think so.")))
    made = merged(theirs, with_cells(("opening", prose("opening", "New."))))
    assert [(cell["cell_type"], cell["source"]) for cell in cells_of(made.text)[:2]] == [
        ("markdown", "New."), ("markdown", "Old. I think so."),
    ]  # fmt: skip


def test_an_answer_to_an_exercise_that_the_release_no_longer_has_stays_and_does_not_run() -> None:
    made = merged(MINE, notebook(*(cell for cell in cells_of(OLD) if cell["id"] != "ring")))
    (kept,) = (cell for cell in cells_of(made.text) if cell["source"].endswith(ANSWER))
    assert kept["cell_type"] == "raw" and made.notes == 1


def test_a_text_that_the_release_no_longer_has_goes_where_the_student_left_it_as_it_was() -> None:
    made = merged(MINE, notebook(*cells_of(OLD)[:3]))
    assert sources(made.text) == ["Old.", "ranks = 4", ANSWER]


def test_an_answer_in_a_cell_that_the_student_made_anew_is_found_by_its_title() -> None:
    theirs = notebook(*cells_of(OLD)[:2], code("typed-again", ANSWER), cells_of(OLD)[3])
    made = merged(theirs, with_cells(("opening", prose("opening", "New."))))
    assert sources(made.text) == ["New.", "ranks = 4", ANSWER, "The end."]
    assert made.answers == 1


def test_the_outputs_of_a_cell_stay_where_its_code_does() -> None:
    theirs = with_cells(("sizes", code("sizes", "ranks = 4", "shown")), ("ring", exercise("ring", ANSWER)))
    made = merged(theirs, with_cells(("opening", prose("opening", "New."))))
    assert cells_of(made.text)[1]["outputs"][0]["text"] == "shown"


def test_a_cell_with_new_code_has_no_outputs_of_the_old() -> None:
    theirs = with_cells(("sizes", code("sizes", "ranks = 4", "shown")))
    made = merged(theirs, with_cells(("sizes", code("sizes", "ranks = 2"))))
    assert cells_of(made.text)[1]["outputs"] == []


def test_what_was_merged_is_merged_again_without_a_change() -> None:
    theirs = with_cells(("ring", exercise("ring", ANSWER)), ("sizes", code("sizes", "ranks = 8")))
    new = with_cells(("sizes", code("sizes", "ranks = 2")), ("opening", prose("opening", "New.")))
    once = merged(theirs, new)
    assert merged(once.text.encode(), new).text == once.text


NO_IDS = notebook(*({key: value for key, value in cell.items() if key != "id"} for cell in cells_of(OLD)))
UNREADABLE = {
    "no JSON": b"<<<<<<< mine",
    "a list": b"[]",
    "no cells": b"{}",
    "cells without ids": NO_IDS,
    "ids of another program": notebook(code("zX3", "x = 1")),
    "one id twice": notebook(*cells_of(OLD), cells_of(OLD)[0]),
    "a cell without a source": notebook({"id": "ring", "cell_type": "code"}),
}


@pytest.mark.parametrize("theirs", UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_whose_cells_are_not_known_is_not_merged(theirs: bytes) -> None:
    assert merged_lab(theirs, OLD, cell_digests(OLD)) is None


def test_every_answer_of_every_lab_is_in_the_merged_notebook(root: Path) -> None:
    for path in sorted(root.glob(LABS)):
        laid = path.read_bytes()
        theirs, new = json.loads(laid), json.loads(laid)
        answers = set()
        for cell in theirs["cells"]:
            if cell["metadata"].get("nbgrader", {}).get("solution"):
                cell["source"] = [*cell["source"][:1], f"answer = {cell['id']!r}"]
                answers.add("".join(cell["source"]))
        for cell in new["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = "New text."
        made = merged(json.dumps(theirs).encode(), json.dumps(new).encode(), laid)
        texts = {"".join(source) for source in sources(made.text)}
        assert answers and answers <= texts and made.answers == len(answers), path.name
        assert len(cells_of(made.text)) == len(new["cells"]), path.name
