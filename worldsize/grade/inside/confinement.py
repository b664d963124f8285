"""Confine a submission's process before it reads a byte of the submission: own namespaces, small folders, limits,
none of the package's answers.

The filter on system calls comes last (`isolation.seccomp`).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from worldsize import libc
from worldsize.grade.inside import withheld_functions
from worldsize.grade.isolation import limits, namespaces, privileges, seccomp
from worldsize.grade.pipes import PipeEnds

if TYPE_CHECKING:
    from worldsize.grade.isolation.bubblewrap import SandboxMode


def confine(order: dict[str, Any], mode: SandboxMode) -> None:
    """Confine this process for good, as the server's `order` to start a rank says."""
    privileges.be_ended_first()
    address_bytes = order.get("address_bytes")
    if not address_bytes:
        address_bytes = limits.size_bytes() + order["memory_bytes"]
    if mode == "own":
        namespaces.unshare_rest()
        if order["together"]:
            libc.enable_loopback()
        namespaces.mount_private(order["folders"], order["tmp_bytes"], order["named"])
        namespaces.cover(order["covered"])
    elif mode == "fresh":
        if "address_bytes" not in order:
            namespaces.hide_processes(order["named"])
            namespaces.cover(order["covered"])
        privileges.become_nobody()
        os.chdir(order["folders"][0])

    kept = {"address_bytes": address_bytes, "cpu_s": order["cpu_s"], "file_bytes": order["tmp_bytes"]}
    if mode == "unsafe":
        limits.limit(**kept)
    else:
        seccomp.new_session_keyring(order["keyctl"])
        privileges.drop_privileges(**kept, processes=order["processes"])
    withheld_functions.withhold(order["withheld"])


def close_all_but(lines: Sequence[PipeEnds], *others: int) -> None:
    """Close every descriptor above stderr except these, so that the process is confined."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    edges = [2, *sorted([*chain.from_iterable(lines), *others]), most]
    for below, above in pairwise(edges):
        os.closerange(below + 1, above)
