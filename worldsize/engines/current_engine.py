"""The engine of the next launch: this machine's, or the open hosts'.

`WORLDSIZE_HOSTS` opens hosts at the first launch, for notebooks that are not edited. `remote/ways` opens them.
"""

import atexit
import os
import threading

from worldsize.engines.job import Framework
from worldsize.engines.local_engine import LocalEngine
from worldsize.engines.remote.ways import from_text
from worldsize.engines.remote.ways.opening import OpenHosts, open_hosts
from worldsize.engines.remote.ways.way import NoHosts

_LOCAL: dict[Framework, LocalEngine] = {"torch": LocalEngine("torch"), "tensorflow": LocalEngine("tensorflow")}
_open: list[OpenHosts] = []  # at most one
_decided: list[bool] = []  # not empty once hosts were opened or closed: then the variable is ignored
_lock = threading.RLock()
_own_pid = os.getpid()


def local_engine(framework: Framework) -> LocalEngine:
    """Return the engine of this machine, even if hosts are open."""
    return _LOCAL[framework]


def current_engine(framework: Framework) -> LocalEngine:
    """Return the engine for a student's launch: the open hosts', if there are any, else this machine's.

    Raises NoHosts if `WORLDSIZE_HOSTS` names hosts that do not come; the next launch tries again.
    """
    with _lock:
        text = os.environ.get(from_text.VARIABLE, "").strip()
        if text and not _decided and os.getpid() == _own_pid:
            try:
                wanted = from_text.hosts_from_text(text)
                opened = open_hosts(wanted.way, wanted.env, wanted.trusted_network, wanted.timeout_s, wanted.idle_min)
            except ValueError as error:
                raise NoHosts(str(error)) from None
            use(opened)

    opened = opened_hosts()
    return opened.engine if opened is not None else _LOCAL[framework]


def opened_hosts() -> OpenHosts | None:
    """Return the hosts that are open in this kernel, or None."""
    return _open[0] if _open and os.getpid() == _own_pid else None


def use(opened: OpenHosts) -> None:
    """Run every later launch of this kernel on these hosts, which close with the kernel at the latest."""
    with _lock:
        close()
        _open.append(opened)
        atexit.register(close)


def close() -> None:
    """Close the open hosts; later launches run on this machine."""
    _decided.append(True)
    while _open and os.getpid() == _own_pid:
        _open.pop().close()
