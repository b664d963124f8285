"""The warden of writers: each saves in a process of its own, dies at a byte, and is judged by what its folder then holds.

The warden and a save's keeper run none of the submission's code. The keeper limits the size of the writer's files
(RLIMIT_FSIZE, a limit that the writer cannot raise), and reads the folder when all of the save's processes are dead. The rows
have the form of `checks.drivers.killed_writer`; `touched` tells what happened to the file meanwhile (`folder_events`).
"""

from __future__ import annotations

import os
import resource
import select
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from worldsize.checks.drivers.killed_writer import MOST_FILES
from worldsize.grade.frames import BadFrame, Reader, decode, encode
from worldsize.grade.inside import writer
from worldsize.grade.inside.broker_channel import BrokerChannel
from worldsize.grade.inside.changed_objects import MOST_NAMES
from worldsize.grade.inside.confinement import close_all_but, confine
from worldsize.grade.inside.folder_events import FolderEvents
from worldsize.grade.inside.sandboxed_rank import is_only_thread
from worldsize.grade.isolation import privileges, seccomp
from worldsize.grade.pipes import CHUNK, PipeEnds, pipe_line
from worldsize.libc import KernelRefused
from worldsize.units import text_of

if TYPE_CHECKING:
    from worldsize.grade.isolation.bubblewrap import SandboxMode

Files = dict[str, np.ndarray]  # {name: bytes as uint8}

_MOST_FRAME_BYTES = 1_000_000
_NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class SaveFailed(Exception):
    """An error of a save whose place is to be reported; `frame` is the writer's report."""

    def __init__(self, frame: dict[str, Any]) -> None:
        self.frame = frame


def oversee(channel: BrokerChannel, order: dict[str, Any], mode: SandboxMode, fork: Callable[[], int]) -> NoReturn:
    """Take, as warden, one job, run its scenarios, report what was left after each, and exit. Never returns.

    `fork` makes the first process of a PID namespace.
    """
    try:
        job, blob = channel.read()
        out = bytearray()

        try:
            rows, changed = _tried(partial(_saved, order, job, mode, fork), decode(job["scenarios"], blob))
            channel.tell({"op": "done", "returned": encode(rows, out), "changed": changed}, out)
        except SaveFailed as failed:
            channel.tell(failed.frame)
        except KernelRefused as refused:
            channel.tell({"op": "done", "returned": encode({"unseen": str(refused)}, out)}, out)
    finally:
        os._exit(0)


def _tried(
    saved: Callable[[dict[str, Any], Files], dict[str, Any]], scenarios: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the warden's row for each scenario, and what the writers report as changed in their processes."""
    rows = []
    changed: set[str] = set()
    for scenario in scenarios:
        files = dict(scenario["files"])
        ended = []
        for save in scenario["saves"]:
            before = files
            report = saved(save, before)
            ended.append(report["ended"])
            files = report["files"]
            changed.update(report["changed"])
        rows.append({"ended": ended, "before": before, "files": files})
    return rows, sorted(changed)[:MOST_NAMES]


def _saved(
    order: dict[str, Any], job: dict[str, Any], mode: SandboxMode, fork: Callable[[], int], save: dict[str, Any], files: Files
) -> dict[str, Any]:
    """Run one save below a keeper of its own, and return the keeper's report. Raises SaveFailed and KernelRefused."""
    ours, theirs = pipe_line()
    process = fork()
    if process == 0:
        _keep(order, job, mode, theirs, save, files)

    theirs.close()
    try:
        report, blob = BrokerChannel(ours, is_only_thread).read()
    finally:
        ours.close()
        os.waitpid(process, 0)

    if "refused" in report:
        raise KernelRefused(0, report["refused"])
    if "failed" in report:
        raise SaveFailed(report["failed"])
    return report | {"files": decode(report["files"], blob)}


def _keep(
    order: dict[str, Any], job: dict[str, Any], mode: SandboxMode, line: PipeEnds, save: dict[str, Any], files: Files
) -> NoReturn:
    """Run the first process of a save's namespaces: give up what ranks give up, start the writer, and report what it left."""
    try:
        os.setsid()
        privileges.end_with_parent()
        close_all_but([line])
        channel = BrokerChannel(line, is_only_thread)
        try:
            confine(order, mode)
            folder = tempfile.mkdtemp(prefix="saves-", dir=order["folders"][-1])
            channel.tell(*_kept(order, job, folder, save, files))
        except KernelRefused as refused:
            channel.tell({"refused": str(refused)})
    finally:
        os._exit(0)


def _kept(
    order: dict[str, Any], job: dict[str, Any], folder: str, save: dict[str, Any], files: Files
) -> tuple[dict[str, Any], bytearray]:
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # a writer may give its path to another one
    for name, data in files.items():
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=here), "wb") as file:
            file.write(data.tobytes())
    old = None
    if save["name"] in files:
        old = os.open(save["name"], os.O_RDONLY | _NO_LINK, dir_fd=here)
    events = FolderEvents(folder)

    last_report, code = _ended(order, job, folder, save)
    if save["dies"] == "here" and last_report.get("op") == "failed":
        return {"failed": last_report}, bytearray()

    blob = bytearray()
    report = {"ended": _in_a_row(last_report, code), "files": encode(_files(here), blob), "changed": []}
    report["ended"]["touched"] = events.touched(save["name"])
    if old is not None and _content(old) != files[save["name"]].tobytes():  # by whatever name, or through a map
        report["ended"]["touched"] = "written"
    if isinstance(last_report.get("changed"), list):
        report["changed"] = [text_of(name, 120) for name in last_report["changed"]]
    return report, blob


def _ended(order: dict[str, Any], job: dict[str, Any], folder: str, save: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Run the writer until it and all that it started are dead; return its last report, and how its process ended."""
    kind, most_bytes = save["dies"] if isinstance(save["dies"], list) else (None, 0)
    # before any line of the submission's: Python ignores the signal, so that a write past the limit raises an error
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if kind == "byte" else signal.SIG_IGN)

    ours, theirs = pipe_line()
    process = os.fork()
    if process == 0:
        _write(order, theirs, folder)
    theirs.close()

    channel = BrokerChannel(ours, is_only_thread)
    channel.tell({key: job[key] for key in ("seed", "run", "cells", "function")})
    last_report: dict[str, Any] = {}
    is_ready = False
    for frame in _frames(process, ours):
        if frame.get("op") == "ready" and not is_ready:
            is_ready = True
            if kind is not None:
                resource.prlimit(process, resource.RLIMIT_FSIZE, (int(most_bytes), int(most_bytes)))
            blob = bytearray()
            data = encode(save["data"], blob)
            with suppress(BrokenPipeError):
                channel.tell({"name": save["name"], "data": data, "here": save["dies"] == "here"}, blob)
        elif frame.get("op") in ("done", "failed"):
            last_report = frame

    _, status = os.waitpid(process, 0)
    _end_all_others()
    return last_report, os.waitstatus_to_exitcode(status)


def _end_all_others() -> None:
    """Kill what is left in this process's PID namespace, of which it is the first process, and wait until it is dead."""
    assert os.getpid() == 1  # elsewhere -1 means every process of this user
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _write(order: dict[str, Any], line: PipeEnds, folder: str) -> NoReturn:
    try:
        privileges.end_with_parent()
        close_all_but([line])
        seccomp.install(bytes.fromhex(order["filter"]))
        writer.serve(BrokerChannel(line, is_only_thread), folder)
    finally:
        os._exit(0)


def _frames(process: int, line: PipeEnds) -> Iterator[dict[str, Any]]:
    """Yield what a watched writer reports until its process has ended. Raises BadFrame for what is too large, or no frame."""
    reader = Reader()
    os.set_blocking(line.reads, False)
    end = os.pidfd_open(process)  # a process that the writer started may keep the line open
    awaited = {end, line.reads}

    while True:
        ready, _, _ = select.select(awaited, [], [])
        with suppress(BlockingIOError):
            while line.reads in awaited:
                data = os.read(line.reads, CHUNK)
                if not data:
                    awaited.remove(line.reads)
                reader.feed(data)
                while (frame := reader.next()) is not None:
                    yield frame[0]
                if reader.kept_bytes > _MOST_FRAME_BYTES:
                    raise BadFrame("expected less data from a writer")
        if end in ready:
            return


def _in_a_row(last_report: dict[str, Any], code: int) -> dict[str, Any]:
    if code < 0:
        return {"how": "killed"}
    if last_report.get("op") != "done" or last_report.get("how") not in ("returned", "raised"):
        return {"how": "left"}
    if last_report["how"] == "returned":
        return {"how": "returned"}
    return {"how": "raised", "error": text_of(last_report.get("error"), 400)}


def _files(folder: int) -> Files:
    """Return the files that a writer left in its folder; what is not a plain file has no bytes."""
    files = {}
    for name in sorted(os.listdir(folder))[:MOST_FILES]:
        content = b""
        with suppress(OSError):
            descriptor = os.open(name, os.O_RDONLY | _NO_LINK, dir_fd=folder)
            content = _content(descriptor)
        files[name] = np.frombuffer(content, "uint8")
    return files


def _content(descriptor: int) -> bytes:
    with suppress(OSError), os.fdopen(descriptor, "rb") as file:
        return file.read()
    return b""
