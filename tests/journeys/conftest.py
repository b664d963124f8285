"""What the journeys share: the doors that a module has entered, and a person in an empty folder."""

import pytest

from tests.journeys.doors import Entered
from tests.journeys.person import Person
from tests.support.notebook_runs import Execute, NotebookRuns


@pytest.fixture(scope="module")
def entered(request: pytest.FixtureRequest) -> Entered:
    """The doors of this module: those that its `DOORS` declares, and those entered so far."""
    return Entered(frozenset(request.module.DOORS))


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory, entered: Entered) -> Person:
    """A person in an empty folder."""
    return Person(tmp_path_factory.mktemp("person"), entered)


@pytest.fixture(scope="session")
def execute(notebook_runs: NotebookRuns) -> Execute:
    """Execute a lab's "quick", "solution" or "lab" once for all tests; a run that failed fails every test of it."""
    return notebook_runs.result
