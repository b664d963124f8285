"""The cores and the memory that a process may really use, under affinity, control groups and a hub's limits.

A container's limit is read from the kernel's control groups (version 2, then 1), because `os.cpu_count()` answers for the whole
host. JupyterHub's `CPU_LIMIT` (cores) and `MEM_LIMIT` (bytes) count even if the control groups do not show them. The rule for
cores is Python 3.13's `os.process_cpu_count()`, plus quota and hub. `doctor.py` asks a rank about GPUs.
"""

import math
import os
from contextlib import suppress
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def present_cores() -> int:
    """Return this machine's number of logical cores."""
    return os.cpu_count() or 1


def usable_cores(cgroup: Path = _CGROUP) -> float:
    """Return the cores that this process may use: the affinity mask, or a container's or hub's quota (perhaps 1.5) if lower."""
    mask = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present_cores()
    quota, period = _number(cgroup / "cpu/cpu.cfs_quota_us"), _number(cgroup / "cpu/cpu.cfs_period_us")
    with suppress(OSError, ValueError):
        quota, period = map(int, (cgroup / "cpu.max").read_text().split())  # "150000 100000", or "max 100000"

    limits = [mask, _granted("CPU_LIMIT")]
    if quota and period:
        limits.append(quota / period)
    return min(filter(None, limits))


def memory_bytes(cgroup: Path = _CGROUP) -> tuple[int, int]:
    """Return (total, free) bytes: the machine's, or the container's or hub's if that limit is lower."""
    import psutil  # here, because an agent may start without psutil

    host = psutil.virtual_memory()
    of_container = _number(cgroup / "memory.max", cgroup / "memory/memory.limit_in_bytes")
    limit = int(min(filter(None, (of_container, _granted("MEM_LIMIT"))), default=0))
    if not 0 < limit < host.total:
        return host.total, host.available

    used = _number(cgroup / "memory.current", cgroup / "memory/memory.usage_in_bytes")
    return limit, max(0, min(limit - used, host.available))


def _granted(variable: str) -> float | None:
    """Return the machine's limit in JupyterHub's variable, or None unless it is a positive number."""
    try:
        said = float(os.environ.get(variable, ""))
    except ValueError:
        return None
    return said if 0 < said < math.inf else None


def _number(*paths: Path) -> int:
    """Return the number in the first of the machine's files that holds one above 0; 0 if none does."""
    for path in paths:
        with suppress(OSError, ValueError):
            number = int(path.read_text())
            if number > 0:
                return number
    return 0
