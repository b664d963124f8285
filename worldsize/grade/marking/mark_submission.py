"""Mark one submission: run its exercise cells after the release's set-up, and every check in the sandbox.

An exercise is checked with the student's own earlier ones. If one of those failed and this one names it, the check is
repeated with the reference in its place, and the better result counts, so that a mistake costs once. All draws of a
check derive from the run's seed and the file, so that an appeal can be replayed.
"""

import random
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from worldsize.cells import breakpoint_line, no_python, python_cell, raises_not_yet
from worldsize.checks import run_check
from worldsize.checks.arena import Arena
from worldsize.checks.in_one_process import NotPlayable
from worldsize.checks.verdict import Verdict
from worldsize.grade.course import CourseLab, Exercise
from worldsize.grade.frames import UNSEEN
from worldsize.grade.isolation.bubblewrap import UNSAFE, NoSandbox, SandboxMode
from worldsize.grade.isolation.limits import Limits, Meter
from worldsize.grade.marking import submission
from worldsize.grade.marking.confirmation import Checked, confirmed, exercise_row, helped_row
from worldsize.grade.marking.helper_cells import HelperCells
from worldsize.grade.marking.rows import ExerciseRow, ExerciseState, GradeRow, GradeState, SimulatedRow
from worldsize.grade.marking.seeds import derived
from worldsize.grade.marking.submission import Submission, Ungradable
from worldsize.grade.marking.submissions_folder import joined
from worldsize.grade.outside.arena import Cells, CountingArena, SandboxArena, Submitted
from worldsize.grade.outside.boxes import Sandbox, SandboxLost
from worldsize.grade.outside.played_arena import PlayLost, SimulatedSandboxArena
from worldsize.grade.outside.sandboxed_run import Incident
from worldsize.units import text_of

_MOST_TAKEN_OUT, _MOST_SHOWN = 20, 60
_QUIT = "BdbQuit"  # raised by a debugger that has no input
_OF_THE_MACHINE = ("MemoryError", "OSError", "TimeoutError", "ConnectionError")  # errors of this moment, not of a cell


class BrokenRelease(RuntimeError):
    """A release whose own set-up cells did not run in the sandbox; a second try may succeed."""


class SetupRaised(BrokenRelease):
    """A set-up cell that raised an error of its own, and will again: this release cannot be graded with this package."""


@dataclass(frozen=True)
class MarkingTask:
    """A submission's file to mark. `lab` is "" if neither the file's name nor its cells give it.

    `sound` means that the lab's set-up cells are known to run here (`try_setup`).
    """

    student: str
    lab: str
    path: str  # on this machine
    name: str  # within the submissions folder
    note: str = ""
    sound: bool = False

    def row(self, state: GradeState, reason: str, seed: int, unsafe: bool) -> GradeRow:
        """Return this file's row if marking gave no result; `unsafe` means without a sandbox."""
        return GradeRow(self.student, self.lab, self.name, state, reason=reason, seed=seed, unsafe=unsafe)


@dataclass(frozen=True)
class MarkingOrder:
    """Settings for every submission to mark. `course` is the release's folder, `mode` the kind of sandbox."""

    course: str
    mode: SandboxMode
    seed: int
    limits: Limits


def try_setup(lab: CourseLab, sandbox: Sandbox) -> None:
    """Run the release's set-up cells alone, so that later failures are the submission's.

    Raises SetupRaised, BrokenRelease where another try may succeed, and SandboxLost.
    """
    sandbox.preload(lab.modules)
    try:
        result = SandboxArena(sandbox, Meter(sandbox.limits), setup_cells(lab), seed=0).try_cells()
    finally:
        sandbox.settle()

    if result.state != "done":
        raise BrokenRelease(f"the set-up cells of lab {lab.number} did not run: {result.message}")
    for title, said in result.values[0]["errors"].items():
        raised = f"{title} of lab {lab.number} raised {said}"
        if said.startswith(_OF_THE_MACHINE):
            raise BrokenRelease(raised)
        raise SetupRaised(
            f"{raised}. No notebook of this lab can be graded so: expected the course's release and the package `worldsize` "
            "of one version. Give the students' release with --course, or install its version of the package"
        )


def setup_cells(lab: CourseLab) -> Cells:
    return [[f"Set-up {k}", source] for k, source in enumerate(lab.setups, 1)]


def mark(task: MarkingTask, labs: Mapping[str, CourseLab], sandbox: Sandbox, seed: int) -> GradeRow:
    """Mark one submission, from its file to its row: every check in the sandbox, points at the end.

    Raises BrokenRelease, SandboxLost, NoSandbox and OSError, the grader's own failures; all else ends in a row.
    """
    began_s = time.monotonic()
    row = GradeRow(
        student=text_of(task.student),
        lab=task.lab,
        path=text_of(task.name),
        state="ungradable",
        possible=labs[task.lab].possible if task.lab in labs else 0.0,
        seed=seed,
        unsafe=sandbox.mode == UNSAFE,
        handed_in=text_of(task.note),
    )

    try:
        file = submission.read_notebook(Path(task.path))
        row = replace(row, digest=file.digest)  # of the bytes marked here: the file may have changed
        cells = file.cells
        if not any(cell.source.strip() for cell in cells):
            raise Ungradable("the notebook is empty")
        lab = labs.get(task.lab) or submission.lab_of(cells, labs.values())
        if lab is None:
            known = ", ".join(sorted(labs))
            meant = f"one of the labs {known}" if len(labs) > 1 else known
            raise Ungradable(f"expected the notebook of {meant}, got one without any of its exercise cells")
        submission.expect_notebook_of(lab, cells)
    except Ungradable as error:
        return replace(row, reason=str(error), seconds=time.monotonic() - began_s)

    handed_in = submission.repair(cells, lab)
    marking = SubmissionMarking(lab, handed_in, sandbox, derived(seed, lab.stem, row.digest))
    exercises = tuple(marking.exercises())
    states = {e.state for e in exercises}
    state: GradeState = "tampered" if handed_in.tamper else "graded"
    if "timeout" in states:
        state = "timeout"
    elif "crashed" in states:
        state = "crashed"

    return replace(
        row,
        lab=lab.stem,
        state=state,
        points=sum(e.points for e in exercises),
        possible=lab.possible,
        exercises=exercises,
        tamper=handed_in.tamper,
        handed_in=joined(row.handed_in, handed_in.note),
        seconds=time.monotonic() - began_s,
    )


class SubmissionMarking:
    """The marking of one submission: the cells that run, the cells that must not, and the results so far."""

    def __init__(self, lab: CourseLab, handed_in: Submission, sandbox: Sandbox, seed: int) -> None:
        self._lab = lab
        self._handed_in = handed_in
        self._sandbox = sandbox
        self._seed = seed

        self._meter = Meter(sandbox.limits)
        self._playing = Meter(sandbox.limits.playing)
        self._fatal: dict[str, tuple[ExerciseState, str]] = {}  # by exercise, where its cell ends the process
        self._failed: list[Exercise] = []
        self._helpers = HelperCells(lab, handed_in)
        self._own = {name: python_cell(source) for name, source in handed_in.sources.items() if source is not None}

    def exercises(self) -> Iterator[ExerciseRow]:
        self._sandbox.preload(self._lab.modules)

        try:
            self._find_fatal_cells()
            for exercise in self._lab.exercises:
                row = self._judged(exercise)
                if row.state != "pass":
                    self._failed.append(exercise)
                    elsewhere = self._handed_in.elsewhere.get(exercise.id, ())
                    place = self._handed_in.places.get(exercise.id, 0)
                    errors = self._helpers.errors_of_exercises.get(exercise.id, "")
                    broken = no_python(exercise, place, self._source(exercise), errors)
                    row = replace(row, elsewhere=(broken, *elsewhere) if broken else elsewhere)
                yield row
        finally:
            for ended in self._sandbox.settle():
                self._meter.cpu_s += ended.cpu_s

    def _find_fatal_cells(self) -> None:
        """Find the cells that hang or end the process, so that everything else runs without them."""
        while True:
            cells = self._cells((), None)
            result = self._arena(cells).try_cells()
            if result.state == "done":
                self._helpers.note_errors(result.values[0].get("errors"))
                return
            if self._meter.too_much(self._sandbox.processes()):
                return  # over a limit, as each later run will say

            place = result.cells_begun - 1
            if place < len(self._lab.setups):  # no line of the submission had run
                raise BrokenRelease(f"the set-up cells of lab {self._lab.number} did not run: {result.message}")

            title, _ = cells[min(place, len(cells) - 1)]
            message = result.message.splitlines()[0]
            if all(exercise.title != title for exercise in self._lab.exercises):
                self._helpers.drop(title, message)
                continue

            left = [exercise for exercise in self._lab.exercises if exercise.id not in self._fatal]
            if not left:
                raise BrokenRelease(f"lab {self._lab.number} as released does not run: {result.message}")

            # a cell can forge that later cells had begun: if that one is out already, the last one left goes
            blamed = next((exercise for exercise in left if exercise.title == title), left[-1])
            state = result.incident or "crashed"
            self._fatal[blamed.id] = state, f"in the cell of {blamed.title} itself, before any call: {message}"

    def _cells(self, helped: tuple[Exercise, ...], checked: Exercise | None) -> Cells:
        """Return a submission's set-up cells and exercises, in order; a reference follows the cell that it replaces.

        Before each exercise come the student's own cells that `checked` uses, or that any exercise uses if it is None.
        """
        cells = setup_cells(self._lab)
        helpers = self._helpers.of(checked)

        for exercise in self._lab.exercises:
            cells += helpers.pop(exercise.id, [])
            own = exercise.stub
            if exercise.id in self._own and exercise.id not in self._fatal:
                own = self._own[exercise.id].text

            if exercise in helped:
                cells += [[f"{exercise.title} as handed in", own], [exercise.title, exercise.reference or "", UNSEEN]]
            else:
                cells.append([exercise.title, own])
        return cells

    def _arena(self, cells: Cells, draws: random.Random | None = None) -> SandboxArena:
        # ranks know their seed, which must not reveal a check's draws
        return SandboxArena(self._sandbox, self._meter, cells, derived(self._seed, "ranks"), draws)

    # ---- one exercise ----------------------------------------------------------------------------

    def _judged(self, exercise: Exercise) -> ExerciseRow:
        row = replace(exercise_row(exercise, self._check(exercise, ())), left=self._helpers.taken[exercise.id].left)
        if exercise.id in self._own:
            shown = self._own[exercise.id].taken_out[:_MOST_TAKEN_OUT]
            row = replace(row, taken_out=tuple(text_of(one, _MOST_SHOWN) for one in shown))

        if self._handed_in.sources[exercise.id] is None:
            return replace(row, state="missing", mismatch=f"{exercise.title}: its cell is not in the notebook")
        if exercise.id in self._fatal:
            state, message = self._fatal[exercise.id]
            return replace(row, state=state, mismatch=message)
        if row.state == "pass" or (row.state == "not yet" and raises_not_yet(self._source(exercise))):
            return row

        row = replace(row, mismatch=self._with_breakpoint(exercise, row.mismatch))
        if said := self._helpers.errors(exercise):
            row = replace(row, mismatch=f"{row.mismatch}\n{said}")
        helped = self._needed(exercise)
        if not helped:
            return row
        if row.state == "not yet":  # this exercise is written, but not one that it calls
            row = replace(row, state="fail", mismatch=f"It calls an exercise that is not written yet ({row.mismatch})")

        better = self._check(exercise, helped)
        if better.verdict.points <= row.points:
            return row
        return helped_row(exercise, helped, row, better)

    def _with_breakpoint(self, exercise: Exercise, mismatch: str) -> str:
        """Return the mismatch, in which a breakpoint that ended the run is named in place of the debugger's error."""
        if _QUIT not in mismatch:
            return mismatch

        places = [("line {}", self._source(exercise))]
        for cell in self._helpers.taken[exercise.id].cells:
            places.append((f"code cell {cell.number}", cell.source))
        for place, source in places:
            if line := breakpoint_line(source):
                first = mismatch.partition("\n")[0]
                return first.replace(_QUIT, f"a breakpoint was left in {place.format(line)}: remove it")
        return mismatch

    def _needed(self, exercise: Exercise) -> tuple[Exercise, ...]:
        """Return the submission's earlier failed exercises that this one names, directly or through another of them."""
        source = self._source(exercise)
        for cell in self._helpers.taken[exercise.id].cells:
            source += f"\n{cell.source}"

        exercises = []
        for earlier in reversed(self._failed):
            if earlier.reference and re.search(rf"\b{re.escape(earlier.id)}\b", source):
                exercises.append(earlier)
                source += f"\n{self._source(earlier)}\n{earlier.reference}"  # the reference may call others too
        return tuple(exercises)

    def _source(self, exercise: Exercise) -> str:
        return self._handed_in.sources[exercise.id] or ""

    def _check(self, exercise: Exercise, helped: tuple[Exercise, ...]) -> Checked:
        """Run the check on real ranks, and in simulated time too if points were earned by messages."""
        cells = self._cells(helped, exercise)
        draws = random.Random(derived(self._seed, exercise.id))
        self._sandbox.exercise = exercise.id
        arena = self._arena(cells, draws)
        counting = CountingArena(arena)
        with self._playing.paused():
            verdict = _verdict(exercise, counting, arena.incidents)

        state = verdict.state
        if state == "fail" and arena.incidents:
            state = arena.incidents[-1]

        real = Checked(verdict, state, counting.run_of(verdict), changed=tuple(sorted(arena.changed)))
        if verdict.points and {"ranks"} <= counting.ways <= {"ranks", "call"}:
            return self._confirmed(exercise, cells, real)
        return real

    def _confirmed(self, exercise: Exercise, cells: Cells, real: Checked) -> Checked:
        """Run the same check of the submission in simulated time, with other draws.

        Points stay if the case cannot be played, if playing gives no result, or if real ranks pass with the same draws.
        """
        draws = random.Random(derived(self._seed, "played", exercise.id))
        orders = random.Random(derived(self._seed, "orders", exercise.id))
        seed = derived(self._seed, "ranks")
        arena = SimulatedSandboxArena(self._sandbox, self._playing, cells, seed, draws, orders)
        try:
            with self._meter.paused():
                simulated = _verdict(exercise, arena, arena.incidents)
        except NotPlayable as refused:
            return replace(real, simulated=SimulatedRow("not played", text_of(str(refused))))
        except PlayLost as lost:
            return replace(real, simulated=SimulatedRow(lost.incident, text_of(str(lost))))

        if arena.incidents:
            return replace(real, simulated=SimulatedRow(arena.incidents[-1], text_of(simulated.mismatch or "")))
        both = confirmed(real, simulated)
        if both.verdict.points == real.verdict.points:
            return both

        # a real mistake also fails on real ranks with these draws; a person judges what fails in one process alone
        draws = random.Random(derived(self._seed, "played", exercise.id))
        with self._playing.paused():
            real_ranks = self._arena(cells, draws)
            again = _verdict(exercise, real_ranks, real_ranks.incidents)
        return replace(real, simulated=both.simulated) if again.points == real.verdict.points else both


def _verdict(exercise: Exercise, arena: Arena, incidents: list[Incident]) -> Verdict:
    """Return the check's verdict for a mark; values that make the check itself fail earn nothing.

    Where the values do not fit into memory, it adds "crashed" to `incidents`.
    """
    try:
        return run_check(exercise.id, arena, *map(Submitted, exercise.functions))
    except (SandboxLost, NoSandbox, OSError, NotPlayable, PlayLost):  # not the check's findings
        raise
    except MemoryError:
        incidents.append("crashed")
        return Verdict(exercise.id, "fail", (), "the results do not fit into the memory that the grader has for them")
    except Exception as error:
        message = f"the check could not read the results ({type(error).__name__}: {text_of(str(error), 200)})"
        return Verdict(exercise.id, "fail", (), message)
