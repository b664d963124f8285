"""A process that marks: it takes tasks from its standard input, one a line, and answers with a row for each.

It holds one sandbox, reads files without trust, and runs the checks; it can be killed at any moment. Its end comes
with the end of its input. Left out: which tasks there are, and what happens to rows (`batch`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from worldsize.grade import course
from worldsize.grade.course import CourseLab
from worldsize.grade.host.boxes import Sandbox, SandboxLost
from worldsize.grade.isolation import privileges
from worldsize.grade.isolation.bubblewrap import UNSAFE
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import marking
from worldsize.grade.marking.marking import BrokenRelease, MarkingOrder, MarkingTask
from worldsize.grade.marking.rows import GradeRow

_TRIES = 2


def main() -> None:
    privileges.end_with_parent()
    if os.getppid() != int(sys.argv[1]):
        return  # the grader ended before it could be heard

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints, prints there

    order = _order(sys.stdin.readline())
    labs = course.load(Path(order.course))
    sandbox = Sandbox(order.mode, order.limits)
    try:
        serve(sys.stdin, answers, labs, sandbox, order.seed)
    finally:
        sandbox.close()


def _order(line: str) -> MarkingOrder:
    data = json.loads(line)
    return MarkingOrder(**data | {"limits": Limits(**data["limits"])})


def serve(tasks: TextIO, answers: TextIO, labs: Mapping[str, CourseLab], sandbox: Sandbox, seed: int) -> None:
    for line in tasks:
        row = _row(MarkingTask(**json.loads(line)), labs, sandbox, seed)
        answers.write(json.dumps(asdict(row)) + "\n")
        answers.flush()


def _row(task: MarkingTask, labs: Mapping[str, CourseLab], sandbox: Sandbox, seed: int) -> GradeRow:
    """The row, whatever happens; a sandbox that was lost is tried again once, with a new one."""
    reason = ""
    for _ in range(_TRIES):
        try:
            return marking.mark(task, labs, sandbox, seed)
        except (SandboxLost, BrokenRelease) as error:
            reason = str(error)
        except Exception as error:
            reason = f"the grader itself failed, which is not the student's fault: {type(error).__name__}: {error}"
        sandbox.renew()

    return task.row("crashed", reason, seed, unsafe=sandbox.mode == UNSAFE)


if __name__ == "__main__":
    main()
