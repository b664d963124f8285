"""Where a process' memory lies: arranged once in a server, so that what its ranks map later is in one stretch of addresses.

A futex in a file that several processes map is the same for all of them (futex(2)), however read-only the file is:
waiters can be counted across every wall. A rank maps no files, and its filter refuses shared futexes outside the
stretch in which all that it maps itself lies. Left out: the filter (`seccomp`).
"""

from __future__ import annotations

import ctypes
import mmap
import resource
from itertools import pairwise
from typing import NamedTuple

from worldsize.engines.libc import libc

_PAGE = mmap.PAGESIZE
_LARGEST, _SMALLEST = 1 << 34, _PAGE
_STACK_BYTES = 8 << 20
_MOST_PIECES = 20_000


class NewMemory(NamedTuple):
    """All that is mapped from now on lies at `low` or above, and below `high`."""

    low: int
    high: int


def expect_stack_limit() -> None:
    """To be called before a server starts: without a limit on its stack the kernel maps upwards from the middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, hard))


def separate() -> NewMemory:
    """Fill every gap between what is mapped now, so that new memory comes below all of it.

    The fillers are pages that nobody can use, and cost none. Raises RuntimeError where the kernel maps otherwise.
    """
    low, high = _stretch()
    piece = _LARGEST
    for _ in range(_MOST_PIECES):
        place = _map(piece)
        if place + piece <= high:
            _munmap(place, piece)
            piece //= 2
        if piece < _SMALLEST:
            return NewMemory(low, high)
    raise RuntimeError("a sandbox' memory: expected the kernel to map new memory below what there is, and it does not")


def _stretch() -> tuple[int, int]:
    """Of the largest gap in what is mapped, the middle and the upper end."""
    with open("/proc/self/maps") as file:
        mapped = [tuple(int(word, 16) for word in line.split()[0].split("-")) for line in file if "[vsyscall]" not in line]
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]

    gaps = []
    for (_, end), (start, _) in pairwise(sorted(mapped)):
        gaps.append((start - end, end, start))
    size, end, start = max(gaps)
    if size < 2 * stack:
        raise RuntimeError("a sandbox' memory: expected a gap in it, got none")
    return (end + size // 2) // _PAGE * _PAGE, start


def _map(size: int) -> int:
    place = _mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if place in (None, _FAILED):
        raise RuntimeError(f"a sandbox' memory: expected {size} bytes of addresses, got none")
    return place


_mmap, _munmap = libc.mmap, libc.munmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = 2**64 - 1
