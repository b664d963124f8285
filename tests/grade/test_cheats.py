"""Every submission of `cheats` gets exactly the points that its code earned, and nothing outside changes."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import psutil
import pytest

from tests.grade.cheats import CASES, LAB, ROOT, Case
from tests.support.processes import below
from tests.support.submitted_code import missing_names
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import rows
from worldsize.grade.marking.batch import Batch, grade
from worldsize.grade.marking.rows import GradeRow

for kind in ("honest", "endings", "walls", "forged", "damaged", "helpers", "floods"):
    import_module(f"tests.grade.cheats.{kind}")

pytestmark = pytest.mark.timeout(900)

LIMITS = Limits(case_s=4, wall_s=40, cpu_s=60, memory_bytes=1_000_000_000)
BY_NAME = {case.name: case for case in CASES}


def fingerprint(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def hand_in(folder: Path, cases: list[Case]) -> Path:
    for case in cases:
        (folder / case.name).mkdir(parents=True)
        case.make(folder / case.name / f"{LAB}.ipynb")
    return folder


@pytest.fixture(scope="module")
def course_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an instructor has lying about: submissions, a gradebook, other students' marks."""
    folder = tmp_path_factory.mktemp("course")
    hand_in(folder / "submitted", CASES)
    with sqlite3.connect(folder / "gradebook.db") as book:
        book.execute("create table grade (student text, auto_score real)")
        book.execute("insert into grade values ('anna', 2.5)")
    (folder / "marks.csv").write_text("anna,2.5\n")
    return folder


@pytest.fixture(scope="module")
def batch(course_folder: Path) -> tuple[Batch, dict, dict]:
    """The batch, and what was in the folders before and after it."""
    try:
        best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))
    watched = [course_folder, ROOT / "worldsize" / "grade", ROOT / "worldsize" / "checks", ROOT / "datasets"]
    before = {folder: fingerprint(folder) for folder in watched}
    out = course_folder.parent / f"{course_folder.name}-grades"
    made = grade(course_folder / "submitted", out, jobs=2, root=ROOT, limits=LIMITS, progress=note_memory)
    return made, before, {folder: fingerprint(folder) for folder in watched}


LARGEST: dict[str, int] = {}  # resident bytes of the largest worker so far, at a student's row


def note_memory(done: int, total: int, row: GradeRow) -> None:
    for worker in below("worldsize.grade.marking.worker"):
        with suppress(OSError):
            words = Path(f"/proc/{worker.pid}/status").read_text().split()
            LARGEST[row.student] = max(LARGEST.get(row.student, 0), 1024 * int(words[words.index("VmHWM:") + 1]))


BROKEN = re.compile(r"\b(AttributeError|ImportError|ModuleNotFoundError|TypeError|KeyError|AssertionError)\b|is not defined")
NO_PYTHON = ("does_not_parse", "magic_of_the_notebook")
INVENTED = {"worldsize.fabric.left_behind"}  # set by a cheat, for the next one to find


@pytest.mark.quick
@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("import worldsize.units\nworldsize.units.number", []),
        ("import worldsize.units as u\nu.nothing = u.number", ["worldsize.units.nothing"]),
        ("def f():\n    from worldsize.unit import number", ["worldsize.unit.number"]),
        ("from worldsize.links import Link\nLink.absent", ["worldsize.links.Link.absent"]),
    ],
)
def test_a_name_of_the_package_that_is_not_there_is_seen(source, missing):
    assert missing_names(source) == missing


@pytest.mark.quick
@pytest.mark.parametrize("name", [case.name for case in CASES if "worldsize" in case.source])
def test_all_that_a_cheat_names_of_the_package_is_there(name):
    assert set(missing_names(BY_NAME[name].source)) <= INVENTED


@pytest.mark.quick
@pytest.mark.parametrize("name", [case.name for case in CASES if case.source and case.name not in NO_PYTHON])
def test_the_code_of_a_submission_is_python(name):
    compile(BY_NAME[name].source, name, "exec")


def test_there_are_more_than_forty_submissions_of_names_of_their_own():
    assert len(CASES) == len(BY_NAME) >= 40


@pytest.mark.parametrize("name", BY_NAME)
def test_a_submission_earns_what_its_code_is_worth(batch, name):
    case = BY_NAME[name]
    (found,) = [r for r in batch[0].rows if r.student == name]
    assert (found.points, found.state in case.states) == (case.points, True), found
    assert bool(found.tamper) == case.tampered, found.tamper


@pytest.mark.parametrize("name", [case.name for case in CASES if case.source])
def test_the_code_of_a_submission_came_as_far_as_its_trick(batch, name):
    (found,) = [r for r in batch[0].rows if r.student == name]
    said = " ".join([found.reason, *(e.mismatch for e in found.exercises)])
    assert not BROKEN.search(said) and re.search(BY_NAME[name].reached, said), said


def test_no_worker_needs_more_than_512_megabytes(batch):
    assert len(LARGEST) >= len(CASES) - 2 and max(LARGEST.values()) < 512_000_000, max(LARGEST.items(), key=lambda x: x[1])


def test_no_submission_takes_much_longer_than_it_may(batch):
    """10 s for what a worker does besides; it is no matter of chance on a busy machine."""
    late = {r.student: r.seconds for r in batch[0].rows if r.seconds > LIMITS.wall_s + 10}
    assert late == {}


def test_every_submission_has_one_row(batch):
    assert sorted(r.student for r in batch[0].rows) == sorted(BY_NAME)
    assert batch[0].graded == len(CASES)


def test_no_file_outside_changed(batch):
    _, before, after = batch
    assert before == after


def test_no_process_is_left(batch):
    words = [" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])]
    assert [w for w in words if "time.sleep(4242)" in w] == []
    assert below("worldsize.grade.marking.worker", recursive=True) == []


def test_nothing_of_one_submission_survives_into_the_next(tmp_path, batch):
    """One job, so that both meet the same sandbox, one after the other."""
    names = ["leaves_notes_wherever_it_can", "reads_notes_of_another_submission"]
    folder = hand_in(tmp_path / "submitted", [BY_NAME[name] for name in names])
    made = grade(folder, tmp_path / "out", jobs=1, root=ROOT, limits=LIMITS)
    assert [(r.student, r.points) for r in made.rows] == [(names[0], 4.0), (names[1], 0.0)]


def test_a_row_is_plain_text_whatever_a_submission_says(batch, course_folder):
    out = course_folder.parent / f"{course_folder.name}-grades"
    for path in (out / "rows").glob("*.json"):
        assert path.read_bytes().isascii()
    assert len(list(rows.read_all(out))) == len(CASES)
