"""The head's door: a listener that admits invited hosts only, each on a socket of its own.

The hosts are this user's own, which Slurm or Dask starts. An invitation is a key pair for one host, good for one connection and a
limited time; ØMQ checks it before it reads a byte of a stranger's (ZAP, https://rfc.zeromq.org/spec/27). `head.py` talks to
admitted hosts.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field

import zmq
from zmq.utils import z85

from worldsize.engines.remote.line import HostLine
from worldsize.engines.remote.sockets import Carried, Carrier, set_options

_ZAP = "inproc://zeromq.zap.01"  # where ØMQ asks for authentication


@dataclass(frozen=True)
class Invitation:
    """The data that a host needs at the head's door: the head's address and public key, and a key pair for the host."""

    address: str
    port: int
    head_key: str
    public_key: str
    secret_key: str

    def text(self) -> str:
        """Return the invitation to the head as one line, as secret as a password."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> Invitation:
        """Parse an invitation to the head. Raises ValueError for any other text, which it does not repeat: it may hold a key."""
        try:
            return Invitation(**json.loads(text))
        except (ValueError, TypeError):
            raise ValueError("expected an invitation, the one line that the head makes, got something else") from None


@dataclass
class _Ticket:
    key: bytes
    until_s: float


@dataclass(eq=False)
class Door:
    """A listener at `address` for invited hosts."""

    address: str
    ports: tuple[int, int] | None = None  # first and last allowed port
    carrier: Carrier = field(init=False)

    def __post_init__(self) -> None:
        self._public, self._secret = zmq.curve_keypair()
        self._tickets: dict[str, _Ticket] = {}  # by their socket's ZAP domain
        self.carrier = Carrier(_note_end)
        self._asked = self.carrier.context.socket(zmq.REP)
        self._asked.bind(_ZAP)  # first of all: without this handler ØMQ admits every key
        self.carrier.others[self._asked] = self._answer
        self.carrier.start()

    def invite(self, name: str, valid_s: float) -> tuple[Invitation, HostLine]:
        """Return an invitation to the head's door for one host, and the line for its messages. `name` must not be in use."""
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
        socket.ipv6 = ":" in self.address
        host = f"[{self.address}]" if socket.ipv6 else self.address
        first, last = self.ports or (49152, 65535)  # the dynamic ports of RFC 6335
        port = socket.bind_to_random_port(f"tcp://{host}", min_port=first, max_port=last + 1, max_tries=500)

        self._tickets[name] = _Ticket(z85.decode(public), time.monotonic() + valid_s)
        line = HostLine(self.carrier.wake)
        self.carrier.carried.append(Carried(socket, monitor, line))

        invitation = Invitation(
            address=self.address,
            port=port,
            head_key=self._public.decode(),
            public_key=public.decode(),
            secret_key=secret.decode(),
        )
        return invitation, line

    def _answer(self) -> None:
        """Answer ØMQ's question whether a key may connect to a socket of the head's door."""
        version, request, domain, _, _, mechanism, *credentials = self._asked.recv_multipart()
        name = domain.decode("ascii", "replace")
        ticket = self._tickets.get(name)
        welcome = False
        if mechanism == b"CURVE" and ticket is not None and credentials == [ticket.key]:
            welcome = time.monotonic() < ticket.until_s
        if welcome:
            del self._tickets[name]  # an invitation is good once

        status = b"200" if welcome else b"400"
        self._asked.send_multipart([version, request, status, b"", domain if welcome else b"", b""])

    def close(self) -> None:
        """Send what is queued, hang up on all hosts, and stop listening."""
        self.carrier.close()


def _note_end(carried: Carried, event: int, value: int) -> None:
    """End the line if its own connection was lost: strangers disconnect at this socket too, with other descriptors."""
    if event == zmq.EVENT_DISCONNECTED and value == carried.descriptor:
        carried.line.end("its connection was lost")
