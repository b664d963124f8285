"""Processes below this one or another, of which some may end while they are looked at: notebooks run beside the tests."""

import os
from contextlib import suppress
from pathlib import Path

import psutil

_LISTENS = "0A"  # TCP_LISTEN, as /proc/net/tcp has it
LONG_S = 30  # a bound against a hang: far more than anything takes, whatever else the machine does


def below(words: str, recursive: bool = False, pid: int | None = None) -> list[psutil.Process]:
    """The children of `pid` (this process), or all below it, that live and whose command line holds `words`."""
    return [p for p in psutil.Process(pid).children(recursive) if words in " ".join(_command(p))]


def agents(pid: int | None = None) -> list[psutil.Process]:
    """The agents that `pid` (this process) started."""
    return below("worldsize.engines.agent", pid=pid)


def ranks_alive() -> list[psutil.Process]:
    """The processes below this one's agents that lead a session of their own: ranks and tasks do, a fork server does not."""
    return [p for agent in agents() for p in agent.children(recursive=True) if leads(p.pid)]


def other_ranks() -> list[psutil.Process]:
    """The other ranks on this rank's host: the processes of the same fork server that lead a session of their own."""
    siblings = psutil.Process().parent().children()
    return [p for p in siblings if p.pid != os.getpid() and leads(p.pid)]


def listens(pid: int) -> bool:
    """Whether a process listens on a TCP port of its own network: ranks here may have another one than the tests."""
    return bool(ports_of(pid))


def ports_of(pid: int) -> set[int]:
    """The TCP ports of its own network that a process listens on."""
    ports = _ports_by_inode(pid)
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(ports.get(os.readlink(descriptor).removeprefix("socket:[").rstrip("]")))
    return found - {None}


def ports_around(pid: int) -> set[int]:
    """The TCP ports that anybody listens on in the network that a process is in."""
    return set(_ports_by_inode(pid).values())


def _ports_by_inode(pid: int) -> dict[str, int]:
    ports = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == _LISTENS:
                ports[columns[9]] = int(columns[1].rpartition(":")[2], 16)
    return ports


def leads(pid: int) -> bool:
    """Whether a process leads a session of its own, as ranks do; one that is gone does not."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # gone, or about to be
        return []
