"""The engine of this machine: the kernel's side of the agent. Each kernel has one agent, warm until idle for long.

The kernel owns no rank's process and no signal handler, only one end of a pipe: when that end closes, however the kernel
ended, the agent ends every rank. `WORLDSIZE_START_METHOD=spawn` replaces the fork server by fresh interpreters,
`WORLDSIZE_NETWORK=shared` gives ranks the machine's network, `WORLDSIZE_IDLE_MINUTES` limits an idle agent
(`idle_end.py`).
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import queue
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, get_args

from worldsize.engines.idle_end import IdleEnd, idle_s
from worldsize.engines.job import Close, Framework, Job, Order, Progress, Prompt, Setup, StartMethod, Typed
from worldsize.engines.own_network import Network, wanted_network
from worldsize.errors import EngineLost
from worldsize.failures import Outcome
from worldsize.files import remove_whole

_AGENT_START_S = 180.0  # for the import of TensorFlow on a busy machine
_WAITING_S = 0.05  # between two reports that the agent is still starting
_SWEEP_S = 5.0  # for the thread that removes folders to finish
_CLOSE_S = 3.0  # for an agent to end its ranks and leave
_ABANDON_S = 0.5  # the same, for an agent that no longer obeys
_MAX_BASE_BYTES = 48  # a socket's path may have 104 bytes on macOS, 108 on Linux


def start_method() -> StartMethod:
    """Return how ranks start, from `WORLDSIZE_START_METHOD`: "forkserver" or "spawn".

    macOS defaults to "spawn", because forking is unsafe once its system libraries are in use
    (https://bugs.python.org/issue33725). Raises ValueError for any other value.
    """
    usual = "spawn" if sys.platform == "darwin" else "forkserver"
    chosen = os.environ.get("WORLDSIZE_START_METHOD", usual)
    known = get_args(StartMethod)
    if chosen not in known:
        raise ValueError(f"WORLDSIZE_START_METHOD: expected one of {', '.join(known)}, got {chosen!r}")
    return chosen


class AgentProcess:
    """The agent process and the pipe to it. A thread reads the pipe, so that an interrupt cannot tear a message."""

    def __init__(self, own_dir: Path, boot: str, *words: str) -> None:
        """Start the local engine's agent. `boot` is Python that reads the pipe's number, our process id, `own_dir` and `words`
        from sys.argv.
        """
        self.dir = own_dir
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()  # None marks the end
        self.ready = False
        self.busy = False
        self.worlds: set[str] = set()  # the names of ranks that stay
        self.gone = False  # it hung up, though its process may live a moment longer
        self._decided = threading.Event()  # set once `ready` is final
        self._late_s = time.monotonic() + _AGENT_START_S

        ours, theirs = multiprocessing.Pipe()
        self.connection: Connection = ours
        with open(self.dir / "agent.log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", boot, str(theirs.fileno()), str(os.getpid()), str(self.dir), *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs.fileno()],
                start_new_session=True,  # the kernel's interrupt must not reach the agent
                env=_agent_environment(self.dir),
            )  # fmt: skip
        theirs.close()

        threading.Thread(target=self._read, name="worldsize-agent", daemon=True).start()

    def _read(self) -> None:
        with suppress(EOFError, OSError):
            self.ready = self.connection.recv() == "ready"
            self._decided.set()
            while True:
                self.events.put(self.connection.recv())

        self.gone = True
        self._decided.set()
        self.events.put(None)

    def decided(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` until the agent is ready, has ended or is too late; return False while it still starts."""
        left_s = self._late_s - time.monotonic()
        return self._decided.wait(min(timeout_s, max(0.0, left_s))) or left_s <= timeout_s

    def wait_ready(self) -> None:
        self.decided(_AGENT_START_S)
        if not self.ready:
            raise EngineLost(f"the process that starts ranks did not start. {self.last_words()}")

    def last_words(self) -> str:
        """Return what the agent printed last, for people, after the limit of this system that its output names."""
        try:
            text = (self.dir / "agent.log").read_text(errors="replace")
        except OSError:
            text = ""
        last = "\n".join(text.strip().splitlines()[-20:]) or "nothing"
        return f"{_limit_named(text)}Its last output: {last}"

    def alive(self) -> bool:
        return not self.gone and self.process.poll() is None

    def close(self, patience_s: float, keep_runs: bool) -> None:
        """Hang up: the local agent ends its ranks, removes the files of all runs unless `keep_runs`, and leaves.

        An agent that stays longer than `patience_s` is killed.
        """
        left = self.dir.with_suffix(".left")
        with suppress(OSError):
            if keep_runs:
                self.dir.rename(left)  # a missing folder tells the agent to keep the runs

        with suppress(OSError):
            if self.alive():
                end = socket.socket(fileno=os.dup(self.connection.fileno()))
                end.shutdown(socket.SHUT_RDWR)  # wakes both readers, even if a forked child holds a copy
                end.close()
            else:
                self.connection.close()

        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(left, ignore_errors=True)


_BOOT = "import sys; from worldsize.engines.agent import main; main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])"


def short_base() -> str:
    """Return the temporary folder, or /tmp if that name is too long for the sockets in it."""
    usual = tempfile.gettempdir()
    if len(os.fsencode(usual)) > _MAX_BASE_BYTES and os.access("/tmp", os.W_OK):
        return "/tmp"
    return usual


def _agent_environment(own_dir: Path) -> dict[str, str]:
    """Return the kernel's environment, with this package importable and temporary files under `own_dir`.

    Without reverse name lookup torch warns about each connection in every rank's log; torch reads its log level once, at
    import. glibc's malloc in large pages makes the agent's memory faster to fork and no larger.
    """
    path = str(Path(__file__).resolve().parents[2])
    if os.environ.get("PYTHONPATH"):
        path += os.pathsep + os.environ["PYTHONPATH"]

    usual = {"TORCH_CPP_LOG_LEVEL": "ERROR", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    return {**usual, **os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "TMPDIR": str(own_dir)}


class LocalRanks:
    """A job that runs on an engine's agent. `opening` names the ranks that the job opens to stay, or is ""."""

    def __init__(self, engine: LocalEngine, agent: AgentProcess, opening: str = "") -> None:
        self._engine, self._agent, self._opening = engine, agent, opening

    def next_event(self, timeout_s: float) -> Setup | Progress | Prompt | Outcome | None:
        """Return the agent's next event, or None after `timeout_s` without one. The last event is an `Outcome`."""
        try:
            event = self._agent.events.get(timeout=timeout_s)
        except queue.Empty:
            return None

        if event is None:
            raise EngineLost(
                "the process that starts ranks ended during a run; the next launch starts a new one. "
                f"{self._agent.last_words()}"
            )

        self._agent.busy = not isinstance(event, Outcome)
        if isinstance(event, Outcome) and event.status != "done":
            self._agent.worlds.discard(self._opening)
        return self._engine.heard(event)

    def answer(self, typed: Typed) -> None:
        """Send a rank, through the agent, the text typed at its prompt."""
        with suppress(OSError):
            self._agent.connection.send(typed)

    def stop(self) -> None:
        """End every local rank now; the `Outcome` that follows says where each one stood."""
        with suppress(OSError):
            self._agent.connection.send("stop")


def _limit_named(output: str) -> str:
    """Return sentences on the limit that an agent's output names, with what to do; "" if it names none."""
    if re.search("Too many open files(?! in system)", output):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        said = f"A process may have {most} open files here (`ulimit -n`)"
    elif any(words in output for words in ("Resource temporarily unavailable", "can't start new thread")):
        most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        said = f"You may have {most} processes and threads here (`ulimit -u`)"
        if most == resource.RLIM_INFINITY:
            said = "The system has no process or thread left"
    else:
        return ""
    return f"{said}. Launch fewer ranks, or raise the limit in the shell that starts Jupyter. "


class LocalEngine:
    """Starts ranks of one framework on this machine. Keeps one warm agent for each start method and network."""

    stops_within_s = 2.5  # then an agent whose run does not stop is killed
    _idle_s = staticmethod(idle_s)

    def __init__(self, framework: Framework = "torch") -> None:
        self._framework = framework

        self._agents: dict[tuple[StartMethod, Network], AgentProcess] = {}
        self._dir: Path | None = None
        self._made = 0  # folders in it
        self.discarded: queue.SimpleQueue[Path | None] = queue.SimpleQueue()  # folders of unreferenced runs
        self._sweeper: threading.Thread | None = None

        self._lock = threading.RLock()
        self._idle = IdleEnd(self._end_idle, self._at_work)
        self._gave_back_min = 0.0  # idle minutes after which the agent ended, until reported
        self._pid = os.getpid()

    def warm(self) -> None:
        """Start the agent in the background, so that the first launch finds it ready."""
        self._agent()

    def _agent(self) -> AgentProcess:
        with self._lock:
            if self._pid != os.getpid():  # a fork of the kernel must not talk on the kernel's pipe
                self._agents, self._dir, self._pid = {}, None, os.getpid()
                self._idle = IdleEnd(self._end_idle, self._at_work)

            wanted = self._wanted()
            self._idle.used(self._idle_s())
            known = self._agents.get(wanted)
            if known is not None:
                if known.alive():
                    return known
                known.close(0, keep_runs=True)
            self._agents[wanted] = self._started(wanted[0])
            return self._agents[wanted]

    def _wanted(self) -> tuple[StartMethod, Network]:
        return start_method(), wanted_network()

    def _started(self, method: StartMethod) -> AgentProcess:
        return AgentProcess(self._new_dir("a"), _BOOT, method, self._framework)

    def _new_dir(self, prefix: str) -> Path:
        if self._dir is None or not self._dir.is_dir():
            self._dir = Path(tempfile.mkdtemp(prefix="worldsize-", dir=short_base()))
            atexit.unregister(self.close)
            atexit.register(self.close)  # only here: ranks import this module too and have nothing to close
            self._sweeper = threading.Thread(target=self._sweep, name="worldsize-sweep", daemon=True)
            self._sweeper.start()

        self._made += 1
        made = self._dir / f"{prefix}{self._made}"
        made.mkdir()
        return made

    def _sweep(self) -> None:
        """Remove discarded local folders, in a thread: an interrupt during a finalizer in the main thread would be lost."""
        for folder in iter(self.discarded.get, None):
            remove_whole(folder)

    def new_run_dir(self, waiting: Callable[[], None] = lambda: None) -> Path:
        """Return a folder for a run that can start at once: the agent is ready and idle.

        `waiting` is called repeatedly while the agent is still starting.
        """
        agent = self._agent()
        if agent.busy:  # an interrupt at the worst moment kept its last run from being ended
            self.abandon()
            agent = self._agent()

        while not agent.decided(_WAITING_S):
            waiting()
        agent.wait_ready()
        return self._new_dir("run")

    def start(self, order: Order) -> LocalRanks:
        """Have the agent start an order, in a folder from `new_run_dir`."""
        pickled = pickle.dumps(order)
        opening = order.world if isinstance(order, Job) else ""
        with self._lock:  # a busy agent is not ended as idle
            agent = self._agent()
            agent.busy = True  # set before sending, so that `running` finds the order after an interrupt

        if opening:
            agent.worlds.add(opening)
        elif isinstance(order, Close):
            agent.worlds.discard(order.world)
        agent.connection.send_bytes(pickled)
        return LocalRanks(self, agent, opening)

    def heard(self, event: Any) -> Any:
        """Take note of an agent's event, and return it, or None if it is not the running job's."""
        if isinstance(event, Outcome):
            self._idle.used()
        return event

    def running(self) -> LocalRanks | None:
        """Return the agent's order in progress, or None: an interrupt may have kept the caller from getting `start`'s result."""
        agent = self._known()
        if agent is None or not agent.busy:
            return None
        return LocalRanks(self, agent)

    def keeper(self) -> object | None:
        """Return the agent that keeps the ranks that stay. If a later call returns another object, those ranks have ended."""
        agent = self._known()
        if agent is None or not agent.alive():
            return None
        return agent

    def _known(self) -> AgentProcess | None:
        """Return the agent for the current settings; None in a fork of the kernel, which does not own the agent."""
        return self._agents.get(self._wanted()) if self._pid == os.getpid() else None

    # ---- closing an idle agent -------------------------------------------------------------------

    def _at_work(self) -> bool:
        """Return whether a local agent runs an order, holds ranks that stay, or is still starting."""
        return any(agent.busy or agent.worlds or not agent.decided(0) for agent in list(self._agents.values()))

    def _end_idle(self) -> None:
        """End the local agents to free their fork servers' memory. Files of runs stay, because they are read late."""
        with self._lock:
            if self._pid != os.getpid() or self._at_work() or not self._agents:
                return

            ended = list(self._agents.values())
            self._agents.clear()
            self._gave_back_min = self._idle.idle_s / 60

        for agent in ended:
            agent.close(_CLOSE_S, keep_runs=True)

    def take_note(self) -> str:
        """Return a sentence for the first run after an idle agent's end; "" otherwise."""
        minutes, self._gave_back_min = self._gave_back_min, 0.0
        if not minutes:
            return ""
        return (
            f"the helper that starts ranks had ended after {minutes:g} minutes without a launch, to free its memory; this launch "
            f"started it again"
        )

    def abandon(self) -> None:
        """Close the local agents at short notice, because a run did not end when told to; files of runs stay."""
        for agent in self._agents.values():
            agent.close(_ABANDON_S, keep_runs=True)
        self._agents.clear()

    def close(self) -> None:
        if self._pid != os.getpid() or self._dir is None:
            return

        self._idle.stop()
        for agent in self._agents.values():
            agent.close(_CLOSE_S, keep_runs=False)
        self._agents.clear()

        self.discarded.put(None)
        self._sweeper.join(_SWEEP_S)  # two removals of one folder would collide
        shutil.rmtree(self._dir, ignore_errors=True)
        self._dir = None
