"""Hosts over a program's standard input and output: ssh, which needs no port but its own, or any other."""

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence

from typing_extensions import override

from worldsize.engines.remote.engine import HostsEngine
from worldsize.engines.remote.ways.way import NoHosts, Way

_MEMBER = ("-m", "worldsize.engines.remote.host_program", "--stdio")
# ssh ends if the other machine stops answering, and never prompts
_SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=2")


class Programs(Way):
    """A way through any program that runs Python on a host: {name: command}, each ending in `member_command`'s."""

    def __init__(self, commands: Mapping[str, Sequence[str]]) -> None:
        if not commands:
            raise ValueError("Programs: expected at least one host, got none")
        self._commands = dict(commands)
        self.count = len(self._commands)

    @override
    def begin(self, engine: HostsEngine) -> None:
        for name, command in self._commands.items():
            engine.start_program(name, command)

    @override
    def standing(self) -> str:
        return f"starting on {', '.join(self._commands)}"


def member_command(python: str = "python3", address: str = "") -> list[str]:
    """Return the program's command to run on a host: Python, and the address where other hosts reach it."""
    given = ["--address", address] if address else []
    return [python, *_MEMBER, *given]


def start_line(python: str = "") -> str:
    """Return the line for a host's shell: it starts `python`, or else the interpreter at this one's path, or else python3."""
    if python:
        return " ".join(member_command(python))
    same = shlex.quote(sys.executable)
    return f"test -x {same} && exec {' '.join(member_command(same))}; exec {' '.join(member_command())}"


class Ssh(Programs):
    """`Ssh(["n1", "me@n2"])`: hosts on which ssh starts a program without a password.

    `python` is the interpreter there, by default the one at this interpreter's path, or else python3; `options` go to ssh, such
    as ("-p", "2222").
    """

    def __init__(self, hosts: Sequence[str], python: str = "", options: Sequence[str] = ()) -> None:
        if isinstance(hosts, str) or not hosts or not all(isinstance(host, str) and host for host in hosts):
            raise ValueError(f'Ssh: expected a list of hosts, such as Ssh(["n1", "n2"]), got {hosts!r}')

        twice = {host for host in hosts if list(hosts).count(host) > 1}
        if twice:
            raise ValueError(f"Ssh: expected each host once, got {', '.join(sorted(twice))} more than once")

        commands = {}
        for host in hosts:
            if host.startswith("-"):
                raise ValueError(f"Ssh: expected the names of hosts, got {host!r}")
            name = host.partition("@")[2] or host
            commands[name] = ["ssh", *_SSH_OPTIONS, *options, host, start_line(python)]
        super().__init__(commands)

    @override
    def begin(self, engine: HostsEngine) -> None:
        if shutil.which("ssh") is None:
            raise NoHosts("Ssh: expected the program ssh on this machine, got none. Install the package openssh-client.")
        super().begin(engine)
