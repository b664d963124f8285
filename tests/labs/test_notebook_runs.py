"""How workers share the runs of notebooks: a run under way is waited for, and one that failed fails every test of it."""

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from tests.support.notebook_runs import SOURCES, NotebookRuns
from worldsize.authoring.headless import HeadlessRun, NotebookFailed

pytestmark = pytest.mark.quick
DONE = HeadlessRun(Path("executed.ipynb"), "points: 4 of 4", 4, 4, 1.5)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[NotebookRuns]:
    made = NotebookRuns([], tmp_path)
    yield made
    made.close()


def test_a_run_that_another_worker_is_at_is_waited_for(tmp_path: Path, runs: NotebookRuns) -> None:
    kept = tmp_path / f"{SOURCES[0].stem}-quick.pickle"
    with ThreadPoolExecutor(1) as other_test:
        with FileLock(kept.with_suffix(".lock")):
            asked = other_test.submit(runs.result, SOURCES[0], "quick")
            kept.write_bytes(pickle.dumps(DONE))
        assert asked.result() == DONE


def test_a_run_that_failed_fails_every_test_of_it(tmp_path: Path, runs: NotebookRuns) -> None:
    failed = NotebookFailed("a cell raised", Path("executed.ipynb"))
    (tmp_path / f"{SOURCES[0].stem}-lab.pickle").write_bytes(pickle.dumps(failed))
    for _ in range(2):
        with pytest.raises(NotebookFailed, match="a cell raised"):
            runs.result(SOURCES[0], "lab")
