"""A network of the ranks' own: loopback and nothing else, which no other user of the machine can reach.

gloo, TCPStore and TensorFlow's gRPC know no authentication, and TensorFlow's listens on every interface and runs any
graph that it is sent. Where the system allows it, the agent of a machine without GPUs enters a network namespace
(network_namespaces(7)) before it starts anything, and all its ranks are in there. `WORLDSIZE_NETWORK=shared` keeps the
machine's network, for ranks that need one. Left out: runs over several hosts, which need a network between them, and
what is said to a student whose rank missed one (`launch.outcome_error`).
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Literal, get_args

from worldsize.engines.libc import NEWNET, NEWUSER, enable_loopback, unshare

Network = Literal["own", "shared"]
_VARIABLE = "WORLDSIZE_NETWORK"
_GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA's, AMD's, and those of Windows' subsystem


def wanted_network() -> Network:
    """The ranks' network as `WORLDSIZE_NETWORK` says: of their "own", which is usual, or "shared" with the machine.

    Raises ValueError for another word.
    """
    chosen = os.environ.get(_VARIABLE, "own")
    known = get_args(Network)
    if chosen not in known:
        raise ValueError(f"{_VARIABLE}: expected one of {', '.join(known)}, got {chosen!r}")
    return chosen


def enter_own_network() -> str:
    """Leave the machine's network, before this process has a second thread. Returns "", or why it stays."""
    why = why_shared()
    if why:
        return why

    for kinds in (NEWNET, NEWUSER | NEWNET):  # the second for those who are not root, as the one user of a namespace
        refused = _refused_to_a_child(kinds)
        if not refused:
            _enter(kinds)
            return ""
    return f"the system refuses them a network of their own: {os.strerror(refused)}"


def _enter(kinds: int) -> None:
    unshare(kinds, "a network of the ranks' own")
    enable_loopback()


def _refused_to_a_child(kinds: int) -> int:
    """The error's number with which the system refuses this, 0 where it does not.

    A child tries it: some systems grant a namespace and then refuse all that makes it usable (AppArmor does so to users
    who are not root), and a process that is in it by then has no way back.
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
    return ended if ended >= 0 else errno.EPERM  # killed: some systems do so to a process that makes this call


def why_shared() -> str:
    """Why ranks on this machine do not get a network of their own, as far as that is known before one tries; or ""."""
    if not sys.platform.startswith("linux"):
        return "only Linux has network namespaces"
    if wanted_network() == "shared":
        return f"{_VARIABLE}=shared"
    if any(Path(device).exists() for device in _GPUS):
        return "this machine has GPUs"
    return ""
