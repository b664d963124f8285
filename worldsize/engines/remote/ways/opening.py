"""Opening hosts: from a way to joined hosts, with status lines for the waiting user; and closing them again.

`programs.py` and its neighbours are the ways; `engines/current_engine.py` chooses a launch's engine.
"""

import math
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from worldsize.engines.remote.engine import HostsEngine
from worldsize.engines.remote.ways.way import NoHosts, Way
from worldsize.errors import EngineLost

_TICK_S = 0.25  # between two status checks


@dataclass(eq=False)
class OpenHosts:
    """Open hosts, which have joined, and the way that brought them."""

    way: Way
    engine: HostsEngine
    idle_min: float = math.inf
    closed: threading.Event = field(default_factory=threading.Event)
    _closing: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """End every agent of the open hosts, and release what the way holds. Closing again has no effect."""
        self.closed.set()
        with self._closing:
            try:
                self.engine.hang_up()
            finally:
                self.way.close()

    def close_once_idle(self) -> None:
        """Wait until `idle_min` minutes have passed without a launch, and close the hosts."""
        why = (
            f"the hosts were closed after {self.idle_min:g} minutes without a launch. Open them again "
            f"(worldsize.hosts.open), or launch on this machine from now on (worldsize.hosts.close)."
        )
        while left_s := self.engine.retire_if_idle(self.idle_min * 60, why):
            if self.closed.wait(min(left_s, threading.TIMEOUT_MAX)):
                return
        self.close()


def open_hosts(
    way: Way,
    env: Sequence[str] = (),
    trusted_network: bool = False,
    timeout_s: float = 600.0,
    idle_min: float = math.inf,
    say: Callable[[str], None] = print,
) -> OpenHosts:
    """Bring up a way's hosts, and wait until all have joined. `say` gets each new status line.

    The hosts close after `idle_min` minutes without a launch. Raises NoHosts, which says what to do. Any error or
    interrupt releases everything.
    """
    opened = OpenHosts(way, HostsEngine(env, trusted_network), idle_min)
    opened.engine.opening_s = timeout_s

    try:
        way.begin(opened.engine)
        _wait_for_all(opened, time.monotonic() + timeout_s, timeout_s, say)
        opened.engine.label = way.label()

        complaints = opened.engine.complaints()
        if complaints:
            raise NoHosts(
                "hosts.open: the hosts cannot reach each other: " + "; ".join(complaints) + ". Ranks connect to each "
                "other on ports that the system picks: open these ports between the machines (a firewall?), or give the "
                "address of a network on which they are open."
            )
    except EngineLost as error:
        opened.close()
        raise NoHosts(f"hosts.open: {error}") from None
    except BaseException:
        opened.close()
        raise

    names, count = ", ".join(opened.engine.hosts), len(opened.engine.hosts)
    users = ", ".join(sorted({change.user for change in opened.engine.hosts.values()}))
    closes = f" Closes after {idle_min:g} idle minutes." if idle_min < math.inf else ""
    say(f"{count} host{'s are' if count != 1 else ' is'} open: {names}. This notebook's code runs there as {users}.{closes}")
    if idle_min < math.inf:  # forgotten hosts cost others
        threading.Thread(target=opened.close_once_idle, name="worldsize-idle", daemon=True).start()
    return opened


def _wait_for_all(opened: OpenHosts, until_s: float, timeout_s: float, say: Callable[[str], None]) -> None:
    way, engine = opened.way, opened.engine
    last_standing = ""
    while len(engine.hosts) < way.count:
        standing = f"{way.standing()} · {len(engine.hosts)} of {way.count} hosts have joined"
        if standing != last_standing:
            say(standing)
            last_standing = standing

        change = engine.next_change(_TICK_S)
        if change is not None:
            if change.state == "refused":
                raise NoHosts(f"hosts.open: {change.name} did not join: {change.reason}{_advice(change.reason)}")
            if change.state == "lost":
                raise NoHosts(f"hosts.open: {change.name} joined and was lost: {change.reason}")

        why = way.hopeless()
        if why:
            raise NoHosts(f"hosts.open: {why}")
        if time.monotonic() > until_s:
            raise NoHosts(
                f"hosts.open: after timeout_s={timeout_s:g} s {len(engine.hosts)} of {way.count} hosts have joined; "
                f"{way.standing()}. Allow more time (timeout_s=…), or ask for less."
            )


def _advice(reason: str) -> str:
    """Return, as hosts open, what to do about a host's interpreter without this package; "" for any other reason."""
    if not re.search(r"No module named '?worldsize|python3?: (command )?not found", reason):
        return ""
    return (
        '\nName the host\'s interpreter that has worldsize: Ssh([…], python="/path/to/.venv/bin/python"). Here it is '
        f"{sys.executable}."
    )
