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

from filelock import FileLock, Timeout

from worldsize.files import PRIVATE, write_whole
from worldsize.grade import course
from worldsize.grade.course import CourseLab
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.isolation.bubblewrap import FRESH, UNSAFE
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import rows, submission, submissions_folder
from worldsize.grade.marking.marking import MarkingTask
from worldsize.grade.marking.rows import GradeRow
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
    mode: str


def grade(
    folder: Path,
    out: Path,
    jobs: int = 2,
    unsafe: bool = False,
    root: Path | None = None,
    seed: int | None = None,
    limits: Limits | None = None,
    progress: OnProgress | None = None,
    mode: str | None = None,
) -> Batch:
    """Grade what is in `folder`; rows go to `out/rows/`, one JSON file each.

    `seed` replays an earlier batch; without one it is drawn, and kept in `out`. `mode` is for tests: "own" or "fresh".
    Raises ValueError for a wrong folder, a wrong course, or where no sandbox works and `unsafe` is not given.
    """
    root = (root or course.default_root()).resolve()
    labs = course.load(root)
    found = submissions_folder.find(folder, labs)
    if out.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{out}: expected a folder outside the submissions in {folder}, got one inside. Name another.")
    mode = UNSAFE if unsafe else mode or bubblewrap.best_mode()
    out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(f"{out}: expected no other grading into this folder, got one that runs now. Let it end.") from None
    with lock:
        seed = _seed(out, seed)
        order = {"course": str(root), "mode": mode, "seed": seed, "limits": asdict(limits or Limits())}
        batch = _Batch(folder, out, labs, order, progress)
        batch.run(_settled(found, labs), max(1, jobs))
    return Batch(tuple(r for r in rows.read_all(out) if r.path in batch.names), batch.graded, seed, mode)


def _seed(out: Path, given: int | None) -> int:
    """The batch's seed: the one given, else the one kept in `out`, else a new one."""
    path = out / "grading.json"
    kept = json.loads(path.read_text())["seed"] if path.is_file() else None
    seed = given if given is not None else kept if kept is not None else secrets.randbits(62)
    if seed != kept:
        write_whole(path, json.dumps({"seed": seed}), PRIVATE, durable=True)
    return seed


def _settled(found: list[HandedIn], labs: Mapping[str, CourseLab]) -> list[HandedIn]:
    """Files whose name says no lab have been looked into; where the student's file of that lab is there too, it counts."""
    named = {(one.student, one.lab): one for one in found if one.lab}
    for one in found:
        if one.lab or one.path.is_dir():
            continue
        lab = _looked_into(one.path, labs)
        other = named.get((one.student, lab))
        if lab and other:
            note = "; ".join(filter(None, [other.note, f"{one.path.name} is of this lab too, and does not count"]))
            named[one.student, lab] = replace(other, note=note)
        else:
            named[one.student, lab or str(one.path)] = replace(one, lab=lab)
    return [*named.values(), *(one for one in found if one.path.is_dir())]


def _looked_into(path: Path, labs: Mapping[str, CourseLab]) -> str:
    try:
        lab = submission.lab_of(submission.cells(submission.read(path)), labs.values())
    except submission.Ungradable:
        return ""
    return lab.stem if lab else ""


class _Batch:
    def __init__(
        self, folder: Path, out: Path, labs: Mapping[str, CourseLab], order: dict, progress: OnProgress | None
    ) -> None:
        self._folder, self._out, self._labs, self._order, self._progress = folder, out, labs, order, progress
        self._writing = threading.Lock()
        self._todo: queue.SimpleQueue[MarkingTask] = queue.SimpleQueue()
        self._errors: list[BaseException] = []
        self._done = self._all = self.graded = 0
        self.names: set[str] = set()

    def run(self, found: list[HandedIn], jobs: int) -> None:
        kept = {r.path: r for r in rows.read_all(self._out)}
        self._all = len(found)
        for one in found:
            task = self._task(one)
            self.names.add(task.name)
            before = kept.get(task.name)
            if before and self._still_holds(before, one):
                self._count(before)
            elif one.path.is_dir():
                self._write(GradeRow(task.student, "", task.name, "ungradable", reason=one.note, seed=self._order["seed"]))
            else:
                self._todo.put(task)
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(min(jobs, self._todo.qsize()))]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
        if self._errors:
            raise self._errors[0]

    def _task(self, one: HandedIn) -> MarkingTask:
        name = str(one.path.relative_to(self._folder)).encode("utf-8", "replace").decode()
        student = one.student.encode("utf-8", "replace").decode()
        return MarkingTask(student, one.lab, str(one.path), name, one.note)

    def _still_holds(self, before: GradeRow, one: HandedIn) -> bool:
        if (before.seed, before.unsafe) != (self._order["seed"], self._order["mode"] == UNSAFE):
            return False
        if one.path.is_dir():
            return before.state == "ungradable"
        try:
            return before.digest == submission.digest(submission.read(one.path))
        except submission.Ungradable:
            return before.digest == "" and before.state == "ungradable"

    # ---- one worker ------------------------------------------------------------------------------

    def _work(self) -> None:
        worker = None
        try:
            while True:
                try:
                    task = self._todo.get_nowait()
                except queue.Empty:
                    return
                worker = worker or _Worker(self._order)
                made = worker.mark(task)
                if made is None:  # it is gone, or too late
                    made, worker = self._lost(task, worker), None
                self._write(made)
        except BaseException as error:
            self._errors.append(error)
        finally:
            if worker is not None:
                worker.close()

    def _lost(self, task: MarkingTask, worker: _Worker) -> GradeRow:
        late = worker.close()
        state = "timeout" if late else "crashed"
        reason = "the process that marked it " + ("did not come to an end" if late else "ended before it had a row")
        seed, unsafe = self._order["seed"], self._order["mode"] == UNSAFE
        possible = self._labs[task.lab].possible if task.lab in self._labs else 0.0
        made = GradeRow(task.student, task.lab, task.name, state, possible=possible, reason=reason, seed=seed, unsafe=unsafe)
        with suppress(submission.Ungradable):
            made = replace(made, digest=submission.digest(submission.read(Path(task.path))))
        return made

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

    def __init__(self, order: dict) -> None:
        self._limit_s = order["limits"]["wall_s"] + _GRACE_S + (_FRESH_S if order["mode"] == FRESH else 0.0)
        self._first = True
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-m", "worldsize.grade.marking.worker", str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
        self._send(order)

    def mark(self, task: MarkingTask) -> GradeRow | None:
        """The task's row; None where the process ended or took too long."""
        limit_s = self._limit_s + (_START_S if self._first else 0.0)
        self._first = False
        if not self._send(asdict(task)):
            return None
        deadline_s, heard = time.monotonic() + limit_s, bytearray()
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
