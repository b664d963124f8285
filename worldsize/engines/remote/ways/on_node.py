"""The program that Slurm or Dask runs on a host: the member, with its invitation hidden from process lists.

Programs outside this package import this module, so it imports only Python's own modules. `host_program.py` does the rest.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PACKAGE_PATH = str(Path(__file__).resolve().parents[4])
_COMMAND = ("-m", "worldsize.engines.remote.host_program")
_LAST_WORDS = 1500


def become_member(invitations: Sequence[str], umask: int) -> None:
    """Replace Slurm's task by the member, with the invitation of this node; never return.

    submitit changes the handling of SIGTERM and of the signals before a time limit; the defaults are restored. `umask` is
    the submitter's, so that ranks write files as they would there.
    """
    invitation = invitations[int(os.environ["SLURM_PROCID"])]
    for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGCONT):
        signal.signal(number, signal.SIG_DFL)

    reading, writing = os.pipe()
    os.write(writing, invitation.encode() + b"\n")  # short enough for the pipe's buffer
    os.close(writing)
    os.dup2(reading, 0)
    os.close(reading)
    os.umask(umask)
    os.execv(sys.executable, [sys.executable, *_COMMAND])


def run_member(invitation: str) -> str:
    """Run the member until its head hangs up, as Dask's task; return "" or the error.

    Raises nothing, because Dask logs the arguments of a task that raises, and the argument is secret.
    """
    known = os.environ.get("PYTHONPATH", "")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [PACKAGE_PATH, known]))}

    try:
        with tempfile.TemporaryFile() as error_file:
            process = subprocess.Popen(
                [sys.executable, *_COMMAND], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=error_file, env=env
            )
            process.communicate(invitation.encode() + b"\n")
            if process.returncode == 0:
                return ""

            error_file.seek(0)
            words = error_file.read().decode(errors="replace").strip()[-_LAST_WORDS:]
            return words or f"it ended with exit code {process.returncode}"
    except OSError as error:
        return str(error)
