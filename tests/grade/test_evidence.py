"""Where every property of every check is seen: none that the answer's own process alone can see has points."""

import pytest

from tests.grade.evidence import PAGE, page, rows
from worldsize.checks import CHECKS, check_of
from worldsize.checks.kit.evidence import OWN_PROCESS

pytestmark = pytest.mark.quick


def test_the_table_has_every_property_of_every_check():
    assert {(row.exercise, row.name) for row in rows()} == {(name, each) for name in CHECKS for each in check_of(name).points}


def test_what_only_the_answers_own_process_can_see_has_no_points():
    assert [row for row in rows() if row.seen is OWN_PROCESS and row.points] == []


def test_the_page_is_the_table():
    assert PAGE.read_text(encoding="utf-8") == page(), f"{PAGE}: run `make pages`"
