"""The C library's calls for which Python has no function of its own, and the error where the kernel refuses one.

Left out: what they are called for (`namespaces`, `privileges`, `seccomp`).
"""

from __future__ import annotations

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


class KernelRefused(OSError):
    """The machine refuses a namespace, a mount or a rule; the message says which."""


def demand(what: str, answer: int) -> None:
    """Raises KernelRefused where the `answer` of a call is not 0; `what` says what it was for."""
    if answer != 0:
        number = ctypes.get_errno()
        raise KernelRefused(number, f"{what}: {os.strerror(number)}")
