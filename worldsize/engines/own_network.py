"""A network of the ranks' own: loopback and nothing else, which no other user of the machine can reach.

gloo, TCPStore and TensorFlow's gRPC know no authentication, and TensorFlow's listens on every interface and runs any
graph that it is sent. Where the system allows it, the agent of a machine without GPUs enters a network namespace
(network_namespaces(7)) before it starts anything, and all its ranks are in there. `WORLDSIZE_NETWORK=shared` keeps the
machine's network, for ranks that need one. Left out: runs over several hosts, which need a network between them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, get_args

from worldsize.engines.libc import NEWNET, NEWUSER, KernelRefused, enable_loopback, unshare

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

    try:
        try:
            unshare(NEWNET, "a network of the ranks' own")
        except KernelRefused:  # not root: as the one user of a user namespace
            unshare(NEWUSER | NEWNET, "a network of the ranks' own")
        enable_loopback()
    except OSError as refused:
        return str(refused)
    return ""


def why_shared() -> str:
    """Why ranks on this machine do not get a network of their own, as far as that is known before one tries; or ""."""
    if not sys.platform.startswith("linux"):
        return "only Linux has network namespaces"
    if wanted_network() == "shared":
        return f"{_VARIABLE}=shared"
    if any(Path(device).exists() for device in _GPUS):
        return "this machine has GPUs"
    return ""
