"""The events of a folder, as the kernel reports them to a process outside (inotify(7)): what happened to a file's name.

A file that is replaced by a rename gets its name in one step. A writer that first writes into it, renames it or removes it
leaves a moment at which a kill would tear it or lose it. Left out: writes through a map of memory or a link in another folder,
of which this folder has no event.
"""

import ctypes
import os
import struct
from contextlib import suppress
from typing import Literal

from worldsize.libc import KernelRefused, libc

Touched = Literal["", "written", "removed", "elsewhere"]

_MODIFY, _MOVED_FROM, _MOVED_TO, _DELETE, _OVERFLOW = 0x2, 0x40, 0x80, 0x200, 0x4000
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_READ_BYTES = 1 << 16


class FolderEvents:
    """The kernel's events of `folder` from now on. Raises KernelRefused where the system has no more room for watches."""

    def __init__(self, folder: str) -> None:
        self._descriptor = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        kinds = _MODIFY | _MOVED_FROM | _MOVED_TO | _DELETE
        if self._descriptor < 0 or libc.inotify_add_watch(self._descriptor, os.fsencode(folder), kinds) < 0:
            number = ctypes.get_errno()
            raise KernelRefused(number, f"events of a folder: {os.strerror(number)}")

    def touched(self, name: str) -> Touched:
        """Return what first happened to the file of this name, "" for no more than getting it from another name of its folder.

        "elsewhere" means that it came from another folder. Lost events count as "written".
        """
        wanted = os.fsencode(name)
        data = self._data()
        moves = set()  # their cookies: a move within the folder is two events
        place = 0
        while place < len(data):
            _, mask, cookie, length = _EVENT.unpack_from(data, place)
            place += _EVENT.size
            event_name = data[place : place + length].rstrip(b"\0")
            place += length

            if mask & _OVERFLOW or (event_name == wanted and mask & _MODIFY):
                return "written"
            if event_name == wanted and mask & (_MOVED_FROM | _DELETE):
                return "removed"
            if mask & _MOVED_FROM:
                moves.add(cookie)
            if event_name == wanted and mask & _MOVED_TO and cookie not in moves:
                return "elsewhere"
        return ""

    def _data(self) -> bytes:
        data = b""
        with suppress(BlockingIOError):  # all events are read
            while more := os.read(self._descriptor, _READ_BYTES):
                data += more
        return data
