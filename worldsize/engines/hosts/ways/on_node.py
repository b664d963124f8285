"""What Slurm or Dask runs on a host: the member, with its invitation where no list of processes shows it.

It is imported there by programs that are not this package's, so it imports Python's own modules only. Left out: what a
member does (`member.py`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PACKAGE_PATH = str(Path(__file__).resolve().parents[4])
_COMMAND = ("-m", "worldsize.engines.hosts.member")
_LAST_WORDS = 1500


def become_member(invitations: Sequence[str], umask: int) -> None:
    """Slurm's task: become the member with the invitation of this node, and never return.

    submitit keeps SIGTERM from its tasks, and sends more signals before a time limit: they mean again what they did.
    `umask` is that of who submitted, whose ranks write files as they would there.
    """
    invitation = invitations[int(os.environ["SLURM_PROCID"])]
    for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGCONT):
        signal.signal(number, signal.SIG_DFL)

    reading, writing = os.pipe()
    os.write(writing, invitation.encode() + b"\n")  # it fits into the pipe
    os.close(writing)
    os.dup2(reading, 0)
    os.close(reading)
    os.umask(umask)
    os.execv(sys.executable, [sys.executable, *_COMMAND])


def run_member(invitation: str) -> str:
    """Dask's task: run the member until its head hangs up. Returns "" or what went wrong.

    It raises nothing, because Dask writes the arguments of a task that raises into its log.
    """
    known = os.environ.get("PYTHONPATH", "")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [PACKAGE_PATH, known]))}
    try:
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                [sys.executable, *_COMMAND], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said, env=env
            )
            process.communicate(invitation.encode() + b"\n")
            if process.returncode == 0:
                return ""
            said.seek(0)
            words = said.read().decode(errors="replace").strip()[-_LAST_WORDS:]
            return words or f"it ended with exit code {process.returncode}"
    except OSError as error:
        return str(error)
