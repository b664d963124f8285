"""What decides a mark changes the release, and nothing else does."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.grade.cheats import LAB, ROOT
from worldsize.grade import course
from worldsize.grade.marking.release_digests import release_digests

pytestmark = pytest.mark.quick

LABS = course.load(ROOT)


def changed(**more: object) -> dict[str, course.CourseLab]:
    """The course, with another first exercise in lab 00."""
    first, *others = LABS[LAB].exercises
    return LABS | {LAB: replace(LABS[LAB], exercises=(replace(first, **more), *others))}


@pytest.mark.parametrize("field", ["stub", "check", "reference", "title"])
def test_an_exercise_that_changes_is_another_release_of_its_lab_alone(field):
    before, after = release_digests(LABS), release_digests(changed(**{field: "x = 1"}))
    assert {lab for lab in before if before[lab] != after[lab]} == {LAB, ""}


def test_other_points_and_other_set_up_cells_are_another_release():
    assert release_digests(changed(points=5.0))[LAB] != release_digests(LABS)[LAB]
    assert release_digests(LABS | {LAB: replace(LABS[LAB], setups=("x = 1",))})[LAB] != release_digests(LABS)[LAB]


def test_the_heading_of_a_lab_is_no_other_release():
    assert release_digests(LABS | {LAB: replace(LABS[LAB], heading="Lab 0")}) == release_digests(LABS)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    names = ("checks/kit/judge.py", "grade/outside/sandboxed_run.py", "grade/reports/table.py", "figures/ring.py", "links.py")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1")
    return tmp_path


@pytest.mark.parametrize("name", ["checks/kit/judge.py", "grade/outside/sandboxed_run.py", "links.py", "checks/more.py"])
def test_a_source_that_decides_a_mark_is_another_release(package, name):
    before = release_digests(LABS, package)
    (package / name).write_text("x = 2")
    assert before[LAB] != release_digests(LABS, package)[LAB]


@pytest.mark.parametrize("name", ["grade/reports/table.py", "figures/ring.py", "cli/more.py", "checks/notes.txt"])
def test_a_source_that_only_shows_is_the_same_release(package, name):
    before = release_digests(LABS, package)
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text("x = 2")
    assert before == release_digests(LABS, package)


def test_what_moves_from_one_source_to_another_is_another_release(package):
    before = release_digests(LABS, package)
    (package / "links.py").rename(package / "lines.py")
    assert before[LAB] != release_digests(LABS, package)[LAB]
