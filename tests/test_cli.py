"""The command line: what a person sees, exit codes, and one paragraph for a mistake."""

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import nbformat
import pytest
import typer
from nbformat.v4 import new_code_cell, new_notebook
from rich.progress import MofNCompleteColumn
from typer.testing import CliRunner, Result

import worldsize as package
from worldsize import cli, doctor
from worldsize.authoring import build
from worldsize.cli import common
from worldsize.doctor import Capability, CapabilitySheet
from worldsize.grade.marking import rows

pytestmark = pytest.mark.quick
DOCS = Path(__file__).resolve().parents[1] / "docs"
FOR_INSTRUCTORS = (DOCS / "instructors.md").read_text() + (DOCS / "grading.md").read_text()


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
    names = typer.main.get_command(cli.app).commands
    assert len(names) >= 12 and all(name in said(worldsize("--help")) for name in names)


def test_python_runs_the_package_as_the_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "worldsize", "--help"], capture_output=True, text=True, timeout=60, check=True)
    assert "Usage: python -m worldsize" in shown.stdout
    assert all(f" {name} " in shown.stdout for name in typer.main.get_command(cli.app).commands)


def test_no_command_writes_a_plural_behind_a_number_that_may_be_one() -> None:
    plural = re.compile(r"\{[^{}\"]+\} (?:Slurm )?(?:files|pages|labs|rows|folders|scores|notebooks|tasks|answers)\b")
    sources = sorted(Path(common.__file__).parent.glob("*.py"))
    assert [found for path in sources for found in plural.findall(path.read_text())] == []


def test_help_groups_the_commands_by_who_uses_them() -> None:
    seen = {}
    for line in worldsize("--help").output.splitlines():
        if found := re.match(r"╭─ (\w+) ─", line):
            group = seen.setdefault(found[1], [])
        elif found := re.match(r"│ ([a-z][a-z-]*) ", line):
            group.append(found[1])
    assert seen == {
        "Options": [],
        "Students": ["start", "doctor", "run", "answers", "progress"],
        "Instructors": [
            *("sample-class", "grade", "merge", "export", "appeal", "books", "feedback", "class", "exam", "similarity"),
            "gradescope",
        ],
        "Authors": ["build", "covers", "site", "release"],
    }


def test_the_version_is_the_packages() -> None:
    assert worldsize("--version").output == f"worldsize {package.__version__}\n"


@pytest.mark.parametrize("line", re.findall(r"^worldsize .*", FOR_INSTRUCTORS, re.MULTILINE))
def test_a_command_of_the_pages_for_instructors_is_understood(line: str) -> None:
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


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course with two short labs, in whose folder for sources one stands."""
    for name in ("00_start_here", "06_ring_all_reduce"):
        (tmp_path / "labs").mkdir(exist_ok=True)
        shows = new_code_cell(f"print({name!r})", metadata={"tags": ["summary"]})
        nbformat.write(new_notebook(cells=[shows]), tmp_path / "labs" / f"{name}.ipynb")
    (tmp_path / "solutions").mkdir()
    monkeypatch.chdir(tmp_path / "solutions")
    return tmp_path


@pytest.mark.parametrize("lab", ["06", "6", "06_ring_all_reduce"])
def test_a_labs_number_is_enough_anywhere_in_the_course(course: Path, lab: str) -> None:
    answer = worldsize("run", lab)
    assert answer.exit_code == 0 and "06_ring_all_reduce" in said(answer), answer.output


def test_a_number_without_a_lab_names_the_labs_that_are_there(course: Path) -> None:
    answer = worldsize("run", "07")
    assert answer.exit_code == 1
    assert f"07: expected one of the labs in {course / 'labs'}" in said(answer)
    assert "The labs are: 00_start_here, 06_ring_all_reduce." in said(answer)


def test_a_number_outside_a_course_says_where_to_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "06: expected the course's folder, or one below it, got" in said(worldsize("run", "06"))


MISSING = {
    "grade": ["grade", "nothere", "--out", "out"],
    "similarity": ["similarity", "nothere", "--out", "alike.html"],
    "export": ["export", "nothere"],
    "books": ["books", "nothere", "--gradebook", "gradebook.db"],
    "feedback": ["feedback", "nothere", "--to", "pages"],
}


@pytest.mark.parametrize("words", MISSING.values(), ids=MISSING)
def test_a_missing_folder_is_one_line_without_a_bar_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = worldsize(*words)
    assert answer.exit_code == 1
    assert re.fullmatch(r"nothere: expected .*, got no such folder\..*", answer.output.strip()), answer.output
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_middle_leaves_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError), common.bar(MofNCompleteColumn()) as step:
        step(1, 7)
        raise ValueError("the seventh")
    assert capsys.readouterr().err == ""


def test_a_bar_that_comes_to_its_end_stays(capsys: pytest.CaptureFixture[str]) -> None:
    with common.bar(MofNCompleteColumn()) as step:
        step(7, 7)
    assert "7/7" in capsys.readouterr().err


def test_an_autograder_of_no_lab_is_refused_before_anything_is_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "worldsize.grade.gradescope.bundle", None)
    answer = worldsize("gradescope", tmp_path / "x.zip", "99", "--course", DOCS.parent)
    assert answer.exit_code == 1 and "expected a lab of the course (00_start_here" in said(answer)


READ_THE_COURSE = [
    "covers", "site", "release", "grade", "export", "appeal", "books", "feedback", "similarity", "gradescope",
]  # fmt: skip


@pytest.mark.parametrize("command", READ_THE_COURSE)
def test_every_command_that_reads_the_course_takes_it_by_one_name(command: str) -> None:
    found = typer.main.get_command(cli.app).commands[command]
    options = {name for parameter in found.params for name in parameter.opts}
    assert "--course" in options and "--root" not in options


@pytest.mark.parametrize("words", [["release", "x.zip"], ["gradescope", "x.zip", "06"]])
def test_the_course_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    asked: list[Path] = []

    def bundle(root: Path, out: Path, *more: object) -> list[str]:
        asked.append(root)
        out.touch()
        return []

    for module, name in (("authoring.release", "release"), ("grade.gradescope.bundle", "autograder")):
        monkeypatch.setattr(import_module(f"worldsize.{module}"), name, bundle)
    monkeypatch.chdir(tmp_path)
    assert worldsize(*words).exit_code == 0
    assert asked == [DOCS.parent]


@pytest.mark.parametrize(
    "words", [["release", "no/x.zip"], ["gradescope", "no/x.zip", "06"], ["similarity", ".", "--out", "no/x.html"]]
)
def test_a_file_without_a_folder_to_go_into_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = worldsize(*words)
    assert answer.exit_code == 1 and "expected a file in an existing folder, got no folder" in said(answer)


def test_progress_is_a_line_a_lab_and_the_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDSIZE_STATE_DIR", str(tmp_path))
    (tmp_path / "lab_00.json").write_text('{"points": {"pass_right": {"earned": 4, "possible": 4, "state": "pass"}}}')
    lines = worldsize("progress").output.splitlines()
    assert lines[0] == "00\tStart here: your first ranks\t4 of 4\t–\tdone"
    assert lines[1].endswith("0 of 6\t–\tbegin")
    assert lines[-2].startswith("\tall labs\t4 of ") and lines[-1] == f"read from {tmp_path}"


def test_progress_without_any_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLDSIZE_STATE_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    answer = worldsize("progress")
    assert answer.exit_code == 1 and f"got none in: {tmp_path / '.worldsize'}" in said(answer)


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


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("nbgrader", ["release", "x.zip"]),
        ("nbgrader", ["books", "grades", "--gradebook", "x.db"]),
        ("nbgrader", ["gradescope", "x.zip", "06"]),
        ("copydetect", ["similarity", "submitted", "--out", "x.html"]),
    ],
)
def test_a_command_without_the_instructors_extra_says_what_to_install(monkeypatch, package, words) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    answer = CliRunner().invoke(cli.app, words)
    told = f"{words[0]}: expected the package {package}, got none. Install it in the course's folder: "
    assert answer.exit_code == 1
    assert " ".join(answer.output.split()) == f"{told}pip install -c constraints.txt -e '.[instructor]'"


def test_export_writes_canvass_csv_beside_the_rows_and_names_who_is_left_out(tmp_path: Path) -> None:
    for student in ("doejane_12", "nobody"):
        graded = rows.GradeRow(student, "06_ring_all_reduce", "a.ipynb", "graded", 4.5, 6.0)
        rows.write(graded, tmp_path / "rows")
    answer = worldsize("export", tmp_path)
    assert answer.exit_code == 0 and "nobody, no such number in the name: left out of the sheet" in said(answer)
    assert (tmp_path / "canvas.csv").read_bytes().endswith(b'"doejane","12","","","","4.5"\r\n')


def test_export_of_a_folder_without_grades_says_what_to_give(tmp_path: Path) -> None:
    answer = worldsize("export", tmp_path)
    assert answer.exit_code == 1 and "the folder that `worldsize grade` wrote" in said(answer)
