"""Invited hosts: a person on another machine runs `worldsize join` and pastes one line.

An invitation needs only a network, such as between two laptops in a room. Invited hosts may be anybody's: results are
plain values, and nothing that such a host sends is unpickled. `head_listener.py` admits them.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
import time
from collections.abc import Callable

from typing_extensions import override

from worldsize.engines.hosts.engine import HostsEngine
from worldsize.engines.hosts.host_program import address_towards
from worldsize.engines.hosts.ways.programs import member_command
from worldsize.engines.hosts.ways.way import NoHosts, Way

_ELSEWHERE = "192.0.2.1"  # a documentation address (RFC 5737); no packet is sent to it


class Invited(Way):
    """`Invited(hosts=2)`: shows an invitation for each host, one line that is as secret as a password.

    `address`: where the hosts reach this machine, by default as its routes say; `ports`: first and last port to listen
    on, such as (50000, 50010); `valid_min`: lifetime of an invitation, for one host; `and_this_machine`: whether this
    machine is a host too.
    """

    def __init__(
        self,
        hosts: int = 1,
        address: str = "",
        ports: tuple[int, int] | None = None,
        valid_min: float = 10,
        and_this_machine: bool = True,
        show: Callable[[str], None] = print,
    ) -> None:
        if type(hosts) is not int or not 1 <= hosts <= 1000:
            raise ValueError(f"Invited: expected hosts from 1 to 1000, got {hosts!r}")
        if isinstance(valid_min, bool) or not isinstance(valid_min, (int, float)) or not 0 < valid_min <= 1440:
            raise ValueError(f"Invited: expected valid_min in minutes, at most 1440, got {valid_min!r}")
        if ports is not None:
            two = isinstance(ports, (tuple, list)) and list(map(type, ports)) == [int, int]
            if not two or not 0 < ports[0] <= ports[1] < 65536:
                raise ValueError(f"Invited: expected ports as the first and the last, such as (50000, 50010), got {ports!r}")

        if address:
            try:
                ipaddress.ip_address(address)
            except ValueError:
                raise ValueError(f'Invited: expected an IP address, such as "10.0.0.5", got {address!r}') from None

        self.count = hosts + and_this_machine
        self._invited = hosts
        self._address, self._ports, self._valid_min = address, ports, valid_min
        self._here = and_this_machine
        self._show = show
        self._until_s = 0.0
        self._engine: HostsEngine | None = None

    @override
    def begin(self, engine: HostsEngine) -> None:
        self._engine = engine
        address = self._address or _own_address()
        try:
            engine.open_door(address, self._ports)
            invitations = engine.invite(self._invited, self._valid_min * 60)
        except ValueError as error:
            raise NoHosts(f"Invited: this machine cannot listen at {address}: {error}") from None

        self._until_s = time.monotonic() + self._valid_min * 60
        if self._here:
            engine.start_program(socket.gethostname(), member_command(sys.executable, address))

        each, line = ("Each line", "a line of its own") if self._invited > 1 else ("The line", "the line below")
        words = (
            f"On each machine to invite, run `worldsize join` and paste {line}. {each} admits one host within "
            f"{self._valid_min:g} minutes; give it to no one else. This notebook's code will run there."
        )
        self._show("\n".join([words, *invitations]))

    @override
    def standing(self) -> str:
        return "waiting for hosts to run `worldsize join`"

    @override
    def hopeless(self) -> str:
        here = len(self._engine.hosts) if self._engine is not None else 0
        if time.monotonic() < self._until_s or here >= self.count:
            return ""
        return (
            f"the invitations expired after {self._valid_min:g} minutes, and {here} of {self.count} hosts have joined. "
            f"Open hosts again for new invitations, with a longer valid_min=… if needed."
        )


def _own_address() -> str:
    try:
        return address_towards(_ELSEWHERE)
    except OSError:
        raise NoHosts(
            "Invited: this machine has no route to others, so the address where they reach it is unknown. Give the address, "
            'as in Invited(address="10.0.0.5").'
        ) from None
