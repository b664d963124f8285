"""The warden's record of a writer's folder: its files, what of them is on disk, and how often it has changed.

The folder is read through a descriptor, between the writer's calls. Content is on disk if a sync call covered it, or if
the file is written synchronously.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from worldsize.checks.drivers.killed_writer import MOST_FILES
from worldsize.grade.isolation.notifications import Call, copied

_RENAMES = ("rename", "renameat", "renameat2")
_AT_FDCWD = -100 & 0xFFFFFFFF  # the working directory, in place of a folder's descriptor
_WRITES = ("write", "writev", "pwrite64")
_ON_A_FILE = ("fsync", "fdatasync", *_WRITES)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Inode = tuple[int, int]  # device, number


class FolderRecord:
    """A folder by its descriptor, and `place`, its path as the writer knows it; the writer starts in `start`.

    `getfd` is pidfd_getfd's number. `on_disk` tells whether the data was on disk when the watched file first held it, None if
    the file never did. `elsewhere` is the folder of another file that was renamed to the watched one, "" if none was.
    """

    def __init__(self, descriptor: int, place: str, start: str, getfd: int) -> None:
        self._folder, self._place, self._start, self._getfd = descriptor, place, start, getfd
        self._disk: dict[Inode, bytes] = {}
        self._settling: Inode | None = None  # a file with a synchronous write under way
        self.changes, self.elsewhere = 0, ""
        self.on_disk: bool | None = None

    def close(self) -> None:
        os.close(self._folder)

    def put(self, files: dict[str, Any]) -> None:
        """Write files into the folder, {name: bytes as uint8}."""
        for name, data in files.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, 0o644, dir_fd=self._folder), "wb") as file:
                file.write(data.tobytes())

    def files(self) -> dict[str, np.ndarray]:
        """Return the folder's files, {name: bytes as uint8}; a subfolder has no bytes."""
        found = {}
        for name in sorted(os.listdir(self._folder))[:MOST_FILES]:
            content, _ = self._read(name)
            found[name] = np.frombuffer(content or b"", "uint8").copy()
        return found

    # ---- changes -----------------------------------------------------------------------------

    def watch(self, name: str, data: bytes) -> None:
        """Count changes of this file, and of the folder's names, from now on; `data` is what the file should get."""
        self._name, self._data = name, data
        self._seen = self._state()[0]
        self.changes = 0

    def look(self) -> bool:
        """Return whether the folder has changed since the last look."""
        self._settle()
        now, inode = self._state()
        if now == self._seen:
            return False

        self._seen = now
        self.changes += 1
        if now[0] == self._data and self.on_disk is None:
            self.on_disk = self._disk.get(inode) == self._data
        return True

    def _state(self) -> tuple[tuple[bytes | None, frozenset[str]], Inode | None]:
        content, inode = self._read(self._name)
        return (content, frozenset(os.listdir(self._folder))), inode

    def _read(self, name: str) -> tuple[bytes | None, Inode | None]:
        """Return a file's bytes and its inode; None for bytes if it is not a plain file."""
        try:
            descriptor = os.open(name, _READ, dir_fd=self._folder)
        except OSError:
            return None, None
        try:
            return content_of(descriptor), inode_of(descriptor)
        finally:
            os.close(descriptor)

    # ---- calls -------------------------------------------------------------------------------

    def note(self, call: Call, name: str) -> None:
        """Note what a call that is about to run does to what is on disk. Raises KernelRefused."""
        self._settle()
        if name in ("sync", "syncfs"):
            self._disk.update(self._plain_files())
        elif name in _RENAMES:
            # the places of each path's folder and of the path itself
            places = ((None, 0), (None, 1)) if name == "rename" else ((0, 1), (2, 3))
            source, target = (self._path(call, folder, at) for folder, at in places)
            if target == os.path.join(self._place, self._name) and os.path.dirname(source) != self._place:
                self.elsewhere = os.path.dirname(source)
        elif name in _ON_A_FILE:
            descriptor = copied(call, self._getfd)
            if descriptor is not None:
                self._note_on_file(descriptor, synced=name not in _WRITES)

    def _note_on_file(self, descriptor: int, synced: bool) -> None:
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return

            inode = inode_of(descriptor)
            if synced:
                self._disk[inode] = self._content(descriptor)
            elif fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DSYNC:
                # a synchronous write brings only its own bytes to disk
                if self._disk.get(inode, b"") == self._content(descriptor):
                    self._settling = inode
        finally:
            os.close(descriptor)

    def _settle(self) -> None:
        """Count a synchronous write as done, since its writer has made another call."""
        if self._settling is not None:
            self._disk.update(file for file in self._plain_files() if file[0] == self._settling)
            self._settling = None

    def _plain_files(self) -> Iterator[tuple[Inode, bytes]]:
        for name in os.listdir(self._folder):
            content, inode = self._read(name)
            if content is not None and inode is not None:
                yield inode, content

    def _content(self, descriptor: int) -> bytes | None:
        """Return the content of a writer's open file, which may be open for writing alone."""
        wanted = inode_of(descriptor)
        for inode, content in self._plain_files():
            if inode == wanted:
                return content

        try:
            again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return content_of(again)
        finally:
            os.close(again)

    def _path(self, call: Call, folder: int | None, at: int) -> str:
        """Return the path in a call's argument `at`; the argument `folder`, if any, is the descriptor that it begins at."""
        text = os.path.normpath(call.text_at(at))
        base = self._start

        if folder is None or call.arguments[folder] & 0xFFFFFFFF == _AT_FDCWD:
            # a writer may have changed its working directory, which nothing here tells
            if text in os.listdir(self._folder):
                base = self._place
        elif (descriptor := copied(call, self._getfd, folder)) is not None:
            base = self._place if inode_of(descriptor) == inode_of(self._folder) else "another folder"
            os.close(descriptor)
        return os.path.normpath(os.path.join(base, text))

    def goes_beyond(self, call: Call, name: str, most_bytes: int) -> bool:
        """Return whether the call would write past byte `most_bytes` of a file, where the kernel stops writing."""
        if name in ("ftruncate", "truncate"):
            return call.arguments[1] > most_bytes
        if name not in _WRITES:
            return False
        if name == "write" and call.arguments[2] == 0:
            return False

        descriptor = copied(call, self._getfd)
        if descriptor is None:
            return False
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                return False
            if name == "pwrite64":
                return call.arguments[3] >= most_bytes
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
                return about.st_size >= most_bytes
            return os.lseek(descriptor, 0, os.SEEK_CUR) >= most_bytes
        finally:
            os.close(descriptor)


def inode_of(descriptor: int) -> Inode:
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino


def content_of(descriptor: int) -> bytes | None:
    """Return all bytes of an open file, None if it is not a plain file."""
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        return None
    content = b""
    with suppress(OSError):
        while len(content) < about.st_size and (more := os.pread(descriptor, about.st_size - len(content), len(content))):
            content += more
    return content
