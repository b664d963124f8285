"""Processes of a submission that save files into one folder: started, watched and killed together.

The root process gives up what a rank gives up, starts the writers and reports how they ended; it runs no line of the
submission's. Before a writer runs a cell, it hands over the listener, the descriptor that receives its calls
(`warden`).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from worldsize.engines.libc import KernelRefused, demand, libc
from worldsize.grade.box import writer
from worldsize.grade.box.broker_channel import BrokerChannel, write_frame
from worldsize.grade.box.confinement import close_all_but, confine
from worldsize.grade.box.folder_record import FolderRecord
from worldsize.grade.box.rank import is_only_thread
from worldsize.grade.frame_stream import Reader
from worldsize.grade.isolation import notifications, privileges
from worldsize.grade.pipes import PipeEnds, pipe_line

if TYPE_CHECKING:
    from worldsize.grade.isolation.bubblewrap import SandboxMode

_CREDENTIALS = struct.Struct("3i")  # process, user, group
_SET_DUMPABLE = 4
_POST_BYTES = 1024


@dataclass
class WatchedWriter:
    """A writer as the warden knows it: the file to save, and how far the writer has come.

    `listener` receives its calls; a call that is `held` has no answer yet. `ready` means that its cells have run,
    `begun` that it was told to save. `told` is its last report, `code` its exit status.
    """

    name: str
    data: bytes
    line: PipeEnds
    listener: int = -1
    process: int = 0
    reader: Reader = field(default_factory=Reader)
    ready: bool = False
    told: dict[str, Any] | None = None
    code: int | None = None
    held: notifications.Call | None = None
    begun: bool = False


class WriterTree:
    """Writers that share a folder of their own: read from outside, killed together."""

    def __init__(
        self, order: dict[str, Any], job: dict[str, Any], mode: SandboxMode, fork: Callable[[], int],
        wanted: Sequence[tuple[str, bytes]],
    ) -> None:  # fmt: skip
        self.calls = {int(number): name for number, name in order["calls"].items()}
        self._post, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._post.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.status, said = os.pipe()
        self.writers: list[WatchedWriter] = []
        lines = []
        for name, data in wanted:
            ours, line = pipe_line()
            self.writers.append(WatchedWriter(name, data, ours))
            lines.append(line)

        self._root = fork()
        if self._root == 0:
            _begin(order, mode, theirs, said, lines)

        theirs.close()
        os.close(said)
        for line in lines:
            line.close()

        # the folder comes and, before a writer runs a cell, the writer's number and listener
        for _ in range(1 + len(self.writers)):
            data, descriptors, process = _received(self._post)
            if not data:
                raise KernelRefused(0, "the processes to watch did not start")

            news = json.loads(data)
            if "refused" in news:
                raise KernelRefused(0, news["refused"])
            if "folder" in news:
                self.record = FolderRecord(descriptors[0], news["folder"], order["folders"][0], order["getfd"])
            else:
                one = self.writers[news["writer"]]
                one.listener, one.process = descriptors[0], process

        for one in self.writers:
            write_frame(one.line, {key: job[key] for key in ("seed", "run", "cells", "function")})

    def end(self) -> None:
        """Kill the remaining processes, and wait until all are gone."""
        with suppress(ProcessLookupError):
            os.kill(self._root, signal.SIGKILL)
        for one in self.writers:
            if one.code is None and one.process:
                with suppress(ProcessLookupError):
                    os.kill(one.process, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                os.wait()

    def __enter__(self) -> WriterTree:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._post.close()
        os.close(self.status)
        self.record.close()
        for one in self.writers:
            one.line.close()
            os.close(one.listener)


# ---- processes -------------------------------------------------------------------------------


def _begin(
    order: dict[str, Any], mode: SandboxMode, post: socket.socket, said: int, lines: Sequence[PipeEnds]
) -> NoReturn:
    """Run the root process: give up what ranks give up, start the writers, and report how each ended."""
    try:
        os.setsid()
        privileges.end_with_parent()
        close_all_but(lines, post.fileno(), said)
        confine(order, mode)

        folder = tempfile.mkdtemp(prefix="saves-", dir=order["folders"][-1])
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        socket.send_fds(post, [json.dumps({"folder": folder}).encode()], [descriptor])
        os.close(descriptor)

        writers = {}

        for number, line in enumerate(lines):
            process = os.fork()
            if process == 0:
                _write_as(order, number, line, post, folder)
            writers[process] = number

        close_all_but([], said)
        while writers:
            process, status = os.wait()
            if process in writers:
                os.write(said, f"{writers.pop(process)}:{os.waitstatus_to_exitcode(status)} ".encode())
    except OSError as error:
        post.send(json.dumps({"refused": str(error)}).encode())
    finally:
        os._exit(0)


def _write_as(order: dict[str, Any], number: int, line: PipeEnds, post: socket.socket, folder: str) -> NoReturn:
    try:
        privileges.end_with_parent()
        close_all_but([line], post.fileno())
        demand("watching a writer", libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0))
        _be_heard(order, number, post)
        post.close()
        writer.serve(BrokerChannel(line, is_only_thread), folder)
    finally:
        os._exit(0)


def _be_heard(order: dict[str, Any], number: int, post: socket.socket) -> None:
    """Make this thread's calls wait for the warden, and send it the listener, which receives them.

    A filter covers one thread and lets it send no descriptor, so another thread, which ends at once, sends it.
    """
    came = threading.Event()
    listeners: list[int] = []

    def send() -> None:
        came.wait()
        if listeners:
            socket.send_fds(post, [json.dumps({"writer": number}).encode()], listeners)
        else:
            post.send(json.dumps({"refused": "this kernel does not report a process's system calls"}).encode())

    helper = threading.Thread(target=send)
    helper.start()
    try:
        listeners.append(notifications.listen(bytes.fromhex(order["filter"]), order["seccomp"]))
    finally:
        came.set()
        helper.join()
    os.close(listeners[0])  # else a writer could answer its own calls


def _received(post: socket.socket) -> tuple[bytes, list[int], int]:
    """Return a starting process's message: its bytes, its descriptors, and its sender's process number."""
    room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(struct.calcsize("i"))
    data, more, _, _ = post.recvmsg(_POST_BYTES, room)
    descriptors: list[int] = []
    process = 0

    for level, kind, content in more:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            process, _, _ = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])
        elif level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors += struct.unpack("i", content[:4])
    return data, descriptors, process
