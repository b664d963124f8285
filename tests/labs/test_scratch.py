"""The notebook that is kept by hand, `labs/scratch.ipynb`: it goes out without outputs, runs as it is, and shows its mistake."""

from pathlib import Path

import nbformat
import pytest

from tests.support import notebook_rules as rules
from worldsize.authoring.headless import run
from worldsize.authoring.release import bundle_files

LIMIT_S = 100
SCRATCH = Path("labs/scratch.ipynb")


@pytest.mark.quick
def test_it_is_committed_without_a_trace_of_a_run_and_goes_out_to_students(root):
    notebook = nbformat.read(root / SCRATCH, as_version=nbformat.NO_CONVERT)
    assert rules.traces_of_a_run(notebook) + rules.long_prose(notebook) + rules.long_code(notebook) == []
    assert root / SCRATCH in bundle_files(root)


@pytest.mark.timeout(LIMIT_S + 30)
def test_its_examples_run_and_the_mistake_is_found(root, tmp_path):
    done = run(root / SCRATCH, tmp_path / "executed.ipynb", timeout_s=LIMIT_S)
    executed = nbformat.read(done.out, as_version=4)
    assert rules.errors(executed) + rules.missing_alt(executed) == []

    text = {cell.id: "\n".join(map(rules.text_of, cell.outputs)) for cell in rules.code_cells(executed)}
    assert "[all 4 ranks] tensor([ 6., 10., 14.])" in text["sum"]
    assert "2 of 4 tensors differ between ranks; the first is 0.bias" in text["differ"]
