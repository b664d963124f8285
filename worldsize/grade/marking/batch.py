"""Grade a folder of submissions with several workers, and write one row file for each.

Submissions already graded with this file, seed and release are skipped, so an interrupted batch resumes. Several
batches, on several machines too, may share a folder: each row is graded under a lease, and the last batch to end has
seen every row.
"""

from __future__ import annotations

import platform
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import SoftFileLease, Timeout

from worldsize.files import remove_parts_of
from worldsize.grade import course
from worldsize.grade.course import CourseLab
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.isolation.bubblewrap import UNSAFE, SandboxMode
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import lateness, rows, submission, submissions_folder
from worldsize.grade.marking.desk import Desk
from worldsize.grade.marking.grading_record import GradedFolder, GradingRecord, first_record, read_graded, write_record
from worldsize.grade.marking.lateness import DueDates
from worldsize.grade.marking.marking import MarkingOrder, MarkingTask
from worldsize.grade.marking.releases import releases
from worldsize.grade.marking.rows import GradeRow, file_name
from worldsize.grade.marking.selection import Selection, expect_found
from worldsize.grade.marking.submissions_folder import HandedIn

OnProgress = Callable[[int, int, GradeRow], None]
LEASE_S = 60.0  # a lease expires after this long without renewal
_ASK_AGAIN_S = 1.0  # between tries for a row that another batch holds
NO_DATES = DueDates()
ALL = Selection()


@dataclass(frozen=True)
class Batch:
    """The result of `grade`: a row for each file, and how many of them this call `graded` or `kept`.

    `gone` are earlier rows whose file no longer exists; `folder` is the whole folder of grades.
    """

    rows: tuple[GradeRow, ...]
    graded: int
    seed: int
    mode: SandboxMode
    gone: tuple[GradeRow, ...] = ()
    kept: int = 0
    folder: GradedFolder = GradedFolder(())


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
    selection: Selection = ALL,
    due: DueDates = NO_DATES,
) -> Batch:
    """Grade the `selection` of `folder`, and write one JSON row per submission to `out/rows/`.

    `seed` replays an earlier batch; the default is the seed recorded in `out`, else a new one. `mode` is for tests:
    "own" or "fresh". Raises ValueError for a wrong folder, course or selection, for a shard without a seed, or where no
    sandbox works and `unsafe` is not given.
    """
    if root is None:
        root = course.default_root()
    root = root.resolve()
    labs = course.load(root)
    found = settled(submissions_folder.find(folder, labs), labs)
    expect_found(selection, (one.student for one in found), (path_in(folder, one) for one in found))

    if out.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{out}: expected a folder outside the submissions in {folder}, got one inside. Name another.")
    if unsafe:
        mode = UNSAFE
    elif mode is None:
        mode = bubblewrap.best_mode()

    (out / "leases").mkdir(parents=True, exist_ok=True)
    if seed is None and selection.shard.count > 1 and not GradingRecord.place(out).exists():
        raise ValueError(
            f"--shard: expected one seed for all shards, got none. Give all the same, such as --seed {secrets.randbits(62)}."
        )
    seed = fixed_seed(out, seed)
    order = MarkingOrder(course=str(root), mode=mode, seed=seed, limits=limits or Limits())
    batch = _Batch(folder, out, labs, order, progress, selection, due)
    batch.run(found, max(1, jobs))

    made = read_graded(out)
    return Batch(made.rows, batch.graded, seed, mode, made.gone, batch.kept, made)


def fixed_seed(out: Path, given: int | None) -> int:
    """Return the seed of all gradings into `out` from now on: `given`, else the recorded one, else a new one.

    Raises ValueError while another grading with another seed runs into `out`.
    """
    drawn = secrets.randbits(62) if given is None else given
    kept = first_record(out, GradingRecord(drawn))
    if given is None or given == kept.seed:
        return kept.seed
    if holders(out):
        raise ValueError(
            f"{out}: expected no grading with another seed in this folder, got one that is running ({', '.join(holders(out))}). "
            "Wait until it ends."
        )
    write_record(out, replace(kept, seed=given))
    return given


# ---- leases ------------------------------------------------------------------------------------


def _lease(out: Path, row_name: str) -> SoftFileLease:
    """Return a row's lease, a lock file, which also works on network file systems."""
    return SoftFileLease(out / "leases" / f"{row_name}.lease", lease_duration=LEASE_S, timeout=0, thread_local=False)


def holders(out: Path) -> list[str]:
    """Return the machines and processes that hold a row of this folder now."""
    found = set()
    for path in (out / "leases").glob("*.lease"):
        lease = _lease(out, path.name.removesuffix(".lease"))
        try:
            lease.acquire()
        except Timeout:
            if owner := lease.owner:
                found.add(f"process {owner.pid} on {owner.hostname}")
        else:
            lease.release()
    return sorted(found)


# ---- files -------------------------------------------------------------------------------------


def looked_into(one: HandedIn, labs: Mapping[str, CourseLab]) -> HandedIn:
    """Read a file once: add its digest and, if its name gives no lab, the lab that its cells belong to."""
    if one.refused or one.digest:
        return one

    try:
        if one.lab:
            return replace(one, digest=submission.read_digest(one.path))
        file = submission.read_notebook(one.path)
        one = replace(one, digest=file.digest)
        lab = submission.lab_of(file.cells, labs.values())
    except submission.Ungradable:
        return one
    return replace(one, lab=lab.stem) if lab else one


def settled(found: Iterable[HandedIn], labs: Mapping[str, CourseLab]) -> list[HandedIn]:
    """Keep one file per student and lab: the first whose name gives the lab, else the first.

    Only files without a lab in their name are read.
    """
    named: dict[tuple[str, str], HandedIn] = {}
    for one in sorted(found, key=lambda one: one.lab == ""):
        if not one.lab:
            one = looked_into(one, labs)
        place = (one.student, one.lab or str(one.path))
        other = named.get(place)
        if other is None:
            named[place] = one
        else:
            note = f"{one.path.name} is also of this lab, and does not count"
            named[place] = replace(other, note=submissions_folder.joined(other.note, one.note, note), copies=True)
    return list(named.values())


def path_in(folder: Path, one: HandedIn) -> str:
    """Return a file's path within the submissions folder, as text."""
    return str(one.path.relative_to(folder)).encode("utf-8", "replace").decode()


@dataclass(frozen=True)
class _Asked:
    """A selected submission: its file, its task, its row's lease, and its lateness."""

    one: HandedIn
    task: MarkingTask
    lease: SoftFileLease
    late: str
    seen: tuple | None  # the row's file at the start; a different one is another batch's work

    @property
    def row_name(self) -> str:
        return file_name(self.task.student, self.task.lab, self.task.name)


class _Batch:
    def __init__(
        self, folder: Path, out: Path, labs: Mapping[str, CourseLab], order: MarkingOrder, progress: OnProgress | None,
        selection: Selection, due: DueDates,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._out = out
        self._labs = labs
        self._order = order
        self._progress = progress
        self._selection = selection
        self._due = due

        self._releases = releases(labs)
        self._paths: dict[str, str] = {}  # {row file name: submission's path}
        self._stale: dict[str, str] = {}
        self._outdated: dict[str, str] = {}
        self._parts = {path.name for path in (out / "rows").glob(".*.part")}  # left by writers that may have been killed
        self._sound: set[str] = set()  # labs whose set-up cells are known to run here
        self._todo: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self._errors: list[BaseException] = []
        self._counting = threading.Lock()
        self._all = self._done = self.graded = self.kept = 0

    def run(self, found: list[HandedIn], jobs: int) -> None:
        """Grade every selected file that has no valid row. Raises the first error of a worker thread."""
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
        kept, refused = [], []
        for one in found:
            task = self._task(one)
            row_name = file_name(task.student, task.lab, task.name)
            self._paths[row_name] = task.name

            seen = rows.identity(self._out, row_name)
            before = rows.read(self._out / "rows" / row_name) if seen else None
            if not self._selection.has(task.student, task.lab, task.name, row_name, before):
                self._pass_over(before, one, task, row_name)
                continue

            one = looked_into(one, self._labs)
            late = one.late or lateness.late(one, self._due)
            asked = _Asked(one, task, _lease(self._out, row_name), late, seen)
            again = self._selection.again or self._selection.crashed
            if before and not again and self._still_holds(before, one, task):
                kept.append(asked)
            elif one.refused:
                refused.append(asked)
            else:
                self._todo.put(asked)
        self._record()

        self._all = len(kept) + len(refused) + self._todo.qsize()
        for asked in kept:
            self._keep(asked)
        for asked in refused:
            self._write(asked.task.row("ungradable", asked.one.refused, self._order.seed, self._unsafe), asked)

    def _pass_over(self, before: GradeRow | None, one: HandedIn, task: MarkingTask, row_name: str) -> None:
        """Note an unselected row that no longer holds; with several shards, each sees to its own rows."""
        if before is None or self._selection.shard.count > 1:
            return
        one = looked_into(one, self._labs)
        if before.digest != one.digest:
            self._stale[row_name] = before.digest
        elif not self._still_holds(before, one, task) and before.state != "lost":
            self._outdated[row_name] = before.release

    def _record(self) -> None:
        """Save which rows belong to existing files, and which of these rows are stale or outdated."""
        write_record(self._out, GradingRecord(self._order.seed, self._paths, self._stale, self._outdated))

    def _task(self, one: HandedIn) -> MarkingTask:
        return MarkingTask(student=one.student, lab=one.lab, path=str(one.path), name=path_in(self._folder, one), note=one.note)

    @property
    def _unsafe(self) -> bool:
        return self._order.mode == UNSAFE

    def _still_holds(self, before: GradeRow, one: HandedIn, task: MarkingTask) -> bool:
        """Return whether marking again would give the same row: same file, seed, release and sandboxing."""
        if before.state == "lost" or (before.path, before.seed, before.unsafe) != (task.name, self._order.seed, self._unsafe):
            return False
        if before.release != self._releases.get(before.lab):
            return False
        if one.refused:
            return before.reason == one.refused
        return before.digest == one.digest

    # ---- one worker thread -----------------------------------------------------------------------

    def _work(self) -> None:
        desk = Desk(self._order)
        try:
            while True:
                try:
                    asked = self._todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    asked.lease.acquire()
                except Timeout:  # another batch is marking it, or died before its lease expired
                    self._todo.put(asked)
                    time.sleep(_ASK_AGAIN_S / max(1, self._todo.qsize()))
                    continue
                try:
                    self._one(desk, asked)
                finally:
                    asked.lease.release()
        except BaseException as error:
            self._errors.append(error)
        finally:
            desk.close()

    def _one(self, desk: Desk, asked: _Asked) -> None:
        """Mark one submission, unless another batch has just done so."""
        remove_parts_of(self._out / "rows" / asked.row_name, self._parts)
        task = asked.task
        if rows.identity(self._out, asked.row_name) not in (None, asked.seen):
            meanwhile = rows.read(self._out / "rows" / asked.row_name)
            if self._still_holds(meanwhile, asked.one, task):
                self._keep(asked)
                return

        made = desk.mark(replace(task, sound=task.lab in self._sound))
        possible = self._labs[task.lab].possible if task.lab in self._labs else 0.0
        made = replace(made, possible=made.possible or possible, digest=made.digest or asked.one.digest)
        self._write(made, asked)

    def _write(self, made: GradeRow, asked: _Asked) -> None:
        made = replace(made, release=self._releases.get(made.lab, ""), host=platform.node())
        made = replace(made, late=asked.late, copies=asked.one.copies)
        rows.write(made, self._out / "rows")
        with self._counting:
            if made.exercises:  # they ran, so the set-up cells did too
                self._sound.add(made.lab)

            # a file resubmitted meanwhile may belong to another lab, and so to another row
            del self._paths[asked.row_name]
            self._paths[made.file_name] = asked.task.name
            self.graded += 1
            self._count(made)

    def _keep(self, asked: _Asked) -> None:
        """Keep a valid row, updated where what is reported about its file has changed."""
        before = rows.read(self._out / "rows" / asked.row_name)
        told = replace(before, handed_in=asked.task.note, late=asked.late, copies=asked.one.copies)
        if (before.handed_in, before.late, before.copies) != (told.handed_in, told.late, told.copies):
            rows.write(told, self._out / "rows")
        with self._counting:
            self.kept += 1
            self._count(told)

    def _count(self, row: GradeRow) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._all, row)
