"""Several "hosts" on one machine: Linux namespaces, joined by a switch, for tests of what crosses machines.

A host has a network, a host name, an /etc/hosts and, if it is asked for, a monotonic clock of its own; processors, memory,
files and process numbers are the machine's. One more link leads to the machine itself. A process that waits holds each
host's namespaces open: when it ends, and it ends with the tests even if they are killed, the kernel takes them and their
links away. Left out: slow links, and a route to anywhere else.
"""

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.daemons import until

INTERFACE = "eth0"  # a host's own name for its link to the switch
_NETWORKS = 256  # 10.77.0.0/24 to 10.77.255.0/24, one for each session that runs at a time
_FIRST_HOST = 11  # the last number of the first host's address
_LIMIT_S = 20.0  # a bound against a hang: far more than anything here takes
_ALONE = ("--net", "--uts", "--mount")
# The process that holds a host: `$1` its name, `$2` its /etc/hosts. It ends when its standard input does.
_HOLD = 'hostname "$1" && mount --bind "$2" /etc/hosts && ip link set lo up && echo ready && exec cat'
# What one has to be allowed for it, tried in namespaces that go with the process.
_TRY = (
    "hostname try && mount --bind /proc /proc"
    " && ip link add try0 type bridge && ip link add try1 type veth peer name try2"
)
_ENTER = 'exec nsenter --target="$0" {} --wdns="$PWD" -- "$@"'


@dataclass(frozen=True)
class Host:
    """One host: its name, its address (IPv4), and the seconds by which its monotonic clock is ahead of the machine's."""

    name: str
    address: str
    clock_shift_s: int
    holder: int
    _switch: int

    def command(self, command: list[str]) -> list[str]:
        """`command` as it has to be started on this machine to run on the host: same process, same folder, same output."""
        shared = [*_ALONE, *(["--time"] if self.clock_shift_s else [])]
        return ["sh", "-c", _ENTER.format(" ".join(shared)), str(self.holder), *command]

    def link_down(self) -> None:
        """Pull the host's cable out of the switch: what it sends and what is sent to it is lost, and nobody is told."""
        _set_link(self._switch, self.name, "down")

    def link_up(self) -> None:
        """Put the cable back."""
        _set_link(self._switch, self.name, "up")

    def pids(self) -> set[int]:
        """The processes that run in the host's network, but for the one that holds it."""
        return pids_in(network_of(self.holder)) - {self.holder}

    def kill_all(self) -> None:
        """End whatever runs on the host, and wait until it has gone.

        All of it stops first, as on a machine that has lost its power: no process sees another one end.
        """
        until(self._killed, _LIMIT_S, f"processes on {self.name} end")

    def _killed(self) -> bool:
        left = self.pids()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        return not left


@dataclass(frozen=True)
class Network:
    """Hosts by number, and the address that this machine has among them."""

    hosts: tuple[Host, ...]
    machine_address: str
    machine_link: str

    def __getitem__(self, number: int) -> Host:
        return self.hosts[number]


@contextlib.contextmanager
def network(count: int = 2, clock_shifts_s: Mapping[str, int] | None = None) -> Iterator[Network]:
    """`count` hosts n1, n2, … that reach each other; `clock_shifts_s` by name. At the end everything on them is ended."""
    shifts = clock_shifts_s or {}
    with contextlib.ExitStack() as stack:
        number = stack.enter_context(_own_number())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="worldsize-hosts-")))
        names = [f"n{i + 1}" for i in range(count)]
        addresses = [f"10.77.{number}.{_FIRST_HOST + i}" for i in range(count)]
        machine, link = f"10.77.{number}.1", f"worldsize{number}"
        names_file = _names_file(folder, dict(zip(names, addresses, strict=True)), machine)
        switch = stack.enter_context(_held("switch", names_file, 0))
        _run(*_in(switch), "ip", "link", "add", "br0", "type", "bridge", "forward_delay", "0")
        _run(*_in(switch), "ip", "link", "set", "br0", "up")
        stack.callback(_delete_link, link)
        _plug_in(switch, "machine", link, os.getpid())
        _set_address(os.getpid(), link, machine)
        hosts = []
        for name, address in zip(names, addresses, strict=True):
            holder = stack.enter_context(_held(name, names_file, shifts.get(name, 0)))
            _plug_in(switch, name, INTERFACE, holder)
            _set_address(holder, INTERFACE, address)
            hosts.append(Host(name, address, shifts.get(name, 0), holder, switch))
            stack.callback(hosts[-1].kill_all)
        yield Network(tuple(hosts), machine, link)


@functools.cache
def why_not() -> str:
    """One sentence that says why this machine cannot have such hosts; empty if it can."""
    if os.geteuid():
        return "hosts in network namespaces need root"
    missing = [program for program in ("ip", "nsenter", "unshare") if shutil.which(program) is None]
    if missing:
        return f"hosts in network namespaces need the programs {', '.join(missing)}: install what apt-dev.txt names"
    tried = subprocess.run(["unshare", *_ALONE, "--", "sh", "-c", _TRY], capture_output=True, text=True, timeout=_LIMIT_S)
    return f"this machine refuses namespaces to root: {tried.stderr.strip()}" if tried.returncode else ""


@functools.cache
def why_no_shifted_clock() -> str:
    """One sentence that says why no host can have a clock of its own here; empty if one can."""
    if why_not():
        return why_not()
    command = ["unshare", "--time", "--monotonic", "1", "--", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)
    return f"this machine refuses time namespaces: {tried.stderr.strip()}" if tried.returncode else ""


@contextlib.contextmanager
def _own_number() -> Iterator[int]:
    """A number that no other session has: its socket's name is taken in this machine's network while the session lives."""
    taken = {a.address.rpartition(".")[0] for found in psutil.net_if_addrs().values() for a in found}
    with socket.socket(socket.AF_UNIX) as kept:
        for i in range(_NETWORKS):
            number = (os.getpid() + i) % _NETWORKS
            if f"10.77.{number}" not in taken and _is_bound(kept, f"\0worldsize-test-network-{number}"):
                break
        else:
            raise RuntimeError(f"all {_NETWORKS} networks 10.77.0.0/24 to 10.77.255.0/24 are in use on this machine")
        yield number


def _is_bound(kept: socket.socket, name: str) -> bool:
    try:
        kept.bind(name)
    except OSError:  # another session has it
        return False
    return True


def _names_file(folder: Path, addresses: Mapping[str, str], machine: str) -> Path:
    """What is /etc/hosts on every host."""
    here = socket.gethostname()  # Slurm's controller looks for the names of those who submit
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items()), f"{machine} {here} machine"]
    path = folder / "hosts"
    path.write_text("\n".join([*lines, ""]))
    path.chmod(0o644)
    return path


@contextlib.contextmanager
def _held(name: str, names_file: Path, clock_shift_s: int) -> Iterator[int]:
    """New namespaces, by the process that holds them."""
    shift = str(clock_shift_s)
    clock = ["--time", "--monotonic", shift, "--boottime", shift] if clock_shift_s else []
    command = ["unshare", *_ALONE, "--propagation", "slave", *clock, "--", "sh", "-c", _HOLD, "sh", name, str(names_file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as held:
        said = held.stdout.readline() if held.stdout else ""
        if said != "ready\n":
            held.kill()
            raise RuntimeError(f"no namespaces for host {name}: {said.strip()}")
        try:
            yield held.pid
        finally:
            held.kill()


def _plug_in(switch: int, port: str, link: str, holder: int) -> None:
    """A cable from the switch's `port` to what `holder` will know as `link`."""
    _run(*_in(switch), "ip", "link", "add", port, "type", "veth", "peer", "name", link, "netns", str(holder))
    _run(*_in(switch), "ip", "link", "set", port, "master", "br0", "up")


def _set_address(holder: int, link: str, address: str) -> None:
    _run(*_in(holder), "ip", "address", "add", f"{address}/24", "dev", link)
    _run(*_in(holder), "ip", "link", "set", link, "up")


def _set_link(holder: int, link: str, state: str) -> None:
    _run(*_in(holder), "ip", "link", "set", link, state)


def _delete_link(link: str) -> None:
    """Take the machine's link away now, rather than when the kernel comes to it."""
    subprocess.run(["ip", "link", "delete", link], capture_output=True, timeout=_LIMIT_S, check=False)


def _in(holder: int) -> list[str]:
    return ["nsenter", f"--target={holder}", "--net", "--"]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def network_of(pid: int) -> str:
    """What the kernel calls the network that a process is in."""
    return os.readlink(f"/proc/{pid}/ns/net")


def pids_in(net: str) -> set[int]:
    """The processes of one network; one that has ended and is only not yet waited for has none."""
    found = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if network_of(pid) == net:
                found.add(pid)
    return found
