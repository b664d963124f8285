"""The engine of other hosts: the kernel's side of the head. Each kernel has one head, which ends with the kernel at the
latest.

A launch uses it like this machine's engine (`local_engine.py`), with the head as the agent. `ways/` brings hosts up.
"""

import math
import queue
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from typing_extensions import override

from worldsize.engines.job import Job, Order, StartMethod
from worldsize.engines.local_engine import AgentProcess, LocalEngine, LocalRanks
from worldsize.engines.own_network import Network
from worldsize.engines.remote.head_orders import HostChange, Invite, OpenDoor, OrderFailed, StartProgram, TryNetwork
from worldsize.errors import EngineLost
from worldsize.failures import Outcome

_BOOT = (
    "import sys; from worldsize.engines.remote.head import main; main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"
)
_LEAVE_S = 3.0  # for the head to end
_ANSWER_S = 120.0  # to an order: each pair of hosts that cannot connect costs a time-out


class HostsEngine(LocalEngine):
    """An engine that starts ranks of either framework on other hosts.

    `env` names the variables of this kernel's environment that the ranks get.
    """

    stops_within_s = 30.0  # ending the head would end all hosts; a lost host is noticed sooner
    _idle_s = staticmethod(lambda: math.inf)  # hosts have an idle limit of their own (`retire_if_idle`)

    def __init__(self, env: Sequence[str] = (), trusted_network: bool = False) -> None:
        super().__init__()
        self.env = tuple(env)
        self.trusted_network = trusted_network
        self.label = ""
        self.hosts: dict[str, HostChange] = {}  # joined and not lost, by name
        self.opening_s = 600.0  # time limit for opening the hosts

        self._head: AgentProcess | None = None
        self._use = threading.Lock()
        self._used_s = time.monotonic()  # last moment of use
        self._running = False  # whether a job runs
        self._retired = ""  # why launches are refused; "" while they are not

    @override
    def _wanted(self) -> tuple[StartMethod, Network]:
        """Return the one head's settings: this kernel's variables concern ranks on this machine only."""
        return "forkserver", "shared"

    @override
    def _agent(self) -> AgentProcess:
        with self._use:
            if self._retired:
                raise EngineLost(self._retired)
            self._used_s = time.monotonic()
        return super()._agent()

    @override
    def _started(self, method: StartMethod) -> AgentProcess:
        if self._head is not None:
            raise EngineLost(
                f"the hosts are gone: the process that held their connections has ended. Open them again "
                f"(worldsize.hosts.open). {self._head.last_words()}"
            )
        self._head = AgentProcess(self._new_dir("h"), _BOOT)
        return self._head

    # ---- orders to the head ----------------------------------------------------------------------

    def open_door(self, address: str, ports: tuple[int, int] | None = None) -> None:
        """Listen at an address of this machine for hosts with an invitation. Raises ValueError if that fails."""
        self._order(OpenDoor(address, ports))

    def invite(self, count: int, valid_s: float) -> list[str]:
        """Return `count` invitations as text, each as secret as a password, for hosts that this user's own job starts."""
        return self._order(Invite(count, valid_s))

    def start_program(self, name: str, command: Sequence[str]) -> None:
        """Have the engine start a program here that is a host over its standard input and output, such as ssh."""
        head = self._ready_head()
        head.connection.send(StartProgram(name, tuple(command)))

    def complaints(self) -> list[str]:
        """Return which of the engine's hosts cannot reach each other, each with the reason."""
        return self._order(TryNetwork())

    def next_change(self, timeout_s: float) -> HostChange | None:
        """Return the engine's next host that joined, was refused or got lost; None if none did within `timeout_s`.

        Raises EngineLost if the head has ended.
        """
        return self.note(self._next(timeout_s))

    def _order(self, order: Any) -> Any:
        head = self._ready_head()
        head.connection.send(order)

        until_s = time.monotonic() + _ANSWER_S
        while time.monotonic() < until_s:
            event = self._next(until_s - time.monotonic())
            if isinstance(event, OrderFailed):
                raise ValueError(event.reason)
            if event is not None and self.note(event) is None:
                return event

        raise EngineLost(f"the process that holds the connections to hosts did not answer within {_ANSWER_S:g} s")

    def _ready_head(self) -> AgentProcess:
        head = self._agent()
        head.wait_ready()
        return head

    def _next(self, timeout_s: float) -> Any:
        try:
            event = self._ready_head().events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        finally:  # while the kernel waits here no launch runs, and the hosts are in use
            self._set_running(False)

        if event is None:
            raise EngineLost(f"the process that holds the connections to hosts has ended: {self._head.last_words()}")
        return event

    def note(self, event: Any) -> HostChange | None:
        """Update the engine's `hosts` from an event, and return the event if it concerns a host."""
        if not isinstance(event, HostChange):
            return None

        if event.state == "joined":
            known = {**self.hosts, event.name: event}
            self.hosts = dict(sorted(known.items(), key=lambda item: item[1].place))
        elif event.state == "lost":
            self.hosts.pop(event.name, None)
        return event

    def note_changes(self) -> None:
        """Update the engine's `hosts` from events that nobody has read, unless a launch runs, which reads them."""
        if self._head is None or self._head.busy:
            return

        with suppress(queue.Empty):
            while True:
                event = self._head.events.get_nowait()
                if event is None:  # the head has ended
                    self._head.events.put(None)
                    self.hosts.clear()
                    return
                self.note(event)

    # ---- what launches do ------------------------------------------------------------------------

    @override
    def start(self, order: Order) -> LocalRanks:
        """Start an order on the hosts, with only the part of the environment that may leave this machine."""
        if isinstance(order, Job):
            travelling = {name: order.env[name] for name in (*self.env, *order.asked_env) if name in order.env}
            order = replace(
                order, travelling_env=travelling, env={}, trusted_network=self.trusted_network, hosts_label=self.label
            )

        ranks = super().start(order)
        self._set_running(True)
        return ranks

    @override
    def heard(self, event: Any) -> Any:
        if isinstance(event, HostChange):  # the head also sends news of hosts while a job runs
            self.note(event)
            return None
        if isinstance(event, OrderFailed):
            raise EngineLost(f"the process that holds the connections to hosts could not go on: {event.reason}")

        if isinstance(event, Outcome):
            self._set_running(False)
            for failure in event.failures:
                self.hosts.pop(failure.host, None)  # lost; the head confirms a moment later
        return super().heard(event)

    @override
    def abandon(self) -> None:
        super().abandon()
        self._set_running(False)

    def hang_up(self) -> None:
        """End the head, and with it every host. Files of runs stay while the kernel lives, because they are read late."""
        self.hosts.clear()
        if self._dir is None or not any(self._dir.glob("run*")):
            self.close()
            return

        for agent in self._agents.values():
            agent.close(_LEAVE_S, keep_runs=True)
        self._agents.clear()

    def _set_running(self, running: bool) -> None:
        """Note whether a job runs, and that other hosts were in use until now."""
        with self._use:
            self._running, self._used_s = running, time.monotonic()

    def retire_if_idle(self, idle_s: float, why: str) -> float:
        """Refuse launches, for the reason `why`, if none ran for `idle_s`. Returns the seconds left until then, or 0."""
        with self._use:
            left_s = idle_s if self._running else self._used_s + idle_s - time.monotonic()
            if left_s <= 0:
                self._retired = why
                self.hosts.clear()
            return max(0.0, left_s)
