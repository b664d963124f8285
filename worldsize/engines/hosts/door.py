"""The head's door: hosts that were invited come in by it, each to a socket of its own, and nobody else does.

An invitation is one key pair for one host, good for one connection and for a limited time; ØMQ asks for it before a
byte of a stranger is seen (ZAP, https://rfc.zeromq.org/spec/27). Left out: what is said once a host is in (`head.py`).
"""

from __future__ import annotations

import getpass
import json
import os
import socket as socket_names
import time
from dataclasses import asdict, dataclass, field

import zmq
from zmq.utils import z85

from worldsize.engines.hosts.line import HostLine
from worldsize.engines.hosts.sockets import Carried, Carrier, set_options

_ZAP = "inproc://zeromq.zap.01"  # the address that ØMQ asks


def user_name() -> str:
    """Who runs this process; a number where the system has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@dataclass(frozen=True)
class Invitation:
    """What a host needs to join: where the head is, its public key, and a key pair of the host's own.

    `user` and `host` say who invites.
    """

    address: str
    port: int
    head_key: str
    public_key: str
    secret_key: str
    user: str = ""
    host: str = ""

    def text(self) -> str:
        """One line, which is as secret as a password."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> Invitation:
        """Raises ValueError for text that is no invitation."""
        try:
            given = json.loads(text)
            made = Invitation(**given)
        except (ValueError, TypeError):
            raise ValueError("expected an invitation, the one line that `hosts.open` shows, got something else") from None

        if not made._sound():
            raise ValueError("expected an invitation, the one line that `hosts.open` shows, got something else")
        return made

    def _sound(self) -> bool:
        """It comes from somewhere, and its words are shown to a person."""
        texts = (self.address, self.user, self.host)
        if not all(isinstance(text, str) and text.isprintable() and len(text) <= 255 for text in texts):
            return False
        keys = (self.head_key, self.public_key, self.secret_key)
        if not all(isinstance(key, str) and len(key) == 40 and key.isascii() for key in keys):
            return False
        return type(self.port) is int and 0 < self.port < 65536


@dataclass
class _Ticket:
    key: bytes
    until_s: float


@dataclass(eq=False)
class Door:
    """Listens at `address` for hosts that are invited."""

    address: str
    ports: tuple[int, int] | None = None  # the first and the last that may be used
    carrier: Carrier = field(init=False)

    def __post_init__(self) -> None:
        self._public, self._secret = zmq.curve_keypair()
        self._tickets: dict[str, _Ticket] = {}  # by the domain of their socket
        self.carrier = Carrier(_note_end)
        self._asked = self.carrier.context.socket(zmq.REP)
        self._asked.bind(_ZAP)  # before any other: a server whom nobody answers lets every key in
        self.carrier.others[self._asked] = self._answer
        self.carrier.start()

    def invite(self, name: str, valid_s: float) -> tuple[Invitation, HostLine]:
        """An invitation for one host, and the line that it will speak on. `name` is one that is not in use."""
        return self.carrier.do(lambda: self._invite(name, valid_s))

    def _invite(self, name: str, valid_s: float) -> tuple[Invitation, HostLine]:
        public, secret = zmq.curve_keypair()
        socket = self.carrier.context.socket(zmq.PAIR)
        set_options(socket)
        socket.curve_server = True
        socket.curve_secretkey = self._secret
        socket.zap_domain = name.encode()
        socket.zap_enforce_domain = True

        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        port = self._bind(socket)
        self._tickets[name] = _Ticket(z85.decode(public), time.monotonic() + valid_s)
        line = HostLine(self.carrier.wake)
        self.carrier.carried.append(Carried(socket, monitor, line))

        keys = {"head_key": self._public, "public_key": public, "secret_key": secret}
        texts = {what: key.decode() for what, key in keys.items()}
        who = {"user": user_name(), "host": socket_names.gethostname()}
        return Invitation(address=self.address, port=port, **texts, **who), line

    def _bind(self, socket: zmq.Socket) -> int:
        first, last = self.ports or (49152, 65535)
        host = f"[{self.address}]" if ":" in self.address else self.address
        if ":" in self.address:
            socket.ipv6 = True
        return socket.bind_to_random_port(f"tcp://{host}", min_port=first, max_port=last + 1, max_tries=500)

    def _answer(self) -> None:
        """ØMQ asks whether this key may come to the socket of this domain."""
        version, request, domain, _, _, mechanism, *credentials = self._asked.recv_multipart()
        name = domain.decode("ascii", "replace")
        ticket = self._tickets.get(name)
        welcome = (
            mechanism == b"CURVE"
            and ticket is not None
            and credentials == [ticket.key]
            and time.monotonic() < ticket.until_s
        )
        if welcome:
            del self._tickets[name]  # it is used up
        status = b"200" if welcome else b"400"
        self._asked.send_multipart([version, request, status, b"", domain if welcome else b"", b""])

    def close(self) -> None:
        """Say what is to be said, hang up to all hosts, and listen no more."""
        self.carrier.close()


def _note_end(carried: Carried, event: int, value: int) -> None:
    """Strangers come and go at a bound socket too: the host is the one whose messages came through that descriptor."""
    if event == zmq.EVENT_DISCONNECTED and carried.descriptor is not None and value == carried.descriptor:
        carried.line.end("its connection was lost")
