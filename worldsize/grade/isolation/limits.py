"""Limits on a submission and their watch: time, processor, memory, processes, threads and bytes of all its ranks.

The kernel keeps some limits for each process (`privileges`); a submission as a whole is metered from outside, because
many processes within their limits are still too much. Memory is a process's own (RssAnon and RssShmem), beyond the
server's pages that a rank begins with.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_S = 0.1
MOST_PROCESSES = 128  # of one rank
MOST = 6.0  # times a limit in seconds: no run lasts longer, however busy the machine


@dataclass(frozen=True)
class Limits:
    """The limits of a submission: `case_s`, `held_bytes` and `result_bytes` for one run of a function on all its ranks.

    `tmp_bytes` is for each folder and file; the others are for the whole submission.
    """

    case_s: float = 10.0
    wall_s: float = 150.0
    cpu_s: float = 150.0
    memory_bytes: int = 2_000_000_000
    processes: int = 150
    threads: int = 3_000  # a TensorFlow cluster has some hundreds
    carried_bytes: int = 400_000_000  # messages, results and calls, together
    held_bytes: int = 64_000_000  # messages not taken yet, and frames on their way
    result_bytes: int = 48_000_000  # of all ranks of one run
    tmp_bytes: int = 64_000_000

    @property
    def playing(self) -> Limits:
        """Return the limits of everything played in simulated time, which takes no seconds from real ranks."""
        return replace(self, wall_s=self.wall_s / 3, cpu_s=self.cpu_s / 3)


@dataclass
class Meter:
    """The limited resources that a submission has used. `lost_s` are seconds that other work took from its ended runs.

    `lost_now` returns the seconds lost by the current run.
    """

    limits: Limits
    began_s: float = field(default_factory=time.monotonic)
    cpu_s: float = 0.0
    carried_bytes: int = 0
    lost_s: float = 0.0
    lost_now: Callable[[], float] = lambda: 0.0

    @property
    def left_s(self) -> float:
        """Return the seconds left of the limit, on a machine of the submission's own."""
        most_lost_s = (MOST - 1) * self.limits.wall_s
        left_s = self.began_s + self.limits.wall_s - time.monotonic()
        if left_s + min(self.lost_s, most_lost_s) > 0:  # `lost_now` is costly, and not needed
            return left_s + min(self.lost_s, most_lost_s)
        return left_s + min(self.lost_s + self.lost_now(), most_lost_s)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude from the limit the enclosed time, which is the grader's, not the submission's."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.began_s += time.monotonic() - began_s

    def too_much(self, servers: Sequence[int]) -> str:
        """Return a message on what is over its limit, "" if nothing is. All ranks descend from `servers`."""
        limits = self.limits
        if self.left_s <= 0:
            return f"the whole submission took more than {limits.wall_s:g} s"
        if self.carried_bytes > limits.carried_bytes:
            return f"more than {limits.carried_bytes / 1e6:g} MB exchanged with the grader"

        used = usage(servers)
        if used.processes > limits.processes:
            return f"more than {limits.processes} processes at once"
        if used.threads > limits.threads:
            return f"more than {limits.threads} threads at once"
        if used.own_bytes > limits.memory_bytes:
            return self.too_much_memory()
        if self.cpu_s + used.cpu_s > limits.cpu_s:
            return f"more than {limits.cpu_s:g} s of processor time"
        return ""

    def too_much_memory(self) -> str:
        """Return the message that the watch and the kernel (`cgroups`) share."""
        return f"more than {self.limits.memory_bytes / 1e9:g} GB of memory"


class LimitsWatch:
    """A context with a thread that checks the limits, and kills every process below the `servers` if one is broken.

    `message` is "" until then, and afterwards says which limit.
    """

    def __init__(self, meter: Meter, servers: Callable[[], Sequence[int]]) -> None:
        self._meter = meter
        self._servers = servers
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.message = ""

    def __enter__(self) -> LimitsWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.is_set():
            servers = self._servers()
            self.message = self._meter.too_much(servers)
            if self.message:
                for process in chain.from_iterable(map(descendants, servers)):
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(process, signal.SIGKILL)
                return
            self._over.wait(_LOOK_S)


@dataclass(frozen=True)
class Usage:
    """The limited resources that the processes below some servers use together."""

    processes: int = 0
    threads: int = 0
    own_bytes: int = 0
    cpu_s: float = 0.0


def usage(servers: Sequence[int]) -> Usage:
    """Return, to limit them, the processes, threads, memory and CPU time of all that runs below the `servers` now.

    A process that ends meanwhile counts as nothing.
    """
    processes = threads = own_bytes = 0
    cpu_s = 0.0
    for server in servers:
        base, _ = _memory_and_threads(server)
        below = descendants(server)
        for process in below:
            its_bytes, its_threads = _memory_and_threads(process)
            own_bytes += max(0, its_bytes - base)
            threads += its_threads
        processes += len(below)
        cpu_s += sum(map(_cpu_s, below))
    return Usage(processes, threads, own_bytes, cpu_s)


def descendants(process: int) -> list[int]:
    """Return every live process below this one, to limit it."""
    processes: list[int] = []
    todo = [process]

    while todo:
        threads = _PROC / str(todo.pop()) / "task"
        try:  # each thread's file lists the processes that it started
            texts = [(threads / name / "children").read_text() for name in os.listdir(threads)]
        except OSError:
            continue

        children = list(map(int, " ".join(texts).split()))
        processes += children
        todo += children
    return processes


def _memory_and_threads(process: int) -> tuple[int, int]:
    """Return for the watch a process's own memory in bytes and its number of threads; 0, 0 if it is gone."""
    try:
        rows = (_PROC / str(process) / "status").read_text().splitlines()
    except OSError:
        return 0, 0

    kept = dict(row.split(":", 1) for row in rows if row.startswith(("RssAnon:", "RssShmem:", "Threads:")))
    kilobytes = [int(kept.get(name, "0").split()[0]) for name in ("RssAnon", "RssShmem")]
    return 1024 * sum(kilobytes), int(kept.get("Threads", "0"))


def _cpu_s(process: int) -> float:
    """Return for the watch the processor time of a process and of its ended children."""
    try:
        fields = (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS  # utime, stime, cutime, cstime


def limit(address_bytes: int, cpu_s: int, file_bytes: int) -> None:
    """Set the limits (setrlimit) that the kernel keeps for each process of a rank."""
    limits = {
        resource.RLIMIT_AS: address_bytes,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        limit_one(kind, most)


def limit_one(kind: int, most: int) -> None:
    """Set one of the kernel's limits, but never above the present hard limit."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))


def size_bytes() -> int:
    """Return this process's address space, to which its limit is added; needs a readable /proc."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
