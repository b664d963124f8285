"""The title of a cell: read with tolerance, written in one exact form."""

import pytest

from worldsize.titles import Title, title_of

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "title", [Title("Exercise", 6, 3, "reduce-scatter: a ring"), Title("Example", 12, 1), Title("Set-up")], ids=str
)
def test_a_title_reads_back_from_its_line(title):
    assert title_of(f"{title.line}  \nx = 1") == title


@pytest.mark.parametrize("first", ["#Exercise 6.3", " \n#  Exercise   6.3 : x", "# Exercise 06.03 of mine", "# Exercise 6.3:"])
def test_a_title_that_a_student_changed_is_known_by_its_numbers(first):
    title = title_of(f"{first}\nx = 1")
    assert str(title) == "Exercise 6.3"


def test_a_name_ends_with_its_line():
    assert title_of("# Exercise 6.3:\nx: int = 1") == Title("Exercise", 6, 3)


@pytest.mark.parametrize(
    "source", ["", "x = 1\n# Exercise 6.3", "# exercise 6.3", "# Exercise 6", f"# Exercise 6.{'3' * 5000}", "# Set-upset"]
)
def test_what_is_no_title_is_none(source):
    assert title_of(source) is None
