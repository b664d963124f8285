"""Ways to hosts that are namespaces: by a program, as ssh's is, and by invitation. Each host has an environment of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from typing_extensions import override

from tests.support.namespaces import Host, Network
from worldsize import hosts
from worldsize.engines.job import Job
from worldsize.engines.payload import Payload
from worldsize.engines.remote.engine import HostsEngine
from worldsize.engines.remote.ways.programs import member_command
from worldsize.launch.execute import callers_state, execute
from worldsize.launch.run import KernelLaunches, Run

LEAVES_S = 20.0
LIMIT_S = 60.0


def launch_on(engine: HostsEngine, fn: Callable, world_size: int, timeout_s: float = LIMIT_S) -> Run:
    """A launch on these hosts, which no other launch of this process takes."""
    job = Job(world_size=world_size, timeout_s=timeout_s, **callers_state(None))
    return execute(engine, Payload(fn, (), {}), job, KernelLaunches())


def on_host(host: Host, command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> list[str]:
    """`command` on a host, in `folder` there, with the environment of a login and `env`, and nothing of this process's."""
    own = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), **(env or {})}
    words = [f"{name}={value}" for name, value in own.items()]
    return host.command(["env", "-i", "-C", str(folder), *words, *command])


def programs(
    network: Network, folder: Path, env: Mapping[str, str] | None = None, wrap: Mapping[str, Sequence[str]] | None = None
) -> hosts.Programs:
    """A way to all hosts of a network by programs; `wrap` by name: a command that goes before a host's own."""
    commands = {}
    for host in network.hosts:
        own = _folder(folder, host)
        before = list((wrap or {}).get(host.name, ()))
        commands[host.name] = on_host(host, [*before, *member_command(sys.executable, host.address)], own, env)
    return hosts.Programs(commands)


class ByInvitation(hosts.Way):
    """A way such as Slurm's: the head invites `count` hosts at `address`, and `start` gets the invitations."""

    def __init__(self, count: int, address: str, start: Callable[[Sequence[str]], None]) -> None:
        self.count, self.address, self.start = count, address, start

    @override
    def begin(self, engine: HostsEngine) -> None:
        engine.open_door(self.address)
        self.start(engine.invite(self.count, engine.opening_s))

    @override
    def standing(self) -> str:
        return "waiting for invited hosts"


class Members:
    """`hosts.open(members.way())`: each host of a network joins by an invitation; `close` waits for their end."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network, self.folder = network, folder
        self.processes: list[subprocess.Popen] = []

    def way(self) -> hosts.Way:
        return ByInvitation(len(self.network.hosts), self.network.machine_address, self._join)

    def _join(self, invitations: Sequence[str]) -> None:
        for host, line in zip(self.network.hosts, invitations, strict=True):
            self.processes.append(join(host, line, _folder(self.folder, host)))

    def close(self) -> None:
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LEAVES_S)
            process.kill()
            process.wait()
            process.stdin.close()
        self.processes.clear()


def join(host: Host, invitation: str, folder: Path) -> subprocess.Popen:
    """A host that joins, over sockets."""
    member = [sys.executable, "-m", "worldsize.engines.remote.host_program"]
    with open(folder / "said.log", "ab") as log:
        process = subprocess.Popen(on_host(host, member, folder), stdin=subprocess.PIPE, stdout=log, stderr=log)
    process.stdin.write(invitation.encode() + b"\n")
    process.stdin.flush()
    return process


def _folder(folder: Path, host: Host) -> Path:
    own = folder / host.name
    own.mkdir(exist_ok=True)
    return own
