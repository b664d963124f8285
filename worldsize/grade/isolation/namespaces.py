"""Namespaces of one rank's own, entered before a byte of a submission arrives: no files to write but its own, no network,
no view of other processes.

They are entered by calls (`libc`), because a fork of a warm interpreter cannot start another program. Left out: what is
mounted at all, which the sandbox around (`bubblewrap`) decides, and what a process gives up (`privileges`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from worldsize.engines.libc import NEWIPC, NEWNET, NEWNS, NEWPID, NEWUSER, NEWUTS, demand, libc, unshare
from worldsize.grade.isolation import privileges

_RDONLY, _NOSUID, _NODEV, _REMOUNT, _REC, _PRIVATE = 1, 2, 4, 32, 0x4000, 0x40000


def enter_namespaces() -> None:
    """Put this process, or rather its only child, into user and PID namespaces of its own, where it may make and leave more.

    The parent stays behind as the child's shadow and ends with it. Returns in the child.
    """
    unshare(NEWUSER | NEWPID, "namespaces of a server's own")

    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    privileges.end_with_parent()


class PidNamespace:
    """Forks the first process of a new world, from a process that `enter_namespaces`, and stays outside itself.

    `home` is the descriptor by which it finds its way back.
    """

    def __init__(self) -> None:
        self.home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def fork(self) -> int:
        """As os.fork(); the child is process 1 of its world."""
        demand("a world of processes of its own", libc.unshare(NEWPID))
        child = os.fork()
        if child:
            demand("the way back from it", libc.setns(self.home, NEWPID))
        return child


def unshare_rest() -> None:
    """Leave every other namespace too, for a user, mounts, network and memory of this process's own."""
    unshare(NEWUSER | NEWNS | NEWNET | NEWIPC | NEWUTS, "namespaces of a rank's own")


def mount_private(folders: Sequence[str], tmp_bytes: int, named: bool = False) -> None:
    """In a rank's own mount namespace, put a fresh small folder over each of `folders`, all that could be written, and hide
    processes (`hide_processes`)."""
    demand("mounts of a rank's own", libc.mount(None, b"/", None, _REC | _PRIVATE, None))
    for folder in folders:
        _mount(folder, f"mode=1777,size={tmp_bytes},nr_inodes=4096", _NOSUID | _NODEV)
    hide_processes(named)
    os.chdir(folders[0])


def hide_processes(named: bool) -> None:
    """Put an empty folder over /proc, whose files also count what others do.

    There is nothing in it but, if `named`, some name of this process' program: TensorFlow's runtime ends the process
    where it cannot read one. Raises KernelRefused where this process may not mount.
    """
    _mount("/proc", "mode=755,size=4096,nr_inodes=3", _NOSUID | _NODEV)
    if named:
        os.mkdir("/proc/self", 0o755)
        os.symlink("/rank", "/proc/self/exe")  # of a name with "python" it would want the whole command line
    again = libc.mount(None, b"/proc", None, _REMOUNT | _NOSUID | _NODEV | _RDONLY, None)
    demand("nothing to write where processes are seen", again)


def _mount(folder: str, text: str, flags: int) -> None:
    answer = libc.mount(b"tmpfs", folder.encode(), b"tmpfs", flags, text.encode())
    demand(f"a folder of its own at {folder}", answer)


def probe() -> str:
    """ "" where a process of this one can have namespaces of its own, else what was refused."""
    privileges.become_nobody()
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
        privileges.drop_privileges(address_bytes=8 << 30, cpu_s=10, file_bytes=1_000_000)
        os.write(writes, b"ok")
    except BaseException as error:
        os.write(writes, str(error).encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.stdout.write(f"namespaces: {probe() or 'ok'}\n")
