"""The student bundle: what goes out, what never does, and the same bytes each time."""

import shutil
import zipfile
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from worldsize import cli
from worldsize.authoring import build
from worldsize.authoring.release import NAMED, Refused, release
from worldsize.authoring.source import answer_lines

pytestmark = pytest.mark.quick
STEM = "00_start_here"


@pytest.fixture
def repository(root: Path, tmp_path: Path) -> Path:
    """A small repository: one lab, one module, and what a bundle must not hold."""
    made = tmp_path / "repository"
    for folder in ("solutions", "labs", "worldsize", "datasets", "docs", "tests", "labs/.worldsize", ".git"):
        (made / folder).mkdir(parents=True)
    for name in NAMED:
        (made / name).write_text(f"{name}\n")
    shutil.copy(root / "solutions" / f"{STEM}.py", made / "solutions")
    build.build(made)
    (made / "worldsize" / "links.py").write_text("x = 1\n")
    (made / "worldsize" / "links.pyc").write_text("compiled")
    (made / "worldsize" / "gradebook.db").write_text("marks")
    (made / "tests" / "test_links.py").write_text("assert True\n")
    (made / "labs" / ".worldsize" / "lab_00.json").write_text("{}")
    return made


def names(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as bundle:
        return set(bundle.namelist())


def test_the_bundle_holds_the_allow_list_and_nothing_else(repository, tmp_path):
    release(repository, tmp_path / "out.zip")
    expected = {*NAMED, f"labs/{STEM}.ipynb", "worldsize/links.py"}
    assert names(tmp_path / "out.zip") == {f"worldsize/{name}" for name in expected}


def test_of_the_real_repository_no_solution_and_no_test_goes_out(root, tmp_path, monkeypatch):
    monkeypatch.setattr("worldsize.authoring.release.stale", lambda root: [])  # `test_build` asks
    released = release(root, tmp_path / "out.zip")
    assert [name for name in released if name.startswith(("solutions", "tests", "bench", "."))] == []
    labs = root / "labs"
    there = [*labs.glob("*.ipynb"), *labs.glob("covers/*.[ps][nv]g"), labs / "AGENTS.md"]
    expected = sorted(path.relative_to(root).as_posix() for path in there)
    assert sorted(name for name in released if name.startswith("labs/")) == expected


def test_the_same_files_make_the_same_bytes(repository, tmp_path):
    release(repository, tmp_path / "one.zip")
    for path in repository.rglob("*"):
        path.touch()
    release(repository, tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_a_lab_with_an_output_is_refused(repository, tmp_path):
    path = repository / "labs" / f"{STEM}.ipynb"
    notebook = nbformat.read(path, 4)
    next(c for c in notebook.cells if c.cell_type == "code").outputs = [
        nbformat.v4.new_output("stream", text="my machine's name\n")
    ]
    nbformat.write(notebook, path)
    with pytest.raises(Refused, match=f"{STEM}.ipynb differs from its source"):
        release(repository, tmp_path / "out.zip")
    assert not (tmp_path / "out.zip").exists()


@pytest.mark.parametrize("was_run", [False, True])
def test_the_scratch_notebook_goes_out_without_outputs_alone(repository, tmp_path, was_run):
    cell = nbformat.v4.new_code_cell("1", execution_count=1 if was_run else None)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), repository / "labs" / "scratch.ipynb")
    if was_run:
        with pytest.raises(Refused, match="labs/scratch.ipynb has been run: clear its outputs"):
            release(repository, tmp_path / "out.zip")
    else:
        assert "labs/scratch.ipynb" in release(repository, tmp_path / "out.zip")


def test_an_answer_in_a_lab_is_refused_with_the_line(repository, tmp_path):
    path = repository / "labs" / f"{STEM}.ipynb"
    notebook = nbformat.read(path, 4)
    notebook.cells[0].source += "\n\n`handle = fabric.isend(x, to=right)`"
    nbformat.write(notebook, path)
    with pytest.raises(Refused, match=r"pass_right: 'handle = fabric.isend\(x, to=right\)' can be read"):
        release(repository, tmp_path / "out.zip")


def test_an_answer_in_the_package_is_refused_with_the_file(repository, tmp_path):
    lines = answer_lines(repository / "solutions" / f"{STEM}.py")["pass_right"]
    (repository / "worldsize" / "links.py").write_text("\n".join(line.strip() for line in lines))
    with pytest.raises(Refused, match="links.py: the answer to pass_right"):
        release(repository, tmp_path / "out.zip")


def test_a_folder_that_is_no_repository_is_refused(tmp_path):
    with pytest.raises(Refused, match="expected the repository, with CHANGELOG.md, .*name the root with --course"):
        release(tmp_path, tmp_path / "out.zip")


def test_a_link_does_not_carry_another_file_out(repository, tmp_path):
    (tmp_path / "secret.py").write_text("password = 1\n")
    (repository / "worldsize" / "linked.py").symlink_to(tmp_path / "secret.py")
    release(repository, tmp_path / "out.zip")
    assert "worldsize/worldsize/linked.py" not in names(tmp_path / "out.zip")


def test_the_command_says_what_it_wrote(repository, tmp_path):
    answer = CliRunner().invoke(cli.app, ["release", str(tmp_path / "out.zip"), "--course", str(repository)])
    assert answer.exit_code == 0 and "20 files" in answer.output
