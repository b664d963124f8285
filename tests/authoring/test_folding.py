"""Which cells are folded when a lab is opened, and that nothing else is hidden."""

import ast
from pathlib import Path

import nbformat
import pytest

from tests.support.sample_source import RING, course
from worldsize.authoring import folding
from worldsize.authoring.build import notebooks
from worldsize.authoring.source import read_source
from worldsize.cells import NotebookCell, chosen

pytestmark = pytest.mark.quick

SOURCES = sorted((Path(__file__).resolve().parents[2] / "solutions").glob("*.py"))
DEFINES = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def built(folder: Path, *cells: str) -> list[nbformat.NotebookNode]:
    """The code cells of the student's notebook from `cells` and then those of the sample."""
    text = "".join(f"# %%\n{cell}\n\n" for cell in cells) + RING
    notebook = nbformat.reads(notebooks(course(folder, text))[1], as_version=nbformat.NO_CONVERT)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def is_hidden(cell: nbformat.NotebookNode) -> bool:
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


@pytest.mark.parametrize("first", ["# Set-up: the tools", "# Helper: a stopwatch on every rank"])
def test_a_cell_whose_first_line_says_what_it_does_is_folded(tmp_path, first):
    assert is_hidden(built(tmp_path, f"{first}\nimport os")[0])


@pytest.mark.parametrize("first", ["# Set-up", "# Helper:", "# Set-ups: many", "import os  # Set-up: late"])
def test_any_other_cell_stays_open(tmp_path, first):
    assert not is_hidden(built(tmp_path, f"{first}\nimport sys")[0])


def test_an_exercise_its_check_and_the_summary_stay_open(tmp_path):
    assert [is_hidden(cell) for cell in built(tmp_path)] == [False] * 5


def test_a_cell_that_only_asks_is_folded_behind_a_line_without_the_question(tmp_path):
    asks = 'lab.predict("a", "How many?", "ms")\nlab.predict(\n    "b", f"And {2}?", "s"\n)'
    cell = built(tmp_path, asks)[0]
    assert is_hidden(cell) and cell.source == f"{folding.PREDICTION}\n{asks}"


def test_a_cell_that_asks_and_does_more_stays_open_and_as_it_is(tmp_path):
    asks = 'lab.predict("a", "How many?", "ms")\nprint("more")'
    cell = built(tmp_path, asks)[0]
    assert not is_hidden(cell) and cell.source == asks


def test_a_folded_set_up_counts_for_a_grade_as_an_open_one(tmp_path):
    cell = built(tmp_path, "# Set-up: the tools\nimport os")[0]
    ran = [NotebookCell("code", cell.source)]
    assert chosen(ran, (), ran=True).setups == (cell.source,)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_helper_of_the_course_defines_and_does_nothing_else(source):
    helpers = [cell for cell in read_source(source).cells if cell.text.startswith("# Helper: ")]
    done = [
        ast.unparse(statement) for cell in helpers for statement in ast.parse(cell.text).body
        if not isinstance(statement, DEFINES)
    ]  # fmt: skip
    assert done == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_first_code_cell_of_a_lab_is_folded_set_up(source):
    first = next(cell for cell in read_source(source).cells if cell.kind == "code")
    assert first.text.startswith("# Set-up: ") and folding.is_folded(first)
