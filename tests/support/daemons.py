"""Programs that run beside a test until it is over, and waiting for what they do."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

_STOP_S = 15.0
_PAUSE_S = 0.02


def until(done: Callable[[], bool], limit_s: float, what: str) -> None:
    """Ask again and again until it is so; an error that says `what` did not come about in `limit_s` seconds."""
    end_s = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > end_s:
            raise TimeoutError(f"waited {limit_s} s for this: {what}")
        time.sleep(_PAUSE_S)  # between two looks


def program(pid: int) -> str:
    """The name of what a process runs; empty if it has ended."""
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""


@contextlib.contextmanager
def daemon(command: list[str], log: Path, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen]:
    """A program that runs meanwhile and writes to `log`. It ends with the tests, even if they are killed.

    What it started ends with it, but for what has left its family: a job's processes, say, have.
    """
    watched = ["setpriv", "--pdeathsig", "TERM", "--", *command]
    with log.open("w") as out:
        process = subprocess.Popen(
            watched, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", start_new_session=True
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen) -> None:
    family = _below(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_STOP_S)
    psutil.wait_procs(family, _STOP_S)


def _below(pid: int) -> list[psutil.Process]:
    """All that a process started and that lives."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
