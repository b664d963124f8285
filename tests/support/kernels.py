"""A real Jupyter kernel for a test: this Python, a folder and a mark of its own, and every process that it left behind.

The mark is an environment variable. Children inherit it, so a process is found whatever became of its parents.
Left out: notebooks (`worldsize.authoring.headless` runs those).
"""

from __future__ import annotations

import os
import queue
import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpec
from typing_extensions import override

from tests.support.processes import LONG_S, agents

_MARK = "WORLDSIZE_TEST_KERNEL"
_START_S = 60.0
_POLL_S = 0.02

# functions of a cell that do not end by themselves, each at work once its rank's file is there
BUSY = """\
def note(rank):
    print("at work")
    Path(f"rank{rank}").write_text(str(os.getpid()))

def loop(fabric):
    note(fabric.rank)
    while True:
        pass

def linger(fabric):
    end_s = time.monotonic() + 0.5
    while time.monotonic() < end_s:
        pass
    note(fabric.rank)
    while True:
        pass

def collective(fabric):
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    note(fabric.rank)
    if fabric.rank == 0:
        dist.all_reduce(torch.ones(3))

def receive(fabric):
    import torch
    note(fabric.rank)
    if fabric.rank == 0:
        fabric.recv(torch.empty(3), 1)
    x = torch.rand(500, 500)
    while True:
        x = x @ x / 500
"""


@dataclass
class Answer:
    """What a cell put out: `text` printed, `error` as the notebook shows it, `name` of the exception."""

    text: str = ""
    error: str = ""
    name: str = ""
    seconds: float = 0.0


class _ThisPython(KernelManager):
    @property
    @override
    def kernel_spec(self) -> KernelSpec:
        return KernelSpec(**get_kernel_dict())


@dataclass
class Kernel:
    """`with Kernel(folder) as kernel: kernel.run("1 + 1")`. Its temporary folder is `folder`/tmp and nobody else's."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __enter__(self) -> Kernel:
        self.begin_start()
        return self.end_start()

    def __exit__(self, *exception: object) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        for process in self.processes():  # none, unless the test failed
            process.kill()

    def begin_start(self) -> None:
        self.tmp.mkdir(parents=True, exist_ok=True)
        self.manager = _ThisPython(transport="ipc", connection_file=str(self.folder / "kernel.json"))
        environment = {**os.environ, _MARK: self.mark, "TMPDIR": str(self.tmp)}
        self.manager.start_kernel(cwd=str(self.folder), env=environment)

    def end_start(self) -> Kernel:
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=_START_S)
        return self

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    @property
    def pid(self) -> int:
        return self.manager.provisioner.pid

    def run(self, code: str, timeout_s: float = 60) -> Answer:
        """Run a cell to its end."""
        return self.finish(self.begin(code), timeout_s)

    def begin(self, code: str) -> str:
        return self.client.execute(code, allow_stdin=False)

    def finish(self, cell: str, timeout_s: float = 60) -> Answer:
        """What a cell that `begin` began put out. Raises TimeoutError where it has not ended after `timeout_s`."""
        answer, began_s = Answer(), time.monotonic()
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=max(0.0, began_s + timeout_s - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"the cell has not ended; so far: {answer}") from None
            if message["parent_header"].get("msg_id") == cell:
                content = message["content"]
                if message["msg_type"] == "stream":
                    answer.text += content["text"]
                elif message["msg_type"] == "error":
                    answer.name, answer.error = content["ename"], _plain("\n".join(content["traceback"]))
                elif content.get("execution_state") == "idle":
                    answer.seconds = time.monotonic() - began_s
                    return answer

    def processes(self) -> list[psutil.Process]:
        """Every living process that the kernel and its children started, the kernel itself left out."""
        return [p for p in psutil.process_iter() if p.pid != self.pid and _mark_of(p) == self.mark]

    def agents(self) -> list[psutil.Process]:
        """The agents that the kernel started."""
        return agents(self.pid)

    def nothing_left(self, timeout_s: float = LONG_S) -> float:
        """How long it took until every process and file was gone. Raises AssertionError with those that are not."""
        with suppress(TimeoutError):
            return seconds_until(lambda: not self.processes() and not self.files(), timeout_s)
        raise AssertionError(f"left after {timeout_s:g} s: {self.processes()} {self.files()}")

    def files(self) -> list[str]:
        """What lies in the kernel's temporary folder."""
        return sorted(p.name for p in self.tmp.iterdir())


def _mark_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(_MARK)
    except (psutil.Error, OSError):  # gone, or not ours to read
        return None


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def printed(answer: Answer) -> str:
    assert answer.error == ""
    return answer.text.strip()


def launch_busy(kernel: Kernel, function: str, world_size: int = 2) -> tuple[str, list[int]]:
    """Begin a run that does not end; returns the cell and the pids of its ranks, which are all at work."""
    notes = [kernel.folder / f"rank{rank}" for rank in range(world_size)]
    for path in notes:
        path.unlink(missing_ok=True)
    cell = kernel.begin(f"launch({function}, {world_size}, timeout_s=1000)")
    seconds_until(lambda: all(path.exists() and path.read_text() for path in notes), 60)
    return cell, [int(path.read_text()) for path in notes]


def seconds_until(ready: Callable[[], object], timeout_s: float) -> float:
    """How long it took until `ready()` held. Raises TimeoutError after `timeout_s`."""
    began_s = time.monotonic()
    while not ready():
        if time.monotonic() - began_s > timeout_s:
            raise TimeoutError(f"not so after {timeout_s:g} s")
        time.sleep(_POLL_S)  # between two looks
    return time.monotonic() - began_s


def pid_gone(pid: int) -> bool:
    """True where the process has ended, reaped or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
