"""No honest point is lost: every submission of `honest` earns all that its code is worth."""

from importlib import import_module

import pytest

from tests.grade.honest import POINTS, ROOT, SUBMISSIONS
from tests.support.graded_arena import mark_here
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.marking.grade_folder import grade
from worldsize.grade.marking.rows import GradeRow

for kind in ("styles", "helpers", "splits", "saved", "ipython"):
    import_module(f"tests.grade.honest.{kind}")

pytestmark = pytest.mark.timeout(900)

BY_NAME = {one.name: one for one in SUBMISSIONS}
# each goes another way through what gathers and repairs cells; the soak has all of them
USUAL = [
    "style_class_with_methods", "style_time_magic", "helper_beside_one_that_fails", "import_in_try", "ring_helper_on_set_up",
    "split_after_a_helper_second", "cells_in_another_order", "saved_by_colab_without_nbgrader", "saved_in_format_3",
    "ipython_async_constant", "ipython_shell_in_a_helper_s_cell",
]  # fmt: skip


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GradeRow]:
    """The row of each, all from one batch."""
    try:
        best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))

    folder = tmp_path_factory.mktemp("honest")
    for one in SUBMISSIONS:
        (folder / "submitted" / one.name).mkdir(parents=True)
        one.make(folder / "submitted" / one.name / f"{one.lab}.ipynb")
    return {row.student: row for row in grade(folder / "submitted", folder / "grades", jobs=2, root=ROOT).rows}


def test_there_are_sixty_submissions_and_more_of_names_of_their_own():
    assert len(SUBMISSIONS) == len(BY_NAME) >= 60


@pytest.mark.parametrize("name", USUAL)
def test_no_point_of_one_of_each_kind_is_lost(sandbox, tmp_path, name):
    one = BY_NAME[name]
    path = tmp_path / f"{one.lab}.ipynb"
    one.make(path)
    row = mark_here(sandbox, path, one.lab, name)
    assert row.points == POINTS[one.lab], row


@pytest.mark.soak
@pytest.mark.parametrize("name", BY_NAME)
def test_no_point_is_lost(rows, name):
    row = rows[name]
    assert row.points == POINTS[BY_NAME[name].lab], row
