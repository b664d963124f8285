"""C library calls that Python 3.11 does not wrap, and the error when the kernel refuses one.

unshare(2) and user_namespaces(7) document the namespaces. `engines` and `grade.isolation` use them.
"""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


class KernelRefused(OSError):
    """The kernel refuses a namespace, a mount or a rule; the message says which."""


def demand(what: str, answer: int) -> None:
    """Raise KernelRefused if a C call's `answer` is not 0; `what` names the purpose."""
    if answer != 0:
        number = ctypes.get_errno()
        raise KernelRefused(number, f"{what}: {os.strerror(number)}")


NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (  # CLONE_NEW… of <sched.h>
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip


def unshare(kinds: int, what: str) -> None:
    """Replace this process's namespaces of these kinds by new ones. `what` names the purpose.

    A new user namespace keeps the user and group, and knows no others. Raises KernelRefused.
    """
    uid, gid = os.getuid(), os.getgid()
    demand(what, libc.unshare(kinds))
    if not kinds & NEWUSER:
        return

    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def enable_loopback() -> None:
    """Turn on 127.0.0.1 in this network namespace."""
    import fcntl
    import socket
    import struct

    up, get, set_ = 1, 0x8913, 0x8914  # IFF_UP, SIOCGIFFLAGS, SIOCSIFFLAGS
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name = b"lo".ljust(16, b"\0")
        (flags,) = struct.unpack_from("16xH", fcntl.ioctl(any_socket, get, name + bytes(24)))
        fcntl.ioctl(any_socket, set_, name + struct.pack("H22x", flags | up))
