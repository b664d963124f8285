"""CPU seconds of a process and everything that descends from it, also of processes that outlive their parents.

A process's own counters leave out children that nobody waited for, and a fork server's ranks outlive the test that asked for
them. So a thread reads `/proc` several times a second, remembers who descends from whom, and counts a process until it ends.
A process without a parent is recognised by the worker's name in its environment. Left out: what an orphan with another
environment uses, and the last moment of one that ends between two looks. Source: proc(5), fields of `/proc/[pid]/stat`.
"""

import os
import threading
from dataclasses import dataclass
from os import listdir  # tests replace the module's while this looks

_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_S = 0.3


@dataclass
class _Process:
    """A process as it was last seen: its parent, its start in ticks, the ticks that it and its waited-for children used."""

    parent: int
    start: int
    own: int
    waited_for: int

    @property
    def ticks(self) -> int:
        return self.own + self.waited_for


class TreeCpu:
    """A count of the CPU seconds of process `root` and its descendants since this object was made.

    `mark` is text in the environment of descendants, such as "PYTEST_XDIST_WORKER=gw0"; "" looks at no environment.
    """

    def __init__(self, root: int | None = None, mark: str = "") -> None:
        self._root = root or os.getpid()
        self._mark = mark.encode()
        self._known: dict[int, _Process] = {}
        self._strangers: set[tuple[int, int]] = set()  # (process, start) of others' processes
        self._ticks = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._look()
        self._ticks = 0
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._thread.start()

    def seconds(self) -> float:
        """Return the seconds until now."""
        self._look()
        return self._ticks / _TICKS

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        with self._lock:
            seen = _processes()
            before, self._known = self._known, self._members(seen)
            gained: dict[int, int] = {}  # ticks of waited-for children, by the process that waited
            for number, now in self._known.items():
                last = before.get(number)
                if last is None or last.start != now.start:
                    last = _Process(0, 0, 0, 0)
                self._ticks += now.ticks - last.ticks
                gained[number] = now.waited_for - last.waited_for
            self._forget_twice_counted(before, gained)

    def _members(self, seen: dict[int, _Process]) -> dict[int, _Process]:
        """Return the root's descendants among the processes `seen`, and those that descended from it when last seen."""
        members: dict[int, bool] = {}

        def belongs(number: int) -> bool:
            if number not in members:
                members[number] = False  # ends a circle, which reused numbers could make
                members[number] = self._belongs(number, seen, belongs)
            return members[number]

        return {number: process for number, process in seen.items() if belongs(number)}

    def _belongs(self, number: int, seen: dict[int, _Process], belongs) -> bool:
        process = seen[number]
        known = self._known.get(number)
        if number == self._root or (known is not None and known.start == process.start):
            return True
        if process.parent in seen and belongs(process.parent):
            return True
        return self._has_mark(number, process)

    def _has_mark(self, number: int, process: _Process) -> bool:
        """Return whether a process without a living parent of ours carries the mark; each process is asked once."""
        if not self._mark or process.parent > 1 or (number, process.start) in self._strangers:
            return False
        try:
            found = self._mark in _read(f"/proc/{number}/environ").split(b"\0")
        except OSError:
            found = False
        if not found:
            self._strangers.add((number, process.start))
        return found

    def _forget_twice_counted(self, before: dict[int, _Process], gained: dict[int, int]) -> None:
        """Take back the ticks of ended processes that a parent of ours has waited for, and so has among its own now."""
        ended = {number: last.ticks for number, last in before.items() if self._is_gone(number, last)}
        for number in sorted(ended, key=lambda number: before[number].start, reverse=True):  # children before parents
            parent = before[number].parent
            if parent in ended:
                ended[parent] += ended[number]
            elif parent in gained and gained[parent] >= ended[number]:
                gained[parent] -= ended[number]
                self._ticks -= ended[number]

    def _is_gone(self, number: int, last: _Process) -> bool:
        now = self._known.get(number)
        return now is None or now.start != last.start


def _processes() -> dict[int, _Process]:
    """Return every process on this machine by its number; one that ends meanwhile is left out."""
    found = {}
    for name in listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
        except OSError:
            continue
        own, waited_for = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        found[int(name)] = _Process(int(fields[1]), int(fields[19]), own, waited_for)
    return found


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)  # `open` may be a test's, too
    try:
        return os.read(descriptor, 1 << 20)
    finally:
        os.close(descriptor)
