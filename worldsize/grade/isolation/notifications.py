"""System calls of a watched process, each seen before it is carried out, by seccomp_unotify(2).

The process stands still until its call is answered. A call's descriptor is copied by pidfd_getfd(2) and its paths are
read by process_vm_readv(2); both need a watcher that may trace the process.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from errno import ENOSYS, EPERM

from worldsize.engines.libc import KernelRefused, libc

_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV, _SEND
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_FILTER_MODE, _NEW_LISTENER = 1, 8  # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER
_OF_THREAD = os.O_EXCL  # PIDFD_THREAD
_PATH_BYTES, _PAGE_BYTES = 4096, 4096


@dataclass(frozen=True)
class Call:
    """A system call that waits for an answer: the thread that makes it, its number and its arguments."""

    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]

    def text_at(self, place: int) -> str:
        """Return the path that the argument at this place points to, "" if it cannot be read."""
        address, found = self.arguments[place], b""

        while b"\0" not in found and len(found) < _PATH_BYTES:
            # no further than the page: the next one may not be mapped
            room = ctypes.create_string_buffer(_PAGE_BYTES - (address + len(found)) % _PAGE_BYTES)
            here = _Vector(ctypes.addressof(room), len(room))
            there = _Vector(address + len(found), len(room))
            got = libc.process_vm_readv(self.thread, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
            if got <= 0:
                return ""
            found += room.raw[:got]
        return os.fsdecode(found.partition(b"\0")[0])


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def listen(rows: bytes, seccomp: int) -> int:
    """Install a filter on this thread, for good, and return the descriptor that receives its calls.

    `seccomp` is the number of that system call. Raises KernelRefused.
    """
    kept = ctypes.create_string_buffer(rows, len(rows))
    header = struct.pack("@HP", len(rows) // 8, ctypes.addressof(kept))
    argument = ctypes.create_string_buffer(header, len(header))
    listener = libc.syscall(seccomp, _FILTER_MODE, _NEW_LISTENER, argument)
    if listener < 0:
        number = ctypes.get_errno()
        raise KernelRefused(number, f"listening to system calls: {os.strerror(number)}")
    return listener


def receive(listener: int) -> Call | None:
    """Return the next call that waits, None if its process has died meanwhile."""
    room = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, room)
    except OSError:
        return None
    number, thread, _, call, _, _, *arguments = _NOTIFICATION.unpack(room)
    return Call(number, thread, call, tuple(arguments))


def answer(listener: int, call: Call, carry_out: bool) -> None:
    """Let the call be carried out, or answer it with 0 instead."""
    response = _RESPONSE.pack(call.id, 0, 0, _CONTINUE if carry_out else 0)
    with suppress(FileNotFoundError):  # the caller has died
        fcntl.ioctl(listener, _ANSWER, bytearray(response))


def copied(call: Call, getfd: int, place: int = 0) -> int | None:
    """Return this process's own copy of the open file that is the argument at `place`. `getfd` is pidfd_getfd's number.

    Returns None for a number that is no open file and, before Linux 6.9, for a thread that is not its process's first.
    Raises KernelRefused if this process may not copy the file.
    """
    about = None
    for flags in (0, _OF_THREAD):
        with suppress(OSError):
            about = os.pidfd_open(call.thread, flags)
            break
    if about is None:
        return None

    try:
        descriptor = ctypes.c_int(call.arguments[place] & 0xFFFFFFFF)
        found = libc.syscall(getfd, about, descriptor, 0)
        number = ctypes.get_errno()
    finally:
        os.close(about)

    if found >= 0:
        os.set_inheritable(found, False)
        return found
    if number in (EPERM, ENOSYS):
        raise KernelRefused(number, f"opening a writer's file: {os.strerror(number)}")
    return None
