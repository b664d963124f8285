"""Tables in `tests/checks/contracts/`: the clauses of a contract, where a check tries each, and the answers that miss it.

A table is written by hand, so a test can only hold what it names: every exercise has one, no cell is empty, and each answer
that a row names stands among the exercise's answers.
"""

import re
from pathlib import Path

import pytest

from tests.support.answers import ANSWERS
from worldsize.checks import CHECKS

FOLDER = Path(__file__).with_name("contracts")
HEAD = ["clause", "tried at", "wrong answers that show it"]
BY_NAME = {answers.exercise: answers for answers in ANSWERS}


def tables() -> dict[str, list[list[str]]]:
    """The rows below each exercise's heading, in all files. A heading that stands twice raises ValueError."""
    found: dict[str, list[list[str]]] = {}
    for path in sorted(FOLDER.glob("*.md")):
        for part in re.split(r"^## ", path.read_text(), flags=re.MULTILINE)[1:]:
            name, *lines = part.splitlines()
            if name in found:
                raise ValueError(f"{path.name}: {name} has a table already")
            found[name] = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")]
    return found


TABLES = tables()


def test_every_exercise_has_a_table_and_every_table_an_exercise():
    assert sorted(TABLES) == sorted(CHECKS)


@pytest.mark.parametrize("exercise", sorted(TABLES))
def test_no_cell_of_a_table_is_empty(exercise):
    head, _, *rows = TABLES[exercise]
    assert head == HEAD
    assert rows
    for row in rows:
        assert len(row) == len(HEAD), row
        assert all(row), row


@pytest.mark.parametrize("exercise", sorted(TABLES))
def test_each_answer_that_a_table_names_is_there(exercise):
    answers = BY_NAME[exercise]
    named = {name for row in TABLES[exercise][2:] for name in re.findall(r"`(\w+)`", row[-1])}
    assert named - {fn.__name__ for fn, *_ in (*answers.wrong, *answers.spoilt)} == set()


@pytest.mark.parametrize("exercise", sorted(TABLES))
def test_a_row_names_an_answer_or_says_none(exercise):
    for row in TABLES[exercise][2:]:
        assert row[-1] == "none" or re.findall(r"`(\w+)`", row[-1]), row
