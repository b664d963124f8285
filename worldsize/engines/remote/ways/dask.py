"""Hosts of a Dask cluster: a task pinned to one worker of each host runs an invited member until the hosts close.

Dask's deployments bring workers onto Kubernetes, clouds and queues. Dask itself is not imported here: the client is the
caller's. `on_node.py` has the task.
"""

from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import override

from worldsize.engines.remote.engine import HostsEngine
from worldsize.engines.remote.host_program import address_towards
from worldsize.engines.remote.ways.on_node import run_member
from worldsize.engines.remote.ways.way import NoHosts, Way

_LATE_S = 60.0  # an invitation outlasts the wait for its host by this much
_ANSWER_S = 10.0  # for a finished task's result


class Dask(Way):
    """`Dask(client)`: every host on which the client's cluster has a worker, each once.

    On each host one task keeps a worker busy until the hosts close. `address` and `ports` (first, last) are where the
    workers reach this machine; the default address is the one on the route to the first worker.
    """

    def __init__(self, client: Any, *, address: str = "", ports: tuple[int, int] | None = None) -> None:
        for method in ("submit", "nthreads"):
            if not callable(getattr(client, method, None)):
                raise ValueError(f"Dask: expected a client, such as distributed.Client(…), got {client!r}")
        if getattr(client, "asynchronous", False):
            raise ValueError("Dask: expected a client that waits, got an asynchronous one: leave asynchronous=True out")

        self._client = client
        self._address, self._ports = address, ports
        self._tasks: dict[str, Any] = {}  # by host
        self.count = 0

    @override
    def begin(self, engine: HostsEngine) -> None:
        try:
            workers = one_a_host(self._client.nthreads())
            if not workers:
                raise NoHosts("Dask: expected at least one worker, got none: start some (cluster.scale(2)).")

            self.count = len(workers)
            engine.open_door(self._address or address_towards(next(iter(workers))), self._ports)
            invitations = engine.invite(self.count, engine.opening_s + _LATE_S)

            for (host, worker), invitation in zip(workers.items(), invitations, strict=True):
                self._tasks[host] = self._client.submit(
                    run_member, invitation, workers=[worker], allow_other_workers=False, pure=False, retries=0
                )
        except (NoHosts, ValueError):
            raise
        except Exception as error:  # whatever Dask raises
            raise NoHosts(_paragraph("the cluster did not accept the tasks", error)) from None

    @override
    def label(self) -> str:
        return "Dask"

    @override
    def standing(self) -> str:
        return f"starting on Dask workers on {', '.join(self._tasks)}"

    @override
    def hopeless(self) -> str:
        for host, task in self._tasks.items():
            if task.status == "error":
                return _paragraph(f"the task on {host} failed", task.exception(timeout=_ANSWER_S))
            if task.status in ("cancelled", "lost"):
                return f"Dask: the task on {host} was {task.status}. Is its worker still there (client.nthreads())?"

            if task.status == "finished":
                said = task.result(timeout=_ANSWER_S) or "the head hung up"
                return (
                    f"Dask: the host {host} did not join: {said}. If it cannot reach this machine, give an "
                    f"address and ports that it can reach: Dask(client, address=…, ports=…)."
                )
        return ""

    @override
    def close(self) -> None:
        """Cancel Dask's tasks. Running members end when their head hangs up."""
        with suppress(Exception):  # the cluster may be gone, and with it the tasks
            self._client.cancel(list(self._tasks.values()), force=True)
        self._tasks.clear()


def one_a_host(workers: Any) -> dict[str, str]:
    """Return Dask's first worker of each host, by host, from all addresses, such as tcp://10.0.0.1:38000."""
    first: dict[str, str] = {}
    for worker in sorted(workers):
        first.setdefault(urlsplit(worker).hostname or worker, worker)
    return first


def _paragraph(what: str, error: BaseException) -> str:
    said = " ".join(str(error).split())[:500]
    return (
        f"Dask: {what}: {type(error).__name__}: {said}. Its workers need the same environment as this notebook, "
        f"worldsize included."
    )
