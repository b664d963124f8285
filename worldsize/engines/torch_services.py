"""A host's services that need torch, in one process forked from the fork server: counting GPUs, and holding runs' stores.

Thus neither the agent nor the fork server imports CUDA's libraries, and the agent starts without torch. A store is a
`torch.distributed.TCPStore` that listens before any rank starts, as torchrun's agent has it.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import socket
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from worldsize.engines.job import Framework, StartMethod

if TYPE_CHECKING:  # only the services' own process imports torch
    import torch.distributed as dist

_MODULES: dict[Framework, str] = {"torch": "torch.distributed", "tensorflow": "tensorflow"}
_STORE_S = 60  # time-out of the store's operations
_ANSWER_S = 180.0  # for the import of torch on a busy machine


class TorchServices:
    """The agent's side of the services' process, which starts with the first call, or ahead by `warm`."""

    def __init__(self, start_method: StartMethod) -> None:
        self._context = multiprocessing.get_context(start_method)
        self._connection: Connection | None = None
        self._process: Any = None
        self._gpus: tuple[tuple[str, ...], bool] | None = None

    def warm(self, framework: Framework) -> None:
        """Start the services' process, and return when it has imported `framework`, which implies that the fork server has.

        Raises OSError with the import's error.
        """
        self._call("import", _MODULES[framework])

    def gpus(self) -> tuple[tuple[str, ...], bool]:
        """Return the names of the GPUs that CUDA can use here, and whether torch has NCCL."""
        if self._gpus is None:
            self._gpus = self._call("gpus")
        return self._gpus

    def open_store(self, address: str) -> int:
        """Open a store that listens on this address alone, and return its port."""
        return self._call("store", address)

    def close_store(self, port: int) -> None:
        """Have torch's process drop the store of this port."""
        self._call("close", port)

    def _call(self, what: str, *arguments: Any) -> Any:
        """Ask the services' process, and restart it once if it has ended or does not answer. Raises OSError."""
        for _ in range(2):
            if self._connection is None:
                ours, theirs = multiprocessing.Pipe()
                process = self._context.Process  # type: ignore[attr-defined]  # every context has it
                self._process = process(target=serve, args=(theirs,), daemon=True)
                self._process.start()
                theirs.close()
                self._connection = ours

            try:
                self._connection.send((what, *arguments))
                if self._connection.poll(_ANSWER_S):
                    answer, error = self._connection.recv()
                    if error:
                        raise OSError(error)
                    return answer
            except (EOFError, ConnectionError):
                pass
            self._connection.close()
            self._connection = None

        raise OSError("the process that holds torch's store ended or did not answer, even after a restart")


def serve(connection: Connection) -> None:
    """Answer as torch's services until the agent hangs up: the main function of the process."""
    stores: dict[int, Any] = {}  # by port
    while True:
        try:
            what, *arguments = connection.recv()
        except (EOFError, OSError):
            os._exit(0)

        answer, error = None, ""
        try:
            if what == "import":
                importlib.import_module(*arguments)
            elif what == "gpus":
                answer = _gpus()
            elif what == "store":
                store = _open_store(*arguments)
                answer = store.port
                stores[answer] = store
            elif what == "close":
                stores.pop(*arguments, None)  # gone already if this process was restarted
        except Exception as raised:
            error = "".join(traceback.format_exception_only(raised)).strip()
        connection.send((answer, error))


def _gpus() -> tuple[tuple[str, ...], bool]:
    import torch
    import torch.distributed as dist

    names = tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return names, dist.is_nccl_available()


def _open_store(address: str) -> dist.TCPStore:
    """Open a run's rendezvous, on a socket that listens on one address before anyone learns its port."""
    import torch.distributed as dist

    listening = socket.socket()
    listening.bind((address, 0))
    listening.listen(128)
    return dist.TCPStore(
        address, listening.getsockname()[1], is_master=True, wait_for_workers=False,
        timeout=timedelta(seconds=_STORE_S), master_listen_fd=listening.detach(),
    )  # fmt: skip
