"""Saves whose writer is killed: each is a child process that dies at a given byte, or when its folder changes.

The kernel kills a child that writes past `k` bytes (RLIMIT_FSIZE, SIGXFSZ); on a full disk the write fails instead. To die at a
change, the child looks at its folder around every call (`sys.setprofile`) and sends itself SIGKILL. Left out: power loss, since
no process can see what is on the disk then.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from worldsize.fabric.interface import Fabric

SYNCS = ("fsync", "fdatasync", "sync")
MOST_FILES = 64  # most entries of a folder that are returned
_MEMORY = "/dev/shm"
_DESCRIPTORS = range(3, 256)  # past stdin, stdout and stderr
_SET_PDEATHSIG, _SET_DUMPABLE = 1, 4  # options of prctl(2)


def tried(fn: Callable, fabric: Fabric, scenarios: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run each scenario of a killed writer in a fresh folder; return the files left there, and how its saves ended.

    A scenario has "files", {name: bytes as uint8}, which are there at the start, and "saves" in their order: each with "name",
    "data", "dies" (None, "here": no child, ["byte", k], ["full", k] or ["change", j]) and "meets" (None, or [j, name, data]:
    another process's whole save, while this one stands still at its j-th change). A row has "files"; "before", the files before
    the last save; and "ended", which tells of each save how it ended, and whether the awaited change came. A scenario past the
    last change repeats the previous row.
    """
    # in memory no fsync waits for a disk, and it is not /tmp's file system
    in_memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    rows: list[dict[str, Any]] = []
    for scenario in scenarios:
        if rows and is_past_the_last_change(scenario, rows[-1]):
            rows.append(rows[-1])
            continue
        with tempfile.TemporaryDirectory(prefix="saves-", dir=in_memory) as folder:
            for name, data in scenario["files"].items():
                (Path(folder) / name).write_bytes(_bytes(data))
            ended = []
            for save in scenario["saves"]:
                before = _files(Path(folder))
                ended.append(_saved(fn, Path(folder), save))
            rows.append({"ended": ended, "before": before, "files": _files(Path(folder))})

    return rows


def is_noted(scenario: dict[str, Any]) -> bool:
    """Return whether the scenario needs what the answer's own process notes: its calls, and a change of its folder at each."""
    last = scenario["saves"][-1]
    return bool(last["meets"] or (last["dies"] and last["dies"][0] == "change"))


def is_past_the_last_change(scenario: dict[str, Any], before: dict[str, Any]) -> bool:
    """Return whether the scenario waits for a change after the writer's last change."""
    last = scenario["saves"][-1]
    change = last["meets"][0] if last["meets"] else 0
    if last["dies"] and last["dies"][0] == "change":
        change = last["dies"][1]
    return change > 1 and before["ended"][-1].get("changed") is False


def _saved(fn: Callable, folder: Path, save: dict[str, Any]) -> dict[str, Any]:
    path, data = folder / save["name"], _bytes(save["data"])
    if save["dies"] == "here":  # in this process, so that an error shows its line
        fn(path, data)
        return {"how": "returned"}

    if save["meets"]:
        at, name, others = save["meets"]
        return _meeting(fn, (path, data), (folder / name, _bytes(others)), int(at))

    child = _Child(lambda: _observed(fn, path, data, save["dies"]))
    return child.end()


def _observed(fn: Callable, path: Path, data: bytes, dies: Any) -> dict[str, Any]:
    """Save in the writer's child, and return what was seen if the child is not killed."""
    kind, number = dies or (None, 0)
    if kind in ("byte", "full"):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if kind == "byte" else signal.SIG_IGN)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(number), hard))
        return _called(fn, path, data)

    watch = FolderWatch(path, data, int(number), partial(os.kill, os.getpid(), signal.SIGKILL))
    return watch.over(fn) | {"on_disk": watch.on_disk, "elsewhere": watch.elsewhere, "changed": False}


def _meeting(fn: Callable, paused_save: tuple[Path, bytes], other: tuple[Path, bytes], at: int) -> dict[str, Any]:
    """Stop `paused_save` at its change number `at`, save `other` meanwhile, then let the first go on. Return how both ended."""
    (stands, stood), (goes, gone) = os.pipe(), os.pipe()

    def stand_still() -> None:
        os.write(stood, b"!")
        os.read(goes, 1)

    def work() -> dict[str, Any]:
        os.close(stands)
        os.close(gone)
        return FolderWatch(*paused_save, at, stand_still).over(fn)

    first = _Child(work)
    os.close(stood)
    os.close(goes)
    stood_still = os.read(stands, 1)  # empty if the child ended before the change
    second = _Child(lambda: _called(fn, *other)).end()
    with suppress(BrokenPipeError):
        os.write(gone, b"!")
    ended = first.end()
    os.close(stands)
    os.close(gone)
    return ended | {"other": second, "changed": bool(stood_still)}


def _called(fn: Callable, path: Path, data: bytes) -> dict[str, Any]:
    try:
        fn(path, data)
    except Exception as error:
        return {"how": "raised", "error": f"{type(error).__name__}: {str(error)[:200]}".replace(f"{path.parent}{os.sep}", "")}
    return {"how": "returned"}


class _Child:
    """A writer's process that does `work` and reports the result, unless it is killed."""

    def __init__(self, work: Callable[[], dict[str, Any]]) -> None:
        self._reads, writes = os.pipe()
        with warnings.catch_warnings():  # fork with threads warns, but the child runs only the save
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = os.fork()
        if self._process == 0:
            try:
                libc = ctypes.CDLL(None)
                libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # no child outlives its parent
                libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # death by SIGXFSZ writes no core
                os.write(writes, json.dumps(work()).encode())
            finally:
                os._exit(0)
        os.close(writes)

    def end(self) -> dict[str, Any]:
        with os.fdopen(self._reads, "rb") as file:
            report = file.read()
        _, status = os.waitpid(self._process, 0)
        if os.WIFSIGNALED(status):
            return {"how": "killed"}
        return json.loads(report or b'{"how": "left"}')


class FolderWatch:
    """A watch on a save's folder around every call, which counts changes of the file's bytes or of the folder's names.

    `on_disk`: whether the data were synced when the file first had them; None if it never had them. `elsewhere`: the folder of
    another file that was renamed to `path`, "" for its own folder. Calls `then` at change number `at`, from 1; 0 is none.
    """

    def __init__(self, path: Path, data: bytes, at: int, then: Callable[[], None]) -> None:
        self._path, self._data = path, data
        self._seen = self._look()
        self._synced: set[tuple[int, int]] = set()  # (device, inode)
        self._own_code: set[CodeType] = set()
        self._all_synced = False
        self._at, self._then = at, then
        self.changes, self.elsewhere = 0, ""
        self.on_disk: bool | None = None

    def over(self, fn: Callable) -> dict[str, Any]:
        """Run a writer's save, watched, in a process that ends soon: an audit hook cannot be removed."""
        sys.addaudithook(self._audit)
        for name in ("fsync", "fdatasync"):
            if isinstance(getattr(os, name), BuiltinFunctionType):
                setattr(os, name, self._seen_by_number(getattr(os, name)))
        sys.setprofile(self._profile)
        try:
            return _called(fn, self._path, self._data)
        finally:
            sys.setprofile(None)

    def _seen_by_number(self, sync: Callable[[Any], None]) -> Callable[[Any], None]:
        """Wrap a writer's sync function so that it notes the file: a profile does not get the arguments of C functions."""

        def synced(fd: Any) -> None:
            sync(fd)
            self._note_synced([fd if isinstance(fd, int) else fd.fileno()])

        self._own_code.add(synced.__code__)
        return synced

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        name = getattr(arg, "__name__", "") if event == "c_call" and frame.f_code not in self._own_code else ""
        if name == "sync":
            sizes = [p.stat().st_size for p in self._path.parent.iterdir() if p.is_file()]
            self._all_synced = len(self._data) in sizes
        elif name in SYNCS:  # called by the answer's own name, as after `from os import fsync`: it may mean any open file
            self._note_synced(_DESCRIPTORS)
        now = self._look()
        if now == self._seen:
            return

        self._seen, self.changes = now, self.changes + 1
        if now[0] == self._data and self.on_disk is None:
            self.on_disk = self._all_synced or _which(os.stat(self._path)) in self._synced
        if self.changes == self._at:
            self._then()

    def _look(self) -> tuple[bytes | None, frozenset[str]]:
        content = None
        with suppress(OSError):
            content = self._path.read_bytes()
        return content, frozenset(os.listdir(self._path.parent))

    def _note_synced(self, descriptors: Iterable[int]) -> None:
        """Note the regular files among `descriptors` that are as long as the data, so that the kernel has all of it."""
        for descriptor in descriptors:
            with suppress(OSError):
                found = os.fstat(descriptor)
                if stat.S_ISREG(found.st_mode) and found.st_size == len(self._data):
                    self._synced.add(_which(found))

    def _audit(self, event: str, args: tuple) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & os.O_DSYNC:
            self._all_synced = True  # every write waits for the disk
        if event == "os.rename" and args[2] == -1:
            source, target = (Path(os.path.abspath(os.fsdecode(name))) for name in args[:2])
            if target == self._path and source.parent != target.parent:
                self.elsewhere = str(source.parent)


def _which(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _bytes(data: Any) -> bytes:
    return np.asarray(data, "uint8").tobytes()


def _files(folder: Path) -> dict[str, np.ndarray]:
    """Return {name: bytes as uint8} of the first MOST_FILES entries of a writer's folder; a subfolder has no bytes."""
    files = {}
    for path in sorted(folder.iterdir())[:MOST_FILES]:
        content = path.read_bytes() if path.is_file() else b""
        files[path.name] = np.frombuffer(content, "uint8").copy()
    return files
