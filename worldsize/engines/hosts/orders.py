"""Orders of a kernel to its head beside launches, and what the head tells of hosts.

Left out: carrying the orders out (`head.py`), and giving them (`engine.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HostState = Literal["joined", "refused", "lost"]


@dataclass(frozen=True)
class HostChange:
    """Tell the kernel of a host: it has joined, was refused, or is lost, and why."""

    state: HostState
    name: str
    reason: str = ""
    user: str = ""
    address: str = ""
    cores: int = 0
    place: int = 0  # of the host among all, whenever it came


@dataclass(frozen=True)
class OpenDoor:
    """The kernel's order: listen at `address`, on ports from the first to the last of `ports`."""

    address: str
    ports: tuple[int, int] | None = None


@dataclass(frozen=True)
class Invite:
    """The kernel's order: make invitations for this many hosts. Answered by a list of their texts."""

    count: int
    valid_s: float


@dataclass(frozen=True)
class StartProgram:
    """The kernel's order: start a program that is a host over its standard input and output.

    `name` is what the host is called.
    """

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class TryNetwork:
    """The kernel's order: see whether the hosts reach each other. Answered by a list of complaints."""


@dataclass(frozen=True)
class OrderFailed:
    """The head's answer to an order that it could not carry out."""

    reason: str
