"""Which runs the site shows: those of the source as it is, with the lab's own parameters."""

import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_output

from tests.support.sample_source import RING, course
from worldsize.authoring.build import notebooks
from worldsize.authoring.headless import NotebookFailed
from worldsize.authoring.site.site_folder import all_executed, build_site, executed

pytestmark = pytest.mark.quick


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return course(tmp_path)


def keep(source: Path, *more: nbformat.NotebookNode) -> None:
    """Leave a run of the `source` where the site looks for one, with `more` cells after the parameters."""
    run = nbformat.reads(notebooks(source)[0], as_version=4)
    run.cells[2:2] = more
    for number, cell in enumerate(cell for cell in run.cells if cell.cell_type == "code"):
        cell.execution_count = number + 1
    kept = source.parents[1] / "build" / "executed" / f"{source.stem}.ipynb"
    kept.parent.mkdir(parents=True)
    nbformat.write(run, kept)


def test_a_run_of_the_source_as_it_is_is_taken(source: Path) -> None:
    keep(source)
    assert executed(source.parents[1], source, run=False) is not None


def test_a_run_of_another_source_is_not_taken(source: Path) -> None:
    keep(source)
    source.write_text(RING.replace("secret = x + 1", "secret = x + 2"))
    assert executed(source.parents[1], source, run=False) is None


def test_a_run_with_other_parameters_is_not_taken(source: Path) -> None:
    keep(source, new_code_cell("# Parameters\nranks = 2", metadata={"tags": ["injected-parameters"]}))
    assert executed(source.parents[1], source, run=False) is None


def test_a_run_that_was_stopped_is_not_taken(source: Path) -> None:
    keep(source)
    kept = source.parents[1] / "build" / "executed" / f"{source.stem}.ipynb"
    run = nbformat.read(kept, as_version=4)
    run.cells[-1].execution_count = None
    nbformat.write(run, kept)
    assert run.cells[-1].cell_type == "code" and executed(source.parents[1], source, run=False) is None


def test_a_run_that_ended_in_an_error_is_not_taken(source: Path) -> None:
    keep(source)
    kept = source.parents[1] / "build" / "executed" / f"{source.stem}.ipynb"
    run = nbformat.read(kept, as_version=4)
    run.cells[-1].outputs = [new_output("error", ename="Interrupted", evalue="", traceback=[])]
    nbformat.write(run, kept)
    assert run.cells[-1].cell_type == "code" and executed(source.parents[1], source, run=False) is None


def test_a_lab_that_fails_is_named_and_does_not_end_the_others_runs(tmp_path: Path) -> None:
    fails, ends = (course(tmp_path, f"# %%\n{code}\n", f"{number}_a.py") for number, code in (("06", "1 / 0"), ("07", "1 + 1")))
    runs, failures = all_executed(tmp_path, [fails, ends])
    assert list(runs) == [ends] and re.search("06_a.new.ipynb.*ZeroDivisionError", str(failures[0]))
    assert executed(tmp_path, ends, run=False) is not None


def test_a_lab_that_takes_too_long_is_named_with_the_limit(tmp_path: Path) -> None:
    slow = course(tmp_path, "# %%\nimport time\ntime.sleep(60)\n", "06_a.py")
    _, failures = all_executed(tmp_path, [slow], timeout_s=3)
    assert "06_a.new.ipynb" in str(failures[0]) and "the notebook's 3 s were up" in str(failures[0])


def test_a_site_of_failed_labs_alone_is_not_written_and_names_them(tmp_path: Path) -> None:
    course(tmp_path, "# %%\n1 / 0\n", "06_a.py")
    with pytest.raises(NotebookFailed, match="06_a.new.ipynb.*ZeroDivisionError"):
        build_site(tmp_path, tmp_path / "site")
    assert not (tmp_path / "site").exists()
