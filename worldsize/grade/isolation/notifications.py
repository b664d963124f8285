"""System calls of a watched process, one by one, before each is carried out: seccomp_unotify(2), and what it needs beside.

The process stands still until its call is answered. A call's descriptor is copied by pidfd_getfd(2), its paths are read by
process_vm_readv(2); both need a watcher that may trace the process. Left out: which calls are asked about (`seccomp`).
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

_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_CONTINUE = 1
_FILTER_MODE, _NEW_LISTENER = 1, 8
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
        """The path that the argument at this place points to, "" where it cannot be read."""
        address, found = self.arguments[place], b""
        while b"\0" not in found and len(found) < _PATH_BYTES:
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
    """Put a filter that asks on this thread, for good: the descriptor from which its calls are heard. Raises KernelRefused.

    `seccomp` is the number of that system call.
    """
    kept = ctypes.create_string_buffer(rows, len(rows))
    header = struct.pack("@HP", len(rows) // 8, ctypes.addressof(kept))
    argument = ctypes.create_string_buffer(header, len(header))
    listener = libc.syscall(seccomp, _FILTER_MODE, _NEW_LISTENER, argument)
    if listener < 0:
        number = ctypes.get_errno()
        raise KernelRefused(number, f"to hear of system calls: {os.strerror(number)}")
    return listener


def receive(listener: int) -> Call | None:
    """The next call that waits; None where its process has died meanwhile."""
    room = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, room)
    except OSError:
        return None
    number, thread, _, call, _, _, *arguments = _NOTIFICATION.unpack(room)
    return Call(number, thread, call, tuple(arguments))


def go_on(listener: int, call: Call) -> None:
    """Let the call be carried out."""
    _answer(listener, _RESPONSE.pack(call.id, 0, 0, _CONTINUE))


def succeed(listener: int, call: Call) -> None:
    """Answer the call with 0 without carrying it out."""
    _answer(listener, _RESPONSE.pack(call.id, 0, 0, 0))


def _answer(listener: int, response: bytes) -> None:
    with suppress(FileNotFoundError):  # whoever asked has died
        fcntl.ioctl(listener, _ANSWER, bytearray(response))


def copied(call: Call, getfd: int) -> int | None:
    """This process' own copy of the open file that is the first argument of a call. `getfd`: pidfd_getfd's number.

    None where that number is none, and before Linux 6.9 for a thread that is not its process' first. Raises KernelRefused
    where this process may not.
    """
    about = _handle_of(call.thread)
    if about is None:
        return None
    try:
        descriptor = ctypes.c_int(call.arguments[0] & 0xFFFFFFFF)
        found = libc.syscall(getfd, about, descriptor, 0)
        number = ctypes.get_errno()
    finally:
        os.close(about)
    if found >= 0:
        os.set_inheritable(found, False)
        return found
    if number in (EPERM, ENOSYS):
        raise KernelRefused(number, f"to look at a writer's file: {os.strerror(number)}")
    return None


def _handle_of(thread: int) -> int | None:
    for flags in (0, _OF_THREAD):
        with suppress(OSError):
            return os.pidfd_open(thread, flags)
    return None
