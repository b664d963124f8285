"""The agent of one framework on a host: starts ranks there and passes on their news. All decisions are the head's.

The agent does for its head what `HostRanks` does for this machine's agent, and also sends the files that ranks write. All
times it sends are on the head's clock. The agent ends, with all its ranks, when the line to the head ends.
"""

import getpass
import multiprocessing.connection as mpc
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from worldsize.engines import fork_server
from worldsize.engines.host import RankNews, Silence
from worldsize.engines.host_ranks import HostRanks, cores
from worldsize.engines.job import Framework, Job, Progress, Use
from worldsize.engines.local_engine import short_base
from worldsize.engines.ranks.rank_failure import failure_of
from worldsize.engines.remote import host_checks, host_messages
from worldsize.engines.remote.host_messages import (
    MAX_CHUNK_BYTES,
    Answered,
    Chunk,
    Command,
    FileKind,
    FromHost,
    Greeting,
    Told,
)
from worldsize.engines.remote.line import HostLine, LineClosed
from worldsize.engines.session import START_S
from worldsize.engines.torch_services import TorchServices
from worldsize.failures import Failure

_SHIP_S = 0.05  # between two transfers of new log lines
_HOSTS_OWN = ("GLOO_SOCKET_IFNAME",)  # variables in which the host's own environment wins
_WELCOME_S = 15.0  # for the head to answer the greeting
_MOST_ROWS = 1000  # `report` rows in one message
_SPARE_S = 10.0  # after a run's time limit, for the head to end the run


class NotWelcome(ValueError):
    """The head refuses this host; the message says why."""


@dataclass(frozen=True)
class Home:
    """A rank's surroundings on its host: the address, and the environment, module path and folder of the user who joined."""

    address: str
    env: dict[str, str]
    sys_path: tuple[str, ...]
    cwd: str


def serve(line: HostLine, address: str, framework: Framework) -> None:
    """Be a host of the head at the other end of `line`, at this address, until the line ends; close it. Raises NotWelcome."""
    home = Home(address, dict(os.environ), tuple(sys.path), os.getcwd())
    folder = Path(tempfile.mkdtemp(prefix="worldsize-", dir=short_base()))
    try:
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        # else torch warns of each connection if addresses have no names
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        fork_server.start(framework)
        _greet(line, home)

        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "agent.sock"))
            listener.listen(128)
            HostAgent(line, home, framework, folder, listener, TorchServices("forkserver")).serve()
    except LineClosed:
        return
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        line.close()


def _greet(line: HostLine, home: Home) -> None:
    """Send the host's greeting and wait for "welcome". Raises NotWelcome for any other answer."""
    versions = host_checks.own_versions()
    hello = Greeting(socket.gethostname(), _user_name(), home.address, cores(), versions, os.getpid())

    with suppress(LineClosed):  # `receive` raises it below, with the reason
        line.send(host_messages.encode(hello))
    if not line.poll(_WELCOME_S):
        raise NotWelcome(f"the head did not answer within {_WELCOME_S:g} s")

    try:
        answer = line.receive().decode()
    except LineClosed as error:
        raise NotWelcome(str(error)) from None
    if answer != "welcome":
        raise NotWelcome(answer)


def _user_name() -> str:
    """Return the name of the host's user; a number if the system has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@dataclass(eq=False)
class HostAgent:
    """The host's agent, serving one head, with the ranks of one job at a time."""

    line: HostLine
    home: Home
    framework: Framework
    folder: Path
    listener: socket.socket
    services: TorchServices

    ranks: HostRanks = field(init=False)
    trial: socket.socket | None = None  # listens while another host tries to connect
    other: subprocess.Popen | None = None  # the agent of the other framework
    until_s: float | None = None  # when this host ends the run itself, if the head has not
    offset_s: float = 0.0  # this host's clock minus the head's
    payload: list[bytes] = field(default_factory=list)  # parts received so far
    shipped: dict[Path, int] = field(default_factory=dict)  # bytes sent of each file
    late: bool = False

    def __post_init__(self) -> None:
        self.ranks = self._host_ranks()

    def serve(self) -> None:
        """Obey the head as its agent and listen to the ranks until the line ends, which raises LineClosed."""
        try:
            while True:
                busy = self.ranks.job is not None
                watched = self.ranks.watched() if busy else []
                for item in mpc.wait([self.line, *watched], _SHIP_S if busy else None):
                    if item is self.line:
                        self._obey(*pickle.loads(self.line.receive()))
                    else:
                        for news in self.ranks.hear(item):
                            self._tell(news)

                if busy:
                    self._ship_logs()
                    if self.until_s is not None and time.monotonic() > self.until_s:
                        raise LineClosed("the head did not end the run when its time was up")
        finally:
            self.ranks.end()

    def _host_ranks(self) -> HostRanks:
        return HostRanks(self.listener, "forkserver", self.services, address=self.home.address)

    def _import_late(self) -> None:
        """Start the host's process that serves torch, and have the fork server do its late imports; once."""
        if not self.late:
            self.services.warm(self.framework)
            fork_server.import_late(self.framework)
        self.late = True

    # ---- the head's commands ---------------------------------------------------------------------

    def _obey(self, command: Command, *arguments: Any) -> None:
        """Run, on this host, a command from the head. If a command without an answer fails, its rank's news show that."""
        answer, error = None, ""
        try:
            answer = self._commands[command](self, *arguments)
        except Exception as raised:
            error = "".join(traceback.format_exception_only(raised)).strip()
            traceback.print_exc()

        if command in host_messages.ANSWER_TYPES:
            self._say(Answered(command, msgspec.Raw(host_messages.encode(answer)), error))

    def _begin(self, job: Job, offset_s: float) -> None:
        self.offset_s = offset_s
        self.until_s = None if job.world else time.monotonic() + START_S + job.timeout_s + _SPARE_S

        home = self.home
        own = self._unpacked(replace(job, env={**home.env, **job.env}, sys_path=home.sys_path, cwd=home.cwd))
        if job.wants_late_imports:
            self._import_late()

        self.ranks = self._host_ranks()
        self.ranks.begin(own)

    def _unpacked(self, job: Job) -> Job:
        """Return the job with a folder on this host that holds its payload."""
        self.shipped.clear()
        own = replace(job, dir=Path(tempfile.mkdtemp(prefix="run-", dir=self.folder)))
        own.files.payload.write_bytes(b"".join(self.payload))
        self.payload.clear()
        return own

    def _use(self, order: Use, offset_s: float) -> None:
        self.offset_s = offset_s
        before = self.ranks.job
        self.ranks.use(replace(order, job=self._unpacked(order.job)))
        shutil.rmtree(before.dir, ignore_errors=True)

    def _start(self, rank: int, env: dict[str, str], threads: int, attempt: int) -> None:
        chosen = {name: value for name, value in env.items() if name not in _HOSTS_OWN or name not in self.home.env}
        try:
            self.ranks.start(rank, chosen, threads, attempt)
        except Exception as error:
            self._tell(RankNews(rank, "failure", failure_of(rank, error)))

    def _let_leave(self, leaving: set[int], serving: set[int]) -> None:
        self.ranks.let_leave(leaving, serving)
        self._ship_all()

    def _end(self) -> None:
        self.ranks.end()
        self._ship_all()
        shutil.rmtree(self.ranks.job.dir, ignore_errors=True)
        self.ranks = self._host_ranks()

    def _ship_all(self) -> None:
        """Send the head the unsent parts of the ranks' files: logs, results, shown output, records."""
        self._ship_logs()
        for rank in self.ranks.processes:
            self._ship("result", rank)
            self._ship("shown", rank)
            if self.ranks.job.files.of(rank, "record") not in self.shipped:  # a later record does not continue the first
                self._ship("record", rank)

    def _ship_logs(self) -> None:
        job = self.ranks.job
        if job is None:
            return

        for rank in self.ranks.processes:
            self._ship("log", rank)
            if job.tasks:
                self._ship("native_log", rank)

    def _ship(self, kind: FileKind, rank: int) -> None:
        """Send the head the unsent part of a file, in chunks."""
        path = self.ranks.job.files.of(rank, kind)
        with suppress(FileNotFoundError), open(path, "rb") as file:
            file.seek(self.shipped.get(path, 0))
            while data := file.read(MAX_CHUNK_BYTES):
                self.shipped[path] = file.tell()
                self._say(Chunk(kind, rank, data))

    def _listen(self) -> int:
        """Listen for another host's connection (see `_reach`), and return the port."""
        self.trial = socket.create_server((self.home.address, 0))
        return self.trial.getsockname()[1]

    def _also(self, framework: Framework, invitation: str) -> None:
        """Start the agent of another framework on this host; it joins with its own invitation."""
        command = [sys.executable, "-m", "worldsize.engines.remote.host_program", "--framework", framework]
        self.other = subprocess.Popen(command, stdin=subprocess.PIPE, env=self.home.env, cwd=self.home.cwd)
        self.other.stdin.write(invitation.encode() + b"\n")
        self.other.stdin.close()

    def _reach(self, address: str, port: int) -> str:
        """Try to connect to another host; return "" or the error."""
        try:
            with socket.create_connection((address, port), timeout=3.0):
                return ""
        except OSError as error:
            return str(error)

    _commands = {
        "warm": _import_late,
        "facts": lambda self, with_gpus: self.ranks.facts(with_gpus),
        "payload": lambda self, data: self.payload.append(data),
        "begin": _begin,
        "open_store": lambda self: self.ranks.open_store(),
        "keep_addresses": lambda self, count: self.ranks.keep_addresses(count),
        "start": _start,
        "use": _use,
        "bring": _ship_all,
        "tell": lambda self, rank, word: self.ranks.tell(rank, word),
        "kill": lambda self, rank: self.ranks.kill(rank),
        "seen_last": lambda self, rank: self.ranks.seen_last(rank),
        "let_leave": _let_leave,
        "end": _end,
        "listen": _listen,
        "reach": _reach,
        "echo": lambda self: time.monotonic(),
        "also": _also,
    }

    # ---- messages to the head --------------------------------------------------------------------

    def _say(self, message: FromHost) -> None:
        self.line.send(host_messages.encode(message))

    def _tell(self, news: RankNews) -> None:
        content = news.content
        if isinstance(content, (Failure, Silence)):
            content = replace(content, at_s=content.at_s - self.offset_s)
        elif news.kind == "entered":
            content -= self.offset_s

        parts = [content]
        if isinstance(content, Progress):  # a rank may report any number of rows at once
            rows = content.reports
            parts = [replace(content, reports=rows[at : at + _MOST_ROWS]) for at in range(0, max(1, len(rows)), _MOST_ROWS)]
        for part in parts:
            self._say(Told(news.kind, news.rank, msgspec.Raw(host_messages.encode(part))))
