"""A network for the ranks alone: loopback only, out of reach of other users of the machine.

gloo, TCPStore and TensorFlow's gRPC have no authentication; gRPC listens on every interface and runs any graph it gets.
So on a machine without GPUs, the agent enters a network namespace (network_namespaces(7)), if the system allows it,
before it starts anything. `WORLDSIZE_NETWORK=shared` keeps the machine's network, for ranks that need one. Runs over
several hosts always use the machines' own.
"""

import errno
import os
import sys
from pathlib import Path
from typing import Literal, get_args

from worldsize.libc import NEWNET, NEWUSER, enable_loopback, unshare

Network = Literal["own", "shared"]
_VARIABLE = "WORLDSIZE_NETWORK"
_GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, Windows' subsystem for Linux


def wanted_network() -> Network:
    """Return the ranks' network from `WORLDSIZE_NETWORK`: "own" (default) or "shared" with the machine.

    Raises ValueError for any other value.
    """
    chosen = os.environ.get(_VARIABLE, "own")
    known = get_args(Network)
    if chosen not in known:
        raise ValueError(f"{_VARIABLE}: expected one of {', '.join(known)}, got {chosen!r}")
    return chosen


def enter_own_network() -> str:
    """Leave the machine's network; return "", or why that failed. Call it while this process has one thread."""
    why = why_shared()
    if why:
        return why

    for kinds in (NEWNET, NEWUSER | NEWNET):  # the second for users other than root
        refused = _refused_to_a_child(kinds)
        if not refused:
            _enter(kinds)
            return ""
    return f"the system refuses ranks a network of their own: {os.strerror(refused)}"


def _enter(kinds: int) -> None:
    unshare(kinds, "a network of the ranks' own")
    enable_loopback()


def _refused_to_a_child(kinds: int) -> int:
    """Return the error number with which the system refuses a network namespace; 0 if it allows them.

    A child process tries: some systems grant a namespace and then refuse to make it usable (AppArmor does so to users
    other than root), and a process has no way back out.
    """
    child = os.fork()
    if child == 0:
        number = errno.EPERM

        try:
            _enter(kinds)
            number = 0
        except OSError as refused:
            number = refused.errno or number
        finally:
            os._exit(number)

    _, status = os.waitpid(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    return ended if ended >= 0 else errno.EPERM  # some systems kill a process that makes this call


def why_shared() -> str:
    """Return why ranks on this machine share its network, as far as known without trying; "" if nothing stands against it."""
    if not sys.platform.startswith("linux"):
        return "only Linux has network namespaces"
    if wanted_network() == "shared":
        return f"{_VARIABLE}=shared"
    if any(Path(device).exists() for device in _GPUS):
        return "this machine has GPUs"
    return ""
