"""Every lab's two notebooks, executed once for all the tests that look at them, while other tests run.

One notebook at a time from the first test on, two at a time once a test waits for one. Left out: what is looked at
(`test_notebooks`).
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

from worldsize.authoring import build
from worldsize.authoring.headless import HeadlessRun, run

# for one notebook: several times the minute or two that it may take on an idle machine of 2 cores
RUN_TIMEOUT_S = 400
KINDS = ("solution", "lab")
SOURCES = sorted((Path(__file__).resolve().parents[2] / "solutions").glob("*.py"))

Execute = Callable[[Path, str], HeadlessRun]

built = functools.cache(build.notebooks)  # half a second each, and every test asks


class NotebookRuns:
    """Runs the notebooks of `sources` in `folder`, in their order."""

    def __init__(self, sources: Iterable[Path], folder: Path) -> None:
        self._folder = folder
        self._runs: dict[tuple[Path, str], Future[HeadlessRun]] = {
            (s, kind): Future() for s in sources for kind in KINDS
        }
        self._left = deque(self._runs)
        self._pool = ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn"))
        self._lanes: list[threading.Thread] = []

    def go(self, lanes: int) -> None:
        """Run so many at a time from now on."""
        while self._left and len(self._lanes) < lanes:
            self._lanes.append(threading.Thread(target=self._work, daemon=True))
            self._lanes[-1].start()

    def result(self, source: Path, kind: str) -> HeadlessRun:
        """Waits for it. Raises what went wrong in the run."""
        self.go(lanes=2)
        return self._runs[source, kind].result()

    def close(self) -> None:
        """Wait for those under way; the others are not begun any more."""
        self._left.clear()
        for lane in self._lanes:
            lane.join()
        self._pool.shutdown()

    def _work(self) -> None:
        with suppress(IndexError):  # none left
            while True:
                self._one(*self._left.popleft())

    def _one(self, source: Path, kind: str) -> None:
        try:
            folder = self._folder / f"{source.stem}-{kind}"
            folder.mkdir()
            path = folder / f"{source.stem}.ipynb"
            path.write_text(built(source)[KINDS.index(kind)], encoding="utf-8")
            under_way = self._pool.submit(run, path, folder / "executed.ipynb", timeout_s=RUN_TIMEOUT_S)
            self._runs[source, kind].set_result(under_way.result())
        except BaseException as error:  # for the test that waits
            self._runs[source, kind].set_exception(error)
