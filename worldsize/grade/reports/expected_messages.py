"""The messages that a student's failing case should have had, from the same case, inputs and the course's own answer.

A check draws from the row's seed, so its k-th run is the same for every answer. Only the course's own cells run, outside
any sandbox; their messages are kept in the folder of grades, so that writing feedback again runs nothing.
"""

import hashlib
import json
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from worldsize.checks import run_check
from worldsize.files import PRIVATE, write_whole
from worldsize.grade.course import CourseLab, Exercise
from worldsize.grade.isolation.bubblewrap import UNSAFE
from worldsize.grade.isolation.limits import Meter
from worldsize.grade.marking.mark_submission import setup_cells
from worldsize.grade.marking.rows import ExerciseRow, GradeRow, messages_of
from worldsize.grade.marking.seeds import derived
from worldsize.grade.outside.arena import CountingArena, LastRunReached, SandboxArena, Submitted
from worldsize.grade.outside.boxes import Sandbox
from worldsize.trace import Trace, Transfer


class ExpectedMessages:
    """The expected messages by `trace(row, exercise_row)`; `folder` keeps them, and `close` ends the sandbox."""

    def __init__(self, labs: dict[str, CourseLab], folder: Path) -> None:
        self._labs, self._folder = labs, folder
        self._sandbox: Sandbox | None = None

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()

    def trace(self, row: GradeRow, exercise: ExerciseRow) -> Trace | None:
        """Return the expected messages; None if the course has no answer, the case sends nothing, or the run fails."""
        lab = self._labs.get(row.lab)
        if lab is None or not exercise.run:
            return None

        exercises = {e.id: e for e in lab.exercises}
        answers = [e.reference for e in lab.exercises]
        if exercise.id not in exercises or None in answers:
            return None

        # the file's name has everything that the case depends on
        parts = [row.seed, row.digest, exercise.id, exercise.run, *lab.setups, *answers]
        mark = hashlib.blake2b(json.dumps(parts).encode(), digest_size=10).hexdigest()
        path = self._folder / f"{lab.stem}.{exercise.id}.{mark}.json"
        with suppress(OSError, ValueError, TypeError):
            return _trace(*json.loads(path.read_text(encoding="utf-8")))

        try:
            ranks, messages = messages_of(self._run(row, exercise.run, lab, exercises[exercise.id]))
        except Exception:  # feedback goes out without this picture
            return None
        write_whole(path, json.dumps([ranks, messages]), PRIVATE)
        return _trace(ranks, messages)

    def _run(self, row: GradeRow, last: int, lab: CourseLab, exercise: Exercise) -> Trace | None:
        if self._sandbox is None:
            self._sandbox = Sandbox(UNSAFE)  # nothing of a submission runs in it
        sandbox = self._sandbox
        sandbox.preload(lab.modules)
        sandbox.exercise = exercise.id

        seed = derived(row.seed, lab.stem, row.digest)
        cells = setup_cells(lab) + [[e.title, e.reference] for e in lab.exercises]
        draws = random.Random(derived(seed, exercise.id))
        arena = SandboxArena(sandbox, Meter(sandbox.limits), cells, derived(seed, "ranks"), draws)

        try:
            run_check(exercise.id, CountingArena(arena, last), *map(Submitted, exercise.functions))
        except LastRunReached as enough:
            if enough.ended.state == "done":
                return enough.ended.trace
        finally:
            sandbox.settle()
        return None


def _trace(ranks: int, messages: Sequence[Sequence]) -> Trace | None:
    if not messages:
        return None
    return Trace(ranks, tuple(Transfer(*message) for message in messages))
