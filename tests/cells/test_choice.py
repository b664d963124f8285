"""Which cells count: of the cells that ran, and of a saved notebook; and which set-up cells are not the release's."""

import pytest

from worldsize.cells import AskedExercise, ChosenCells, NotebookCell, changed_setups, chosen, digest, taken_along

pytestmark = pytest.mark.quick

SETUP = "# Set-up\nimport math"
FIRST = "# Exercise 6.1: a server\ndef server(x):\n    return math.floor(x)"
SECOND = "# Exercise 6.2: a ring\ndef ring(x):\n    return server(x) + helper(x)"
RING = AskedExercise("ring", "Exercise 6.2", "", ("ring",))
SERVER = AskedExercise("server", "Exercise 6.1", "", ("server",))


def ran(*sources: str, asked: tuple[AskedExercise, ...] = ()) -> ChosenCells:
    return chosen([NotebookCell("code", source) for source in sources], asked, ran=True)


def counting(choice: ChosenCells) -> list[str]:
    return [*choice.setups, *(cell.source or "" for cell in choice.exercises.values())]


def test_only_cells_with_a_title_count_in_the_order_of_their_numbers():
    choice = ran(SECOND, "helper = len", SETUP, "", "x = 1\n# Exercise 6.9: not at the top", FIRST)
    assert counting(choice) == [SETUP, FIRST, SECOND]


def test_the_latest_version_of_an_exercise_counts():
    later = FIRST.replace("floor", "ceil")
    assert counting(ran(FIRST, later)) == [later]


def test_a_version_that_python_cannot_parse_leaves_the_one_before_it_and_its_error():
    choice = ran(FIRST, f"{FIRST}\nx = (")
    assert counting(choice) == [FIRST]
    assert choice.broken.keys() == {"Exercise 6.1"}
    assert not ran(FIRST, f"{FIRST}\nx = (", FIRST).broken


def test_exercise_ten_comes_after_exercise_nine():
    sources = [f"# Exercise 6.{n}: x" for n in (10, 9)]
    assert counting(ran(*sources)) == sources[::-1]


def test_a_set_up_cell_that_ran_twice_counts_once():
    other = "# Set-up\nimport re"
    assert counting(ran(SETUP, other, SETUP)) == [SETUP, other]


def test_a_cell_that_lost_its_title_is_found_by_the_function_of_the_exercise_that_is_asked():
    untitled = SECOND.partition("\n")[2]
    choice = ran(FIRST, untitled, "helper = len", asked=(RING,))
    assert choice.exercises["Exercise 6.2"].by == "what it says"
    assert (counting(choice), choice.own) == ([FIRST, untitled], {2: "helper = len"})
    assert counting(ran(FIRST, untitled)) == [FIRST]


def saved(*cells: NotebookCell) -> ChosenCells:
    return chosen(cells, [SERVER, RING])


@pytest.mark.parametrize(
    ("cell", "by"),
    [
        (NotebookCell("code", "ring = len", id="ring"), "name"),
        (NotebookCell("code", SECOND, id="x"), "title"),
        (NotebookCell("code", f"%%time\n{SECOND}"), "title"),
        (NotebookCell("code", "ring = len"), "what it says"),
        (NotebookCell("raw", SECOND, id="ring"), "nothing"),
    ],
)
def test_an_exercise_is_found_by_its_name_else_its_title_else_its_function(cell, by):
    assert saved(NotebookCell("code", FIRST), cell).exercises["Exercise 6.2"].by == by


def test_cells_are_the_students_own_unless_they_have_a_title_or_a_name_of_the_lab():
    own = [NotebookCell("code", source) for source in ("helper = len", SETUP, "# Exercise 6.9: none", "# Example 6.1", FIRST)]
    checks = NotebookCell("code", "check.ring(ring)", grade_id="check_ring")
    assert saved(*own, checks, NotebookCell("markdown", "prose")).own == {0: "helper = len", 3: "# Example 6.1"}


def test_what_goes_along_is_the_same_for_a_saved_notebook_and_for_its_cells_run_once():
    cells = [NotebookCell("code", source) for source in (SETUP, "helper = len", FIRST, SECOND, "helper(3)")]
    exercises = [SERVER, RING]
    taken = taken_along(chosen(cells, exercises), exercises, ["math"])
    assert taken == taken_along(chosen(cells, exercises, ran=True), exercises, ["math"])
    assert [cell.source.strip() for cell in taken["ring"].cells] == ["helper = len"]


def test_nothing_goes_along_with_an_exercise_that_has_no_cell():
    cells = [NotebookCell("code", "helper = len"), NotebookCell("code", FIRST)]
    for is_run in (False, True):
        assert not taken_along(chosen(cells, [RING], is_run), [RING], [])["ring"].cells


def test_a_set_up_cell_that_is_not_as_released_is_named_by_its_first_line():
    released = [digest(SETUP)]
    assert changed_setups(ran(f"{SETUP}  \n", FIRST).setups, released) == []
    assert changed_setups(ran(f"{SETUP}\nimport re").setups, released) == ["import math"]
    assert changed_setups(ran(SETUP, "# Set-up").setups, released) == ["nothing"]


def test_a_set_up_cell_is_as_released_whatever_its_title_says_of_it():
    assert changed_setups([SETUP], [digest("# Set-up: the tools\nimport math")]) == []
