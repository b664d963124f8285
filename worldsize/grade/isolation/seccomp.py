"""Rules on the system calls of a rank: an allow-list by name; any other call, of later kernels too, fails with EPERM.

libseccomp compiles the list in the grader; each rank loads it. The list is what torch, NumPy and TensorFlow were seen
to ask for (`strace -f` on a grading of all references) and what starting another process needs, but nothing that
another sandbox could notice, such as a lock; no filter closes timing.
"""

import ctypes
import fcntl
import struct
from collections.abc import Iterable
from errno import EAGAIN, ENOSYS, EPERM
from functools import cache

from worldsize.grade.isolation.libseccomp import ALLOW, EQ, LT, MASKED_EQ, Condition, SyscallFilter, errno, number_of
from worldsize.libc import demand, libc

_ALWAYS = """
    read readv pread64 write writev pwrite64 close close_range lseek dup dup2 dup3
    open openat stat fstat lstat newfstatat fstatat64 access faccessat readlink readlinkat getdents64 getcwd chdir
    mkdir mkdirat link linkat symlink symlinkat unlink unlinkat rmdir rename renameat renameat2
    truncate ftruncate fsync fdatasync umask
    brk mmap munmap mremap mprotect exit exit_group set_robust_list set_tid_address rseq restart_syscall
    rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack pause
    fork vfork execve pipe pipe2 getpid getppid gettid getuid geteuid getgid getegid setsid getpgid getpgrp setpgid
    uname getrandom sched_yield sched_getaffinity sched_getparam sched_getscheduler getcpu getrlimit
    nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
    poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2
    sendto recvfrom shutdown getsockname getpeername getsockopt setsockopt
""".split()
# only for ranks that share a network, because they share a process group or a cluster
_IN_A_NETWORK = "bind listen accept accept4 connect sendmsg recvmsg".split()
_ABSENT = "clone3 statx openat2 faccessat2".split()  # reported as unknown (ENOSYS), so that the C library takes an older call

_FCNTL = (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_SETFL)
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_INTERFACES = (0x8912, 0x8913, 0x8915, 0x8933, 0x8946)  # SIOCGIF: CONF, FLAGS, ADDR, INDEX; SIOCETHTOOL
_MADVISE = (4, 8, 14, 15)  # DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE
_PRCTL = (15, 16, 0x53564D41)  # SET_NAME, GET_NAME, SET_VMA
_ARCH_PRCTL = (0x1002, 0x1021, 0x1022, 0x1023)  # thread-local data; usable registers
_CLONE_NEW = 0x7E020080
_FUTEX_PRIVATE, _FUTEX_WHAT = 128, 127
_FUTEX_WAITS, _FUTEX_WAKES = (0, 9), (1, 10)  # WAIT, WAIT_BITSET; WAKE, WAKE_BITSET
_FILE_SIZE = 1  # RLIMIT_FSIZE
_ITIMER_REAL = 0
_SIGNALS = 32  # from here on real-time signals, of which a user can queue a number
_UNIX, _INET, _INET6, _NETLINK, _ROUTE = 1, 2, 10, 16, 0


@cache
def program(network: bool) -> bytes:
    """Return a rank's filter as BPF, to be installed there. Raises ImportError without libseccomp.

    With `network`, a rank shares a network with its own run alone, and has no sockets of this machine; without, it has
    pairs of sockets and no call that passes descriptors.
    """
    rules = _Rules(otherwise=errno(EPERM))
    rules.add(ALLOW, _ALWAYS)
    rules.add(errno(ENOSYS), _ABSENT)
    rules.each("fcntl", 1, _FCNTL)
    rules.each("ioctl", 1, _IOCTL)
    rules.each("madvise", 2, _MADVISE)
    rules.each("prctl", 0, _PRCTL)
    rules.each("arch_prctl", 0, _ARCH_PRCTL)

    rules.add(ALLOW, ["clone"], Condition(0, MASKED_EQ, _CLONE_NEW, 0))
    rules.add(ALLOW, ["prlimit64"], Condition(0, EQ, 0), Condition(2, EQ, 0))
    # its own limit on file sizes, by which a check kills a writer at a byte; the hard limit stays
    rules.add(ALLOW, ["prlimit64"], Condition(0, EQ, 0), Condition(1, EQ, _FILE_SIZE))
    rules.add(ALLOW, ["kill"], Condition(1, LT, _SIGNALS))
    rules.add(ALLOW, ["tgkill"], Condition(2, LT, _SIGNALS))
    rules.add(ALLOW, ["setitimer"], Condition(0, EQ, _ITIMER_REAL))  # simulated time checks its limit by it
    rules.add(ALLOW, ["wait4"], Condition(3, EQ, 0))  # no rusage: it would tell which pages were in memory
    rules.add(ALLOW, ["waitid"], Condition(4, EQ, 0))

    # a shared futex is common to all that map its file, even read-only (futex(2)), but threads are joined by one: so a wait
    # returns at once, as if the value had changed, and the C library looks again; a wake finds no waiter
    rules.add(ALLOW, ["futex"], Condition(1, MASKED_EQ, _FUTEX_PRIVATE, _FUTEX_PRIVATE))
    for whats, answer in ((_FUTEX_WAITS, EAGAIN), (_FUTEX_WAKES, 0)):
        for what in whats:
            rules.add(errno(answer), ["futex"], Condition(1, MASKED_EQ, _FUTEX_PRIVATE | _FUTEX_WHAT, what))

    if network:
        rules.add(ALLOW, _IN_A_NETWORK)
        rules.each("ioctl", 1, _INTERFACES)
        rules.each("socket", 0, (_INET, _INET6))
        rules.add(ALLOW, ["socket"], Condition(0, EQ, _NETLINK), Condition(2, EQ, _ROUTE))  # gloo lists interfaces
    else:
        rules.each("socketpair", 0, (_UNIX,))
    return rules.program()


class _Rules(SyscallFilter):
    """A filter of system calls by names; those that this architecture does not know are skipped."""

    def add(self, action: int, names: Iterable[str], *conditions: Condition) -> None:
        for name in names:
            number = number_of(name)
            if number is not None:
                self.add_rule(action, number, conditions)

    def each(self, name: str, place: int, values: Iterable[int]) -> None:
        """Allow the call where its argument at `place` is one of `values`."""
        for value in values:
            self.add(ALLOW, [name], Condition(place, EQ, value))


_SET_SECCOMP, _FILTER = 22, 2
_JOIN_SESSION_KEYRING = 1


def install(rows: bytes) -> None:
    """Install a filter of system calls on this process and all its later threads, for good. Raises KernelRefused.

    The process must have given up new privileges before.
    """
    kept = ctypes.create_string_buffer(rows, len(rows))
    header = struct.pack("@HP", len(rows) // 8, ctypes.addressof(kept))
    argument = ctypes.create_string_buffer(header, len(header))
    demand("rules on system calls", libc.prctl(_SET_SECCOMP, _FILTER, argument, 0, 0))


def new_session_keyring(keyctl: int) -> None:
    """Give this rank its own session keyring, by a system call that the filter will refuse.

    The inherited keyring is shared with every other rank. A kernel without keyrings refuses, without harm. `keyctl` is
    the call's number.
    """
    libc.syscall(keyctl, _JOIN_SESSION_KEYRING, None)
