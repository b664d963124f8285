"""The command line: what a person sees, exit codes, and one paragraph for a mistake."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import nbformat
import pytest
import typer
from nbformat.v4 import new_code_cell, new_notebook
from typer.testing import CliRunner, Result

from worldsize import cli, doctor
from worldsize.authoring import build
from worldsize.doctor import Capability, CapabilitySheet
from worldsize.grade.marking import rows

pytestmark = pytest.mark.quick
INSTRUCTORS = Path(__file__).resolve().parents[1] / "docs" / "instructors.md"


def worldsize(*words: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def said(answer: Result) -> str:
    """Everything that was printed, on one line."""
    return " ".join(answer.output.split())


def notebook(folder: Path, *sources: str) -> Path:
    path = folder / "some.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(source) for source in sources]), path)
    return path


def test_help_names_every_command() -> None:
    names = ("doctor", "run", "build", "release", "grade", "export", "books", "feedback", "similarity", "gradescope", "join")
    assert all(name in said(worldsize("--help")) for name in names)


@pytest.mark.parametrize("line", re.findall(r"^worldsize .*", INSTRUCTORS.read_text(), re.MULTILINE))
def test_a_command_of_the_instructors_page_is_understood(line: str) -> None:
    _, name, *words = shlex.split(line, comments=True)
    typer.main.get_command(cli.app).commands[name].make_context(name, words)


@pytest.mark.parametrize(("state", "code"), [("ok", 0), ("note", 0), ("fails", 1)])
def test_the_doctor_ends_with_1_only_when_a_row_fails(monkeypatch: pytest.MonkeyPatch, state: str, code: int) -> None:
    row = Capability("two ranks", "[no] memory", "close something", state)
    monkeypatch.setattr(doctor, "examine", lambda: CapabilitySheet((row,)))
    answer = worldsize("doctor")
    assert answer.exit_code == code
    assert "[no] memory" in said(answer)


def test_a_notebook_runs_and_says_where_its_executed_copy_is(tmp_path: Path) -> None:
    answer = worldsize("run", notebook(tmp_path, "1 + 1"), "--out", tmp_path / "executed.ipynb")
    assert answer.exit_code == 0, answer.output
    assert f"executed notebook: {tmp_path / 'executed.ipynb'}" in said(answer)


@pytest.mark.parametrize(
    ("words", "explained"),
    [
        (["run", "labs/99_nothing.ipynb"], "expected a notebook, got no such file"),
        (["run", "labs/00_start_here.ipynb", "-p", "ranks"], "expected name=value"),
        (["build", "no/such/folder"], "expected sources such as"),
    ],
    ids=["no such notebook", "no value", "no sources"],
)
def test_a_mistake_is_one_paragraph_and_exit_code_1(words: list[str], explained: str) -> None:
    answer = worldsize(*words)
    assert answer.exit_code == 1
    assert explained in said(answer)
    assert "Traceback" not in answer.output
    assert len(answer.output.strip().splitlines()) == 1


def test_a_cell_that_raises_is_one_paragraph_and_exit_code_1(tmp_path: Path) -> None:
    answer = worldsize("run", notebook(tmp_path, "1 / 0"), "--out", tmp_path / "executed.ipynb")
    assert answer.exit_code == 1
    assert "ZeroDivisionError" in said(answer)
    assert "Traceback" not in answer.output


def test_parameters_are_json_where_they_can_be(tmp_path: Path) -> None:
    parameters = new_code_cell("ranks = 2\nname = ''\nsizes = []", metadata={"tags": ["parameters"]})
    shows = new_code_cell("print((ranks, name, sizes))", metadata={"tags": ["summary"]})
    path = tmp_path / "some.ipynb"
    nbformat.write(new_notebook(cells=[parameters, shows]), path)
    given = [word for pair in ("ranks=4", "name=ring", "sizes=[1, 2]") for word in ("-p", pair)]
    answer = worldsize("run", path, "--out", tmp_path / "executed.ipynb", *given)
    assert "(4, 'ring', [1, 2])" in said(answer), answer.output


@pytest.mark.parametrize(("stale", "code"), [(["labs/06_ring.ipynb"], 1), ([], 0)], ids=["stale", "fresh"])
def test_build_check_ends_with_1_and_the_path_of_what_is_stale(
    monkeypatch: pytest.MonkeyPatch, stale: list[str], code: int
) -> None:
    monkeypatch.setattr(build, "build", lambda root, check: stale if check else pytest.fail("it would write"))
    answer = worldsize("build", "--check")
    assert answer.exit_code == code
    assert all(f"stale {path}" in said(answer) for path in stale)


def test_export_writes_canvass_csv_beside_the_rows_and_names_who_is_left_out(tmp_path: Path) -> None:
    for student in ("doejane_12", "nobody"):
        graded = rows.GradeRow(student, "06_ring_all_reduce", "a.ipynb", "graded", 4.5, 6.0)
        rows.write(graded, tmp_path / "rows")
    answer = worldsize("export", tmp_path)
    assert answer.exit_code == 0 and "left out, no number in the name: 'nobody'" in said(answer)
    assert (tmp_path / "canvas.csv").read_bytes().endswith(b'"doejane","12","","","","4.5"\r\n')


def test_export_of_a_folder_without_grades_says_what_to_give(tmp_path: Path) -> None:
    answer = worldsize("export", tmp_path)
    assert answer.exit_code == 1 and "the folder that `worldsize grade` wrote" in said(answer)
