"""Messages between a kernel and its head, beside launches: orders one way, news of hosts the other.

`engine.py` gives the orders, `head.py` carries them out.
"""

from dataclasses import dataclass
from typing import Literal

HostState = Literal["joined", "refused", "lost"]


@dataclass(frozen=True)
class HostChange:
    """News of a host from the head for the kernel: joined, refused or lost, and why."""

    state: HostState
    name: str
    reason: str = ""
    user: str = ""
    address: str = ""
    cores: int = 0
    place: int = 0  # in the order of requests, whenever the host joined


@dataclass(frozen=True)
class OpenDoor:
    """An order to the head to listen at `address`, on a port within `ports` (first, last)."""

    address: str
    ports: tuple[int, int] | None = None


@dataclass(frozen=True)
class Invite:
    """An order to the head to make `count` invitations. The answer is a list of their texts."""

    count: int
    valid_s: float


@dataclass(frozen=True)
class StartProgram:
    """An order to the head to start a program that is a host over its standard input and output.

    `name` becomes the host's name.
    """

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class TryNetwork:
    """An order to the head to check that the hosts reach each other. The answer is a list of complaints."""


@dataclass(frozen=True)
class OrderFailed:
    """The head's answer to an order that it could not carry out."""

    reason: str
