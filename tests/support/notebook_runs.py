"""Executed notebooks of the labs: each once for all the tests that look at it, while other tests run.

The workers of one test run share a folder, with a lock and a result for each notebook. One worker executes one notebook after
the other from the first test on; a test whose notebook nobody has begun executes it itself, and a test whose notebook is under
way waits for the lock, however long that takes. Left out: what is looked at (`test_notebooks`).
"""

import functools
import os
import pickle
import shutil
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from tests.labs.quick_parameters import QUICK
from worldsize.authoring.headless import HeadlessRun, run

# ends a run that hangs: many times what it takes at full size on an idle machine of 2 cores
RUN_TIMEOUT_S = 400
# the solution with the lab's small parameters, with its own, and the lab as students get it
KINDS = ("quick", "solution", "lab")
ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "solutions").glob("*.py"))
EXECUTED = ROOT / "build" / "executed"  # full runs, for `worldsize site`

Asked = tuple[Path, str]  # a source and a kind
Execute = Callable[[Path, str], HeadlessRun]

# in `make test`: the first lab, and one of each framework. All 18 quick runs take 390 s of a core, a third of what two cores have
# in ten minutes; `make soak PART=labs` has them
QUICKLY = ("00", "06", "07")


@functools.cache  # half a second each, and every test asks
def built(source: Path) -> tuple[str, str]:
    """Return the texts of a source's two notebooks."""
    from worldsize.authoring import build  # here, because tests of GPUs run where the instructors' tools are not

    return build.notebooks(source)


def each_run(*kinds: str, labs: tuple[str, ...] = (), scope: str = "function") -> pytest.MarkDecorator:
    """Parametrize a test with `source` and `kind`, one item for each run of these kinds.

    Full solutions are the soak's, and so are most quick runs, and labs as shipped, the first of which a student's journey runs.
    `labs`: the numbers of those whose quick runs are looked at, else all.
    """
    rows = []
    for kind in kinds:
        for source in SOURCES:
            lab, marks = source.stem[:2], []
            if kind == "quick" and labs and lab not in labs:
                continue
            if kind != "quick" or lab not in QUICKLY:
                marks.append(pytest.mark.soak)
            elif lab == "00":
                marks.append(pytest.mark.quick)
            rows.append(pytest.param(source, kind, id=f"{source.stem}-{kind}", marks=marks))
    return pytest.mark.parametrize(("source", "kind"), rows, scope=scope)


class NotebookRuns:
    """The runs that the tests have `asked` for, in the folder that all workers share."""

    def __init__(self, asked: Iterable[Asked], folder: Path) -> None:
        self._folder = folder
        self._asked = list(dict.fromkeys(asked))
        self._pool = ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn"))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._in_turn, daemon=True)

    def begin(self) -> None:
        """Execute one after the other from now on, but for those that another worker is at."""
        with suppress(ImportError):  # what it warns of at its import would be an error in the thread, while a test runs
            import_module("worldsize.authoring.build")
        self._thread.start()

    def result(self, source: Path, kind: str) -> HeadlessRun:
        """Execute it, or wait for the worker that does. Raises what went wrong in the run."""
        kept = self._kept(source, kind)
        # the lock of a worker that died is free again
        with FileLock(kept.with_suffix(".lock")):
            if not kept.exists():
                self._execute(source, kind, kept)
        came = pickle.loads(kept.read_bytes())
        if isinstance(came, BaseException):
            raise came
        return came

    def close(self) -> None:
        """Wait for those under way; the others are not begun any more."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown()

    def _kept(self, source: Path, kind: str) -> Path:
        return self._folder / f"{source.stem}-{kind}.pickle"

    def _in_turn(self) -> None:
        for source, kind in self._asked:
            if self._over.is_set():
                return
            kept = self._kept(source, kind)
            try:
                with FileLock(kept.with_suffix(".lock"), timeout=0):
                    if not kept.exists():
                        self._execute(source, kind, kept)
            except Timeout:
                continue

    def _execute(self, source: Path, kind: str, kept: Path) -> None:
        try:
            folder = kept.with_suffix("")
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that died
            folder.mkdir()
            path = folder / f"{source.stem}.ipynb"
            path.write_text(built(source)[kind == "lab"], encoding="utf-8")
            given = QUICK[source.stem[:2]] if kind == "quick" else {}
            out = folder / "executed.ipynb"
            full = kind != "lab" and not given
            asked = {"parameters": given, "timeout_s": RUN_TIMEOUT_S, "knobs_beforehand": full}
            came = self._pool.submit(run, path, out, **asked).result()
            if full:
                _keep_for_site(came.out, path.name)
        except Exception as error:  # for every test that asks
            came = error
        new = kept.with_suffix(".new")
        new.write_bytes(pickle.dumps(came))
        new.replace(kept)


def _keep_for_site(executed: Path, name: str) -> None:
    EXECUTED.mkdir(parents=True, exist_ok=True)
    new = EXECUTED / f"{name}.{os.getpid()}"
    shutil.copy(executed, new)
    new.replace(EXECUTED / name)
