"""`worldsize join`: make this machine a host of the notebook that invited it, if a person agrees.

It stays one until Ctrl-C or until the head hangs up.
The host is a separate process (`host_program.py`), which gets the invitation over a pipe and ends with that pipe.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from worldsize.engines.hosts.head_listener import Invitation, user_name
from worldsize.engines.hosts.host_program import read_invitation

INTERRUPTED = 130  # a shell's exit code after Ctrl-C
_END_S = 10.0  # for the host to end before it is killed


def join(path: Path | None, sure: bool, say: Callable[[str], None], ask: Callable[[str], bool]) -> int:
    """Read the invitation, say who will run code here as whom, ask unless `sure`, and be a host to the end.

    Returns the exit code: 0 if the head hung up, 1 if the host was refused or the person declined, 130 at Ctrl-C.
    Raises ValueError and OSError, which say what to do.
    """
    asks = not sure
    if asks and not sys.stdin.isatty():
        raise ValueError(
            "worldsize join: expected a terminal, to ask whether code from the other machine may run here, got none. "
            "Pass --yes if it may, or put the invitation in a file that only you can read, and run `worldsize join "
            "--invitation FILE` in a terminal."
        )

    if path is None and sys.stdin.isatty():
        say("Paste the invitation, the one line that the notebook shows, and press Enter:")

    invitation = read_invitation(path)
    say(who_comes(invitation))
    if asks and not ask("Join?"):
        return 1
    return _be_host(invitation, say)


def who_comes(invitation: Invitation) -> str:
    """Return a sentence that says who will run code here, and as whom."""
    who = f"{invitation.user or 'somebody'} on {invitation.host or 'a machine'} ({invitation.address})"
    return (
        f"The invitation says it is from {who}. The person who runs that notebook can run any code on this machine as "
        f"{user_name()}, with access to everything that {user_name()} can read and write, until you press Ctrl-C here or "
        f"the notebook closes its hosts."
    )


def _be_host(invitation: Invitation, say: Callable[[str], None]) -> int:
    command = [sys.executable, "-m", "worldsize.engines.hosts.host_program", "--held"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0) as member:
        try:
            with suppress(BrokenPipeError):
                member.stdin.write(invitation.text().encode() + b"\n")
                member.stdin.flush()
            say("Joining; Ctrl-C ends it.")
            code = member.wait()
        except KeyboardInterrupt:
            with suppress(OSError):
                member.stdin.close()  # hangs up on the host, whose ranks end with it
            try:
                member.wait(_END_S)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                member.kill()
            say("This machine is no longer a host.")
            return INTERRUPTED

    if code == 0:
        say("The notebook has closed its hosts.")
    return 1 if code else 0
