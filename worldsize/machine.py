"""How many cores and how much memory a process may really use: affinity and control groups counted in.

Left out: GPUs, which torch knows (`doctor.py` asks a rank). A container's limit is read from the kernel's control
groups (version 2, then 1), because `os.cpu_count()` answers for the whole host. The rule for cores is the one of
Python 3.13's `os.process_cpu_count()`, with the quota added.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def present_cores() -> int:
    """What this machine has: logical cores."""
    return os.cpu_count() or 1


def usable_cores(cgroup: Path = _CGROUP) -> float:
    """Cores that this process may use: the affinity mask, or the container's quota (perhaps 1.5) where lower."""
    mask = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present_cores()

    quota = _cpu_quota(cgroup)
    return min(mask, quota) if quota else mask


def memory_bytes(cgroup: Path = _CGROUP) -> tuple[int, int]:
    """(total, free) bytes: the machine's, or the container's where its limit is lower."""
    host = psutil.virtual_memory()
    limit = _number(cgroup / "memory.max") or _number(cgroup / "memory/memory.limit_in_bytes")
    if not limit or limit >= host.total:
        return host.total, host.available

    used = _number(cgroup / "memory.current") or _number(cgroup / "memory/memory.usage_in_bytes") or 0
    return limit, max(0, min(limit - used, host.available))


def _cpu_quota(cgroup: Path) -> float | None:
    words = _words(cgroup / "cpu.max")  # "150000 100000", or "max 100000"
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])

    quota = _number(cgroup / "cpu/cpu.cfs_quota_us")
    period = _number(cgroup / "cpu/cpu.cfs_period_us")
    if not quota or not period:
        return None
    return quota / period


def _number(path: Path) -> int | None:
    words = _words(path)
    if not words or not words[0].isdigit():
        return None
    return int(words[0])


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
