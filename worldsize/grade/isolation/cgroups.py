"""A cgroup for a submission's processes (cgroups(7)), in which the kernel itself limits memory and tasks.

A cgroup is made only below this process's own, if that is the machine's root, a container's, or handed over to this
user: a service's or session's has another keeper. A server joins after its imports, so that only later memory and forks
count.
"""

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from worldsize.grade.isolation.limits import Limits, descendants

_SELF = Path("/proc/self")
_NAME = re.compile(r"worldsize-(\d+)-(\d+)-\d+")  # the process that made it, and when that started
_LEAF = "worldsize-grader"  # for processes, which may not be beside cgroups with limits
_NEWER = ("memory", "pids")  # the controllers, by their names in both versions
_ROOM = 1.5  # the watch, with its messages, should come first; and pages copied from the server count only here
_ROOM_TASKS = 500  # for the servers themselves
_EMPTY_S = 2.0  # for the processes of a closed cgroup to end

CgroupVersion = Literal[1, 2]


@dataclass(frozen=True)
class Hierarchy:
    """A hierarchy of cgroups: `home` is the folder in which to make cgroups, `controllers` what they limit."""

    version: CgroupVersion
    home: Path
    controllers: tuple[str, ...]


class SandboxCgroup:
    """The cgroup of a sandbox: one folder in every hierarchy that allows it, made when the first process joins."""

    _numbers = itertools.count(1)

    def __init__(self, limits: Limits, hierarchies: Callable[[], tuple[Hierarchy, ...]] | None = None) -> None:
        self._limits = limits
        self._hierarchies = hierarchies or available
        self._folders: list[tuple[Hierarchy, Path]] = []
        self._asked = False
        self._kills = 0

    def take_in(self, process: int) -> None:
        """Put a process into this cgroup, with all that it starts from now on."""
        if not self._asked:
            self._asked = True
            remove_left_behind()
            name = f"worldsize-{os.getpid()}-{_started(os.getpid())}-{next(self._numbers)}"
            for hierarchy in self._hierarchies():
                with suppress(OSError):  # `LimitsWatch` still applies
                    self._make(hierarchy, hierarchy.home / name)
        for _, folder in self._folders:
            with suppress(OSError):
                (folder / "cgroup.procs").write_text(str(process))

    def _make(self, hierarchy: Hierarchy, folder: Path) -> None:
        folder.mkdir()
        self._folders.append((hierarchy, folder))
        if "pids" in hierarchy.controllers:
            (folder / "pids.max").write_text(str(self._limits.threads + _ROOM_TASKS))

        if "memory" in hierarchy.controllers:
            memory_bytes = int(self._limits.memory_bytes * _ROOM)
            limit, with_swap, swap_bytes = _MEMORY_FILES[hierarchy.version]
            (folder / limit).write_text(str(memory_bytes))
            with suppress(OSError):  # a kernel that does not count swap
                (folder / with_swap).write_text(str(memory_bytes if swap_bytes is None else swap_bytes))

    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel has killed a process in the cgroup, for its memory, since the last call."""
        before, self._kills = self._kills, 0
        for hierarchy, folder in self._folders:
            with suppress(OSError):
                for row in (folder / _EVENTS[hierarchy.version]).read_text().splitlines():
                    if row.startswith("oom_kill "):
                        self._kills += int(row.split()[1])
        return self._kills > before

    def peak_bytes(self) -> int | None:
        """Return the most memory that the cgroup used at once, None if the kernel does not count it."""
        for hierarchy, folder in self._folders:
            with suppress(OSError):
                return int((folder / _PEAK[hierarchy.version]).read_text())
        return None

    def close(self) -> None:
        """Remove the cgroup, once its processes have ended."""
        for _, folder in self._folders:
            _remove(folder, _EMPTY_S)
        self._folders = []
        self._asked = False
        self._kills = 0


# memory's limit, the limit that counts swap, and its value if it is not the same
_MEMORY_FILES: dict[CgroupVersion, tuple[str, str, int | None]] = {
    1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", None),
    2: ("memory.max", "memory.swap.max", 0),
}
_PEAK: dict[CgroupVersion, str] = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
_EVENTS: dict[CgroupVersion, str] = {1: "memory.oom_control", 2: "memory.events"}


@cache
def available() -> tuple[Hierarchy, ...]:
    """Return the hierarchies where this process may make cgroups with limits; cached.

    With version 2, processes of this grading may be moved into a leaf for that (`_can_limit`).
    """
    return tuple(found for found in homes() if found.version == 1 or _can_limit(found.home))


@cache
def homes() -> tuple[Hierarchy, ...]:
    """Return the hierarchies that may hold this grading's cgroups, and change nothing."""
    return tuple(_found())


def _found() -> Iterator[Hierarchy]:
    paths = {}  # this process's path in each hierarchy, by controller; "" is the key of version 2
    try:
        for row in (_SELF / "cgroup").read_text().splitlines():
            _, controllers, path = row.split(":", 2)
            paths |= dict.fromkeys(controllers.split(","), path)
        mounts = (_SELF / "mountinfo").read_text().splitlines()
    except OSError:
        return

    for row in mounts:
        fields, _, more = row.partition(" - ")
        root, folder = fields.split()[3:5]
        kind, _, options = more.split()[:3]
        if kind not in ("cgroup", "cgroup2"):
            continue

        version: CgroupVersion = 2 if kind == "cgroup2" else 1
        controllers = tuple(name for name in _NEWER if version == 2 or name in options.split(","))
        path = paths.get(controllers[0] if version == 1 and controllers else "", "")
        home = _handed_over(Path(folder), root, path)
        if home is not None and controllers:
            yield Hierarchy(version, home, controllers)


def _handed_over(mount: Path, root: str, path: str) -> Path | None:
    """Return the folder of this process's cgroup if it may keep cgroups there, else None."""
    if path == root:
        home = mount
    elif Path(path).is_relative_to(root):
        home = mount / Path(path).relative_to(root)
    else:
        return None

    if home.name == _LEAF:
        home = home.parent

    if not os.access(home, os.W_OK) or not os.access(home / "cgroup.procs", os.W_OK):
        return None
    if home == mount or _is_delegated(home):
        return home
    return None


def _is_delegated(home: Path) -> bool:
    """Return whether the cgroup's folder is the user's own or, for root, has systemd's attribute (`Delegate=`)."""
    if os.getuid() != 0:
        return home.stat().st_uid == os.getuid()
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            return os.getxattr(home, name) == b"1"
    return False


def _can_limit(home: Path) -> bool:
    """Return whether cgroups of version 2 in `home` can have limits, which allows no process beside them.

    If all processes there are this grading's, they move into a leaf; otherwise none moves.
    """
    try:
        if not set(_NEWER) <= set((home / "cgroup.controllers").read_text().split()):
            return False
        if set(_NEWER) <= set((home / "cgroup.subtree_control").read_text().split()) or _enable(home):
            return True

        beside = {int(word) for word in (home / "cgroup.procs").read_text().split()}
        if not beside <= {os.getppid(), *descendants(os.getppid())}:
            return False

        (home / _LEAF).mkdir(exist_ok=True)
        for process in beside:
            (home / _LEAF / "cgroup.procs").write_text(str(process))
    except OSError:
        return False
    return _enable(home)


def _enable(home: Path) -> bool:
    try:
        (home / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _NEWER))
    except OSError:
        return False
    return True


def remove_left_behind(wait_s: float = 0.0) -> None:
    """Remove the cgroups of processes that ended without doing so; wait up to `wait_s` for each to empty."""
    for hierarchy in homes():
        for folder in hierarchy.home.glob("worldsize-*-*-*"):
            name = _NAME.fullmatch(folder.name)
            if name and _started(int(name[1])) != int(name[2]):
                _remove(folder, wait_s)


def _remove(folder: Path, wait_s: float) -> None:
    """Remove a cgroup as soon as it is empty; leave it after `wait_s` seconds."""
    until_s = time.monotonic() + wait_s

    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() >= until_s:
                return
            time.sleep(0.01)
        else:
            return


def _started(process: int) -> int:
    """Return a cgroup process's start in ticks after boot, -1 if there is no such process or only a zombie."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    # proc(5): the state is field 3, starttime field 22
    return int(fields[19]) if fields[0] not in "ZX" else -1
