"""Privileges that a process gives up for good: its user, its rights, readable memory, a life after its parent.

The calls are prctl(2), capabilities(7) and setresuid(2), and none needs namespaces.
"""

import ctypes
import os
import resource
from contextlib import suppress

from worldsize.grade.isolation.limits import MOST_PROCESSES, limit, limit_one
from worldsize.libc import demand, libc

_SET_PDEATHSIG, _SET_DUMPABLE, _CAPBSET_DROP, _SET_NO_NEW_PRIVS = 1, 4, 24, 38  # prctl(2)
_CAPABILITIES = 64  # at least as many as any kernel knows
_CAPABILITY_VERSION_3 = 0x20080522
_SIGKILL = 9
_NOBODY = 65534
_MODERN = (5, 14)  # since this kernel, processes are counted per user namespace


def become_nobody() -> None:
    """Give up root for good, before namespaces are entered, but stay able to map this user."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    _prctl(_SET_DUMPABLE, 1)  # a new user clears it, and then /proc/self is root's


def end_with_parent() -> None:
    """Give up outliving the parent: have the kernel kill this process when that ends."""
    _prctl(_SET_PDEATHSIG, _SIGKILL)


def be_ended_first() -> None:
    """Have the kernel kill this process and its children first if memory runs out; needs a visible /proc."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def drop_privileges(address_bytes: int, cpu_s: int, file_bytes: int, processes: int = MOST_PROCESSES) -> None:
    """Give up all rights for good, and limit this process and its children, after namespaces are entered.

    Rules on system calls (`seccomp`) may follow.
    """
    end_with_parent()
    for capability in range(_CAPABILITIES):
        libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    demand("giving up capabilities", libc.capset(_words(_CAPABILITY_VERSION_3, 0), _words(*[0] * 6)))

    _prctl(_SET_DUMPABLE, 0)  # other processes of the same user cannot read this one's memory
    limit(address_bytes, cpu_s, file_bytes)
    major, minor = os.uname().release.split("-")[0].split(".")[:2]
    if (int(major), int(minor)) >= _MODERN:
        limit_one(resource.RLIMIT_NPROC, processes)

    _prctl(_SET_NO_NEW_PRIVS, 1)


def _words(*numbers: int) -> ctypes.Array:
    return (ctypes.c_uint32 * len(numbers))(*numbers)


def _prctl(option: int, value: int) -> None:
    demand(f"prctl {option}", libc.prctl(option, value, 0, 0, 0))
