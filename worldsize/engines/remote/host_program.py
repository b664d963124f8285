"""The program on a host, `python -m worldsize.engines.remote.host_program`, which a way to the host starts.

The program reads an invitation from standard input, so that no list of processes shows it, or speaks over standard input and
output (`--stdio`). `host_agent.py` speaks over the connection. Exit code 0: the head hung up; 2: refused.
"""

import argparse
import os
import signal
import socket
import sys
import time

import zmq

from worldsize.engines.remote.head_listener import Invitation
from worldsize.engines.remote.host_agent import NotWelcome, serve
from worldsize.engines.remote.line import HostLine
from worldsize.engines.remote.pipes import line_of_this_process
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
    """Connect the host's program to the head. The line reports the outcome: a first message, or its end with the reason."""
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
    """Try to reach the head for `_WAY_S`, and send nothing: ØMQ tries once, and a network just back needs a moment.

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


def main(arguments: list[str] | None = None) -> int:
    """Be a host until the head hangs up."""
    parser = argparse.ArgumentParser(prog="worldsize.engines.remote.host_program")
    parser.add_argument("--framework", default="torch", choices=["torch", "tensorflow"])
    parser.add_argument("--stdio", action="store_true", help="speak over standard input and output")
    parser.add_argument("--address", default="", help="address where other hosts reach this one (default: where ssh did)")
    given = parser.parse_args(arguments)

    if os.getpid() != os.getpgrp():
        os.setpgrp()  # `end_group` ends this group: it and its fork server

    code = 0
    try:
        if given.stdio:
            serve(line_of_this_process(), given.address or _address_of_ssh(), given.framework)
        else:
            invitation = Invitation.read(sys.stdin.readline())
            carrier, line = join(invitation)
            serve(line, address_towards(invitation.address), given.framework)
            carrier.close()
    except (NotWelcome, ValueError, OSError) as error:
        print(f"worldsize: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        code = 0

    sys.stderr.flush()
    end_group(code)
    return code


def address_towards(other: str) -> str:
    """Return this host's address on the route to another. No packet is sent."""
    family = socket.AF_INET6 if ":" in other else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        way.connect((other, 9))  # any port: connecting UDP only picks the route
        return way.getsockname()[0]


def _address_of_ssh() -> str:
    """Return the address of the program's host in its ssh session. Raises ValueError outside ssh."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4:
        raise ValueError("--stdio: expected --address, or an ssh session, which tells the address")
    return words[2]


def end_group(code: int) -> None:
    """End the host's program and its fork server; ranks have process groups of their own and have ended already."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    os._exit(code)


if __name__ == "__main__":
    main()
