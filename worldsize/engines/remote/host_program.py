"""The program on a host, `python -m worldsize.engines.remote.host_program`, which a way to the host starts.

The program reads an invitation from standard input, so that no list of processes shows it, or speaks over standard input and
output (`--stdio`). Exit code 0: the head hung up; 2: refused.
"""

import argparse
import os
import signal
import socket
import sys

from worldsize.engines.remote.head_listener import Invitation
from worldsize.engines.remote.host_agent import NotWelcome, serve
from worldsize.engines.remote.join_connection import join
from worldsize.engines.remote.pipes import line_of_this_process


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
    """Return this machine's address on the route to another. No packet is sent."""
    family = socket.AF_INET6 if ":" in other else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        way.connect((other, 9))  # any port: connecting UDP only picks the route
        return way.getsockname()[0]


def _address_of_ssh() -> str:
    """Return this machine's address in its ssh session. Raises ValueError outside ssh."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4:
        raise ValueError("--stdio: expected --address, or an ssh session, which tells the address")
    return words[2]


def end_group(code: int) -> None:
    """End this process and its fork server; ranks have process groups of their own and have ended already."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    os._exit(code)


if __name__ == "__main__":
    main()
