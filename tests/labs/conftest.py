"""What the tests of the labs share: a lab's notebooks, executed once for all of them."""

from __future__ import annotations

import pytest

from tests.support.notebook_runs import Execute, NotebookRuns


@pytest.fixture
def execute(notebook_runs: NotebookRuns) -> Execute:
    """Runs a lab's "solution" or "lab" once for all; a run that failed fails every test of it."""
    return notebook_runs.result
