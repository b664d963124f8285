"""Rules on the system calls of a rank: an allow-list by name. What is not on it fails with "operation not permitted",
whatever a later kernel brings.

libseccomp compiles the list in the grader, for the machine that it runs on; each rank loads it. The list is what torch,
NumPy and TensorFlow were seen to ask for: `strace -f` on a grading of all references, the calls after a rank's last
step into its sandbox. Of those, none is on it that another sandbox could notice, by a count, a lock or a place in a
cache. Left out: timing, which no filter closes.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import struct
from collections.abc import Iterable
from errno import EINVAL, ENOSYS, EPERM
from functools import cache
from types import ModuleType

from worldsize.engines.libc import demand, libc
from worldsize.grade.isolation.memory_layout import NewMemory

# ---- the list --------------------------------------------------------------------------------

_ALWAYS = """
    read readv pread64 write writev pwrite64 close close_range lseek dup dup2 dup3
    open openat stat fstat lstat newfstatat fstatat64 access faccessat readlink readlinkat getdents64 getcwd chdir
    mkdir mkdirat unlink unlinkat rmdir rename renameat renameat2 truncate ftruncate fsync fdatasync umask
    brk munmap mprotect exit exit_group set_robust_list rseq restart_syscall
    rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack pause
    getpid getppid gettid getuid geteuid getgid getegid uname getrandom
    sched_yield sched_getaffinity sched_getparam sched_getscheduler getcpu
    nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
    poll ppoll select pselect6
""".split()
# only for ranks that share a network of their own, because they share a process group or a cluster
_WITH_SOCKETS = """
    bind listen accept accept4 connect getsockname getpeername getsockopt setsockopt shutdown
    sendto recvfrom sendmsg recvmsg epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2 pipe2
""".split()
_ABSENT = "clone3 statx openat2 faccessat2".split()  # said to be unknown, so that the C library takes an older call

_FCNTL = (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_SETFL)
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_INTERFACES = (0x8912, 0x8913, 0x8915, 0x8933, 0x8946)  # SIOCGIF: CONF, FLAGS, ADDR, INDEX; SIOCETHTOOL
_MADVISE = (4, 8, 14, 15)  # DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE
_PRCTL = (15, 16, 0x53564D41)  # SET_NAME, GET_NAME, SET_VMA
_ARCH_PRCTL = (0x1021, 0x1022, 0x1023)  # what of the processor's registers may be used
_CLONE_THREAD, _CLONE_NEW = 0x10000, 0x7E020080
_FUTEX_PRIVATE, _MREMAP_MAYMOVE = 128, 1
_INET, _INET6, _NETLINK, _ROUTE = 2, 10, 16, 0
_ALL = 2**64 - 1


def programs(new_memory: NewMemory, sockets: bool) -> tuple[bytes, ...]:
    """The filters of a rank as BPF, to be installed one after the other.

    `sockets`: whether it has a network, shared with the ranks of its own run alone. `new_memory` says where a futex that
    is not marked as private may lie: threads are joined by one, and one in a mapped file would be the same for all ranks.
    """
    seccomp = library()
    allow, refuse = seccomp.ALLOW, seccomp.ERRNO(EPERM)
    equal, masked, at_least = seccomp.EQ, seccomp.MASKED_EQ, seccomp.GE

    def where(place: int, how: int, *values: int) -> object:
        return seccomp.Arg(place, how, *values)

    rules = _Rules(seccomp, refuse)
    rules.add(allow, _ALWAYS)
    rules.add(seccomp.ERRNO(ENOSYS), _ABSENT)
    rules.each("fcntl", 1, _FCNTL)
    rules.each("ioctl", 1, _IOCTL)
    rules.each("madvise", 2, _MADVISE)
    rules.each("prctl", 0, _PRCTL)
    rules.each("arch_prctl", 0, _ARCH_PRCTL)
    rules.add(allow, ["clone"], where(0, masked, _CLONE_THREAD | _CLONE_NEW, _CLONE_THREAD))
    rules.add(allow, ["mmap"], where(3, masked, mmap.MAP_ANONYMOUS, mmap.MAP_ANONYMOUS))
    rules.add(allow, ["mremap"], where(0, at_least, new_memory.low), where(3, masked, _ALL ^ _MREMAP_MAYMOVE, 0))
    rules.add(allow, ["futex"], where(1, masked, _FUTEX_PRIVATE, _FUTEX_PRIVATE))
    rules.add(allow, ["futex"], where(0, at_least, new_memory.low))
    rules.add(allow, ["prlimit64"], where(0, equal, 0), where(2, equal, 0))
    rules.add(allow, ["getrlimit"])
    rules.add(allow, ["kill"], where(1, seccomp.LT, signal.SIGRTMIN - 2))  # of real-time signals a user has a number
    rules.add(allow, ["tgkill"], where(2, seccomp.LT, signal.SIGRTMIN - 2))
    if sockets:
        rules.add(allow, _WITH_SOCKETS)
        rules.each("ioctl", 1, _INTERFACES)
        rules.each("socket", 0, (_INET, _INET6))
        rules.add(allow, ["socket"], where(0, equal, _NETLINK), where(2, equal, _ROUTE))  # gloo asks for interfaces

    # a rule cannot look at one argument twice, so what lies above comes in a filter of its own
    above = _Rules(seccomp, allow)
    above.add(refuse, ["mremap"], where(0, at_least, new_memory.high))
    above.add(refuse, ["futex"], where(0, at_least, new_memory.high), where(1, masked, _FUTEX_PRIVATE, 0))
    return above.program(), rules.program()  # the second one refuses to add another


class _Rules:
    """A filter that grows; names that this kind of machine does not know are passed over."""

    def __init__(self, seccomp: ModuleType, otherwise: int) -> None:
        self._seccomp = seccomp
        self._filter = seccomp.SyscallFilter(otherwise)

    def add(self, action: int, names: Iterable[str], *conditions: object) -> None:
        for name in names:
            number = self._number(name)
            if number is not None:
                self._filter.add_rule(action, number, *conditions)

    def each(self, name: str, place: int, values: Iterable[int]) -> None:
        """Allow the call where its argument at `place` is one of `values`."""
        for value in values:
            self.add(self._seccomp.ALLOW, [name], self._seccomp.Arg(place, self._seccomp.EQ, value))

    def _number(self, name: str) -> int | None:
        try:
            number = self._seccomp.resolve_syscall(self._seccomp.Arch.NATIVE, name)
        except OSError as error:
            if error.errno != EINVAL:
                raise
            return None
        return number if number >= 0 else None

    def program(self) -> bytes:
        reads, writes = os.pipe()  # it holds any filter: the kernel takes at most 4096 rows of 8 bytes
        with os.fdopen(reads, "rb") as rows:
            with os.fdopen(writes, "wb") as file:
                self._filter.export_bpf(file)
            return rows.read()


def keyctl_number() -> int:
    """The number of the system call by which a process gets a keyring."""
    return library().resolve_syscall(library().Arch.NATIVE, "keyctl")


@cache
def library() -> ModuleType:
    """libseccomp, as pyseccomp binds it: in the grader. Raises ImportError with what to install where there is none."""
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise ImportError(f"libseccomp cannot be used ({error}): install Debian's package libseccomp2") from None
    return pyseccomp


# ---- in a rank -------------------------------------------------------------------------------

_SET_SECCOMP, _FILTER = 22, 2
_JOIN_SESSION_KEYRING = 1


def install(filters: Iterable[bytes]) -> None:
    """Put filters on this process and all its threads to come, for good. Raises KernelRefused where the kernel refuses.

    The process has to have given up new privileges before.
    """
    for rows in filters:
        kept = ctypes.create_string_buffer(rows, len(rows))
        header = struct.pack("@HP", len(rows) // 8, ctypes.addressof(kept))
        argument = ctypes.create_string_buffer(header, len(header))
        demand("rules on system calls", libc.prctl(_SET_SECCOMP, _FILTER, argument, 0, 0))


def new_session_keyring(keyctl: int) -> None:
    """By a system call that the filter will refuse, give this rank a session keyring of its own.

    The inherited one is shared with every other rank. A kernel without keyrings just refuses. `keyctl` is the number of
    that call.
    """
    libc.syscall(keyctl, _JOIN_SESSION_KEYRING, None)
