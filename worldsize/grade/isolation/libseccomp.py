"""libseccomp's filters (seccomp_init(3) and the pages that it names), by the five functions of its C library that grading needs.

Left out: notifications, other architectures, and loading a filter, which `seccomp.install` does in the rank.
"""

import ctypes
import os
from collections.abc import Sequence
from functools import cache

ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
LT, EQ, MASKED_EQ = 2, 4, 7  # how an argument is compared; MASKED_EQ: its bits under a mask


class Condition(ctypes.Structure):
    """A condition on a system call's argument: `Condition(place, EQ, value)` or `Condition(place, MASKED_EQ, mask, value)`."""

    _fields_ = [("place", ctypes.c_uint), ("how", ctypes.c_int), ("first", ctypes.c_uint64), ("second", ctypes.c_uint64)]


def errno(number: int) -> int:
    """Return the action that lets a call fail with this error number."""
    return _ERRNO | number


class SyscallFilter:
    """A filter with one action for every call that no rule is about. Raises OSError and ImportError as the functions below."""

    def __init__(self, otherwise: int) -> None:
        self._filter = _library().seccomp_init(otherwise)
        if not self._filter:
            raise OSError("libseccomp: no filter could be made")

    def __del__(self) -> None:
        if getattr(self, "_filter", None):
            _library().seccomp_release(self._filter)

    def add_rule(self, action: int, call: int, conditions: Sequence[Condition]) -> None:
        """Take `action` on the system call of this number where all conditions hold. Raises OSError with libseccomp's number."""
        rows = (Condition * len(conditions))(*conditions)
        _demand(_library().seccomp_rule_add_array(self._filter, action, call, len(conditions), rows))

    def program(self) -> bytes:
        """Return the filter as the kernel's BPF: at most 4096 rows of 8 bytes, which a pipe holds. Raises OSError."""
        reads, writes = os.pipe()
        with os.fdopen(reads, "rb") as rows:
            try:
                _demand(_library().seccomp_export_bpf(self._filter, writes))
            finally:
                os.close(writes)
            return rows.read()


@cache
def number_of(name: str) -> int | None:
    """Return, from libseccomp, a system call's number on this architecture, None if it has no such call."""
    number = _library().seccomp_syscall_resolve_name(name.encode())
    return number if number >= 0 else None


def _demand(code: int) -> None:
    if code < 0:
        raise OSError(-code, f"libseccomp: {os.strerror(-code)}")


@cache
def _library() -> ctypes.CDLL:
    """Return libseccomp, the C library. Raises ImportError with what to install."""
    try:
        library = ctypes.CDLL("libseccomp.so.2")
        library.seccomp_init.argtypes, library.seccomp_init.restype = [ctypes.c_uint32], ctypes.c_void_p
        library.seccomp_release.argtypes, library.seccomp_release.restype = [ctypes.c_void_p], None
        library.seccomp_rule_add_array.argtypes = [
            ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(Condition)
        ]  # fmt: skip
        library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    except (OSError, AttributeError) as error:
        raise ImportError(f"libseccomp cannot be used ({error}). Install Debian's package libseccomp2") from None
    return library
