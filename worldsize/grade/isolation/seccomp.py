"""Rules on the system calls of a rank: a filter (seccomp, as BPF) that refuses what could reach out of its namespaces.

Locks and watches on files that others see too, keys, other address families (vsock knows no namespaces), memory that
no limit counts, new namespaces, other processes. A refused call fails with "operation not permitted", as it would
without rights. The tables are of x86-64 and arm64; elsewhere there is no filter and the namespaces stand alone.
After the Linux kernel's "Seccomp BPF" and the default profile of moby. Left out: timing, which no filter closes.
"""

from __future__ import annotations

import ctypes
import os
import struct
from errno import EAFNOSUPPORT, ENOSYS, EPERM

from worldsize.engines.libc import demand, libc

# name: (x86-64, arm64)
_NUMBERS = {
    "flock": (73, 32), "fcntl": (72, 25), "socket": (41, 198), "socketpair": (53, 199), "clone": (56, 220),
    "clone3": (435, 435), "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "bpf": (321, 280), "userfaultfd": (323, 282),
    "perf_event_open": (298, 241), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "memfd_create": (319, 279), "shmget": (29, 194),
    "memfd_secret": (447, 447), "mincore": (27, 232), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "syslog": (103, 116), "personality": (135, 92),
    "quotactl": (179, 60), "init_module": (175, 105), "finit_module": (313, 273), "kexec_load": (246, 104),
    "swapon": (167, 224), "reboot": (169, 142), "acct": (163, 89), "vmsplice": (278, 75),
}  # fmt: skip
_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_SPECIAL = ("fcntl", "socket", "socketpair", "clone", "clone3")
_LOCKS = (5, 6, 7, 36, 37, 38, 1024, 1026, 1033)  # F_GETLK to F_SETLKW, of open files too; leases, notices, seals
_FAMILIES = (1, 2, 10)  # unix, IPv4, IPv6: each knows network namespaces
_NEW_WORLDS = 0x7E020000 | 0x00000080  # CLONE_NEW…
_NETLINK = 16
_NR, _ARCH, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32  # places in struct seccomp_data, low words
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_X32 = 0x40000000
_SET_SECCOMP, _FILTER = 22, 2
_JOIN_SESSION_KEYRING = 1


def program(machine: str) -> bytes:
    """The seccomp filter for this kind of machine, as BPF instructions of 8 bytes.

    Empty where there is no table for it.
    """
    if machine not in _ARCHES:
        return b""

    column, arch = _ARCHES[machine]
    number = {name: columns[column] for name, columns in _NUMBERS.items() if columns[column] is not None}

    rows = [_row(_LOAD, _ARCH), _row(_EQUAL, arch, 1, 0), _row(_RETURN, _KILL), _row(_LOAD, _NR)]
    rows += [_row(_AT_LEAST, _X32, 0, 1), _row(_RETURN, _ERRNO | ENOSYS)]
    for name, where in number.items():
        if name not in _SPECIAL:
            rows += [_row(_EQUAL, where, 0, 1), _row(_RETURN, _ERRNO | EPERM)]

    rows += [_row(_EQUAL, number["clone3"], 0, 1), _row(_RETURN, _ERRNO | ENOSYS)]  # then libc falls back to clone
    rows += _block(number["clone"], [_row(_LOAD, _ARG0), _row(_ANY_BIT, _NEW_WORLDS, 0, 1), _row(_RETURN, _ERRNO | EPERM)])
    rows += _block(number["fcntl"], [_row(_LOAD, _ARG1), *_each(_LOCKS, _ERRNO | EPERM)])

    refuse = _row(_RETURN, _ERRNO | EAFNOSUPPORT)
    # gloo asks netlink's protocol 0 for the interfaces of its own network namespace
    routes = [_row(_EQUAL, _NETLINK, 0, 3), _row(_LOAD, _ARG2), *_each((0,), _ALLOW)]
    for name in ("socket", "socketpair"):
        rows += _block(number[name], [_row(_LOAD, _ARG0), *_each(_FAMILIES, _ALLOW), *routes, refuse])
    return b"".join([*rows, _row(_RETURN, _ALLOW)])


def _block(number: int, rows: list[bytes]) -> list[bytes]:
    """`rows` for one system call; what they let through is allowed."""
    return [_row(_EQUAL, number, 0, len(rows) + 1), *rows, _row(_RETURN, _ALLOW)]


def _each(values: tuple[int, ...], answer: int) -> list[bytes]:
    """`answer` where the loaded word is one of `values`; what is none of them goes on."""
    rows = []
    for value in values:
        rows += [_row(_EQUAL, value, 0, 1), _row(_RETURN, answer)]
    return rows


def _row(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def install_filter() -> None:
    """Put the seccomp filter on this process and all that it will start.

    Raises KernelRefused where the kernel refuses.
    """
    rows = program(os.uname().machine)
    if not rows:
        return

    kept = ctypes.create_string_buffer(rows, len(rows))
    header = struct.pack("@HP", len(rows) // 8, ctypes.addressof(kept))
    argument = ctypes.create_string_buffer(header, len(header))
    demand("rules on system calls", libc.prctl(_SET_SECCOMP, _FILTER, argument, 0, 0))


def new_session_keyring() -> None:
    """By a system call that the seccomp filter will refuse, give this rank a session keyring of its own.

    The inherited one is shared with every other rank. A kernel without keyrings just refuses.
    """
    machine = os.uname().machine
    if machine in _ARCHES:
        libc.syscall(_NUMBERS["keyctl"][_ARCHES[machine][0]], _JOIN_SESSION_KEYRING, None)
