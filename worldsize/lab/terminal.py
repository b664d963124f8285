"""A command run from a notebook as in a terminal, with features that `!command` in a cell lacks.

There is a time limit, a failure is an error of the cell, and no process of the command is left behind: children inherit a mark in
the environment, which identifies them even after their parents ended. Left out: input, pipes, a shell.
"""

import codecs
import importlib.util
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

_MARK = "WORLDSIZE_TERMINAL"
_ROUNDS = 2  # the second round finds processes that started during the first
_LOOK_S = 0.05
_LEAVE_S = 3.0


class CommandFailed(RuntimeError):
    """The command ended with a code other than 0, or not in time; `output` is everything that it printed."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


def terminal(
    *command: object, folder: Path | str = ".", timeout_s: float = 60.0, env: Mapping[str, str] | None = None
) -> str:
    """Run `command`, a program and its arguments, in `folder`; print its output, and return it.

    A program beside this Python is preferred. Besides `env` the program gets one thread per process, of PyTorch's C++ only errors
    (on a busy machine torchrun ends with warnings and their long traces), and, for gloo, this machine's loopback, unless the
    environment says otherwise. Raises ValueError for a missing program, CommandFailed for a code other than 0 and for a command
    that is not done after `timeout_s`.
    """
    words, mark = [str(word) for word in command], uuid.uuid4().hex
    print(f"$ {shlex.join(words)}\n", end="", flush=True)  # in one piece: two commands may run side by side

    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    program = shutil.which(words[0], path=path)
    if program is None and words[0] == "torchrun" and importlib.util.find_spec("torch") is not None:
        program, words = sys.executable, [words[0], "-m", "torch.distributed.run", *words[1:]]  # its script lies elsewhere
    if program is None:
        raise ValueError(f"terminal: expected a program, got {words[0]!r}, which is not on PATH. Is it installed here?")

    environment = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if loopback:
        environment["GLOO_SOCKET_IFNAME"] = loopback[0]
    environment |= {**os.environ, **(env or {}), _MARK: mark}

    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [program, *words[1:]], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            in_time = _follow(process, log.fileno(), timeout_s)
        finally:
            _end(process, mark)
        output = _read(log.fileno(), 0).decode(errors="replace")

    if not in_time:
        raise CommandFailed(f"{words[0]}: expected it to end within {timeout_s:g} s; it was stopped.", output)
    if process.returncode:
        last = output.strip().rpartition("\n")[2]
        raise CommandFailed(f"{words[0]}: expected exit code 0, got {process.returncode}. Its last line: {last}", output)
    return output


def _follow(process: subprocess.Popen, log: int, timeout_s: float) -> bool:
    """Print the command's output until the command has ended; return False if the time limit comes first."""
    deadline_s, shown = time.monotonic() + timeout_s, 0
    text = codecs.getincrementaldecoder("utf-8")("replace")

    while True:
        ended = process.poll() is not None
        new = _read(log, shown)
        shown += len(new)
        print(text.decode(new), end="", flush=True)

        if ended or time.monotonic() >= deadline_s:
            return ended
        time.sleep(_LOOK_S)


def _read(log: int, offset: int) -> bytes:
    data = b""
    while part := os.pread(log, 1 << 20, offset + len(data)):
        data += part
    return data


def _end(process: subprocess.Popen, mark: str) -> None:
    """Ask the command to leave, if it is still running, then kill everything that it started."""
    if process.poll() is None:
        family = _marked(mark)
        process.terminate()
        psutil.wait_procs(family, timeout=_LEAVE_S)

    for _ in range(_ROUNDS):
        family = _marked(mark)
        if not family:
            break
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(family, timeout=_LEAVE_S)

    process.wait()


def _marked(mark: str) -> list[psutil.Process]:
    """Return the command's living processes, which have this mark."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # gone, a zombie, or not ours to read
            if process.environ().get(_MARK) == mark:
                processes.append(process)
    return processes
