"""Which cells count, and the namespace that they make by themselves."""

import pytest

from worldsize.lab import graded_cells

pytestmark = pytest.mark.quick

SETUP = "# Set-up\nimport math"
FIRST = "# Exercise 6.1: a server\ndef server(x):\n    return math.floor(x)"
SECOND = "# Exercise 6.2: a ring\ndef ring(x):\n    return server(x) + helper(x)"


def test_only_cells_with_a_title_count_in_the_order_of_their_numbers():
    counted = graded_cells.counting([SECOND, "helper = len", SETUP, "", "x = 1\n# Exercise 6.9: not at the top", FIRST])
    assert list(counted.values()) == [SETUP, FIRST, SECOND]


def test_the_latest_version_of_an_exercise_counts():
    later = FIRST.replace("floor", "ceil")
    assert list(graded_cells.counting([FIRST, later]).values()) == [later]


def test_exercise_ten_comes_after_exercise_nine():
    sources = [f"# Exercise 6.{n}: x" for n in (10, 9)]
    assert list(graded_cells.counting(sources).values()) == sources[::-1]


def test_a_set_up_cell_that_ran_twice_counts_once():
    other = "# Set-up\nimport re"
    assert list(graded_cells.counting([SETUP, other, SETUP]).values()) == [SETUP, other]


def test_the_rebuilt_namespace_has_what_the_cells_define_and_no_more():
    namespace = graded_cells.rebuild(graded_cells.counting([SETUP, FIRST, "helper = len"]))
    assert namespace["server"](2.7) == 2
    assert "helper" not in namespace


def test_a_cell_that_fails_does_not_stop_the_others():
    broken = "# Exercise 6.1: broken\n1 / 0"
    assert "ring" in graded_cells.rebuild(graded_cells.counting([broken, SECOND]))


def test_missing_names_are_found_through_the_functions_that_a_function_calls():
    caller = "# Exercise 6.3: calls\ndef caller(x):\n    return [ring(y) for y in x]"
    namespace = graded_cells.rebuild(graded_cells.counting([SETUP, FIRST, SECOND, caller]))
    assert graded_cells.missing_names(namespace["caller"], namespace) == ["helper"]


def test_builtins_attributes_and_locals_are_not_missing():
    source = "# Exercise 6.1: fine\ndef fine(x):\n    total = sum(x)\n    return math.pi, total.real, [y for y in x]"
    namespace = graded_cells.rebuild(graded_cells.counting([SETUP, source]))
    assert graded_cells.missing_names(namespace["fine"], namespace) == []


def test_a_set_up_cell_that_is_not_as_released_is_named_by_its_first_line():
    released = [graded_cells.digest(SETUP)]
    assert graded_cells.changed_setups(graded_cells.counting([f"{SETUP}  \n", FIRST]), released) == []
    assert graded_cells.changed_setups(graded_cells.counting([f"{SETUP}\nimport re"]), released) == ["import math"]
    assert graded_cells.changed_setups(graded_cells.counting([SETUP, "# Set-up"]), released) == ["nothing"]


def test_a_set_up_cell_is_as_released_whatever_its_title_says_of_it():
    released = [graded_cells.digest("# Set-up: the tools\nimport math")]
    assert graded_cells.changed_setups(graded_cells.counting([SETUP]), released) == []
