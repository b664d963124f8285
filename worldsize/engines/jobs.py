"""The kernel's jobs in its agent, one after the other; the ranks that stay; and the agent's work between two jobs.

`session.py` runs one job; `agent.py` starts and ends the agent.
"""

import multiprocessing.connection as mpc
import socket
from dataclasses import dataclass, field
from typing import TypeVar

from worldsize.engines import fork_server
from worldsize.engines.host_ranks import HostRanks
from worldsize.engines.job import Close, Framework, Job, Order, StartMethod, Use
from worldsize.engines.open_session import OpenSession, OpenWorlds
from worldsize.engines.session import Session
from worldsize.engines.tensorflow_session import TensorFlowSession
from worldsize.engines.torch_services import TorchServices
from worldsize.engines.torch_session import TorchSession

AnySession = TypeVar("AnySession", bound=Session)
SESSIONS: dict[Framework, type[Session]] = {"torch": TorchSession, "tensorflow": TensorFlowSession}
_IDLE_S = 0.5  # without a launch, before the fork server does its late imports


@dataclass(eq=False)
class Jobs:
    """The jobs of one kernel and one framework on this machine."""

    kernel: mpc.Connection
    watched: list  # the kernel's pipe, and its pidfd where the system has one
    listener: socket.socket
    start_method: StartMethod
    framework: Framework
    why_shared: str  # why the ranks share the machine's network; "" if they do not
    services: TorchServices
    worlds: OpenWorlds = field(default_factory=OpenWorlds)
    late: bool = False  # whether the fork server was told to do its late imports

    def serve(self) -> None:
        """Run the jobs until the kernel is gone."""
        try:
            while True:
                open_ranks = self.worlds.listened_to()
                ready = mpc.wait([*self.watched, *open_ranks], None if self.late else _IDLE_S)

                if not ready:
                    self._import_late()
                elif self.kernel in ready:
                    message = self.kernel.recv()
                    if message != "stop":  # else a stop that crossed its run's end
                        self._do(message)
                elif any(item in self.watched for item in ready):
                    return
                else:
                    open_ranks[ready[0]]()
        finally:
            self.worlds.close()

    def _do(self, order: Order) -> None:
        if isinstance(order, (Use, Close)):
            self.worlds.do(order, self.kernel)
        elif order.world:
            self.worlds.open(self._session(OpenSession, order))
        else:
            self._session(SESSIONS[self.framework], order).run()

    def _session(self, kind: type[AnySession], job: Job) -> AnySession:
        if job.wants_late_imports:
            self._import_late()

        host = HostRanks(self.listener, self.start_method, self.services)
        return kind(
            job=job, kernel=self.kernel, watched=self.watched, hosts=(host,), start_method=self.start_method,
            network="shared" if self.why_shared else "own", why_shared=self.why_shared,
        )  # fmt: skip

    def _import_late(self) -> None:
        if not self.late and self.start_method == "forkserver":
            fork_server.import_late(self.framework)
        self.late = True
