"""The kernel's jobs in its agent, one after the other, and what the agent does between them.

Left out: one job (`session.py`), and the agent's own beginning and end (`agent.py`).
"""

from __future__ import annotations

import multiprocessing.connection as mpc
import socket
from dataclasses import dataclass, field

from worldsize.engines import fork_server
from worldsize.engines.host_ranks import HostRanks
from worldsize.engines.job import Framework, Job, StartMethod
from worldsize.engines.session import Session
from worldsize.engines.tensorflow_session import TensorFlowSession
from worldsize.engines.torch_services import TorchServices
from worldsize.engines.torch_session import TorchSession

SESSIONS: dict[Framework, type[Session]] = {"torch": TorchSession, "tensorflow": TensorFlowSession}
_IDLE_S = 0.5  # without a launch, before the fork server imports what is wanted late


@dataclass(eq=False)
class Jobs:
    """The jobs of one kernel and one framework on this machine."""

    kernel: mpc.Connection
    watched: list  # the kernel's ends: its pipe, and where there is one its pidfd
    listener: socket.socket
    start_method: StartMethod
    framework: Framework
    why_shared: str  # why the ranks share the machine's network; "" where they have their own
    services: TorchServices = field(init=False)
    late: bool = False  # whether the fork server has been told to import what is wanted late

    def __post_init__(self) -> None:
        self.services = TorchServices(self.start_method)

    def warm_up(self) -> None:
        """Return when a rank can be forked at once."""
        if self.start_method == "forkserver":
            self.services.warm(self.framework)

    def serve(self) -> None:
        """Run the jobs until the kernel is gone."""
        while True:
            ready = mpc.wait(self.watched, None if self.late else _IDLE_S)
            if not ready:
                self._import_late()
            elif self.kernel not in ready:
                return
            else:
                message = self.kernel.recv()
                if message != "stop":  # a stop that crossed the end of its run
                    self._run(message)

    def _run(self, job: Job) -> None:
        if job.wants_late_imports:
            self._import_late()

        host = HostRanks(self.listener, self.start_method, self.services)
        session = SESSIONS[self.framework](
            job=job, kernel=self.kernel, watched=self.watched, hosts=(host,), start_method=self.start_method,
            network="shared" if self.why_shared else "own", why_shared=self.why_shared,
        )  # fmt: skip
        session.run()

    def _import_late(self) -> None:
        if not self.late and self.start_method == "forkserver":
            fork_server.import_late(self.framework)
        self.late = True
