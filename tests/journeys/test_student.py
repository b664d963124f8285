"""A student: the course from a wheel and from an instructor's zip, each installed as printed, and lab 00 to its last point.

Nothing is downloaded: pip finds the packages of the tests' environment, but for the course's own, as those already there.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.journeys.doors import ROOT, Entered, block, run_of
from tests.journeys.person import Person, environment, output_of, repository_copy
from tests.support import notebook_rules as rules
from tests.support.kernels import seconds_until

WHEEL = block("docs/faq.md", "pip install jupyterlab worldsize-*.whl")
FIRST = block("README.md", "# in this repository")
DOORS = [
    WHEEL.door, FIRST.door, "make setup", "make lab", run_of("00"),
    "worldsize start", "worldsize doctor", "worldsize run", "worldsize progress", "worldsize answers", "worldsize release",
]  # fmt: skip
LAB = "00_start_here.ipynb"
LIMIT_S = 240.0  # for an install and a start on busy cores
pytestmark = pytest.mark.timeout(3 * LIMIT_S)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, entered: Entered) -> Iterator[Person]:
    """A person with a copy of the repository, and pip without a network."""
    folder = tmp_path_factory.mktemp("built")
    with repository_copy(folder / "checkout") as copy:
        yield Person(copy, entered, without_network(folder))


def without_network(folder: Path) -> dict[str, str]:
    """Return the environment in which pip has the tests' packages, but for the course, and no index."""
    packages = folder / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("worldsize", "__editable__")) and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    env = environment(PYTHONPATH=str(packages), PIP_NO_INDEX="1", PIP_NO_BUILD_ISOLATION="0")
    # JupyterLab's own files lie beside the packages
    return env | {"JUPYTERLAB_DIR": f"{sys.prefix}/share/jupyter/lab", "JUPYTER_PATH": f"{sys.prefix}/share/jupyter"}


@contextmanager
def in_a_browser(person: Person, command: str) -> Iterator[str]:
    """Type a command that opens JupyterLab; yields the address that the browser gets. JupyterLab ends afterwards."""
    note = person.folder / "opened"
    browser = person.folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {note}.part && mv {note}.part {note}\n')
    browser.chmod(0o755)
    person.env |= {"BROWSER": f"{browser} %s", "JUPYTER_PORT": "0", "JUPYTER_RUNTIME_DIR": str(person.folder / "runtime")}
    with person.starts(command) as lab:
        seconds_until(lambda: note.exists() or lab.poll() is not None, LIMIT_S)
        assert note.exists(), f"{command}: JupyterLab did not open\n{lab.communicate()[0]}"
        page = Path(note.read_text().strip().removeprefix("file://")).read_text()
        yield re.search(r"http://[^\"']+", page)[0]


@pytest.fixture(scope="module")
def student(checkout: Person, tmp_path_factory: pytest.TempPathFactory, entered: Entered) -> Person:
    """A student with a new virtual environment in a folder with nothing but the wheel."""
    folder = tmp_path_factory.mktemp("student")
    (build,) = set(re.findall(r"`(pip wheel [^`]+)`", (ROOT / "docs" / "faq.md").read_text()))
    checkout.types(build, limit_s=LIMIT_S)
    shutil.copy(next((checkout.folder / "dist").glob("*.whl")), folder)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=LIMIT_S)
    programs = f"{folder / 'venv' / 'bin'}{os.pathsep}{checkout.env['PATH']}"
    return Person(folder, entered, checkout.env | {"PATH": programs})


@pytest.fixture(scope="module")
def opened(student: Person) -> str:
    """The address at which JupyterLab opened, after the wheel's command."""
    with in_a_browser(student, WHEEL.text) as address:
        student.entered.enter(WHEEL.door)
        student.folder /= "my-course"
        return address


def test_the_wheel_s_command_lays_every_lab_and_opens_jupyterlab_at_the_first(student: Person, opened: str) -> None:
    there = sorted(path.name for path in (student.folder / "labs").glob("[0-9][0-9]_*.ipynb"))
    assert there == sorted(path.name for path in (ROOT / "labs").glob("[0-9][0-9]_*.ipynb"))
    assert re.search(rf"/lab/tree/labs/{LAB}\?token=\w+", opened)


def test_the_package_is_the_wheel_s(student: Person, opened: str) -> None:
    place = student.types("python -c 'import worldsize; print(worldsize.__file__)'")
    assert Path(place).is_relative_to(student.folder.parent / "venv")


def test_the_doctor_runs_two_real_ranks(student: Person, opened: str) -> None:
    assert "the all-reduce is right" in " ".join(student.types("worldsize doctor").split())


def test_started_again_there_is_nothing_to_do(student: Person, opened: str) -> None:
    assert student.types("worldsize start --no-open").strip() == f"to come back: worldsize start {student.folder}"


@pytest.fixture(scope="module")
def solved(student: Person, opened: str) -> NotebookNode:
    """Lab 00 in a kernel of the student's environment, cell by cell, with the course's answer typed into the exercise."""
    path = student.folder / "labs" / LAB
    notebook = nbformat.read(path, as_version=4)
    reference = nbformat.read(ROOT / "solutions" / LAB, as_version=4)
    answers = {cell.id: cell.source for cell in reference.cells if cell.source.startswith("# Exercise")}
    client = NotebookClient(notebook, timeout=LIMIT_S, kernel_manager_class=kernel_of(student))
    with client.setup_kernel(cwd=str(path.parent), env=student.env):
        for place, cell in enumerate(notebook.cells):
            cell.source = answers.get(cell.id, cell.source)
            client.execute_cell(cell, place)
    nbformat.write(notebook, path)
    return notebook


def kernel_of(student: Person) -> type[AsyncKernelManager]:
    """Return a manager of kernels of this person's Python."""
    words = [shutil.which("python", path=student.env["PATH"]), "-m", "ipykernel_launcher", "-f", "{connection_file}"]

    class OfStudent(AsyncKernelManager):
        kernel_spec = KernelSpec(argv=words, language="python", display_name="Python")

    return OfStudent


def test_lab_00_is_solved_cell_by_cell_to_its_last_point(solved: NotebookNode) -> None:
    assert rules.errors(solved) == []
    assert "points: 4 of 4" in output_of(solved)


def test_progress_shows_the_points(student: Person, solved: NotebookNode) -> None:
    assert re.search(r"^00\t.*\t4 of 4\t", student.types("worldsize progress"), re.MULTILINE)


def test_the_answer_is_taken_out_of_the_notebook(student: Person, solved: NotebookNode) -> None:
    assert "1 answer (pass_right)" in student.types("worldsize answers 00 --out mine.py")
    student.types("python -c 'from mine import pass_right'")


@pytest.fixture(scope="module")
def unzipped(checkout: Person, tmp_path_factory: pytest.TempPathFactory, entered: Entered) -> Person:
    """A student with the unpacked bundle of `worldsize release`."""
    folder = tmp_path_factory.mktemp("unzipped")
    checkout.types(f"PYTHONPATH=. worldsize release {folder}/worldsize.zip", limit_s=LIMIT_S)  # the package of this checkout
    shutil.unpack_archive(folder / "worldsize.zip", folder)
    return Person(folder / "worldsize", entered, dict(checkout.env))


@pytest.fixture(scope="module")
def lab(unzipped: Person) -> str:
    """The address at which JupyterLab opened, after the README's first command."""
    readme = (unzipped.folder / "README.md").read_text()
    assert FIRST.text in readme
    unzipped.types("make setup", limit_s=LIMIT_S)
    with in_a_browser(unzipped, FIRST.commands[0]) as address:
        unzipped.entered.enter(FIRST.door)
        return address


def test_the_readme_s_command_installs_the_zip_and_opens_jupyterlab_at_the_first_lab(unzipped: Person, lab: str) -> None:
    assert re.search(rf"/lab/tree/labs/{LAB}\?token=\w+", lab) or re.search(rf"/lab/tree/{LAB}\?token=\w+", lab)


def test_a_lab_of_the_zip_runs_as_it_is_and_every_check_says_not_yet(unzipped: Person, lab: str) -> None:
    said = unzipped.types(". .venv/bin/activate && worldsize run 00 --out ran.ipynb", limit_s=LIMIT_S)
    assert "points: 0 of 4" in said
    executed = nbformat.read(unzipped.folder / "ran.ipynb", as_version=4)
    assert (rules.errors(executed), rules.silent_stubs(executed)) == ([], [])


def test_every_declared_door_was_entered(entered: Entered) -> None:
    entered.check()
