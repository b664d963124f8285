"""What tests of grading share: a gradebook of nbgrader's with nothing in it, which takes it seconds to make."""

from __future__ import annotations

from pathlib import Path

import pytest

from worldsize.grade.nbgrader import database


@pytest.fixture(scope="session")
def empty_gradebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be copied, never written to."""
    path = tmp_path_factory.mktemp("empty") / "gradebook.db"
    with database.writing(path):
        pass
    return path
