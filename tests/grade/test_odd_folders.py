"""Links, pipes, devices and folders among submissions: every command that takes such a folder ends, and others' files count."""

import json
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.grade.cheats import LAB, RIGHT, ROOT, TITLE, with_cell
from tests.support.quick_marking import quick_marking
from worldsize import cli
from worldsize.grade.marking import rows
from worldsize.grade.reports.feedback_page import appeal_number
from worldsize.lab.summary import HANDED_IN_MIME

_ENDS_S, _MOST_BYTES = 120, 4 << 30
ODD = ("link_to_device", "link_to_neighbour", "linked", "pipe", "folder")
pytestmark = pytest.mark.timeout(_ENDS_S)


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """A command that reads a device to its end runs out of memory, not the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def notebook(student: str) -> str:
    made = with_cell(f"{TITLE}{RIGHT}# {student}\n")
    asked = {"id": "lines", "question": "How many lines?", "unit": "lines", "predicted": 8.0, "measured": 4.0}
    data = {HANDED_IN_MIME: {"lab": LAB[:2], "predictions": [asked]}}
    made["cells"][-1] = {
        "cell_type": "code", "source": "lab.summary()", "metadata": {}, "id": "last",
        "outputs": [{"output_type": "display_data", "metadata": {}, "data": data}],
    }  # fmt: skip
    return json.dumps(made)


@pytest.fixture
def submitted(tmp_path: Path) -> Path:
    """Two honest students, and others with something else where a notebook should be."""
    folder = tmp_path / "submitted"
    places = {student: folder / student / f"{LAB}.ipynb" for student in ("anna", "ben", *ODD, "device")}
    for student, path in places.items():
        if student != "linked":
            path.parent.mkdir(parents=True)
    for student in ("anna", "ben"):
        places[student].write_text(notebook(student))
    places["link_to_device"].symlink_to("/dev/zero")
    places["link_to_neighbour"].symlink_to(places["anna"])
    (folder / "linked").symlink_to(places["anna"].parent)
    os.mkfifo(places["pipe"])
    places["folder"].mkdir()
    try:
        os.mknod(places["device"], stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        places["device"].parent.rmdir()
    return folder


@pytest.fixture
def grades(submitted: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    quick_marking(monkeypatch)
    assert worldsize("grade", submitted, "--out", submitted.parent / "grades", "--unsafe").exit_code == 0
    return submitted.parent / "grades"


def worldsize(*words: object) -> Result:
    return CliRunner().invoke(cli.app, [*map(str, words), "--course", str(ROOT)])


def test_grade_names_each_and_marks_the_others(grades, submitted):
    states = {row.student: row.state for row in rows.read_all(grades)}
    assert states == {path.name: "graded" if path.name in ("anna", "ben") else "ungradable" for path in submitted.iterdir()}


def test_similarity_names_each_and_compares_the_others(submitted):
    page = submitted.parent / "alike.html"
    answer = worldsize("similarity", submitted, "--out", page)
    assert answer.exit_code == 0, answer.output
    assert all(path.name in page.read_text() for path in submitted.iterdir())


def test_class_leaves_each_out_and_counts_the_others(grades, submitted):
    page = submitted.parent / "class.html"
    answer = worldsize("class", grades, submitted, "--out", page)
    assert answer.exit_code == 0, answer.output
    assert "0 of 2 within 5 %" in page.read_text()
    for student in ("link_to_device", "link_to_neighbour", "pipe"):
        assert f"no predictions read: '{student}/{LAB}.ipynb: " in answer.stderr


def test_feedback_writes_pages_beside_which_no_ticket_is_a_link_s(grades, submitted):
    (submitted / "anna" / "timestamp.txt").symlink_to("/dev/zero")
    os.mkfifo(submitted / "ben" / "timestamp.txt")
    answer = worldsize("feedback", grades, "--to", submitted.parent / "pages", "--submissions", submitted)
    assert answer.exit_code == 0, answer.output
    assert sorted(p.name for p in (submitted.parent / "pages" / "anna").iterdir()) == [f"{LAB}.html"]
    assert sorted(p.name for p in (submitted.parent / "pages" / "ben").iterdir()) == [f"{LAB}.html"]


def test_books_shows_the_others_in_formgrader(grades, submitted):
    answer = worldsize("books", grades, "--gradebook", submitted.parent / "gradebook.db", "--submissions", submitted)
    assert answer.exit_code == 0, answer.output
    made = (submitted.parent / "autograded").rglob("*.ipynb")
    assert sorted(path.relative_to(submitted.parent / "autograded").parts[0] for path in made) == ["anna", "ben"]


@pytest.mark.parametrize("student", ["link_to_device", "link_to_neighbour", "pipe"])
def test_an_appeal_says_that_the_file_is_not_the_marked_one(grades, submitted, student):
    [row] = [row for row in rows.read_all(grades) if row.student == student]
    answer = worldsize("appeal", appeal_number(row), grades, "--submissions", submitted)
    assert answer.exit_code != 0
    assert "expected the file that was marked" in answer.stderr
