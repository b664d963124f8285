"""What tests of grading share: an empty gradebook of nbgrader's, which takes seconds to make, a sandbox or a
skip, and a bound against hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.nbgrader import database

_HERE = Path(__file__).parent
_HANG_S = 600


@pytest.fixture(scope="session")
def empty_gradebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be copied, never written to."""
    path = tmp_path_factory.mktemp("empty") / "gradebook.db"
    with database.writing(path):
        pass
    return path


@pytest.fixture
def _sandboxed() -> None:
    """Skip a test where this machine refuses a sandbox."""
    try:
        best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sandboxes take their time to start beside much other work: the suite's own limit would judge the machine."""
    for item in items:
        if item.path.is_relative_to(_HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_HANG_S))
