"""Every submission of `cheats` gets exactly the points that its code earned, and nothing outside changes."""

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import psutil
import pytest

from tests.grade.cheats import CASES, LAB, ROOT, Case
from tests.grade.cheats.endings import LEFT_BEHIND
from tests.support.graded_arena import SEED, mark_here
from tests.support.processes import LONG_S, below
from tests.support.submitted_code import missing_names
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import rows
from worldsize.grade.marking.grade_folder import FolderGrading, grade
from worldsize.grade.marking.rows import GradeRow

KINDS = ("honest", "endings", "walls", "forged", "damaged", "helpers", "floods")
for kind in KINDS:
    import_module(f"tests.grade.cheats.{kind}")

pytestmark = pytest.mark.timeout(900)

BY_NAME = {case.name: case for case in CASES}
# of each kind those that got through a wall once, or that go another way than the rest; the soak has all of them
USUAL = {
    "honest": ("the_plain_answer", "starts_a_process_of_its_own", "its_own_tensor"),
    "endings": ("loops", "leaves_in_the_cell", "kills_all_that_it_can", "leaves_a_process_behind"),
    "walls": ("through_a_file", "reads_a_check", "computes_the_others_inputs_from_its_seed"),
    "forged": ("equals_everything", "posts_as_another_rank", "patches_the_checks"),
    "damaged": ("claims_100_points", "half_of_the_file", "a_link_to_another_students_file"),
    "helpers": ("statements_beside_a_helper_are_not_run", "helper_reads_what_the_grader_knows"),
    "floods": ("names_the_same_bytes_many_times", "tells_values_by_the_shapes_of_messages_that_do_not_fit"),
}
BATCHES = {"usual": [name for names in USUAL.values() for name in names], "all": list(BY_NAME)}
# `loops` waits its limit out: the usual suite's is short, and what the others lose to a busy machine is not counted
LIMITS = Limits(case_s=4, wall_s=40, cpu_s=60, memory_bytes=1_000_000_000)
LIMITS_OF = {"usual": replace(LIMITS, case_s=2), "all": LIMITS}


def fingerprint(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def hand_in(folder: Path, names: Iterable[str]) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        BY_NAME[name].make(folder / name / f"{LAB}.ipynb")
    return folder


@pytest.fixture(scope="module")
def sandboxed() -> None:
    try:
        best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))


@dataclass(frozen=True)
class GradedCases:
    """One batch of cases: what was in the folders before and after it, and the resident bytes of the largest worker so far
    at a student's row."""

    names: list[str]
    out: Path
    batch: FolderGrading
    before: dict[Path, dict[str, str]]
    after: dict[Path, dict[str, str]]
    largest: dict[str, int]

    def row(self, name: str) -> GradeRow:
        (found,) = [row for row in self.batch.rows if row.student == name]
        return found


@pytest.fixture(scope="module", params=["usual", pytest.param("all", marks=pytest.mark.soak)])
def graded(request: pytest.FixtureRequest, sandboxed: None, tmp_path_factory: pytest.TempPathFactory) -> GradedCases:
    """A grading of cases beside what an instructor has lying about: a gradebook, other students' marks."""
    folder, names = tmp_path_factory.mktemp("course"), BATCHES[request.param]
    hand_in(folder / "submitted", names)
    with closing(sqlite3.connect(folder / "gradebook.db")) as book, book:
        book.execute("create table grade (student text, auto_score real)")
        book.execute("insert into grade values ('anna', 2.5)")
    (folder / "marks.csv").write_text("anna,2.5\n")

    largest: dict[str, int] = {}

    def note_memory(done: int, total: int, row: GradeRow) -> None:
        for worker in below("worldsize.grade.marking.worker_process"):
            with suppress(OSError):
                words = Path(f"/proc/{worker.pid}/status").read_text().split()
                largest[row.student] = max(largest.get(row.student, 0), 1024 * int(words[words.index("VmHWM:") + 1]))

    watched = [folder, ROOT / "worldsize" / "grade", ROOT / "worldsize" / "checks", ROOT / "datasets"]
    before = {place: fingerprint(place) for place in watched}
    out, limits = folder.parent / f"{folder.name}-grades", LIMITS_OF[request.param]
    made = grade(folder / "submitted", out, jobs=2, root=ROOT, limits=limits, seed=SEED, progress=note_memory)
    return GradedCases(names, out, made, before, {place: fingerprint(place) for place in watched}, largest)


def each(are: Callable[[Case], bool]) -> pytest.MarkDecorator:
    """(`graded`, a name of its batch) of the cases that `are` so."""
    rows = [
        pytest.param(batch, name, id=f"{batch}-{name}", marks=[pytest.mark.soak] * (batch == "all"))
        for batch, names in BATCHES.items()
        for name in names
        if are(BY_NAME[name])
    ]
    # one batch for all of them, whatever the name
    return pytest.mark.parametrize(("graded", "name"), rows, indirect=["graded"], scope="module")


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
def test_all_that_a_cheat_names_of_the_package_is_there():
    found = {case.name: set(missing_names(case.source)) - INVENTED for case in CASES if "worldsize" in case.source}
    assert {name: missing for name, missing in found.items() if missing} == {}


@pytest.mark.quick
def test_the_code_of_a_submission_is_python():
    for case in CASES:
        if case.source and case.name not in NO_PYTHON:
            compile(case.source, case.name, "exec")  # a SyntaxError names the case


@pytest.mark.quick
def test_there_are_more_than_forty_submissions_of_names_of_their_own_and_the_usual_ones_are_of_every_kind():
    assert len(CASES) == len(BY_NAME) >= 40
    assert tuple(USUAL) == KINDS and all(USUAL.values()) and set(BATCHES["usual"]) < set(BY_NAME)


@each(lambda case: True)
def test_a_submission_earns_what_its_code_is_worth(graded, name):
    case, found = BY_NAME[name], graded.row(name)
    assert (found.points, found.state in case.states) == (case.points, True), found
    assert bool(found.tamper) == case.tampered, found.tamper


@each(lambda case: bool(case.source))
def test_the_code_of_a_submission_came_as_far_as_its_trick(graded, name):
    found = graded.row(name)
    said = " ".join([found.reason, *(e.mismatch for e in found.exercises)])
    assert not BROKEN.search(said) and re.search(BY_NAME[name].reached, said), said


def test_no_worker_needs_more_than_512_megabytes(graded):
    largest = graded.largest
    assert len(largest) >= len(graded.names) - 2 and max(largest.values()) < 512_000_000, max(largest.items(), key=lambda x: x[1])


@pytest.mark.soak  # a wall-clock bound: on a machine with nobody else
@pytest.mark.parametrize("graded", ["all"], indirect=True)
def test_no_submission_takes_much_longer_than_it_may(graded):
    """10 s for what a worker does besides."""
    late = {r.student: r.seconds for r in graded.batch.rows if r.seconds > LIMITS.wall_s + 10}
    assert late == {}


def test_every_submission_has_one_row(graded):
    assert sorted(r.student for r in graded.batch.rows) == sorted(graded.names)
    assert graded.batch.graded == len(graded.names)


def test_no_file_outside_changed(graded):
    assert graded.before == graded.after


def test_no_process_is_left(graded):
    """Wherever it may have gone: what a case leaves behind has this process' number in its command."""
    left = [p for p in psutil.process_iter(["cmdline"]) if LEFT_BEHIND in " ".join(p.info["cmdline"] or [])]
    _, alive = psutil.wait_procs(left, timeout=LONG_S)
    assert alive == []
    assert below("worldsize.grade.marking.worker_process", recursive=True) == []


@pytest.mark.parametrize(
    "names",
    [
        ["leaves_notes_wherever_it_can", "reads_notes_of_another_submission"],
        pytest.param(
            ["leaves_notes_in_the_memory_of_a_file", "reads_notes_in_the_memory_of_a_file"], marks=pytest.mark.soak
        ),
    ],
    ids=["anywhere", "in a file's memory"],
)
def test_nothing_of_one_submission_survives_into_the_next(tmp_path, sandbox, names):
    """Both meet the same sandbox, one after the other."""
    folder = hand_in(tmp_path / "submitted", names)
    made = [mark_here(sandbox, folder / name / f"{LAB}.ipynb", LAB, name) for name in names]
    assert [(r.student, r.points) for r in made] == [(names[0], 4.0), (names[1], 0.0)]


def test_a_row_is_plain_text_whatever_a_submission_says(graded):
    for path in (graded.out / "rows").glob("*.json"):
        assert path.read_bytes().isascii()
    assert len(list(rows.read_all(graded.out))) == len(graded.names)
