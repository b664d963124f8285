"""The batch: a folder of submissions in, a row for each out, with as many workers as there are jobs.

What has a row for the same file, seed and release is not graded again, so a batch that was killed goes on where it
was. Only this process writes, one file a row. Left out: marking (`worker`), and the table at the end (`table`).
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

from worldsize.files import PRIVATE, write_whole
from worldsize.grade import course
from worldsize.grade.course import CourseLab
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.isolation.bubblewrap import FRESH, UNSAFE, SandboxMode
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import rows, submission, submissions_folder
from worldsize.grade.marking.marking import MarkingOrder, MarkingTask
from worldsize.grade.marking.rows import GradeRow, GradeState
from worldsize.grade.marking.submissions_folder import HandedIn

OnProgress = Callable[[int, int, GradeRow], None]
_START_S, _FRESH_S = 120.0, 900.0
_GRACE_S = 30.0


@dataclass(frozen=True)
class Batch:
    """What came of a call of `grade`: all rows, and how many of them this call made."""

    rows: tuple[GradeRow, ...]
    graded: int
    seed: int
    mode: SandboxMode


def grade(
    folder: Path,
    out: Path,
    jobs: int = 2,
    unsafe: bool = False,
    root: Path | None = None,
    seed: int | None = None,
    limits: Limits | None = None,
    progress: OnProgress | None = None,
    mode: SandboxMode | None = None,
) -> Batch:
    """Grade what is in `folder`; rows go to `out/rows/`, one JSON file each.

    `seed` replays an earlier batch; without one it is drawn, and kept in `out`. `mode` is for tests: "own" or "fresh".
    Raises ValueError for a wrong folder, a wrong course, or where no sandbox works and `unsafe` is not given.
    """
    if root is None:
        root = course.default_root()
    root = root.resolve()
    labs = course.load(root)
    found = submissions_folder.find(folder, labs)

    if out.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{out}: expected a folder outside the submissions in {folder}, got one inside. Name another.")
    if unsafe:
        mode = UNSAFE
    elif mode is None:
        mode = bubblewrap.best_mode()

    out.mkdir(parents=True, exist_ok=True)
    with _locked(out):
        seed = _seed(out, seed)
        order = MarkingOrder(course=str(root), mode=mode, seed=seed, limits=limits or Limits())
        batch = _Batch(folder, out, labs, order, progress)
        batch.run(_settled(found, labs), max(1, jobs))

    made = tuple(row for row in rows.read_all(out) if row.path in batch.names)
    return Batch(made, batch.graded, seed, mode)


def _locked(out: Path) -> AcquireReturnProxy:
    """The lock of a folder of grades, for a `with`. Raises ValueError where another grading holds it."""
    try:
        return FileLock(out / ".lock", timeout=0).acquire()
    except Timeout:
        raise ValueError(f"{out}: expected no other grading into this folder, got one that runs now. Let it end.") from None


def _seed(out: Path, given: int | None) -> int:
    """The batch's seed: the one given, else the one kept in `out`, else a new one."""
    path = out / "grading.json"
    kept = json.loads(path.read_text())["seed"] if path.is_file() else None

    seed = given
    if seed is None:
        seed = kept
    if seed is None:
        seed = secrets.randbits(62)
    if seed != kept:
        write_whole(path, json.dumps({"seed": seed}), PRIVATE, durable=True)
    return seed


def _looked_into(one: HandedIn, labs: Mapping[str, CourseLab]) -> HandedIn:
    """The one reading of a file here: its digest and, where its name says no lab, the lab that its cells are of."""
    if one.without_notebook:
        return one

    try:
        file = submission.read_notebook(one.path)
        one = replace(one, digest=file.digest)
        lab = None if one.lab else submission.lab_of(file.cells, labs.values())
    except submission.Ungradable:
        return one
    return replace(one, lab=lab.stem) if lab else one


def _settled(found: list[HandedIn], labs: Mapping[str, CourseLab]) -> list[HandedIn]:
    """Every file looked into, and one left a student and lab: that whose name says the lab, else the first one."""
    named: dict[tuple[str, str], HandedIn] = {}
    for one in sorted(found, key=lambda one: one.lab == ""):
        one = _looked_into(one, labs)
        place = (one.student, one.lab or str(one.path))
        other = named.get(place)
        if other is None:
            named[place] = one
        else:
            note = f"{one.path.name} is of this lab too, and does not count"
            named[place] = replace(other, note="; ".join(filter(None, [other.note, note])))
    return list(named.values())


class _Batch:
    def __init__(
        self, folder: Path, out: Path, labs: Mapping[str, CourseLab], order: MarkingOrder, progress: OnProgress | None
    ) -> None:
        self._folder = folder
        self._out = out
        self._labs = labs
        self._order = order
        self._progress = progress

        self.names: set[str] = set()
        self._todo: queue.SimpleQueue[tuple[HandedIn, MarkingTask]] = queue.SimpleQueue()
        self._errors: list[BaseException] = []
        self._writing = threading.Lock()
        self._all = self._done = self.graded = 0

    def run(self, found: list[HandedIn], jobs: int) -> None:
        """Make a row of each file that has none that still holds. Raises what went wrong in a thread."""
        self._sort_out(found)

        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(min(jobs, self._todo.qsize()))]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
        if self._errors:
            raise self._errors[0]

    def _sort_out(self, found: list[HandedIn]) -> None:
        kept = {row.path: row for row in rows.read_all(self._out)}
        self._all = len(found)

        for one in found:
            task = self._task(one)
            self.names.add(task.name)
            before = kept.get(task.name)
            if before and self._still_holds(before, one):
                self._count(before)
            elif one.without_notebook:
                self._write(self._row_without_points(task, "ungradable", one.note))
            else:
                self._todo.put((one, task))

    def _task(self, one: HandedIn) -> MarkingTask:
        name = str(one.path.relative_to(self._folder)).encode("utf-8", "replace").decode()
        student = one.student.encode("utf-8", "replace").decode()
        return MarkingTask(student=student, lab=one.lab, path=str(one.path), name=name, note=one.note)

    def _still_holds(self, before: GradeRow, one: HandedIn) -> bool:
        if (before.seed, before.unsafe) != (self._order.seed, self._order.mode == UNSAFE):
            return False
        if one.without_notebook:
            return before.state == "ungradable"

        # a row without a digest is of a file that could not be read, or of a grader that failed and should try again
        could_be_read = one.digest != ""
        return before.digest == one.digest and (could_be_read or before.state == "ungradable")

    def _row_without_points(self, task: MarkingTask, state: GradeState, reason: str) -> GradeRow:
        return task.row(state, reason, self._order.seed, unsafe=self._order.mode == UNSAFE)

    # ---- one worker ------------------------------------------------------------------------------

    def _work(self) -> None:
        worker = None
        try:
            while True:
                try:
                    one, task = self._todo.get_nowait()
                except queue.Empty:
                    return

                if worker is None:
                    worker = _Worker(self._order)
                made = worker.mark(task)
                if made is None:  # it is gone, or too late
                    made = self._lost(one, task, was_running=worker.close())
                    worker = None
                self._write(made)
        except BaseException as error:
            self._errors.append(error)
        finally:
            if worker is not None:
                worker.close()

    def _lost(self, one: HandedIn, task: MarkingTask, was_running: bool) -> GradeRow:
        """The row of a file whose worker gave none."""
        if was_running:
            made = self._row_without_points(task, "timeout", "the process that marked it did not come to an end")
        else:
            made = self._row_without_points(task, "crashed", "the process that marked it ended before it had a row")
        possible = self._labs[task.lab].possible if task.lab in self._labs else 0.0
        return replace(made, possible=possible, digest=one.digest)

    def _write(self, made: GradeRow) -> None:
        with self._writing:
            rows.write(made, self._out / "rows")
            self.graded += 1
            self._count(made)

    def _count(self, made: GradeRow) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._all, made)


class _Worker:
    """A marking process, and the time that a submission may take in it."""

    def __init__(self, order: MarkingOrder) -> None:
        self._limit_s = order.limits.wall_s + _GRACE_S
        if order.mode == FRESH:
            self._limit_s += _FRESH_S
        self._first = True
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-m", "worldsize.grade.marking.worker", str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
        self._send(asdict(order))

    def mark(self, task: MarkingTask) -> GradeRow | None:
        """The task's row; None where the process ended or took too long."""
        limit_s = self._limit_s
        if self._first:
            limit_s += _START_S
            self._first = False
        if not self._send(asdict(task)):
            return None

        deadline_s = time.monotonic() + limit_s
        heard = bytearray()
        while not heard.endswith(b"\n"):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([self._process.stdout], [], [], left_s)[0]:
                return None

            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                return None
            heard += data
        return rows.from_dict(json.loads(heard))

    def _send(self, message: dict) -> bool:
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return False
        return True

    def close(self) -> bool:
        """End it and its sandbox, and say whether it had still been running."""
        running = self._process.poll() is None

        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                stream.close()
        return running
