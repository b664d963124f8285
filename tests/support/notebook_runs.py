"""Every lab's two notebooks, executed once for all the tests that look at them, while other tests run.

Workers of one test run share a folder: a lock for each notebook, and what came of it. One of them executes one notebook
after the other from the first test on; a test that wants one that nobody has begun executes it itself. Left out: what is
looked at (`test_notebooks`).
"""

from __future__ import annotations

import functools
import pickle
import shutil
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from filelock import FileLock, Timeout

from worldsize.authoring import build
from worldsize.authoring.headless import HeadlessRun, run

# for one notebook: several times the minute or two that it may take on an idle machine of 2 cores
RUN_TIMEOUT_S = 400
KINDS = ("solution", "lab")
ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "solutions").glob("*.py"))
EXECUTED = ROOT / "build" / "executed"  # for `worldsize site`

Execute = Callable[[Path, str], HeadlessRun]

built = functools.cache(build.notebooks)  # half a second each, and every test asks


class NotebookRuns:
    """Runs of notebooks of `sources`, in the folder that all workers share."""

    def __init__(self, sources: Iterable[Path], folder: Path) -> None:
        self._folder = folder
        self._all = [(source, kind) for source in sources for kind in KINDS]
        self._pool = ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn"))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._in_turn, daemon=True)

    def begin(self) -> None:
        """Execute one after the other from now on, but for those that another worker is at."""
        self._thread.start()

    def result(self, source: Path, kind: str) -> HeadlessRun:
        """Executes it, or waits for whoever does. Raises what went wrong in the run."""
        kept = self._kept(source, kind)
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
        for source, kind in self._all:
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
            folder.mkdir()
            path = folder / f"{source.stem}.ipynb"
            path.write_text(built(source)[KINDS.index(kind)], encoding="utf-8")
            came = self._pool.submit(run, path, folder / "executed.ipynb", timeout_s=RUN_TIMEOUT_S).result()
            if kind == "solution":
                EXECUTED.mkdir(parents=True, exist_ok=True)
                shutil.copy(came.out, EXECUTED / path.name)
        except Exception as error:  # for every test that asks
            came = error
        kept.write_bytes(pickle.dumps(came))
