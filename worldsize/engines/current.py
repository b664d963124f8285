"""Which engine a launch takes: this machine's, or the one of hosts that are open.

`WORLDSIZE_HOSTS` opens hosts at the first launch, for notebooks that are not edited. Left out: opening them
(`hosts/ways`).
"""

from __future__ import annotations

import atexit
import os
import threading

from worldsize.engines.agent_client import LocalEngine
from worldsize.engines.hosts.ways import from_text
from worldsize.engines.hosts.ways.opening import OpenHosts, open_hosts
from worldsize.engines.hosts.ways.way import NoHosts
from worldsize.engines.job import Framework

_LOCAL: dict[Framework, LocalEngine] = {"torch": LocalEngine("torch"), "tensorflow": LocalEngine("tensorflow")}
_open: list[OpenHosts] = []  # at most one
_decided: list[bool] = []  # whether hosts were opened or closed: then the variable has no more to say
_lock = threading.RLock()
_own_pid = os.getpid()


def local_engine(framework: Framework) -> LocalEngine:
    """The engine of this machine, whatever is open."""
    return _LOCAL[framework]


def current_engine(framework: Framework) -> LocalEngine:
    """The engine that a student's launch takes: that of the open hosts, if there are any.

    Raises NoHosts where `WORLDSIZE_HOSTS` names hosts that do not come; the next launch tries again.
    """
    with _lock:
        wanted = os.environ.get(from_text.VARIABLE, "").strip()
        if wanted and not _decided and os.getpid() == _own_pid:
            _open_by_variable(wanted)
    opened = opened_hosts()
    return opened.engine if opened is not None else _LOCAL[framework]


def _open_by_variable(text: str) -> None:
    try:
        wanted = from_text.hosts_from_text(text)
        opened = open_hosts(wanted.way, wanted.env, wanted.trusted_network, wanted.timeout_s, wanted.idle_min)
    except ValueError as error:
        raise NoHosts(str(error)) from None
    use(opened)


def opened_hosts() -> OpenHosts | None:
    """The hosts that are open in this kernel."""
    return _open[0] if _open and os.getpid() == _own_pid else None


def use(opened: OpenHosts) -> None:
    """Let every later launch of this kernel run on these hosts, which close with the kernel at the latest."""
    with _lock:
        close()
        _open.append(opened)
        atexit.register(close)


def close() -> None:
    """Close the hosts that are open; later launches run on this machine."""
    _decided.append(True)
    while _open and os.getpid() == _own_pid:
        _open.pop().close()
