"""The servers of a job (`inside.server`), each in its sandbox: started ahead of need, given orders, watched, ended.

`broker.py` handles what crosses a rank's own line.
"""

import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from worldsize.grade.isolation import bubblewrap, libseccomp, seccomp
from worldsize.grade.isolation.bubblewrap import FRESH, START_S, UNSAFE, Framework, NoSandbox, SandboxMode
from worldsize.grade.isolation.cgroups import SandboxCgroup
from worldsize.grade.isolation.limits import MOST_PROCESSES, Limits, descendants
from worldsize.grade.outside.withheld import withheld_from
from worldsize.grade.pipes import PipeEnds, pipe_line

_END_S = 5.0
# sandboxes started ahead, where each serves one rank or the tasks of one cluster
_SPARES: dict[Framework, int] = {"torch": 4, "tensorflow": 1}
_ORDER_BYTES = 65536
_CROWD = 8  # TensorFlow's tasks have many threads, which the limit on processes counts
_NEED_TENSORFLOW = ("tensorflow.", "keras.", "tf_keras.", "worldsize.tf.")  # prefixes of modules


class SandboxLost(RuntimeError):
    """A server's sandbox that ended by itself."""


@dataclass(frozen=True)
class ProcessExit:
    """The end of a sandboxed rank's process: `code` is its exit status, or 128 + the signal that ended it."""

    number: int
    code: int
    cpu_s: float


class Server:
    """The server of a job in its sandbox, which has imported a framework."""

    def __init__(self, mode: SandboxMode, limits: Limits, framework: Framework) -> None:
        self.framework = framework
        self.control, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = tempfile.TemporaryFile()

        program = bubblewrap.python("-m", "worldsize.grade.inside.server", str(inside.fileno()), mode, framework)
        environment = bubblewrap.environment(framework) if mode == UNSAFE else None  # else bubblewrap sets it
        self.process = subprocess.Popen(
            [*bubblewrap.command(mode, limits, framework), *program],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._said, cwd="/",
            pass_fds=[inside.fileno()], env=environment, start_new_session=True,
        )  # fmt: skip
        inside.close()

        self._deadline_s = time.monotonic() + START_S
        self.pid = self.process.pid

    def wait_ready(self) -> None:
        """Wait for the server in a sandbox. Raises NoSandbox, with the server's last words, if it does not start."""
        left_s = max(0.0, self._deadline_s - time.monotonic())
        heard, _, _ = select.select([self.control], [], [], left_s)
        if not heard or not self.control.recv(_ORDER_BYTES):
            said = self._last_words() or "no answer"
            self.close()
            raise NoSandbox(bubblewrap.refused(said))

        self.pid = [self.process.pid, *descendants(self.process.pid)][-1]  # the server is bubblewrap's child's child

    def _last_words(self) -> str:
        """Return the last line that the sandbox's server wrote; no rank can write there."""
        self._said.seek(0)
        rows = self._said.read().decode(errors="replace").strip().splitlines() or [""]
        return rows[-1][:300]

    def order(self, message: dict, lines: Sequence[PipeEnds] = ()) -> None:
        """Send the sandbox's server an order, with copies of the descriptors of `lines`. Raises SandboxLost."""
        try:
            socket.send_fds(self.control, [json.dumps(message).encode()], list(chain.from_iterable(lines)))
        except OSError as error:
            raise SandboxLost(f"a sandbox is gone: {error}. {self._last_words()}".strip()) from None

    def ended(self) -> ProcessExit:
        """Return the next sandboxed rank's exit; call this when `control` is readable. Raises SandboxLost."""
        data = self.control.recv(_ORDER_BYTES)
        if not data:
            raise SandboxLost(f"a sandbox ended by itself. {self._last_words()}".strip())

        said = json.loads(data)
        return ProcessExit(number=said["number"], code=said["code"], cpu_s=said["cpu_s"])

    def close(self) -> None:
        """End the server, its sandbox and everything inside."""
        inside = descendants(self.process.pid)
        self.process.kill()
        self.process.wait()

        for process in inside:  # needed only without bubblewrap, which ends them itself
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)

        self.control.close()
        self._said.close()


class Sandbox:
    """Ranks in sandboxes, by whatever means the machine allows, for one submission at a time.

    TensorFlow's server starts when it is first asked for. `start` starts every server, the first and all later ones.
    """

    def __init__(
        self, mode: SandboxMode, limits: Limits = Limits(),  # noqa: B008 - frozen
        start: Callable[[SandboxMode, Limits, Framework], Server] = Server,
    ) -> None:  # fmt: skip
        self.mode = mode
        self.limits = limits
        self._start = start
        self._servers: list[Server] = []
        self._server_of: dict[int, Server] = {}  # by the number of the rank or ranks inside
        self._latest = 0  # the highest number so far
        self._modules: tuple[str, ...] = ()
        self.exercise = ""  # the one that is checked now: ranks have no function that answers it
        self._folders = bubblewrap.folders()  # looked up once: a submission has hundreds of ranks
        self.cgroup = SandboxCgroup(limits)
        self._spares = [start(mode, limits, "torch")]

    def preload(self, modules: Sequence[str]) -> None:
        """Have the modules that the release's set-up cells import imported once, by the servers."""
        self._modules = tuple(modules)
        for server in self._servers:
            self._have_imported(server)

    def _have_imported(self, server: Server) -> None:
        if self._modules and server.framework == self._framework("torch"):
            server.order({"op": "import", "modules": self._modules})

    def _framework(self, asked: Framework) -> Framework:
        """Return the framework that the sandboxed ranks need: TensorFlow whenever the set-up cells import it."""
        if any(f"{name}.".startswith(_NEED_TENSORFLOW) for name in self._modules):
            return "tensorflow"
        return asked

    def spawn(
        self, count: int = 1, framework: Framework = "torch", together: bool = False, watched: bool = False
    ) -> tuple[int, list[PipeEnds]]:
        """Start a rank in a sandbox, in its own namespaces, or `count` ranks `together` in the same.

        Returns a number and a line to each rank; with `watched`, the line leads to the writers' warden.
        """
        server = self._server(self._framework(framework))
        self._latest += 1
        order: dict[str, Any] = {
            "op": "spawn", "number": self._latest, "together": together, "watched": watched,
            "memory_bytes": self.limits.memory_bytes, "cpu_s": int(self.limits.cpu_s), "processes": MOST_PROCESSES,
            "folders": self._folders, "tmp_bytes": self.limits.tmp_bytes, "named": False,
        }  # fmt: skip
        order["withheld"] = withheld_from(self.exercise)
        order["covered"] = bubblewrap.files_of(tuple(order["withheld"]))
        if server.framework == "tensorflow":
            order |= {"processes": MOST_PROCESSES * _CROWD, "named": True}

        if self.mode != UNSAFE:
            order |= {"filter": seccomp.program(network=together).hex(), "keyctl": libseccomp.number_of("keyctl")}
        ours, theirs = [], []
        for _ in range(count):
            here, there = pipe_line()
            ours.append(here)
            theirs.append(there)
        try:
            server.order(order, theirs)
        finally:
            for line in theirs:
                line.close()

        self._server_of[self._latest] = server
        return self._latest, ours

    def _server(self, framework: Framework) -> Server:
        """Return a ready server: the running one, or a new one for each rank in mode `FRESH`."""
        if self.mode != FRESH:
            for server in self._servers:
                if server.framework == framework:
                    return server

        spares = [server for server in self._spares if server.framework == framework]
        if spares:
            server = spares.pop(0)
            self._spares.remove(server)
        else:
            server = self._start(self.mode, self.limits, framework)
        if self.mode == FRESH:
            for _ in range(len(spares), _SPARES[framework]):
                self._spares.append(self._start(self.mode, self.limits, framework))  # they import meanwhile

        server.wait_ready()
        if self.mode != UNSAFE:
            self.cgroup.take_in(server.pid)  # after its imports, which are not the submission's memory
        self._servers.append(server)
        self._have_imported(server)
        return server

    def channels(self) -> dict[socket.socket, Server]:
        """Return the sandboxes' sockets to wait on, each with its server for `heard`."""
        return {server.control: server for server in self._servers}

    def heard(self, server: Server) -> ProcessExit:
        ended = server.ended()
        self._server_of.pop(ended.number, None)
        if self.mode == FRESH:
            self._servers.remove(server)
            server.close()
        return ended

    def processes(self) -> list[int]:
        """Return the servers' process numbers on this machine; every rank descends from one."""
        return [server.pid for server in self._servers]

    def end(self, numbers: Iterable[int], wait: bool) -> list[ProcessExit]:
        """Kill these ranks in their sandboxes; with `wait`, return the exits of those that ended.

        If a rank does not end in time, every sandbox is renewed.
        """
        left = self._server_of.keys() & numbers
        for number in left:
            self._server_of[number].order({"op": "kill", "number": number})

        gone: list[ProcessExit] = []
        deadline_s = time.monotonic() + _END_S
        while wait and left & self._server_of.keys():
            if time.monotonic() > deadline_s:
                self.renew()

            channels = self.channels()
            for control in select.select(list(channels), [], [], 0.2)[0]:
                gone.append(self.heard(channels[control]))
        return gone

    def settle(self) -> list[ProcessExit]:
        """Kill the submission's remaining ranks in sandboxes, and wait until they are gone."""
        self.exercise = ""
        return self.end(list(self._server_of), wait=True)

    def renew(self) -> None:
        """Close every sandbox's server, and begin to start a new one."""
        self.close()
        self._spares = [self._start(self.mode, self.limits, "torch")]

    def close(self) -> None:
        for server in [*self._servers, *self._spares]:
            server.close()
        self._servers, self._spares = [], []
        self._server_of.clear()
        self.cgroup.close()
