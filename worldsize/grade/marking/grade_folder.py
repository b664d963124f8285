"""Grade a folder of submissions with several workers, and write one row file for each.

Submissions already graded with this file, seed and release are skipped, so an interrupted grading resumes. Several
gradings, on several machines too, may share a folder: each row is graded under a lease, and the last grading to end has
seen every row.
"""

import platform
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import SoftFileLease, Timeout

from worldsize.files import remove_parts_of
from worldsize.grade import course
from worldsize.grade.course import CourseLab
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.isolation.bubblewrap import UNSAFE, SandboxMode
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import grading_record, lateness, rows, submission, submissions_folder
from worldsize.grade.marking.grading_record import GradedFolder, GradingRecord, first_record, read_graded, write_record
from worldsize.grade.marking.lateness import DueDates
from worldsize.grade.marking.mark_submission import MarkingOrder, MarkingTask
from worldsize.grade.marking.release_digests import release_digests
from worldsize.grade.marking.rows import GradeRow, file_name
from worldsize.grade.marking.selection import Selection, expect_found
from worldsize.grade.marking.submissions_folder import HandedIn
from worldsize.grade.marking.worker_supervisor import WorkerSupervisor

LEASE_S = 60.0  # a lease expires after this long without renewal


def lease(out: Path, row_name: str) -> SoftFileLease:
    """Return the lease of a row in the folder of grades `out`; to acquire a held one raises filelock's Timeout at once."""
    return SoftFileLease(out / "leases" / f"{row_name}.lease", lease_duration=LEASE_S, timeout=0, thread_local=False)


def holders(out: Path) -> list[str]:
    """Return the machines and processes that hold a row of this folder now."""
    owners = set()
    for path in (out / "leases").glob("*.lease"):
        held = lease(out, path.name.removesuffix(".lease"))
        try:
            held.acquire()
        except Timeout:
            if owner := held.owner:
                owners.add(f"process {owner.pid} on {owner.hostname}")
        else:
            held.release()
    return sorted(owners)


OnProgress = Callable[[int, int, GradeRow], None]
_ASK_AGAIN_S = 1.0  # between tries for a row that another grading holds
NO_DATES = DueDates()
ALL = Selection()


@dataclass(frozen=True)
class FolderGrading:
    """The result of `grade`: the whole folder of grades, and how many rows this call `graded` or `kept`."""

    folder: GradedFolder
    graded: int
    seed: int
    mode: SandboxMode
    kept: int = 0

    @property
    def rows(self) -> tuple[GradeRow, ...]:
        return self.folder.rows


def grade(
    folder: Path,
    out: Path,
    jobs: int = 2,
    root: Path | None = None,
    seed: int | None = None,
    limits: Limits | None = None,
    progress: OnProgress | None = None,
    mode: SandboxMode | None = None,
    selection: Selection = ALL,
    due: DueDates = NO_DATES,
) -> FolderGrading:
    """Grade the `selection` of `folder`, and write one JSON row per submission to `out/rows/`.

    `seed` replays an earlier grading; the default is the seed recorded in `out`, else a new one. `mode` is the kind of
    sandbox, by default the best one here; `UNSAFE` is none. Raises ValueError for a wrong folder, course or selection, for
    a shard without a seed, and NoSandbox where no sandbox works.
    """
    root = (root or course.default_root()).resolve()
    labs = course.load(root)
    files = find_submissions(folder, labs, selection)
    if out.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{out}: expected a folder outside the submissions in {folder}, got one inside. Name another.")
    if mode is None:
        mode = bubblewrap.best_mode()

    (out / "leases").mkdir(parents=True, exist_ok=True)
    if seed is None and selection.shard.count > 1 and not (out / grading_record.FILE).exists():
        raise ValueError(
            f"--shard: expected one seed for all shards, got none. Give all the same, such as --seed {secrets.randbits(62)}."
        )

    seed = fixed_seed(out, seed)
    order = MarkingOrder(course=str(root), mode=mode, seed=seed, limits=limits or Limits())
    run = _Run(folder, out, labs, order, progress, selection, due)
    run.grade(files, max(1, jobs))
    return FolderGrading(read_graded(out), run.graded, seed, mode, run.kept)


def fixed_seed(out: Path, given: int | None) -> int:
    """Return the seed of all gradings into `out` from now on: `given`, else the recorded one, else a new one.

    Raises ValueError while another grading with another seed runs into `out`.
    """
    drawn = secrets.randbits(62) if given is None else given
    kept = first_record(out, GradingRecord(drawn))
    if given is None or given == kept.seed:
        return kept.seed

    if busy := holders(out):
        raise ValueError(
            f"{out}: expected no grading with another seed in this folder, got one that is running ({', '.join(busy)}). "
            "Wait until it ends."
        )
    write_record(out, replace(kept, seed=given))
    return given


def find_submissions(folder: Path, labs: Mapping[str, CourseLab], selection: Selection) -> list[HandedIn]:
    """Return one file per student and lab in `folder`: the first whose name gives the lab, else the first.

    Only files without a lab in their name are read. Raises ValueError for a wrong folder, and for a student or a path of
    the `selection` that is not there.
    """
    by_lab: dict[tuple[str, str], HandedIn] = {}
    for file in sorted(submissions_folder.find(folder, labs), key=lambda file: file.lab == ""):
        if not file.lab:
            file = _looked_into(file, labs)

        place = (file.student, file.lab or str(file.path))
        other = by_lab.get(place)
        if other is None:
            by_lab[place] = file
        else:
            note = f"{file.path.name} is also of this lab, and does not count"
            by_lab[place] = replace(other, note=submissions_folder.joined(other.note, file.note, note), copies=True)

    files = list(by_lab.values())
    expect_found(selection, (file.student for file in files), (path_in(folder, file) for file in files))
    return files


def _looked_into(file: HandedIn, labs: Mapping[str, CourseLab]) -> HandedIn:
    """Read a file of the folder once: add its digest and, if its name gives no lab, the lab that its cells belong to."""
    if file.refused or file.digest:
        return file

    try:
        if file.lab:
            return replace(file, digest=submission.read_digest(file.path))
        notebook = submission.read_notebook(file.path)
        file = replace(file, digest=notebook.digest)
        lab = submission.lab_of(notebook.cells, labs.values())
    except submission.Ungradable:
        return file
    return replace(file, lab=lab.stem) if lab else file


def path_in(folder: Path, file: HandedIn) -> str:
    """Return a file's path within the folder to grade, as text."""
    return str(file.path.relative_to(folder)).encode("utf-8", "replace").decode()


@dataclass(frozen=True)
class _Selected:
    """A submission of the folder to grade: its file, its task, its row's name and lease, and its lateness."""

    file: HandedIn
    task: MarkingTask
    row_name: str
    lease: SoftFileLease  # one for all tries: another's lease expires when this one has seen it unchanged for long enough
    late: str
    seen: tuple | None  # the row's file at the start; a different one is another grading's work


class _Run:
    """A call of `grade`: it sorts out the files, and worker threads mark the files without a valid row."""

    def __init__(
        self, folder: Path, out: Path, labs: Mapping[str, CourseLab], order: MarkingOrder, progress: OnProgress | None,
        selection: Selection, due: DueDates,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._out = out
        self._labs = labs
        self._order = order
        self._unsafe = order.mode == UNSAFE
        self._progress = progress
        self._selection = selection
        self._due = due

        self._releases = release_digests(labs)
        self._paths: dict[str, str] = {}  # {row file name: submission's path}
        self._stale: dict[str, str] = {}
        self._outdated: dict[str, str] = {}
        self._parts = {path.name for path in (out / "rows").glob(".*.part")}  # left by writers that may have been killed
        self._sound: set[str] = set()  # labs whose set-up cells are known to run here
        self._todo: queue.SimpleQueue[_Selected] = queue.SimpleQueue()
        self._errors: list[BaseException] = []
        self._counting = threading.Lock()
        self._all = self.graded = self.kept = 0

    def grade(self, files: list[HandedIn], jobs: int) -> None:
        """Grade every selected file that has no valid row. Raises the first error of a worker thread."""
        self._sort_out(files)

        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(min(jobs, self._todo.qsize()))]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)

        self._record()
        if self._errors:
            raise self._errors[0]

    def _sort_out(self, files: list[HandedIn]) -> None:
        """Keep the folder's valid rows, write the rows of refused files, and queue all other selected files."""
        kept, refused = [], []
        for file in files:
            name = path_in(self._folder, file)
            task = MarkingTask(student=file.student, lab=file.lab, path=str(file.path), name=name, note=file.note)
            row_name = file_name(task.student, task.lab, task.name)
            self._paths[row_name] = task.name

            seen = rows.identity(self._out, row_name)
            before = rows.read(self._out / "rows" / row_name) if seen else None
            if not self._selection.has(task.student, task.lab, task.name, row_name, before):
                if before:
                    self._note_unselected(before, file, task, row_name)
                continue

            file = _looked_into(file, self._labs)
            late = file.late or lateness.late(file, self._due)
            selected = _Selected(file, task, row_name, lease(self._out, row_name), late, seen)
            again = self._selection.again or self._selection.crashed
            if before and not again and self._still_holds(before, file, task):
                kept.append(selected)
            elif file.refused:
                refused.append(selected)
            else:
                self._todo.put(selected)
        self._record()

        self._all = len(kept) + len(refused) + self._todo.qsize()
        for selected in kept:
            self._keep(selected)
        for selected in refused:
            row = selected.task.row("ungradable", selected.file.refused, self._order.seed, self._unsafe)
            self._write(row, selected)

    def _note_unselected(self, before: GradeRow, file: HandedIn, task: MarkingTask, row_name: str) -> None:
        """Note an unselected row that no longer holds; with several shards, each sees to its own rows."""
        if self._selection.shard.count > 1:
            return
        file = _looked_into(file, self._labs)
        if before.digest != file.digest:
            self._stale[row_name] = before.digest
        elif not self._still_holds(before, file, task) and before.state != "lost":
            self._outdated[row_name] = before.release

    def _record(self) -> None:
        """Save which rows belong to existing files, and which of these rows are stale or outdated."""
        write_record(self._out, GradingRecord(self._order.seed, self._paths, self._stale, self._outdated))

    def _still_holds(self, before: GradeRow, file: HandedIn, task: MarkingTask) -> bool:
        """Return whether marking again would give the same row: same file, seed, release and sandboxing."""
        if before.state == "lost" or (before.path, before.seed, before.unsafe) != (task.name, self._order.seed, self._unsafe):
            return False
        if before.release != self._releases.get(before.lab):
            return False
        if file.refused:
            return before.reason == file.refused
        return before.digest == file.digest

    # ---- one worker thread -----------------------------------------------------------------------

    def _work(self) -> None:
        supervisor = WorkerSupervisor(self._order)
        try:
            while True:
                try:
                    selected = self._todo.get_nowait()
                except queue.Empty:
                    return

                try:
                    selected.lease.acquire()
                except Timeout:  # another grading is marking it, or died before its lease expired
                    self._todo.put(selected)
                    time.sleep(_ASK_AGAIN_S / max(1, self._todo.qsize()))
                    continue

                try:
                    self._mark(supervisor, selected)
                finally:
                    selected.lease.release()
        except BaseException as error:
            self._errors.append(error)
        finally:
            supervisor.close()

    def _mark(self, supervisor: WorkerSupervisor, selected: _Selected) -> None:
        """Mark one submission, unless another grading has just done so."""
        task, row_name = selected.task, selected.row_name
        remove_parts_of(self._out / "rows" / row_name, self._parts)
        if rows.identity(self._out, row_name) not in (None, selected.seen):
            meanwhile = rows.read(self._out / "rows" / row_name)
            if self._still_holds(meanwhile, selected.file, task):
                self._keep(selected)
                return

        made = supervisor.mark(replace(task, sound=task.lab in self._sound))
        possible = self._labs[task.lab].possible if task.lab in self._labs else 0.0
        made = replace(made, possible=made.possible or possible, digest=made.digest or selected.file.digest)
        self._write(made, selected)

    def _write(self, made: GradeRow, selected: _Selected) -> None:
        release = self._releases.get(made.lab, "")
        made = replace(made, release=release, host=platform.node(), late=selected.late, copies=selected.file.copies)
        rows.write(made, self._out / "rows")

        with self._counting:
            if made.exercises:  # they ran, so the set-up cells did too
                self._sound.add(made.lab)

            # a file resubmitted meanwhile may belong to another lab, and so to another row
            del self._paths[selected.row_name]
            self._paths[made.file_name] = selected.task.name
            self.graded += 1
            self._report(made)

    def _keep(self, selected: _Selected) -> None:
        """Keep a valid row of the folder, updated where what is reported about its file has changed."""
        before = rows.read(self._out / "rows" / selected.row_name)
        row = replace(before, handed_in=selected.task.note, late=selected.late, copies=selected.file.copies)
        if (before.handed_in, before.late, before.copies) != (row.handed_in, row.late, row.copies):
            rows.write(row, self._out / "rows")

        with self._counting:
            self.kept += 1
            self._report(row)

    def _report(self, row: GradeRow) -> None:
        if self._progress is not None:
            self._progress(self.graded + self.kept, self._all, row)
