"""What every test shares: the repository's root, a home of its own for Jupyter and IPython, and the markers' skips."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cpu_budget import CpuBudget
from tests.support.notebook_runs import NotebookRuns
from tests.support.parts import PARTS, part_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def _own_home_for_jupyter() -> object:
    """Kernels started by tests neither read nor write what the person running them has configured."""
    changed = {"MPLBACKEND": "Agg", "JUPYTER_PLATFORM_DIRS": "1"}
    before = {name: os.environ.get(name) for name in (*changed, "IPYTHONDIR", "JUPYTER_CONFIG_DIR")}
    with tempfile.TemporaryDirectory(prefix="worldsize-tests-", ignore_cleanup_errors=True) as folder:
        changed |= {"IPYTHONDIR": f"{folder}/ipython", "JUPYTER_CONFIG_DIR": f"{folder}/jupyter"}
        os.environ.update(changed)
        yield
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@pytest.fixture(scope="session", autouse=True)
def notebook_runs(
    request: pytest.FixtureRequest, _own_home_for_jupyter: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NotebookRuns]:
    """The runs of the notebooks that tests of this session ask for, looked at last: begun now, unless there are several workers.

    With these the cores are busy, and a run's CPU seconds are those of the room that asks for it.
    """
    looking = [item.callspec.params for item in request.session.items if "execute" in item.fixturenames]
    asked = [(params["source"], params["kind"]) for params in looking]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if worker else folder) / "notebooks"
    folder.mkdir(exist_ok=True)
    runs = NotebookRuns(asked, folder)
    if not worker:
        runs.begin()
    yield runs
    runs.close()


@pytest.fixture(scope="session")
def sandbox() -> object:
    """A sandbox for graded ranks, as a job of `worldsize grade` has one; skips where this machine refuses it."""
    from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
    from worldsize.grade.outside.boxes import Sandbox

    try:
        kept = Sandbox(best_mode())
    except NoSandbox as refused:
        pytest.skip(str(refused))
    yield kept
    kept.close()


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C end what tests start, also where a shell's background job ignores SIGINT. Measure the CPU of each room."""
    config.pluginmanager.register(CpuBudget(config), "cpu-budget")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep what collecting made, a million objects that stay, out of each later collection's way."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=sorted(PARTS), help="run the tests of one part of the long campaigns alone")
    parser.addoption("--cpu", type=int, default=0, metavar="N", help="show the N tests that use most CPU")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs a GPU or a browser where there is none. Journeys, which take longest, come first; files that look at
    executed notebooks come last."""
    part = config.getoption("part")
    if part:
        outside = [item for item in items if part_of(item.location[0]) != part]
        config.hook.pytest_deselected(items=outside)
        items[:] = [item for item in items if part_of(item.location[0]) == part]

    last = {item.path for item in items if "execute" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: (item.path in last, "journeys" not in item.path.parts))
    if any("gpu" in item.keywords for item in items) and not _has_gpu():
        _skip(items, "gpu", "no GPU that CUDA can use")
    if shutil.which("chromium") is None:
        _skip(items, "browser", "no chromium on PATH")


def _has_gpu() -> bool:
    import torch  # here, because most test runs need no GPU and should start fast

    return torch.cuda.is_available()


def _skip(items: list[pytest.Item], marker: str, reason: str) -> None:
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(pytest.mark.skip(reason=reason))
