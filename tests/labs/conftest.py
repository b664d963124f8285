"""What the tests of the labs share: a lab's notebooks, executed once for all of them."""

import pytest

from tests.support.notebook_runs import Execute, NotebookRuns


@pytest.fixture(scope="session")
def execute(notebook_runs: NotebookRuns) -> Execute:
    """Execute a lab's "quick", "solution" or "lab" once for all; a run that failed fails every test of it."""
    return notebook_runs.result
