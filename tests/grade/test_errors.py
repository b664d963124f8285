"""What goes wrong around a grading is one paragraph: which file, what was expected, what there was, and what to do next."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.gradebook import row
from tests.support.quick_marking import RING, hand_in, quick_marking
from worldsize import cli
from worldsize.grade import course
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.isolation.bubblewrap import NoSandbox
from worldsize.grade.marking.grade_folder import grade
from worldsize.grade.marking.rows import write

ROOT = Path(__file__).resolve().parents[2]
_HANG_S = 300  # a bound against a hang
# `$1`: where a small disk is put; the rest: what is started with it
_SMALL_DISK = 'mount -t tmpfs -o size=$1 small "$2" && shift 2 && exec "$@"'


def said(*words: object, **more: object) -> str:
    """What a command that fails says, on one line."""
    answer = CliRunner().invoke(cli.app, [str(word) for word in words], **more)
    assert answer.exit_code == 1, answer.output
    return " ".join(answer.output.split())


@pytest.fixture
def grades(tmp_path: Path) -> Path:
    write(row("anna_1"), tmp_path / "grades" / "rows")
    return tmp_path / "grades"


COMMANDS = {
    "export": ["export", "GRADES"], "feedback": ["feedback", "GRADES", "--to", "TMP/pages"],
    "books": ["books", "GRADES", "--gradebook", "TMP/gradebook.db"], "merge": ["merge", "TMP/all", "GRADES"],
    "appeal": ["appeal", "0", "GRADES", "--submissions", "TMP"],
}  # fmt: skip


def filled(name: str, grades: Path) -> list[str]:
    return [word.replace("GRADES", str(grades)).replace("TMP", str(grades.parent)) for word in COMMANDS[name]]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("content", ["", "{", "[]", '{"seed": "x"}'])
def test_a_damaged_record_is_named_by_every_command(grades, name, content):
    (grades / "grading.json").write_text(content)
    words = said(*filled(name, grades))
    assert words.startswith(f"{grades / 'grading.json'}: expected the seed and the files of a grading")
    assert "delete this file" in words


@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_row_is_named_by_every_command(grades, name):
    path = write(row("ben_2"), grades / "rows")
    path.write_text(path.read_text()[:100])
    words = said(*filled(name, grades))
    assert words.startswith(f"{path}: expected a grade's row")
    assert words.endswith("Delete it and grade again: the other rows stay.")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_that_is_not_there_is_named_by_every_command(tmp_path, name):
    words = said(*filled(name, tmp_path / "nothere"))
    assert words.startswith(f"{tmp_path / 'nothere'}: expected the folder that `worldsize grade` wrote")


def on_small_disk(folder: Path, size: str, program: str) -> subprocess.CompletedProcess[str]:
    """A program of Python's that has a disk of so many bytes at `folder`, and it alone."""
    folder.mkdir(exist_ok=True)
    command = ["unshare", "--mount", "sh", "-c", _SMALL_DISK, "sh", size, str(folder), sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=_HANG_S)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"no disk of its own: {done.stderr}")
    return done


def test_a_full_disk_is_said_with_the_file_and_what_to_do(tmp_path):
    hand_in(tmp_path / "submitted", *(f"s_{k}/{RING}.ipynb" for k in range(60)))
    program = f"""
import pytest
from tests.support.quick_marking import quick_marking
from worldsize import cli
from worldsize.grade.isolation import bubblewrap
bubblewrap.best_mode = lambda: "own"
quick_marking(pytest.MonkeyPatch())
cli.app(["grade", {str(tmp_path / "submitted")!r}, "--out", {str(tmp_path / "disk" / "out")!r}, "--seed", "7"])
"""
    done = on_small_disk(tmp_path / "disk", "128k", program)
    words = " ".join(done.stderr.split())
    assert done.returncode == 1 and "Traceback" not in words
    assert f"{tmp_path / 'disk' / 'out'}" in words and "got a full disk or quota (No space left on device)" in words
    assert "Free some space, then run this again: files already written stay." in words


def test_what_was_written_before_the_disk_was_full_stays(tmp_path, monkeypatch):
    quick_marking(monkeypatch)
    folder = hand_in(tmp_path / "submitted", *(f"s_{k}/{RING}.ipynb" for k in range(4)))
    replace = os.replace
    written: list[str] = []

    def full(part: Path, path: Path) -> None:
        if path.parent.name == "rows" and len(written) == 2:
            raise OSError(28, "No space left on device", str(part))
        replace(part, path)
        written.append(path.name) if path.parent.name == "rows" else None

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left on device"):
        grade(folder, tmp_path / "out", jobs=1, root=ROOT, mode="own")
    monkeypatch.setattr(os, "replace", replace)
    again = grade(folder, tmp_path / "out", root=ROOT, mode="own")
    assert (again.graded, again.kept, list((tmp_path / "out" / "rows").glob(".*"))) == (2, 2, [])


@pytest.fixture
def other_checkout(tmp_path: Path) -> Path:
    """A checkout beside the one that is installed: its package is importable from there."""
    folder = tmp_path / "other"
    shutil.copytree(ROOT / "worldsize", folder / "worldsize", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "labs").mkdir()
    (folder / "labs" / "00_x.ipynb").write_text(json.dumps({"cells": []}))
    return folder


def test_a_package_that_only_this_process_would_import_is_refused_before_anything_is_graded(other_checkout, tmp_path):
    hand_in(tmp_path / "submitted", f"anna/{RING}.ipynb")
    words = ["grade", str(tmp_path / "submitted"), "--out", str(tmp_path / "out"), "--course", str(ROOT)]
    env = os.environ | {"PYTHONPATH": str(other_checkout)}
    done = subprocess.run([sys.executable, "-m", "worldsize.cli", *words], env=env, capture_output=True, text=True, cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert done.returncode == 1, said
    assert f"to find the package of {other_checkout}, as a sandbox sees it" in said and "PYTHONPATH or the current folder" in said
    assert not (tmp_path / "out").exists()


def test_one_who_stands_in_another_checkout_is_asked_which_course_is_meant(other_checkout, monkeypatch):
    monkeypatch.chdir(other_checkout)
    with pytest.raises(ValueError, match="got another one. Name the course with --course"):
        course.default_root()
    monkeypatch.chdir(ROOT)
    assert course.default_root() == ROOT


def test_the_package_that_is_installed_is_the_one_of_a_sandbox():
    bubblewrap._expect_same_package()


def test_a_python_without_the_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(bubblewrap, "_PACKAGE", tmp_path / "worldsize")
    with pytest.raises(NoSandbox, match=r"as a sandbox sees it, got the one in .*nothing was graded"):
        bubblewrap._expect_same_package()
