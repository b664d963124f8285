"""The cores and the memory that a process may really use, under affinity, control groups and a hub's limits.

A container's limit is read from the kernel's control groups (version 2, then 1), because `os.cpu_count()` answers for the whole
host. JupyterHub's `CPU_LIMIT` (cores) and `MEM_LIMIT` (bytes) count even if the control groups do not show them. The rule for
cores is Python 3.13's `os.process_cpu_count()`, plus quota and hub. `doctor.py` asks a rank about GPUs.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def present_cores() -> int:
    """Return this machine's number of logical cores."""
    return os.cpu_count() or 1


def usable_cores(cgroup: Path = _CGROUP) -> float:
    """Return the cores that this process may use: the affinity mask, or a container's or hub's quota (perhaps 1.5) if lower."""
    mask = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present_cores()
    return min(filter(None, (mask, _cpu_quota(cgroup), _granted("CPU_LIMIT"))))


def memory_bytes(cgroup: Path = _CGROUP) -> tuple[int, int]:
    """Return (total, free) bytes: the machine's, or the container's or hub's if that limit is lower."""
    import psutil  # here, because an agent may start without psutil

    host = psutil.virtual_memory()
    of_container = _number(cgroup / "memory.max") or _number(cgroup / "memory/memory.limit_in_bytes")
    limit = int(min(filter(None, (of_container, _granted("MEM_LIMIT"))), default=0))
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


def _granted(variable: str) -> float | None:
    """Return the value of JupyterHub's variable, or None unless it is a positive number."""
    try:
        said = float(os.environ.get(variable, ""))
    except ValueError:
        return None
    return said if 0 < said < math.inf else None


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
