"""Ranks that stay and that a notebook drives: each in a real kernel, by the messages that Jupyter sends.

The seconds of a cell are those from its request to the kernel's idle message. Left out: what each text does (`staying.py`).
"""

import os
import queue
import re
import sys
import time
from contextlib import suppress

from peers.staying import FIRST, INTERRUPT_AFTER_S, MEET, CellFailed, Hung, free_port

_START_S = 120.0
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Kernel:
    """One kernel. A subclass says how ranks come into it (`_open`), and which cell runs a text on them (`_cell`)."""

    module = "ipykernel_launcher"
    packages: tuple[str, ...] = ()  # that have to be there
    interrupt_mode = "signal"
    errors_say: tuple[str, ...] = ("boom",)  # in the output of a cell that the kernel calls good

    def __init__(self) -> None:
        from importlib.metadata import version

        from jupyter_client import KernelManager
        from jupyter_client.kernelspec import KernelSpec

        for package in self.packages:
            version(package)
        argv = [sys.executable, "-m", self.module, "-f", "{connection_file}"]
        self._spec = KernelSpec(argv=argv, display_name="bench", language="python", interrupt_mode=self.interrupt_mode)
        self._manager_class = KernelManager
        self._manager = self._client = None
        self.began_s = time.monotonic()

    def open(self, ranks: int, limit_s: float) -> None:
        self._ranks = ranks
        self.began_s = time.monotonic()  # this process stands for Jupyter, and is there before
        self._start_kernel()
        self._open(limit_s)
        self.run(FIRST, limit_s)

    def _start_kernel(self) -> None:
        self._manager = self._manager_class()
        self._manager._kernel_spec = self._spec
        self._manager.start_kernel(env={**os.environ, **self._environment()}, cwd=os.getcwd())
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=_START_S)

    def _environment(self) -> dict[str, str]:
        return {}

    def _open(self, limit_s: float) -> None: ...

    def _cell(self, text: str) -> str:
        return text

    def meet(self, limit_s: float) -> None:
        self.run(MEET, limit_s)

    def run(self, text: str, limit_s: float) -> None:
        self._execute(self._cell(text), limit_s)

    def _execute(self, cell: str, limit_s: float, interrupt_after_s: float | None = None) -> float:
        """Execute a cell, and return when it was interrupted, or when it began. Raises CellFailed and Hung."""
        said: list[str] = []
        failed = ""
        began_s = told_s = time.monotonic()
        due_s = began_s + interrupt_after_s if interrupt_after_s is not None else None
        request = self._client.execute(cell, allow_stdin=False)
        while time.monotonic() < began_s + limit_s:
            if due_s is not None and time.monotonic() >= due_s:
                due_s, told_s = None, time.monotonic()
                self._manager.interrupt_kernel()
            try:
                message = self._client.get_iopub_msg(timeout=0.5)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "error":
                failed = _ANSI.sub("", f"{content['ename']}: {content['evalue']}")
            if kind in ("stream", "display_data", "update_display_data", "error"):
                said.append(_ANSI.sub("", content.get("text") or content.get("data", {}).get("text/plain") or failed))
        else:
            seen = "the error was shown" if "boom" in "".join(said) else "no error was shown"
            raise Hung(f"the cell still runs after {limit_s:g} s, {seen}")
        reply = self._client.get_shell_msg(timeout=limit_s)
        while reply["parent_header"].get("msg_id") != request:
            reply = self._client.get_shell_msg(timeout=limit_s)
        if interrupt_after_s is not None and due_s is None:
            return told_s
        all_said = "".join(said)
        if failed or reply["content"]["status"] != "ok" or any(word in all_said for word in self.errors_say):
            raise CellFailed(f"{reply['content'].get('evalue', '')} {failed} {all_said[-500:]}")
        return told_s

    def interrupted(self, text: str, limit_s: float) -> float:
        told_s = self._execute(self._cell(text), limit_s, INTERRUPT_AFTER_S)
        return time.monotonic() - told_s

    def again(self, limit_s: float) -> float:
        raise NotImplementedError


class WorldSizeMagic(Kernel):
    """Ours, in a notebook: `%%ranks`."""

    def _open(self, limit_s: float) -> None:
        self._execute("from worldsize.notebook import *", limit_s)
        self._execute(f"%%ranks {self._ranks}\npass", limit_s)

    def _cell(self, text: str) -> str:
        return f"%%ranks\n{text}"

    def meet(self, limit_s: float) -> None:
        """They have a group from the beginning."""

    def again(self, limit_s: float) -> float:
        self._execute("world.close()", limit_s)
        began_s = time.monotonic()
        self._execute(f"world = open_ranks({self._ranks})", limit_s)
        return time.monotonic() - began_s


class IPyParallel(Kernel):
    """ipyparallel: `%%px` on the engines of a cluster."""

    packages = ("ipyparallel",)

    def _open(self, limit_s: float) -> None:
        self._execute("import ipyparallel as ipp", limit_s)
        self._start(limit_s)

    def _start(self, limit_s: float) -> None:
        self._execute(
            f"cluster = ipp.Cluster(n={self._ranks}, log_level=40)\n"
            f"client = cluster.start_and_connect_sync(activate=True)",
            limit_s,
        )

    def _cell(self, text: str) -> str:
        return f"%%px\n{text}"

    def meet(self, limit_s: float) -> None:
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(self._ranks)}
        self._execute(f"for rank in range({self._ranks}): client[rank]['rank'] = rank", limit_s)
        self.run(f"import os\nos.environ.update({shared!r}, RANK=str(rank))\n{MEET}", limit_s)

    def again(self, limit_s: float) -> float:
        self._execute("cluster.stop_cluster_sync()", limit_s)
        began_s = time.monotonic()
        self._start(limit_s)
        return time.monotonic() - began_s


class JupyterDistributed(Kernel):
    """jupyter-distributed: a kernel a rank behind a proxy, started as its server extension does."""

    module = "jupyter_distributed.kernel"
    packages = ("jupyter-distributed",)
    interrupt_mode = "message"

    def _environment(self) -> dict[str, str]:
        return {"JUPYTER_DISTRIBUTED_BASE_KERNEL": "python3", "JUPYTER_DISTRIBUTED_WORLD_SIZE": str(self._ranks)}

    def again(self, limit_s: float) -> float:
        """A new number of processes restarts the kernel: there is no other way to new ranks."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        began_s = time.monotonic()
        self._start_kernel()
        self.run(FIRST, limit_s)
        return time.monotonic() - began_s


class NbDistributed(Kernel):
    """nbdistributed: after `%dist_init` every cell runs on its workers."""

    packages = ("nbdistributed",)
    errors_say = ("boom", "Error executing", "Failed to start")

    def _open(self, limit_s: float) -> None:
        self._execute("%load_ext nbdistributed", limit_s)
        self._start(limit_s)

    def _start(self, limit_s: float) -> None:
        """Its first cell times out where the workers still import torch: it is run until it has run."""
        self._execute(f"%dist_init -n {self._ranks}", limit_s)
        until_s = time.monotonic() + limit_s
        while True:
            try:
                return self.run(FIRST, limit_s)
            except CellFailed:
                if time.monotonic() > until_s:
                    raise

    def meet(self, limit_s: float) -> None:
        """They have a group from the beginning."""

    def again(self, limit_s: float) -> float:
        with suppress(CellFailed):
            self._execute("%dist_shutdown", limit_s)
        began_s = time.monotonic()
        self._start(limit_s)
        return time.monotonic() - began_s
