"""A process that marks: it takes tasks from its standard input, one a line, and answers with a row for each.

It holds one sandbox, reads files without trust, and runs the checks; it can be killed at any moment. Its end comes
with the end of its input. Its memory has a limit of its own, so that nothing that a submission sends takes the machine's:
what does not fit costs the submission, not the machine. What is the grader's own failure is a row that is "lost". Left
out: which tasks there are, and what is tried again (`batch`).
"""

from __future__ import annotations

import gc
import json
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from worldsize.engines.libc import libc
from worldsize.grade import course
from worldsize.grade.course import CourseLab
from worldsize.grade.host.boxes import Sandbox, SandboxLost, Server
from worldsize.grade.isolation import privileges
from worldsize.grade.isolation.bubblewrap import UNSAFE, Framework
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import marking
from worldsize.grade.marking.marking import BrokenRelease, MarkingOrder, MarkingTask
from worldsize.grade.marking.rows import GradeRow, GradeState

_LEAST_ROOM = 0.6  # of the room, for the next submission
ROOM_BYTES = 200_000_000  # beside what a worker has before its first task: a few times what an honest submission needs


def main() -> None:
    privileges.end_with_parent()
    if os.getppid() != int(sys.argv[1]):
        return  # the grader ended before it could be heard

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints, prints there

    order = _order(sys.stdin.readline())
    labs = course.load(Path(order.course))
    sandbox = WorkerSandbox(order.mode, order.limits)
    most_bytes = limit_memory()
    try:
        serve(sys.stdin, answers, labs, sandbox, order.seed, lambda: most_bytes - data_bytes() < ROOM_BYTES * _LEAST_ROOM)
    finally:
        sandbox.close()


def _order(line: str) -> MarkingOrder:
    data = json.loads(line)
    return MarkingOrder(**data | {"limits": Limits(**data["limits"])})


def serve(
    tasks: TextIO, answers: TextIO, labs: Mapping[str, CourseLab], sandbox: Sandbox, seed: int, is_full: Callable[[], bool]
) -> None:
    """Answer each task with its row and whether this process should mark no more: its memory stays too full for another."""
    for number, line in enumerate(tasks):
        row = _row(MarkingTask(**json.loads(line)), labs, sandbox, seed, fresh=number == 0)
        _give_memory_back()
        answers.write(json.dumps({"row": asdict(row), "full": is_full()}) + "\n")
        answers.flush()


def _row(task: MarkingTask, labs: Mapping[str, CourseLab], sandbox: Sandbox, seed: int, fresh: bool) -> GradeRow:
    """The row, whatever happens. In a `fresh` worker there is nothing in memory but what this submission put there."""
    state: GradeState = "lost"
    try:
        if task.lab in labs and not task.sound:
            marking.try_setup(labs[task.lab], sandbox)
        return marking.mark(task, labs, sandbox, seed)
    except MemoryError:
        reason = f"what it sent does not fit into the {ROOM_BYTES / 1e6:g} MB that the grader has for a submission"
        if fresh:
            state = "crashed"
    except (SandboxLost, BrokenRelease) as error:
        reason = str(error)
    except Exception as error:
        reason = f"the grader itself failed: {type(error).__name__}: {error}"

    sandbox.renew()
    return task.row(state, reason, seed, unsafe=sandbox.mode == UNSAFE)


# ---- the worker's own memory -------------------------------------------------------------------


class WorkerSandbox(Sandbox):
    """A sandbox whose servers have no part in the worker's limit on memory: they have their own."""

    def _new(self, framework: Framework) -> Server:
        with _without_limit():
            return super()._new(framework)


def limit_memory(room_bytes: int = ROOM_BYTES) -> int:
    """From now on this process may have `room_bytes` more of data than it has with all that checks import: how many in all."""
    gc.disable()  # a fifth of the time that the import takes
    import IPython.core.inputtransformer2  # noqa: F401 - reads cells
    import torch  # noqa: F401 - the largest of it

    gc.enable()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = data_bytes() + room_bytes
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    return most


def data_bytes() -> int:
    """The data of this process now, as its limit counts them."""
    found = re.search(r"^VmData:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return 1024 * int(found[1])


def _give_memory_back() -> None:
    gc.collect()
    with suppress(AttributeError):  # another C library
        libc.malloc_trim(0)


@contextmanager
def _without_limit() -> Iterator[None]:
    """What is started meanwhile inherits the limit that this process had from others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


if __name__ == "__main__":
    main()
