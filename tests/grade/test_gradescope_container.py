"""The Gradescope autograder in Gradescope's own places: set up as root, and run on good and bad submissions."""

import json
import os
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests.grade.cheats import CASES, LAB, ROOT, TITLE, with_cell
from tests.support import gradescope_harness
from tests.support.gradescope_harness import Container, faults
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.isolation.bubblewrap import NoSandbox

import_module("tests.grade.cheats.honest")
pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
PLAIN = next(case for case in CASES if case.name == "the_plain_answer")
NOTEBOOK = f"{LAB}.ipynb"


@pytest.fixture(scope="module")
def container(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Container:
    why = gradescope_harness.refusal()
    if why:
        pytest.skip(why)
    try:
        bubblewrap.best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))
    return Container(bundle, tmp_path_factory.mktemp("gradescope"))


def plain(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        PLAIN.make(folder / name)


def test_the_image_is_set_up_where_the_zip_says_and_a_sandbox_works_there(container):
    home = container.opt / "worldsize"
    assert (home / "venv" / "bin" / "python").exists() and (home / "course" / "labs" / NOTEBOOK).is_file()
    assert "sandbox: " in container.setup and "sandbox: none" not in container.setup
    asked = (container.autograder / "apt-get").read_text()
    assert "install -q -y --no-install-recommends bubblewrap ca-certificates libseccomp2 python3 python3-venv" in asked
    places = "-c /opt/worldsize/course/constraints.txt -e /opt/worldsize/course"
    assert f"--torch-backend=cpu {places}" in (container.autograder / "uv").read_text()


def test_the_answers_and_the_zip_are_closed_to_everybody_but_the_grader(container):
    for folder in (container.opt / "worldsize" / "course" / "solutions", container.autograder / "source"):
        assert folder.stat().st_mode & 0o077 == 0


def test_a_right_answer_has_all_points_and_a_result_as_specified(container):
    found, said = container.result(lambda folder: plain(folder, NOTEBOOK))
    assert faults(found) == [] and found["score"] == PLAIN.points, said
    assert [test["status"] for test in found["tests"]] == ["passed"]


def test_a_stub_has_no_points_and_words(container):
    stub = with_cell(TITLE + "def pass_right(fabric, x):\n    raise NotYet('Exercise 0.1: pass a tensor to the right')\n")
    found, said = container.result(lambda folder: (folder / NOTEBOOK).write_text(json.dumps(stub)))
    assert faults(found) == [] and found["score"] == 0 and found["tests"][0]["output"], said


def another_lab(folder: Path) -> None:
    shutil.copy(ROOT / "labs" / "02_messages_and_collectives.ipynb", folder)


def huge(folder: Path) -> None:
    with open(folder / NOTEBOOK, "wb") as file:
        file.write(b'{"cells": [')
        os.truncate(file.fileno(), 1_100_000_000)


def a_link(folder: Path) -> None:
    (folder / NOTEBOOK).symlink_to("/opt/worldsize/course/solutions/00_start_here.ipynb")


NEEDED = f"the notebook {NOTEBOOK} itself is needed, got "
BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda folder: None, f"{NEEDED}nothing"),
    "a report": (lambda folder: (folder / "report.pdf").write_bytes(b"%PDF"), f"{NEEDED}report.pdf"),
    "no notebook by that name": (lambda folder: (folder / NOTEBOOK).write_text("print(1)\n"), "it is not a notebook"),
    "another lab": (another_lab, f"expected the notebook of {LAB}, got one without any of its exercise cells"),
    "a huge file": (huge, "expected at most 50 MB, got 1100.0 MB. Clear its outputs (in JupyterLab:"),
    "a link": (a_link, f"{NEEDED}{NOTEBOOK} (a link)"),
    "a folder by that name": (lambda folder: (folder / NOTEBOOK).mkdir(), f"{NEEDED}{NOTEBOOK}/"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_submission_has_no_points_and_is_told_why(container, name):
    make, words = BAD[name]
    found, said = container.result(make)
    assert faults(found) == [] and (found["score"], found["tests"]) == (0, []), said
    assert found["output"].startswith(f"{LAB}: 0 of 4 points (ungradable).\n")
    assert words in found["output"] and "Traceback" not in said, (found, said)


GOOD: dict[str, tuple[tuple[str, ...], str]] = {
    "another name": (("my homework (final).ipynb",), ""),
    "a name in other letters": (("课程 00.ipynb",), ""),
    "a folder around it": ((f"hand in/{NOTEBOOK}",), ""),
    "a copy beside it": ((NOTEBOOK, "00_start_here-Copy1.ipynb"), "2 notebooks of this lab were handed in"),
    "a checkpoint beside it": ((NOTEBOOK, f".ipynb_checkpoints/{LAB}-checkpoint.ipynb"), ""),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_right_answer_in_an_odd_place_has_its_points(container, name):
    names, words = GOOD[name]
    found, said = container.result(lambda folder: plain(folder, *names))
    assert faults(found) == [] and found["score"] == PLAIN.points, (found, said)
    assert words in found["output"]


def test_what_was_handed_in_before_is_gone_and_nothing_is_left_of_it(container):
    container.result(lambda folder: plain(folder, NOTEBOOK))
    found, _ = container.result(lambda folder: None)
    assert found["score"] == 0
