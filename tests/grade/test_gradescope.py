"""The Gradescope autograder: what its zip holds, and what it writes for submissions of every kind in a made-up container."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

from tests.grade.cheats import CASES, LAB, ROOT, with_cell
from tests.support.graded_arena import SEED, mark_here
from worldsize.grade import course
from worldsize.grade.gradescope.bundle import NAMED, autograder
from worldsize.grade.gradescope.results import memory_bytes, result
from worldsize.grade.gradescope.results import results as results_of
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.isolation.bubblewrap import NoSandbox
from worldsize.grade.marking.grade_folder import FolderGrading
from worldsize.grade.marking.grading_record import GradedFolder
from worldsize.grade.marking.rows import ExerciseRow, GradeRow
from worldsize.grade.outside.boxes import Sandbox

for kind in ("honest", "endings", "damaged"):
    import_module(f"tests.grade.cheats.{kind}")

pytestmark = pytest.mark.timeout(600)
BY_NAME = {case.name: case for case in CASES}
USUAL = ("its_own_tensor", "half_of_the_file")  # a mark in part, and none
NAMES = (*USUAL, "the_plain_answer", "leaves_in_the_cell")
_HANG_S = 250  # a bound against a hang


@pytest.fixture(scope="module")
def home(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `setup.sh` makes of the zip: the course, and a Python that has this package from there."""
    folder = tmp_path_factory.mktemp("opt")
    with zipfile.ZipFile(bundle) as packed:
        packed.extractall(folder / "zip")
    shutil.copytree(folder / "zip" / "course", folder / "home" / "course")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "home" / "venv")], check=True, timeout=_HANG_S)
    (packages,) = (folder / "home" / "venv").glob("lib/python*/site-packages")
    installed = [place for place in sys.path if place.endswith("site-packages")]
    (packages / "course.pth").write_text("\n".join([str(folder / "home" / "course"), *installed, ""]))
    return folder / "home"


def container(folder: Path, home: Path, make, *words: str, under: tuple[str, ...] = (), **settings: str) -> tuple[dict, str]:
    """Run the zip's own `run_autograder` on the file that `make(path)` writes: results.json, and what it printed."""
    (folder / "submission").mkdir(parents=True)
    make(folder / "submission" / f"{LAB}.ipynb")
    script = home.parent / "zip" / "run_autograder"
    environment = {"PATH": os.environ["PATH"], "AUTOGRADER": str(folder), "WORLDSIZE_HOME": str(home), **settings}
    done = subprocess.run(
        [*under, "bash", str(script), *words], env=environment, capture_output=True, text=True, timeout=_HANG_S, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "results" / "results.json").read_text()), done.stdout + done.stderr


def asked(request: pytest.FixtureRequest) -> list[str]:
    """The submissions that tests of this run ask for, the usual ones in any case."""
    of_tests = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    return [name for name in NAMES if name in USUAL or name in of_tests]


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    try:
        bubblewrap.best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))
    place = tmp_path_factory.mktemp("autograder")

    def one(name: str) -> tuple[str, dict]:
        return name, container(place / name, home, BY_NAME[name].make, "--seed", str(SEED))[0]

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(one, asked(request)))


@pytest.fixture(scope="module")
def rows(results: dict, sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, GradeRow]:
    """The same submissions, as `worldsize grade` marks them."""
    folder = tmp_path_factory.mktemp("grade")
    marked = {}
    for name in results:
        BY_NAME[name].make(folder / f"{name}.ipynb")
        marked[name] = mark_here(sandbox, folder / f"{name}.ipynb", LAB, name)
    return marked


def test_the_zip_holds_the_allow_list_and_one_lab(bundle):
    with zipfile.ZipFile(bundle) as packed:
        names = set(packed.namelist())
    assert {"setup.sh", "run_autograder", f"course/labs/{LAB}.ipynb", f"course/solutions/{LAB}.ipynb"} <= names
    of_course = {name.split("/")[1] for name in names if name.startswith("course/")}
    assert of_course == {"datasets", "labs", "solutions", "worldsize", *(n for n in NAMED if "/" not in n)}
    assert [n for n in names if n.startswith(("course/labs/", "course/solutions/")) and LAB not in n] == []


def test_the_same_files_make_the_same_bytes(repository, bundle, tmp_path):
    for path in repository.rglob("*"):
        path.touch()
    autograder(repository, tmp_path / "again.zip", LAB)
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()


def test_both_scripts_are_whole_and_can_be_run(bundle):
    with zipfile.ZipFile(bundle) as packed:
        for name in ("setup.sh", "run_autograder"):
            assert packed.getinfo(name).external_attr >> 16 == 0o100755
            subprocess.run(["bash", "-n"], input=packed.read(name), check=True, timeout=_HANG_S)
            assert re.search(rb"@[A-Z]+@", packed.read(name)) is None


def test_a_zip_for_no_lab_of_the_course_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected a lab of the course \(00_start_here, .*, got '99'"):
        autograder(ROOT, tmp_path / "out.zip", "99")


def test_setup_installs_under_the_constraints_and_closes_the_answers(home, tmp_path):
    """With programs in place of those that would fetch: each notes its words."""
    notes, programs = tmp_path / "notes", tmp_path / "bin"
    programs.mkdir()
    stub = f'#!/bin/bash\necho "${{0##*/}} $*" >> {notes}\nfor made in "${{@: -1}}"; do case $1 in\n'
    stub += "-m|venv) mkdir -p $made/bin; for p in pip uv python; do cp $0 $made/bin/$p; done;; esac; done\n"
    for name in ("apt-get", "python3"):
        (programs / name).write_text(stub)
        (programs / name).chmod(0o755)
    made = tmp_path / "home"
    (tmp_path / "autograder").mkdir()
    shutil.copytree(home.parent / "zip", tmp_path / "autograder" / "source")
    (programs / "chown").symlink_to(shutil.which("true"))  # as root it would give the answers to nobody
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "AUTOGRADER": str(tmp_path / "autograder"), "WORLDSIZE_HOME": str(made)}
    done = subprocess.run(["bash", str(home.parent / "zip" / "setup.sh")], env=environment, capture_output=True, timeout=_HANG_S)
    assert done.returncode == 0, done.stderr
    said = notes.read_text()
    assert "apt-get install -q -y --no-install-recommends bubblewrap" in said
    assert f"--torch-backend=cpu -c {made}/course/constraints.txt -e {made}/course[tensorflow]\n" in said
    closed = [made / "course" / "solutions", tmp_path / "autograder" / "source"]
    assert [path.stat().st_mode & 0o077 for path in closed] == [0, 0]
    assert (made / "course" / "worldsize" / "doctor.py").stat().st_mode & 0o044 == 0o044


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.soak] * (name not in USUAL)) for name in NAMES])
def test_a_result_says_what_the_row_says(results, rows, name):
    found, row = results[name], rows[name]
    assert found["score"] == row.points == BY_NAME[name].points
    assert found["extra_data"] == {
        "state": row.state, "seed": SEED, "digest": row.digest, "sandbox": bubblewrap.best_mode()
    }  # fmt: skip
    assert [(t["score"], t["max_score"]) for t in found["tests"]] == [(e.points, e.possible) for e in row.exercises]
    assert all(e.mismatch in t["output"] for e, t in zip(row.exercises, found["tests"], strict=True))


def test_every_result_has_the_fields_of_the_specification_as_plain_text(results):
    for found in results.values():
        assert (found["output_format"], found["stdout_visibility"], found["visibility"]) == ("text", "hidden", "visible")
        assert sum(test["score"] for test in found["tests"]) == found["score"]
        assert {test["status"] for test in found["tests"]} <= {"passed", "failed"}


def test_a_file_that_is_no_notebook_gets_no_points_and_a_reason(results):
    found = results["half_of_the_file"]
    assert (found["score"], found["tests"]) == (0, [])
    assert "it is not a notebook, or only part of one" in found["output"]


@pytest.fixture
def no_sandbox(tmp_path: Path) -> str:
    """A PATH with what the script needs, and no bubblewrap."""
    (tmp_path / "bin").mkdir()
    for program in ("bash", "mkdir", "cat", "timeout", "mktemp", "cp", "id", "chown", "rm"):
        (tmp_path / "bin" / program).symlink_to(shutil.which(program))
    return str(tmp_path / "bin")


@pytest.mark.soak  # the usual run has an unsafe grading in test_batch
def test_without_a_sandbox_and_unsafe_asked_for_the_result_says_so(home, tmp_path, no_sandbox):
    plain = BY_NAME["the_plain_answer"]
    found, said = container(tmp_path / "autograder", home, plain.make, "--unsafe", PATH=no_sandbox)
    assert (found["score"], found["extra_data"]["sandbox"]) == (plain.points, "unsafe")
    assert "Graded without a sandbox" in found["output"] and "expected bubblewrap" in said


REFUSES = "#!/bin/bash\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"


@pytest.mark.parametrize(
    "bwrap",
    [pytest.param(None, id="none there", marks=pytest.mark.soak), pytest.param(REFUSES, id="refused by the machine")],
)
def test_without_a_sandbox_nothing_is_graded_and_a_result_says_so(home, tmp_path, no_sandbox, bwrap):
    if bwrap:
        (Path(no_sandbox) / "bwrap").write_text(bwrap)
        (Path(no_sandbox) / "bwrap").chmod(0o755)
    found, said = container(tmp_path / "autograder", home, BY_NAME["the_plain_answer"].make, PATH=no_sandbox)
    assert (found["score"], found["tests"]) == (0, [])
    assert found["output"].startswith("Nothing was graded: no sandbox works here.")
    assert ("No permissions" if bwrap else "expected bubblewrap") in said and "bubblewrap" not in found["output"]


@pytest.mark.soak
def test_where_root_may_not_make_a_sandbox_an_ordinary_user_grades(home, results, tmp_path):
    """As in a container that drops CAP_SYS_ADMIN and lets users have namespaces of their own."""
    readable = all(path.stat().st_mode & 0o005 == 0o005 for path in (Path(sys.base_prefix), *Path(sys.base_prefix).parents))
    if os.getuid() or not readable or not shutil.which("setpriv"):
        pytest.skip("needs root, setpriv, and a Python that others can read")
    for folder in (home, *home.parents):
        folder.chmod(folder.stat().st_mode | 0o055)
    shutil.chown(home / "course" / "solutions", "nobody")
    (home / "course" / "solutions").chmod(0o700)
    plain = BY_NAME["the_plain_answer"]
    without = ("setpriv", "--inh-caps=-sys_admin", "--bounding-set=-sys_admin")
    found, said = container(tmp_path, home, plain.make, under=without)
    assert (found["score"], found["extra_data"]["sandbox"]) == (plain.points, "own"), said


def test_a_grader_that_is_ended_leaves_a_result_without_points(home, tmp_path):
    endless = with_cell("# Exercise 0.1: x\nwhile True: pass\n")
    found, said = container(
        tmp_path, home, lambda path: path.write_text(json.dumps(endless)), WORLDSIZE_LIMIT_S="0.5"
    )
    assert (found["score"], "autograder did not finish" in found["output"]) == (0, True)
    assert "the grader ended with code 124" in said


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: None, id="no file"),
        pytest.param(lambda path: shutil.rmtree(path.parent), id="no folder", marks=pytest.mark.soak),
    ],
)
def test_no_submission_is_a_result_without_points(home, tmp_path, make):
    found, _ = container(tmp_path, home, make)
    assert (found["score"], found["tests"]) == (0, [])


def test_a_submission_may_use_half_of_the_container_s_memory(tmp_path):
    (tmp_path / "memory.max").write_text("1000000000\n")
    (tmp_path / "other").write_text("max\n")
    files = [str(tmp_path / name) for name in ("memory.max", "other", "none")]
    assert memory_bytes(files) == 500_000_000
    assert memory_bytes(files[1:]) <= 2_000_000_000


@pytest.mark.parametrize("points", [5.0, float("inf"), -1.0])
def test_a_score_is_never_more_than_there_is_nor_less_than_nothing(points):
    row = GradeRow("anna", LAB, "x", "graded", points, 4.0, (ExerciseRow("x", "Exercise 0.1", "pass", points, 4.0),))
    assert 0 <= result(row, "own")["score"] <= 4


def test_what_the_grader_lost_is_nothing_graded_and_not_a_mark(tmp_path, monkeypatch, capsys):
    lost = GradeRow("submission", LAB, "x", "lost", possible=4.0, reason="it was killed")
    done = FolderGrading(GradedFolder((lost,)), 1, 7, "own")
    monkeypatch.setattr("worldsize.grade.marking.grade_folder.grade", lambda *_, **__: done)
    (tmp_path / "submission").mkdir()
    found = results_of(ROOT, LAB, tmp_path / "submission", unsafe=True)
    assert (found["score"], found["tests"]) == (0, []) and found["output"].startswith("Nothing was graded: the grader itself")
    assert "it was killed" in capsys.readouterr().err


def test_points_without_an_exercise_do_not_count():
    assert result(GradeRow("anna", LAB, "x", "crashed", 4.0, 4.0), "own")["score"] == 0


def test_an_unsafe_zip_says_so_in_the_script_alone(repository, bundle, tmp_path):
    autograder(repository, tmp_path / "unsafe.zip", LAB, unsafe=True)
    with zipfile.ZipFile(bundle) as safe, zipfile.ZipFile(tmp_path / "unsafe.zip") as unsafe:
        different = [name for name in safe.namelist() if safe.read(name) != unsafe.read(name)]
        assert different == ["run_autograder"]
        assert b" --unsafe " in unsafe.read("run_autograder") and b"--unsafe" not in safe.read("run_autograder")


def test_the_course_of_a_zip_has_the_lab_whole(home):
    assert list(course.load(home / "course")) == [LAB]
    assert all(exercise.reference for exercise in course.load(home / "course")[LAB].exercises)
