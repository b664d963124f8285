"""Namespaces of one rank's own, entered before a byte of a submission arrives: no files to write but its own, no network,
no view of other processes, no way to more rights.

Namespaces as in unshare(2) and user_namespaces(7), entered by ctypes because a fork of a warm interpreter cannot start
another program; rules on system calls are in `seccomp`. Left out: what is mounted at all, which the sandbox around
(`bubblewrap`) decides, and limits on a whole submission (`limits`).
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Sequence

from worldsize.grade.isolation import seccomp
from worldsize.grade.isolation.limits import MOST_PROCESSES, limit, limit_one

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _REC, _PRIVATE = 1, 2, 4, 32, 0x4000, 0x40000
_SET_PDEATHSIG, _SET_DUMPABLE, _CAPBSET_DROP, _SET_NO_NEW_PRIVS = 1, 4, 24, 38
_SIGKILL = 9
NOBODY = 65534
_MODERN = (5, 14)  # from this kernel on, processes are counted by user namespace

_libc = ctypes.CDLL(None, use_errno=True)


class NamespaceRefused(OSError):
    """The machine refuses a namespace or a limit; the message says which."""


def become_nobody() -> None:
    """Before namespaces are entered: give up root for good, and stay a process that may map its own user."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _prctl(_SET_DUMPABLE, 1)


def end_with_parent(number: int = _SIGKILL) -> None:
    """A process, in namespaces of its own or not, gets this signal when the process that started it ends."""
    _prctl(_SET_PDEATHSIG, number)


def make_undumpable() -> None:
    """Beside a rank's namespaces: no process of the same user may look into this one's memory (PR_SET_DUMPABLE)."""
    _prctl(_SET_DUMPABLE, 0)


def enter_namespaces() -> None:
    """Put this process, or rather its only child, into user and PID namespaces of its own, where it may make and leave more.

    The parent stays behind as the child's shadow and ends with it. Returns in the child.
    """
    _unshare(_NEWUSER | _NEWPID, "namespaces of a server's own")

    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    end_with_parent()


class PidNamespace:
    """Forks the first process of a new world, from a process that `enter_namespaces`, and stays outside itself."""

    def __init__(self) -> None:
        self._home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def fork(self) -> int:
        """As os.fork(); the child is process 1 of its world."""
        _call("a world of processes of its own", _libc.unshare(_NEWPID))
        child = os.fork()
        if child:
            _call("the way back from it", _libc.setns(self._home, _NEWPID))
        return child


def unshare_rest() -> None:
    """Leave every other namespace too, for a user, mounts, network and memory of this process's own."""
    _unshare(_NEWUSER | _NEWNS | _NEWNET | _NEWIPC | _NEWUTS, "namespaces of a rank's own")


def _unshare(kinds: int, what: str) -> None:
    uid, gid = os.getuid(), os.getgid()
    _call(what, _libc.unshare(kinds))

    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def mount_private(folders: Sequence[str], tmp_bytes: int, named: bool = False) -> None:
    """In a rank's own mount namespace, put a fresh small folder over each of `folders`, and an empty one over /proc.

    `folders` are all that could be written. Where processes are seen there is nothing but, if `named`, some name of
    this one's program: TensorFlow's runtime ends the process where it cannot read one.
    """
    _call("mounts of a rank's own", _libc.mount(None, b"/", None, _REC | _PRIVATE, None))
    for folder in folders:
        _mount(folder, f"mode=1777,size={tmp_bytes},nr_inodes=4096", _NOSUID | _NODEV)

    _mount("/proc", "mode=555,size=4096,nr_inodes=3", _NOSUID | _NODEV)
    if named:
        os.mkdir("/proc/self", 0o555)
        os.symlink("/rank", "/proc/self/exe")  # of a name with "python" it would want the whole command line
    again = _libc.mount(None, b"/proc", None, _REMOUNT | _NOSUID | _NODEV | _RDONLY, None)
    _call("nothing to write where processes are seen", again)

    os.chdir(folders[0])


def drop_privileges(address_bytes: int, cpu_s: int, file_bytes: int, processes: int = MOST_PROCESSES) -> None:
    """After a rank has entered its namespaces: no more rights, ever, limits, and rules on system calls.

    The limits are on this process and its children. It cannot be undone.
    """
    end_with_parent()
    for capability in range(64):
        _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    _call("giving up capabilities", _libc.capset(_words(0x20080522, 0), _words(*[0] * 6)))
    make_undumpable()

    limit(address_bytes, cpu_s, file_bytes)
    if modern_kernel():
        limit_one(resource.RLIMIT_NPROC, processes)

    _prctl(_SET_NO_NEW_PRIVS, 1)
    seccomp.new_session_keyring(_libc)
    seccomp.install_filter(_libc)


def modern_kernel() -> bool:
    """Whether the kernel counts a user's processes in each user namespace apart."""
    major, minor = os.uname().release.split("-")[0].split(".")[:2]
    return (int(major), int(minor)) >= _MODERN


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


def _words(*numbers: int) -> ctypes.Array:
    return (ctypes.c_uint32 * len(numbers))(*numbers)


def _mount(folder: str, text: str, flags: int) -> None:
    answer = _libc.mount(b"tmpfs", folder.encode(), b"tmpfs", flags, text.encode())
    _call(f"a folder of its own at {folder}", answer)


def _prctl(option: int, value: int) -> None:
    _call(f"prctl {option}", _libc.prctl(option, value, 0, 0, 0))


def _call(what: str, answer: int) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise NamespaceRefused(number, f"{what}: {os.strerror(number)}")


def probe() -> str:
    """ "" where a process of this one can have namespaces of its own, else what was refused."""
    become_nobody()
    reads, writes = os.pipe()
    if os.fork() == 0:
        _try_namespaces(writes)

    os.close(writes)
    with os.fdopen(reads) as file:
        said = file.read()
    if said == "ok":
        return ""
    return said or "it died"


def _try_namespaces(writes: int) -> None:
    """In a process of its own, which ends here: says "ok", or what was refused."""
    try:
        enter_namespaces()
        child = PidNamespace().fork()
        if child:
            os.waitpid(child, 0)
            os._exit(0)

        unshare_rest()
        mount_private(sys.argv[1:], 1_000_000)
        drop_privileges(8 << 30, 10, 1_000_000)
        os.write(writes, b"ok")
    except BaseException as error:
        os.write(writes, str(error).encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.stdout.write(f"namespaces: {probe() or 'ok'}\n")
