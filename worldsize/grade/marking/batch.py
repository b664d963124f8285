"""The batch: a folder of submissions in, a row for each out, with as many workers as there are jobs.

What has a row for the same file, seed and release is not graded again, so a batch that was killed goes on where it
was. What the grader itself loses (a worker that is killed, or fails, or does not end) is tried again, each time with a
fresh worker; then its row is "lost", which is no mark, and the next run tries once more. Only this process writes, one
file a row. Left out: marking (`worker`), and the table at the end (`table`).
"""

from __future__ import annotations

import json
import os
import platform
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

from worldsize.files import remove_parts
from worldsize.grade import course
from worldsize.grade.course import CourseLab
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.isolation.bubblewrap import FRESH, UNSAFE, SandboxMode
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import rows, submission, submissions_folder
from worldsize.grade.marking.grading_record import GradingRecord, read_record, sorted_out, write_record
from worldsize.grade.marking.marking import MarkingOrder, MarkingTask
from worldsize.grade.marking.releases import releases
from worldsize.grade.marking.rows import GradeRow, file_name
from worldsize.grade.marking.submissions_folder import HandedIn

OnProgress = Callable[[int, int, GradeRow], None]
_START_S, _FRESH_S = 120.0, 900.0
_GRACE_S = 30.0
ATTEMPTS = 3


@dataclass(frozen=True)
class Batch:
    """What came of a call of `grade`: a row of every file there is, and how many of them this call made.

    `gone` are rows from before, of files that are not there any more.
    """

    rows: tuple[GradeRow, ...]
    graded: int
    seed: int
    mode: SandboxMode
    gone: tuple[GradeRow, ...] = ()


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
        remove_parts(out / "rows")
        seed = _seed(out, seed)
        order = MarkingOrder(course=str(root), mode=mode, seed=seed, limits=limits or Limits())
        batch = _Batch(folder, out, labs, order, progress)
        batch.run(_settled(found, labs), max(1, jobs))

    made = sorted_out(rows.read_all(out), read_record(out))
    return Batch(made.rows, batch.graded, seed, mode, made.gone)


def _locked(out: Path) -> AcquireReturnProxy:
    """The lock of a folder of grades, for a `with`. Raises ValueError where another grading holds it."""
    try:
        return FileLock(out / ".lock", timeout=0).acquire()
    except Timeout:
        raise ValueError(f"{out}: expected no other grading into this folder, got one that runs now. Let it end.") from None


def _seed(out: Path, given: int | None) -> int:
    """The batch's seed: the one given, else the one kept in `out`, else a new one."""
    kept = read_record(out)
    if given is not None:
        return given
    return kept.seed if kept else secrets.randbits(62)


def _looked_into(one: HandedIn, labs: Mapping[str, CourseLab]) -> HandedIn:
    """The one reading of a file here: its digest and, where its name says no lab, the lab that its cells are of."""
    if one.refused:
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

        self._releases = releases(labs)
        self._paths: dict[str, str] = {}  # of submissions, by the name of their row's file
        self._sound: set[str] = set()  # labs whose set-up cells run here
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

        self._record()
        if self._errors:
            raise self._errors[0]

    def _sort_out(self, found: list[HandedIn]) -> None:
        kept = {row.file_name: row for row in rows.read_all(self._out)}
        tasks = [(one, self._task(one)) for one in found]
        self._paths = {file_name(task.student, task.lab, task.name): task.name for _, task in tasks}
        self._record()

        self._all = len(found)
        for one, task in tasks:
            before = kept.get(file_name(task.student, task.lab, task.name))
            if before and self._still_holds(before, one, task):
                self._count(before)
            elif one.refused:
                self._write(task.row("ungradable", one.refused, self._order.seed, self._unsafe), task)
            else:
                self._todo.put((one, task))

    def _record(self) -> None:
        """Keep which rows are of files that are there; it is also what makes `out` remember its seed."""
        record = GradingRecord(self._order.seed, self._paths)
        if record != read_record(self._out):
            write_record(self._out, record)

    def _task(self, one: HandedIn) -> MarkingTask:
        name = str(one.path.relative_to(self._folder)).encode("utf-8", "replace").decode()
        return MarkingTask(student=one.student, lab=one.lab, path=str(one.path), name=name, note=one.note)

    @property
    def _unsafe(self) -> bool:
        return self._order.mode == UNSAFE

    def _still_holds(self, before: GradeRow, one: HandedIn, task: MarkingTask) -> bool:
        """Whether marking once more would say the same: the same file, seed and release, with as much of a sandbox."""
        if before.state == "lost" or (before.path, before.seed, before.unsafe) != (task.name, self._order.seed, self._unsafe):
            return False
        if before.release != self._releases.get(before.lab):
            return False
        if one.refused:
            return before.reason == one.refused
        return before.digest == one.digest

    # ---- one desk --------------------------------------------------------------------------------

    def _work(self) -> None:
        desk = _Desk(self._order)
        try:
            while True:
                try:
                    one, task = self._todo.get_nowait()
                except queue.Empty:
                    return

                made = desk.mark(replace(task, sound=task.lab in self._sound))
                possible = self._labs[task.lab].possible if task.lab in self._labs else 0.0
                made = replace(made, possible=made.possible or possible, digest=made.digest or one.digest)
                self._write(made, task)
        except BaseException as error:
            self._errors.append(error)
        finally:
            desk.close()

    def _write(self, made: GradeRow, task: MarkingTask) -> None:
        made = replace(made, release=self._releases.get(made.lab, ""), host=platform.node())
        with self._writing:
            rows.write(made, self._out / "rows")
            self.graded += 1
            if made.exercises:
                self._sound.add(made.lab)

            # a file that was handed in again meanwhile may be of another lab
            del self._paths[file_name(task.student, task.lab, task.name)]
            self._paths[made.file_name] = task.name
            self._count(made)

    def _count(self, made: GradeRow) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._all, made)


class _Desk:
    """A place to mark at, with one worker at a time: after one that lost a submission, or is full, comes a fresh one."""

    def __init__(self, order: MarkingOrder) -> None:
        self._order = order
        self._worker: _Worker | None = None

    def mark(self, task: MarkingTask) -> GradeRow:
        """The task's row, of the first attempt that was not lost, or of the last one."""
        for attempt in range(1, ATTEMPTS):
            made = self._attempt(task, attempt)
            if made.state != "lost":
                return made
        return self._attempt(task, ATTEMPTS)

    def _attempt(self, task: MarkingTask, attempt: int) -> GradeRow:
        if self._worker is None:
            self._worker = _Worker(self._order)

        try:
            made = self._worker.mark(task)
        except _WorkerLost as error:
            made = task.row("lost", str(error), self._order.seed, unsafe=self._order.mode == UNSAFE)
        if made.state == "lost" or self._worker.is_full:
            self.close()
        return replace(made, attempt=attempt)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None


class _WorkerLost(RuntimeError):
    """A worker that gave no row; the message says why, for a person."""


class _Worker:
    """A marking process, and the time that a submission may take in it."""

    def __init__(self, order: MarkingOrder) -> None:
        self._limit_s = order.limits.wall_s + _GRACE_S
        if order.mode == FRESH:
            self._limit_s += _FRESH_S
        self._first = True
        self.is_full = False  # of what submissions left in its memory
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-m", "worldsize.grade.marking.worker", str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
        self._send(asdict(order))

    def mark(self, task: MarkingTask) -> GradeRow:
        """The task's row. Raises _WorkerLost where the process ended or took too long."""
        limit_s = self._limit_s
        if self._first:
            limit_s += _START_S
            self._first = False
        self._send(asdict(task))

        deadline_s = time.monotonic() + limit_s
        heard = bytearray()
        while not heard.endswith(b"\n"):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([self._process.stdout], [], [], left_s)[0]:
                raise _WorkerLost(f"the process that marked it had no row after {limit_s:g} s")

            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                raise _WorkerLost("the process that marked it ended before it had a row")
            heard += data

        answer = json.loads(heard)
        self.is_full = answer["full"]
        return rows.from_dict(answer["row"])

    def _send(self, message: dict) -> None:
        """What is gone is noticed when it is heard."""
        with suppress(OSError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End it and its sandbox."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                stream.close()
