"""No honest point is lost: every submission of `honest` earns all that its code is worth."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.grade.honest import POINTS, ROOT, SUBMISSIONS
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.marking.batch import grade
from worldsize.grade.marking.rows import GradeRow

for kind in ("styles", "helpers", "splits", "saved"):
    import_module(f"tests.grade.honest.{kind}")

pytestmark = pytest.mark.timeout(900)

BY_NAME = {one.name: one for one in SUBMISSIONS}


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


@pytest.mark.parametrize("name", BY_NAME)
def test_no_point_is_lost(rows, name):
    row = rows[name]
    assert row.points == POINTS[BY_NAME[name].lab], row
