"""A process that marks: it reads tasks from standard input, one a line, and answers each with a row.

The process holds one sandbox, can be killed at any moment, and ends with its input. Its memory has its own limit, so
that too large a result costs the submission and not the machine.
"""

import gc
import json
import os
import re
import resource
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import msgspec

from worldsize.grade import course
from worldsize.grade.course import CourseLab
from worldsize.grade.isolation import privileges
from worldsize.grade.isolation.bubblewrap import UNSAFE, Framework, SandboxMode
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import mark_submission, rows
from worldsize.grade.marking.mark_submission import BrokenRelease, MarkingOrder, MarkingTask, SetupRaised
from worldsize.grade.marking.rows import GradeRow, GradeState
from worldsize.grade.outside.boxes import Sandbox, SandboxLost, Server
from worldsize.libc import libc

_LEAST_ROOM = 0.6  # share of the room that the next submission needs
ROOM_BYTES = 200_000_000  # beyond a worker's memory before its first task: several honest submissions' need


def main() -> None:
    privileges.end_with_parent()
    if os.getppid() != int(sys.argv[1]):
        return  # the parent ended before the kernel was told to watch it

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # prints go to standard error, and cannot mix with answers

    order = msgspec.convert(json.loads(sys.stdin.readline()), MarkingOrder)
    labs = course.load(Path(order.course))
    sandbox = Sandbox(order.mode, order.limits, start_server)
    most_bytes = limit_memory()
    try:
        serve(sys.stdin, answers, labs, sandbox, order.seed, lambda: most_bytes - data_bytes() < ROOM_BYTES * _LEAST_ROOM)
    finally:
        sandbox.close()


def serve(
    tasks: TextIO, answers: TextIO, labs: Mapping[str, CourseLab], sandbox: Sandbox, seed: int, is_full: Callable[[], bool]
) -> None:
    """Answer, as a marking process, each task with its row, and with whether this process is too full to mark another."""
    for number, line in enumerate(tasks):
        row = _row(msgspec.convert(json.loads(line), MarkingTask), labs, sandbox, seed, fresh=number == 0)
        gc.collect()
        with suppress(AttributeError):  # a C library without malloc_trim
            libc.malloc_trim(0)

        answers.write(json.dumps({"row": rows.to_dict(row), "full": is_full()}) + "\n")
        answers.flush()


def _row(task: MarkingTask, labs: Mapping[str, CourseLab], sandbox: Sandbox, seed: int, fresh: bool) -> GradeRow:
    """Return a task's row, whatever happens; the grader's own failures make it "lost".

    A release that cannot run here makes it "ungradable": to try again would end the same way. In a `fresh` worker, only
    this submission can have filled the memory, so that is a crash of its own.
    """
    state: GradeState = "lost"
    try:
        if task.lab in labs and not task.sound:
            mark_submission.try_setup(labs[task.lab], sandbox)
        return mark_submission.mark(task, labs, sandbox, seed)
    except MemoryError:
        reason = f"it sent more than fits into the {ROOM_BYTES / 1e6:g} MB that the grader has for a submission"
        if fresh:
            state = "crashed"
    except SetupRaised as error:  # and would again: no further try can give a mark
        reason, state = str(error), "ungradable"
    except (SandboxLost, BrokenRelease) as error:
        reason = str(error)
    except Exception as error:
        reason = f"the grader itself failed: {type(error).__name__}: {error}"

    sandbox.renew()
    return task.row(state, reason, seed, unsafe=sandbox.mode == UNSAFE)


def start_server(mode: SandboxMode, limits: Limits, framework: Framework) -> Server:
    """Start a sandbox's server outside the worker's memory limit: a submission's ranks have the limit that it is promised.

    A child inherits the limits in force when it starts.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    try:
        return Server(mode, limits, framework)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def limit_memory(room_bytes: int = ROOM_BYTES) -> int:
    """Import what checks need, then limit this process's data to `room_bytes` more; return the limit."""
    gc.disable()  # collections take a fifth of the import's time
    import IPython.core.inputtransformer2  # noqa: F401 - parses cells
    import torch  # noqa: F401 - the largest import

    gc.enable()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = data_bytes() + room_bytes
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    return most


def data_bytes() -> int:
    """Return the size of this worker process's data, as its limit counts it."""
    found = re.search(r"^VmData:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return 1024 * int(found[1])


if __name__ == "__main__":
    main()
