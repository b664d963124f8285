"""A host's way in: by invitation, through the head's door. Left out: what is said then (`host_agent.py`)."""

from __future__ import annotations

import zmq

from worldsize.engines.hosts.door import Invitation
from worldsize.engines.hosts.line import HostLine
from worldsize.engines.hosts.sockets import Carried, Carrier, set_options

_REASONS = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the invitation was used already, has expired, or is not one of this head's",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "who answers there is not the head that invited",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "who answers there is not the head that invited",
    zmq.EVENT_DISCONNECTED: "the head is gone",
    zmq.EVENT_CLOSED: "nobody answers at the head's address: is the notebook still open, and does a firewall stand between?",
}


def join(invitation: Invitation) -> tuple[Carrier, HostLine]:
    """Connect to the head. Whether that came to be is told by the line: a first message, or its end with the reason."""
    carrier = Carrier(_note_end)
    socket = carrier.context.socket(zmq.PAIR)
    set_options(socket)
    socket.curve_serverkey = invitation.head_key.encode()
    socket.curve_publickey = invitation.public_key.encode()
    socket.curve_secretkey = invitation.secret_key.encode()
    socket.connect_timeout = 5000

    kinds = 0
    for kind in _REASONS:
        kinds |= kind
    monitor = socket.get_monitor_socket(kinds)
    address = f"[{invitation.address}]" if ":" in invitation.address else invitation.address
    socket.ipv6 = ":" in invitation.address
    socket.connect(f"tcp://{address}:{invitation.port}")

    line = HostLine(carrier.wake)
    carrier.carried.append(Carried(socket, monitor, line))
    carrier.start()
    return carrier, line


def _note_end(carried: Carried, event: int, value: int) -> None:
    carried.line.end(_REASONS[event])
