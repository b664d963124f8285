"""The head: the agent of a kernel whose ranks run on other hosts; it admits hosts and runs the kernel's jobs on them.

The head starts, hangs up and dies like this machine's agent and decides with the same session, but starts no rank
itself. `host_agent.py` is the hosts' side; `ways` brings hosts up.
"""

import multiprocessing.connection as mpc
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import zmq

from worldsize.engines.agent import death_watch, leave
from worldsize.engines.job import Close, Framework, Job, Use
from worldsize.engines.jobs import SESSIONS
from worldsize.engines.open_session import OpenSession, OpenWorlds
from worldsize.engines.remote import host_checks, host_messages
from worldsize.engines.remote.head_listener import Door
from worldsize.engines.remote.head_orders import HostChange, Invite, OpenDoor, OrderFailed, StartProgram, TryNetwork
from worldsize.engines.remote.host_messages import BadMessage, Greeting
from worldsize.engines.remote.line import HostLine, LineClosed
from worldsize.engines.remote.pipes import line_over
from worldsize.engines.remote.remote_ranks import HostLost, RemoteRanks
from worldsize.engines.session import Session
from worldsize.failures import Failure, Outcome

_CLOCK_S = 10.0  # a measured offset's lifetime: quartz clocks drift apart by some 20 µs a second
_OTHER_FRAMEWORK_S = 60.0  # for a host to start the agent of the other framework
_SAME_HOST_S = 36_000.0  # validity of an invitation to an admitted host's second agent

_TAKEN = (
    "launch: the hosts still hold open ranks, and can hold one set of ranks at a time. Close these first: world.close(), or "
    "worldsize.hosts.close() to launch on this machine."
)


def main(kernel_fd: int, kernel_pid: int, own_dir: str) -> None:
    """Serve the kernel until it is gone: the entry point of the head's process."""
    kernel = mpc.Connection(kernel_fd)
    watched = [kernel, *death_watch(kernel_pid)]
    head = Head(kernel, watched, Path(own_dir))

    try:
        kernel.send("ready")
        head.serve()
    except (EOFError, OSError):
        if not mpc.wait(watched, 0):
            raise
    finally:
        head.hang_up()

    leave(Path(own_dir))


@dataclass(eq=False)
class _Host:
    """A host of the head: its agents by framework, and the command that starts another agent there."""

    name: str
    agents: dict[Framework, RemoteRanks]
    command: tuple[str, ...]  # that started its program; () for a host that came by invitation
    hello: Greeting
    place: int  # in the order of requests
    measured_s: float = 0.0
    told: bool = False  # whether the kernel knows that the host has joined


@dataclass(eq=False)
class Head:
    """The head, a server of one kernel's orders."""

    kernel: mpc.Connection
    watched: list
    own_dir: Path

    door: Door | None = None
    hosts: dict[str, _Host] = field(default_factory=dict)  # by name
    coming: dict[str, HostLine] = field(default_factory=dict)  # lines without a greeting yet
    started: dict[str, tuple[str, ...]] = field(default_factory=dict)  # commands of programs, by name
    asked: dict[str, int] = field(default_factory=dict)  # the place of each requested host, by name
    worlds: OpenWorlds = field(default_factory=OpenWorlds)  # one at most: a host runs one job at a time

    def serve(self) -> None:
        """Carry out the kernel's orders as its head and watch the hosts. Return, or raise EOFError, when the kernel is gone."""
        while True:
            for item in mpc.wait([*self.watched, *self._lines()]):
                if item is self.kernel:
                    self._obey(self.kernel.recv())
                elif isinstance(item, int):
                    return  # the kernel's pidfd
                else:
                    self._hear(item)

    def _lines(self) -> list[HostLine]:
        lines = list(self.coming.values())
        for host in self.hosts.values():
            lines += [agent.line for agent in host.agents.values() if not agent.lost]
        return lines

    def hang_up(self) -> None:
        """Close every line of the head, which ends the hosts, and the door."""
        for line in self._lines():
            line.close()
        if self.door is not None:
            self.door.close()

    # ---- the kernel's orders ---------------------------------------------------------------------

    def _obey(self, order: Any) -> None:
        try:
            if isinstance(order, Job):
                self._run(order)
            elif isinstance(order, (Use, Close)):
                self._do(order)
            elif isinstance(order, OpenDoor):
                self.door = Door(order.address, order.ports)
                self.kernel.send(order)
            elif isinstance(order, Invite):
                self.kernel.send(self._invite(order))
            elif isinstance(order, StartProgram):
                try:
                    self._start(order.name, order.command)
                except OSError as error:
                    self.kernel.send(HostChange("refused", order.name, f"its program did not start: {error}"))
            elif isinstance(order, TryNetwork):
                self.kernel.send(self._complaints())
        except (ValueError, OSError, zmq.ZMQError) as error:
            self.kernel.send(OrderFailed(str(error)))

    def _invite(self, order: Invite) -> list[str]:
        invitations = []
        for _ in range(order.count):
            name = f"invited{len(self.asked) + 1}"
            self.asked[name] = len(self.asked)
            invitation, self.coming[name] = self.door.invite(name, order.valid_s)
            invitations.append(invitation.text())
        return invitations

    def _start(self, name: str, command: Sequence[str], framework: Framework = "torch") -> None:
        log = open(self._log_of(name, framework), "ab")  # noqa: SIM115 - the program's own
        process = subprocess.Popen(
            [*command, "--framework", framework], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        log.close()
        self.started[name] = tuple(command)
        self.asked.setdefault(name, len(self.asked))

        pipes = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
        process.stdout.close()
        process.stdin.close()
        self.coming[name] = line_over(*pipes, name)

    def _log_of(self, name: str, framework: Framework) -> Path:
        return self.own_dir / f"{quote(name, safe='')}-{framework}.log"

    def _do(self, order: Use | Close) -> None:
        """Carry out, as head, an order for ranks that stay, after comparing clocks with the hosts if that is due."""
        for host in list(self.hosts.values()):
            with suppress(HostLost):  # the session hears of the loss
                if host.told:
                    self._agent(host, "torch")

        self.worlds.do(order, self.kernel)
        self._let_go_of_lost()

    def _run(self, job: Job) -> None:
        if self.worlds.sessions:
            self.kernel.send(Outcome(status="refused", reason=_TAKEN))
            return

        try:
            agents = self._agents(job.framework)
        except (ValueError, OSError) as error:
            self.kernel.send(Outcome(status="refused", reason=str(error)))
            self._let_go_of_lost()
            return

        kind = OpenSession if job.world else SESSIONS[job.framework]
        session = kind(job=job, kernel=self.kernel, watched=self.watched, hosts=tuple(agents), start_method="forkserver")
        try:
            if isinstance(session, OpenSession):
                self.worlds.open(session)
            else:
                session.run()
        except (HostLost, ValueError) as error:  # before any rank of that host ran
            self.kernel.send(_not_begun(session, agents, error))
        self._let_go_of_lost()

    def _agents(self, framework: Framework) -> list[RemoteRanks]:
        """Return the agents of joined hosts. Raises ValueError if no host is left or an agent does not start, and OSError."""
        agents = []
        for host in sorted(self.hosts.values(), key=lambda host: host.place):
            try:
                if host.told:
                    agents.append(self._agent(host, framework))
            except HostLost:
                self._let_go(next(agent for agent in host.agents.values() if agent.lost))

        if not agents:
            raise ValueError("launch: no host is left. Open hosts again (worldsize.hosts.open), or close them.")
        return agents

    def _agent(self, host: _Host, framework: Framework) -> RemoteRanks:
        """Return a host's agent of this framework, its clock compared within the last `_CLOCK_S` seconds."""
        if framework not in host.agents:
            host.agents[framework] = self._another_agent(host, framework)

        agent = host.agents[framework]
        if time.monotonic() - host.measured_s > _CLOCK_S:
            agent.measure_clock()
            host.measured_s = time.monotonic()
            for other in host.agents.values():
                other.offset = agent.offset
        return agent

    def _another_agent(self, host: _Host, framework: Framework) -> RemoteRanks:
        first = next(iter(host.agents.values()))
        name = f"{host.name}/{framework}"

        if host.command:
            self._start(name.replace("/", "-"), host.command, framework)
            line = self.coming.pop(name.replace("/", "-"))
        else:
            invitation, line = self.door.invite(name, _SAME_HOST_S)
            first.call("also", framework, invitation.text())

        if not line.poll(_OTHER_FRAMEWORK_S):
            raise ValueError(f"launch: {host.name} did not start an agent of {framework} within {_OTHER_FRAMEWORK_S:g} s")
        self._welcome(line)
        return RemoteRanks(host.name, line, offset=first.offset)

    def _complaints(self) -> list[str]:
        """Return for the head which hosts cannot reach each other, between the first host and each other one."""
        agents = [next(iter(host.agents.values())) for host in self.hosts.values()]

        rows: list[str] = []
        for other in agents[1:]:
            for listening, trying in ((agents[0], other), (other, agents[0])):
                address, port = listening.facts(with_gpus=False).address, listening.call("listen")
                why = trying.call("reach", address, port)
                if why:
                    rows.append(f"{trying.name} cannot reach {listening.name} at {address}, port {port}: {why}")
        return rows

    # ---- hosts that come and go ------------------------------------------------------------------

    def _hear(self, line: HostLine) -> None:
        name = next((name for name, known in self.coming.items() if known is line), None)
        if name is not None:
            self._let_in(name, self.coming.pop(name))
            return

        for host in list(self.hosts.values()):
            for agent in host.agents.values():
                if agent.line is line:
                    self.worlds.hear(list(agent.hear(line)))
                    self._see_after(host, agent)
                    return

    def _let_in(self, name: str, line: HostLine) -> None:
        """Read a greeting and admit the host, or refuse it. "joined" is reported later, when a rank can be forked there."""
        try:
            hello = self._welcome(line)
        except (ValueError, LineClosed) as error:
            line.close()
            wrote = ""  # to stderr, such as ssh's complaint
            with suppress(OSError):
                wrote = self._log_of(name, "torch").read_text(errors="replace").strip()[-1000:]
            more = f". Its program wrote: {wrote}" if wrote else ""
            self.kernel.send(HostChange("refused", name, f"{error}{more}"))
            return

        command = self.started.get(name, ())
        wanted = called = name if command else hello.name
        number = 1
        while called in self.hosts:
            number += 1
            called = f"{wanted}-{number}"

        agent = RemoteRanks(called, line)
        self.hosts[called] = _Host(called, {"torch": agent}, command, hello, self.asked[name])
        agent.warm_up()

    def _see_after(self, host: _Host, agent: RemoteRanks) -> None:
        if agent.lost:
            self._let_go(agent)
        elif agent.warm and not host.told:
            try:
                self._agent(host, "torch")
            except HostLost:
                self._let_go(agent)
                return

            host.told = True
            hello = host.hello
            self.kernel.send(HostChange("joined", host.name, "", hello.user, hello.address, hello.cores, host.place))

    def _welcome(self, line: HostLine) -> Greeting:
        """Read, as head, a greeting and answer it. Raises ValueError for a host that does not match this machine; LineClosed."""
        try:
            hello = host_messages.decode(line.receive())
        except BadMessage as error:
            raise ValueError(f"its first message is not a greeting: {error}") from None
        if not isinstance(hello, Greeting):
            raise ValueError(f"its first message is not a greeting but a {type(hello).__name__}")

        unlike = host_checks.differences(hello.versions)
        if unlike:
            line.send(f"this host does not match its head (\"there\" is this host): {'; '.join(unlike)}".encode())
            raise ValueError(
                f"{hello.name} does not match this machine: {'; '.join(unlike)}. Install the same versions on both "
                f"(constraints.txt has them), or use one environment that both can see."
            )
        line.send(b"welcome")
        return hello

    def _let_go_of_lost(self) -> None:
        for host in list(self.hosts.values()):
            for agent in host.agents.values():
                if agent.lost:
                    self._let_go(agent)

    def _let_go(self, agent: RemoteRanks) -> None:
        """Drop a host from the head because one of its agents is lost, and tell the kernel."""
        host = self.hosts.pop(agent.name, None)
        if host is None:
            return
        for each in host.agents.values():
            each.line.close()
        self.kernel.send(HostChange("lost", agent.name, agent.lost))


def _not_begun(session: Session, agents: list[RemoteRanks], error: Exception) -> Outcome:
    """Return the outcome of a job of the head whose ranks could not all start: hosts were lost, or gave a reason."""
    lost = [agent for agent in agents if agent.lost]
    if not lost:
        return Outcome(status="refused", reason=f"launch: {error}")
    if not session.ranks:
        words = f"launch: the host {lost[0].name} was lost: {lost[0].lost}. Launch again to go on without it."
        return Outcome(status="refused", reason=words)

    failures = []
    for agent, ranks in zip(agents, session.ranks, strict=True):
        if agent.lost and ranks:
            failures.append(Failure(rank=ranks.start, kind="lost", at_s=time.monotonic(), host=agent.name))
    return Outcome(status="failed", failures=tuple(failures))
