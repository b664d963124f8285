"""What the journeys share: the doors that a module has entered, and a person in an empty folder."""

from __future__ import annotations

import pytest

from tests.journeys.doors import Entered
from tests.journeys.person import Person


@pytest.fixture(scope="module")
def entered(request: pytest.FixtureRequest) -> Entered:
    """The doors of this module: those that its `DOORS` declares, and those entered so far."""
    return Entered(frozenset(request.module.DOORS))


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory, entered: Entered) -> Person:
    """A person in an empty folder."""
    return Person(tmp_path_factory.mktemp("person"), entered)
