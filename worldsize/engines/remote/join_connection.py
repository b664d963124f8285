"""A host's connection to the head, by invitation. `host_agent.py` speaks over it."""

import socket
import time

import zmq

from worldsize.engines.remote.head_listener import Invitation
from worldsize.engines.remote.line import HostLine
from worldsize.engines.remote.sockets import Carried, Carrier, set_options

_WAY_S = 3.0  # to try for a first connection
_PAUSE_S = 0.2  # between two tries
_REASONS = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the invitation has been used, has expired, or is not from this head",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "the program that answers there is not the head that invited",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the program that answers there is not the head that invited",
    zmq.EVENT_DISCONNECTED: "the head is gone",
    zmq.EVENT_CLOSED: "no answer at the head's address: is the notebook still open, and does a firewall block the way?",
}


def join(invitation: Invitation) -> tuple[Carrier, HostLine]:
    """Connect to the head. The line reports the outcome: a first message, or its end with the reason."""
    way = _way_to(invitation)
    carrier = Carrier(lambda carried, event, _: carried.line.end(_REASONS[event]))
    if way is not None:
        carrier.kept.append(way)

    own = carrier.context.socket(zmq.PAIR)
    set_options(own)
    own.curve_serverkey = invitation.head_key.encode()
    own.curve_publickey = invitation.public_key.encode()
    own.curve_secretkey = invitation.secret_key.encode()
    own.connect_timeout = 5000

    kinds = 0
    for kind in _REASONS:
        kinds |= kind
    monitor = own.get_monitor_socket(kinds)
    address = f"[{invitation.address}]" if ":" in invitation.address else invitation.address
    own.ipv6 = ":" in invitation.address
    own.connect(f"tcp://{address}:{invitation.port}")

    line = HostLine(carrier.wake)
    carrier.carried.append(Carried(own, monitor, line))
    carrier.start()
    return carrier, line


def _way_to(invitation: Invitation) -> socket.socket | None:
    """Try to connect for `_WAY_S`, and send nothing: ØMQ tries once, and a network that just came back needs a moment.

    The connection stays open until the head closes it: the head tells connections apart by descriptor, and must not reuse
    this one's for the host's own.
    """
    until_s = time.monotonic() + _WAY_S
    while time.monotonic() < until_s:
        try:
            return socket.create_connection((invitation.address, invitation.port), timeout=_WAY_S)
        except OSError:
            time.sleep(_PAUSE_S)
    return None
