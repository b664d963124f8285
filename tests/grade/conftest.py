"""What tests of grading share: an empty gradebook of nbgrader's, which takes seconds to make, Gradescope's zip of one lab, a
sandbox or a skip, and a bound against hangs."""

import shutil
from pathlib import Path

import pytest

from tests.grade.cheats import LAB, ROOT
from worldsize.authoring import build
from worldsize.grade.gradescope.bundle import NAMED, autograder
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


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This one with a single lab, so that nobody edits it meanwhile."""
    made = tmp_path_factory.mktemp("repository")
    for name in ("worldsize", "datasets"):
        shutil.copytree(ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*map(Path, NAMED), *(Path("solutions") / f"{LAB}.{kind}" for kind in ("py", "ipynb"))):
        (made / path).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / path, made / path)
    build.build(made)
    return made


@pytest.fixture(scope="session")
def bundle(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("zip") / "autograder.zip"
    autograder(repository, out, LAB[:2])
    return out


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
