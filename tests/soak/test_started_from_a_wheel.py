"""A wheel and its sdist: their content, and where ranks find the data; `tests/journeys/test_student.py` starts a course from one.

The wheel is built with no network and installed into a fresh environment. The packages that the course needs are those of the
environment of the tests, by a line in the fresh one; the course's own package comes from the wheel alone.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
MOST_BYTES = 9_000_000
RUN_S = 600.0
IN_TWO_RANKS = """
from worldsize import data
from worldsize.launch import launch

def first_place():
    assert len(data.load("fashion-mnist").test_images) == 2_000 and data.bandwidths()
    return str(data.data_folders()[0])

if __name__ == "__main__":
    print(*launch(first_place, world_size=2).results, sep="\\n")
"""


def _run(words: list[str | Path], folder: Path, **variables: str) -> str:
    """Run a command in `folder`, and return what it printed."""
    left_out = ("VIRTUAL_ENV", "PYTHONPATH", "WORLDSIZE_DATA", "WORLDSIZE_STATE_DIR")
    env = {name: value for name, value in os.environ.items() if name not in left_out} | {"PIP_NO_INDEX": "1"} | variables
    done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, cwd=folder, env=env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of what the repository holds, with what earlier builds may have left in it."""
    copy = tmp_path_factory.mktemp("built") / "checkout"
    made = shutil.ignore_patterns(".git", ".venv", "build", "out", "__pycache__", "*.egg-info", ".*_cache", ".worldsize")
    shutil.copytree(ROOT, copy, ignore=made)
    stale = copy / "build" / "lib" / "worldsize" / "course" / "release" / "labs" / "99_of_an_earlier_build.ipynb"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}")
    yield copy
    shutil.rmtree(copy.parent)


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    out = checkout.parent / "dist"
    words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, "."]
    _run(words, checkout)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def fresh(wheel: Path) -> Path:
    """A fresh environment in which the wheel is installed; returns the folder of its programs."""
    environment = wheel.parent / "fresh"
    _run([sys.executable, "-m", "venv", "--without-pip", environment], wheel.parent)
    python = environment / "bin" / "python"
    _run([sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel], wheel.parent)
    places = Path(_run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], wheel.parent).strip())
    (places / "the_packages_of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin"


@pytest.fixture(scope="module")
def course(fresh: Path) -> Path:
    """The folder in which `worldsize start` was typed, empty until then."""
    folder = fresh.parent.parent / "empty"
    folder.mkdir()
    _run([fresh / "worldsize", "start", "--no-open"], folder)
    return folder


def test_the_wheel_is_as_large_as_the_faq_says_and_no_larger_than_a_class_can_be_sent(
    wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size_bytes = wheel.stat().st_size
    with capsys.disabled():
        print(f"\nthe wheel: {size_bytes / 1e6:.2f} MB")
    assert size_bytes < MOST_BYTES
    assert f"the whole course in {size_bytes / 1e6:.0f} MB" in (ROOT / "docs" / "faq.md").read_text()


def test_the_wheel_has_every_lab_as_it_is_in_the_repository_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        carried = {name: archive.read(name) for name in archive.namelist() if "/release/labs/" in name}
    labs = ROOT / "labs"
    in_repository = [labs / "AGENTS.md", *labs.glob("*.ipynb"), *(labs / "covers").glob("*.[ps][nv]g")]
    named = {f"worldsize/course/release/{path.relative_to(ROOT).as_posix()}": path.read_bytes() for path in in_repository}
    assert carried == named


def test_the_wheel_carries_no_solution_and_no_test(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        notebooks = "".join(archive.read(name).decode() for name in names if name.endswith(".ipynb"))
    assert [name for name in names if re.search(r"(^|/)(solutions?|tests?|mutants|bench)/", name)] == []
    assert "BEGIN SOLUTION" not in notebooks


def test_an_sdist_has_what_a_wheel_is_built_from_and_no_solution_and_no_test(checkout: Path, wheel: Path) -> None:
    code = "import setuptools.build_meta as b; print(b.build_sdist('dist'))"
    name = _run([sys.executable, "-c", code], checkout).split()[-1]
    with tarfile.open(checkout / "dist" / name) as archive:
        inside = {member.name.partition("/")[2] for member in archive if member.isfile()}
    with zipfile.ZipFile(wheel) as archive:
        carried = {name.partition("/release/")[2] for name in archive.namelist() if "/release/" in name}
    assert {"setup.py", *carried} <= inside
    assert [name for name in inside if name.startswith(("solutions/", "tests/", "bench/"))] == []


def test_a_wheel_is_not_built_from_a_lab_that_somebody_has_run(checkout: Path, wheel: Path) -> None:
    path = checkout / "labs" / "00_start_here.ipynb"
    before = path.read_bytes()
    notebook = json.loads(before)
    next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")["execution_count"] = 1
    path.write_text(json.dumps(notebook))
    code = "import setuptools.build_meta as b; b.build_wheel('dist')"
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, timeout=RUN_S)
    path.write_bytes(before)
    assert done.returncode == 1
    assert "expected labs without outputs, got outputs in labs/00_start_here.ipynb" in done.stderr


def test_ranks_that_are_started_there_find_the_data_in_the_courses_folder_first(course: Path, fresh: Path) -> None:
    program = course / "labs" / "two_ranks.py"
    program.write_text(IN_TWO_RANKS)
    assert _run([fresh / "python", program], course / "labs").split() == [str(course / "datasets")] * 2


def test_outside_a_course_the_data_come_with_the_package(fresh: Path, tmp_path: Path) -> None:
    program = tmp_path / "two_ranks.py"
    program.write_text(IN_TWO_RANKS)
    places = _run([fresh / "python", program], tmp_path).split()
    assert len(places) == 2 and all(place.endswith("worldsize/course/release/datasets") for place in places)
