"""A rank's own namespaces: only its own files to write, no network, no view of other processes.

A rank enters them before a byte of a submission arrives, by system calls (`libc`): a fork of a warm interpreter cannot
start another program. `bubblewrap.py` decides what is mounted at all.
"""

import os
import sys
from collections.abc import Sequence

from worldsize.grade.isolation import privileges
from worldsize.libc import NEWIPC, NEWNET, NEWNS, NEWPID, NEWUSER, NEWUTS, demand, libc, unshare

_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 0x1000, 0x4000, 0x40000  # mount(2)
EMPTY_FOLDER = "/covered"  # in every sandbox


def enter_namespaces() -> None:
    """Put this process's only child into its own user and PID namespaces, where it may make and leave more.

    Returns in the child. The parent waits, and exits with the child's status.
    """
    unshare(NEWUSER | NEWPID, "namespaces of a server's own")

    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    privileges.end_with_parent()


class PidNamespace:
    """A source of new PID namespaces, for a process that called `enter_namespaces` and stays outside them.

    `home` is the descriptor of that process's own namespace, by which it returns.
    """

    def __init__(self) -> None:
        self.home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def fork(self) -> int:
        """Fork, as os.fork() does; the child is process 1 of a new PID namespace."""
        demand("a PID namespace of its own", libc.unshare(NEWPID))
        child = os.fork()
        if child:
            demand("the return from that namespace", libc.setns(self.home, NEWPID))
        return child


def unshare_rest() -> None:
    """Enter a new user, mount, network, IPC and host name namespace."""
    unshare(NEWUSER | NEWNS | NEWNET | NEWIPC | NEWUTS, "namespaces of a rank's own")


def mount_private(folders: Sequence[str], tmp_bytes: int, named: bool = False) -> None:
    """Mount a fresh small folder over each of `folders`, in a rank's own mount namespace, and hide processes.

    `folders` are all that can be written; the first becomes the working directory.
    """
    demand("mounts of a rank's own", libc.mount(None, b"/", None, _REC | _PRIVATE, None))
    for folder in folders:
        _mount(folder, f"mode=1777,size={tmp_bytes},nr_inodes=4096", _NOSUID | _NODEV)
    hide_processes(named)
    os.chdir(folders[0])


def hide_processes(named: bool) -> None:
    """Put an empty read-only folder over /proc, whose files also count what others do.

    If `named`, the folder holds a name of this process's program, without which TensorFlow's runtime ends the process.
    Raises KernelRefused if this process may not mount.
    """
    _mount("/proc", "mode=755,size=4096,nr_inodes=3", _NOSUID | _NODEV)
    if named:
        os.mkdir("/proc/self", 0o755)
        os.symlink("/rank", "/proc/self/exe")  # for a name with "python", TensorFlow would read the whole command line

    again = libc.mount(None, b"/proc", None, _REMOUNT | _NOSUID | _NODEV | _RDONLY, None)
    demand("a read-only /proc", again)


def cover(paths: Sequence[str]) -> None:
    """Put nothing over these files and folders, where they exist. Raises KernelRefused if this process may not mount."""
    for path in paths:
        if os.path.exists(path):
            empty = EMPTY_FOLDER if os.path.isdir(path) else os.devnull
            demand(f"nothing at {path}", libc.mount(empty.encode(), path.encode(), None, _BIND, None))


def _mount(folder: str, text: str, flags: int) -> None:
    answer = libc.mount(b"tmpfs", folder.encode(), b"tmpfs", flags, text.encode())
    demand(f"a folder of its own at {folder}", answer)


def probe() -> str:
    """Return "" if a child of this process can have namespaces of its own, else what was refused."""
    privileges.become_nobody()
    reads, writes = os.pipe()
    if os.fork() == 0:
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

    os.close(writes)
    with os.fdopen(reads) as file:
        said = file.read() or "it died"
    return "" if said == "ok" else said


if __name__ == "__main__":
    sys.stdout.write(f"namespaces: {probe() or 'ok'}\n")
