"""The agent: a small process that owns a fork server and runs the kernel's jobs on it (`jobs.py`).

When the kernel's pipe closes, the agent ends every rank. The agent runs in a session of its own, so the kernel's
interrupt does not reach it. Each framework has its own agent, whose fork server has imported that framework. Students'
pickles pass as files.
"""

from __future__ import annotations

import multiprocessing.connection as mpc
import os
import shutil
import signal
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from worldsize.engines import fork_server
from worldsize.engines.own_network import enter_own_network

if TYPE_CHECKING:  # the fork server must begin its imports before this process imports anything more
    from worldsize.engines.job import Framework, StartMethod

_TICK_S = 0.2  # between two looks at a kernel that may end early
_TRIES = 3  # the agent of another start method may be removing the same folder


def main(kernel_fd: int, kernel_pid: int, own_dir: str, start_method: StartMethod, framework: Framework) -> None:
    """Serve jobs from the kernel until it is gone: the entry point of the agent's process.

    `own_dir` lies in the folder of the kernel's runs.
    """
    why_shared = enter_own_network()
    kernel = mpc.Connection(kernel_fd)
    watched = [kernel, *death_watch(kernel_pid)]

    try:
        _serve(kernel, watched, Path(own_dir), start_method, framework, why_shared)
    except (EOFError, OSError):
        if not mpc.wait(watched, 0):
            raise  # the kernel still lives, and finds the traceback in the agent's log

    leave(Path(own_dir))


def leave(own_dir: Path) -> None:
    """Remove the runs of a kernel that has died or is about to, and end with the fork server.

    A kernel that lives on has moved `own_dir` away before it hung up, and keeps its runs. The exit is abrupt, because
    unloading torch would take each process a second.
    """
    if own_dir.exists():
        for _ in range(_TRIES):
            shutil.rmtree(own_dir.parent, ignore_errors=True)
    # ranks have groups of their own; the resource tracker in this one ignores SIGTERM and cleans up
    os.killpg(0, signal.SIGTERM)
    os._exit(0)


def death_watch(pid: int) -> list[int]:
    """Return the agent's pidfd of the kernel: its forked child can keep the pipe open after the kernel died."""
    try:
        return [os.pidfd_open(pid)]
    except (AttributeError, OSError):
        return []


def _leave_early(watched: list, warm: threading.Event, own_dir: Path) -> None:
    """Leave if the kernel ends while this agent still imports, when there are no ranks yet."""
    while not warm.is_set():
        if mpc.wait(watched, _TICK_S) and not warm.is_set():
            leave(own_dir)


def _serve(
    kernel: mpc.Connection,
    watched: list,
    own_dir: Path,
    start_method: StartMethod,
    framework: Framework,
    why_shared: str,
) -> None:
    warm = threading.Event()
    threading.Thread(target=_leave_early, args=(watched, warm, own_dir), daemon=True).start()
    if start_method == "forkserver":
        fork_server.start(framework)

    from worldsize.engines.jobs import Jobs
    from worldsize.engines.torch_services import TorchServices

    services = TorchServices(start_method)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(own_dir / "agent.sock"))
        listener.listen(128)

        jobs = Jobs(
            kernel=kernel, watched=watched, listener=listener, start_method=start_method, framework=framework,
            why_shared=why_shared, services=services,
        )  # fmt: skip
        if start_method == "forkserver":
            services.warm(framework)  # from here on a rank can be forked at once
        warm.set()
        kernel.send("ready")
        jobs.serve()
